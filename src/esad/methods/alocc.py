r"""ALOCC (Sabokrou et al. 2018): a network that repairs pictures of the normal class, and a judge of what it makes.

    x~_i = clip(x_i + sigma e_i),   e_i ~ N(0, I)                                                       Eq. (1)
    R(x) = sigmoid(Dec(Enc(x)))                                                                         Eq. (2)
    D(x) = sigmoid(Judge(x))                                                                            Eq. (3)

    L_D  = - 1/n sum_i [log D(x_i) + log(1 - D(R(x~_i)))]                                               Eq. (4)
    L_R  = - 1/n sum_i log D(R(x~_i)) + lambda_repair / (n d) sum_i BCE(R(x~_i), x_i)                   Eq. (5)

    S(x) = - log D(R(x))                                                                                Eq. (6)

==================  =========================================================================================
i = 1 .. n          unlabelled and normal pictures; known anomalies are left out
Enc, Dec            strided and transposed convolutions; the deepest map is the code
clip                to [0, 1]
BCE(a, b)           - sum over pixels of b log a + (1 - b) log(1 - a)
d                   pixels times channels
==================  =========================================================================================

A step is one move of D on L_D and two of R on L_R, with RMSProp. This is the authors' public code, but for these:

- They keep the weights of the epoch that does best on the test set. Here the last ones are kept: no truth is looked at.
  The ranking swings from step to step (docs/methods.md), so that it is partly chance how well those rank.
- Their code scores pictures by D(x), their text, as here, by D(R(x)).
- They repair towards the noisy picture. The cross-entropy is linear in its target, so that its mean over the noise is
  that of the clean one. They also take the picture, tanh(h), for a logit; here h is the logit, the picture its sigmoid.
- Their batch norm looks at the pictures that are scored together, here at those of the training alone.
- The first convolution of Enc has no batch norm, and noise is drawn anew in every move.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from esad.core.arguments import NOT_NEGATIVE, parameter, with_parameters
from esad.detectors.standard import GAME, AdversarialDetector
from esad.networks.dcgan import DCGANDecoder, DCGANEncoder
from esad.networks.layers import inference
from esad.networks.spec import NetworkSpec
from esad.train.adversarial import deception_loss, judge_loss
from esad.train.objective import Batch, Move, Objective, Scorer

__all__ = ["ALOCC"]

KERNEL = 5


@with_parameters
class ALOCC(AdversarialDetector):
    """How little a judge believes a picture that a denoising autoencoder has repaired.

    Parameters
    ----------
    sigma : float
        Deviation of the noise that is added to pictures, whose pixels are within [0, 1].
    lambda_repair : float
        Weight of the cross-entropy between a picture and what it is repaired to.
    hidden, latent : sequence of int and int, or "auto"
        Channels of the levels, and of the code, which is one level deeper. Auto: (32, 64), a quarter
        of that on a CPU, and 128.
    lr : float or "auto"
        Of RMSProp. Auto: 2e-3.
    n_epochs : int or "auto"
        Auto: 40, less on large data.
    ... : those of `AdversarialDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> detector = ALOCC(hidden=(4,), latent=4, n_epochs=3, random_state=0).fit(pictures)
    >>> detector.anomaly_score(pictures).shape
    (40,)
    """

    summary = "ALOCC: a judge of pictures that an autoencoder has repaired (Sabokrou et al. 2018)"
    auto_hidden = (32, 64)
    auto_epochs = 40
    learning_rates: ClassVar[dict[str, float]] = {"images": 2e-3}
    loop: ClassVar[dict[str, Any]] = GAME | {"optimizer": "rmsprop", "beta_2": 0.9}

    sigma: float = parameter(default=0.155, allowed=NOT_NEGATIVE)
    lambda_repair: float = parameter(default=0.2, allowed=NOT_NEGATIVE)

    def _objective(self, spec: NetworkSpec) -> Objective:
        return ALOCCObjective(spec, sigma=self.sigma, lambda_repair=self.lambda_repair)


class ALOCCObjective(Objective):
    """An autoencoder that repairs, and a judge that is a level deeper and at every level half as wide."""

    def __init__(self, spec: NetworkSpec, *, sigma: float, lambda_repair: float) -> None:
        super().__init__()
        self.n_members, self.sigma, self.lambda_repair = spec.n_members, sigma, lambda_repair
        widths = (*spec.hidden, spec.latent)
        half = [max(1, width // 2) for width in widths]
        up = (*half[:-1], spec.latent)
        self.encoder = DCGANEncoder(spec.picture, widths, n_members=spec.n_members, kernel=KERNEL)
        self.decoder = DCGANDecoder(spec.picture, up, n_members=spec.n_members, kernel=KERNEL)
        self.judge = DCGANEncoder(spec.picture, (*half, spec.latent), (1,), n_members=spec.n_members, kernel=KERNEL)

    def moves(self) -> tuple[Move, ...]:
        """One of the judge, two of the autoencoder."""
        repair = Move(self.loss, (self.encoder, self.decoder))
        return Move(self.judge_loss, (self.judge,)), repair, repair

    def judge_loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (4), (members,)."""
        repaired = self._repair(batch).sigmoid()
        return {"judge": judge_loss(self.judge(batch.unlabelled), self.judge(repaired))}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (5), (members,)."""
        logits = self._repair(batch)
        error = F.binary_cross_entropy_with_logits(logits, batch.unlabelled, reduction="none")
        return {
            "deception": deception_loss(self.judge(logits.sigmoid())),
            "repair": self.lambda_repair * error.flatten(1).mean(1),
        }

    def _repair(self, batch: Batch) -> Tensor:
        """Eqs. (1) and (2), as logits."""
        x = batch.unlabelled
        noisy = (x + self.sigma * batch.random.normal(*x.shape[1:])).clamp(0, 1)
        return self.decoder(self.encoder(noisy))

    def scorer(self) -> Scorer:
        """A function giving Eq. (6), (members, batch)."""
        judge, rebuild = inference(self.judge), self.rebuilder()
        return lambda x: {"disbelief": F.softplus(-judge(rebuild(x)))[..., 0]}

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving R(x), (members, batch, *features)."""
        encode, decode = inference(self.encoder), inference(self.decoder)
        return lambda x: decode(encode(x[None])).sigmoid()
