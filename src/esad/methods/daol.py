r"""DAOL (Tang et al. 2019), deep adversarial one-class learning, as we read its abstract: rebuild what looks normal.

    z = Enc1(x),   x^ = Gen(z),   z^ = Enc2(x^),   u ~ N(0, I)                                          Eq. (1)

    L_1   = - 1/n sum_i log D_x(x^_i)              a rebuilt picture passes for a real one              Eq. (2)
    L_2   = - 1/n sum_i log D_x(Gen(u_i))          so does one that was made from nothing               Eq. (3)
    L_3   = - 1/n sum_i log D_z(z_i)               a code passes for a draw                             Eq. (4)
    L_Gen = lambda_adversarial (L_1 + L_2 + L_3) + lambda_context 1/n sum_i ||x_i - x^_i||_1 / d
            + lambda_encoding 1/n sum_i ||z_i - z^_i||^2 / d_z                                          Eq. (5)

    L_D   = - 1/n sum_i [log D_x(x_i) + 1/2 log(1 - D_x(x^_i)) + 1/2 log(1 - D_x(Gen(u_i)))
                         + log D_z(u_i) + log(1 - D_z(z_i))]                                            Eq. (6)

    S(x)  = ||x - x^||_1 / d                                                                            Eq. (7)

================  ===========================================================================================
i = 1 .. n        unlabelled and normal pictures; known anomalies are left out
Enc1, Gen, Enc2   trained on L_Gen; the encoders have the same shape and do not share weights
D_x, D_z          discriminators of pictures and of codes, trained on L_D
d, d_z            pixels times channels, numbers in a code
================  ===========================================================================================

The abstract is all that could be read: "deep convolutional generative adversarial networks (DCGAN) and an encoder at
each end of the DCGAN", "three adversarial learning objectives", and a generator that cannot rebuild what it has not
seen. Which objectives, networks and weights, it does not say: all of the above is our reading, and so are its results.
A step is a move of the discriminators, then one of the others, with Adam as DCGAN has it. What scoring does not need,
Enc2, D_x and D_z, is not kept.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.core.arguments import NOT_NEGATIVE, parameter, with_parameters
from esad.detectors.standard import AdversarialDetector
from esad.networks.dcgan import DCGANEncoder
from esad.networks.layers import DenseLayers
from esad.networks.spec import NetworkSpec
from esad.train.adversarial import deception_loss, judge_loss
from esad.train.objective import Batch, Move, Objective, RebuildingObjective, mean_over_rows

__all__ = ["DAOL"]

CODE_JUDGE = (128, 128)  # widths of D_z


@with_parameters
class DAOL(AdversarialDetector):
    """Error of a DCGAN that rebuilds pictures, with an encoder at each end; a reading of an abstract.

    Parameters
    ----------
    lambda_adversarial, lambda_context, lambda_encoding : float
        Weights of L_1 to L_3, of the pictures' and of the codes' errors.
    hidden, latent : sequence of int and int, or "auto"
        Channels of the levels, and the size of the code. Auto: (64, 128), a quarter of that on a CPU; 128.
    lr : float or "auto"
        Of Adam, constant. Auto: 2e-4.
    ... : those of `AdversarialDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> detector = DAOL(hidden=(4, 4), latent=4, n_epochs=2, random_state=0).fit(pictures)
    >>> detector.anomaly_score(pictures).shape
    (40,)
    """

    summary = "DAOL: a DCGAN between two encoders, a reading of an abstract (Tang et al. 2019)"
    auto_epochs = 50

    lambda_adversarial: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    lambda_context: float = parameter(default=50.0, allowed=NOT_NEGATIVE)
    lambda_encoding: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    batch_size: int = 64

    def _objective(self, spec: NetworkSpec) -> Objective:
        return DAOLObjective(spec, self.lambda_adversarial, self.lambda_context, self.lambda_encoding)


class DAOLObjective(RebuildingObjective):
    """An encoder and a generator, which score, and until the training has ended what they play against."""

    error_name = "context"
    for_training = ("encoder_2", "judge", "code_judge")

    def __init__(self, spec: NetworkSpec, adversarial: float, context: float, encoding: float) -> None:
        super().__init__()
        self.n_members, self.n_codes = spec.n_members, spec.latent
        self.adversarial, self.context, self.encoding = adversarial, context, encoding
        self.encoder_1, self.generator, self.encoder_2 = spec.encoder(), spec.decoder(), spec.encoder()
        self.judge = DCGANEncoder(spec.picture, spec.hidden, (1,), n_members=spec.n_members)
        self.code_judge = DenseLayers([spec.latent, *CODE_JUDGE, 1], n_members=spec.n_members, slope=0.2)

    def moves(self) -> tuple[Move, ...]:
        """One of the discriminators, one of the others."""
        makers: tuple[nn.Module, ...] = (self.encoder_1, self.generator, self.encoder_2)
        return Move(self.judges_loss, (self.judge, self.code_judge)), Move(self.loss, makers)

    def judges_loss(self, batch: Batch) -> dict[str, Tensor]:
        """The two lines of Eq. (6), each (members,)."""
        x, prior = batch.unlabelled, batch.draw_codes(self.n_codes)
        with torch.no_grad():
            code = self.encoder_1(x)
            rebuilt, made = self._draw_picture(code), self._draw_picture(prior)
        lies = (F.softplus(self.judge(rebuilt)) + F.softplus(self.judge(made))) / 2
        return {
            "judge": mean_over_rows((F.softplus(-self.judge(x)) + lies)[..., 0]),
            "judge of codes": judge_loss(self.code_judge(prior), self.code_judge(code)),
        }

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of Eq. (5), each (members,)."""
        x = batch.unlabelled
        code = self.encoder_1(x)
        rebuilt = self._draw_picture(code)
        doubts = {
            "rebuilt": self.judge(rebuilt),  # Eq. (2)
            "made": self.judge(self._draw_picture(batch.draw_codes(self.n_codes))),  # Eq. (3)
            "codes": self.code_judge(code),  # Eq. (4)
        }
        terms = {name: self.adversarial * deception_loss(logits) for name, logits in doubts.items()}
        return terms | {
            "context": self.context * (rebuilt - x).abs().flatten(1).mean(1),
            "encoding": self.encoding * (self.encoder_2(rebuilt) - code).square().flatten(1).mean(1),
        }

    def errors(self) -> Callable[[Tensor], Tensor]:
        """A function giving d times Eq. (7) pixel by pixel, (members, batch, *features)."""
        rebuild = self.rebuilder()
        return lambda x: (rebuild(x) - x).abs()

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving x^, (members, batch, *features)."""
        return lambda x: self._draw_picture(self.encoder_1(x.expand(self.n_members, *x.shape)))

    def _draw_picture(self, code: Tensor) -> Tensor:
        return self.generator(code).sigmoid()
