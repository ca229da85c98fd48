r"""OCGAN (Perera et al. 2019): a denoising autoencoder whose whole latent space is made to hold normal pictures alone.

    z_i   = tanh(Enc(2 x_i - 1 + sigma e_i)),   x^_i = tanh(Dec(z_i)),   e_i ~ N(0, I)                  Eq. (1)

    L_l   = - 1/(2 n) sum_i [log D_l(u_i) + log(1 - D_l(z_i))],   u_i ~ U(-1, 1)                        Eq. (2)
    L_v   = - 1/(2 n) sum_i [log D_v(x_i) + log(1 - D_v(Dec(u'_i)))],   u'_i ~ U(-1, 1)                 Eq. (3)
    L_c   = - 1/(2 n) sum_i [log C(x^_i) + log(1 - C(Dec(u'_i)))]                                       Eq. (4)

    m_i   = tanh(v_i),   v_i <- v_i + mining_step d/dv log(1 - C(Dec(tanh v_i))),   v_i ~ U(-1, 1)      Eq. (5)
    L_a   = 1/n sum_i [- 10 log D_l(z_i) - log D_v(Dec(m_i)) + lambda_context / 2 ||x_i - x^_i||^2 / d] Eq. (6)

    S(x)  = ||x - x^||^2 / d                                                                            Eq. (7)

==================  =========================================================================================
i = 1 .. n          unlabelled and normal pictures; known anomalies are left out
D_l, D_v            judges of codes and of pictures: codes are to look uniform, and whatever is decoded real
C                   tells rebuilt pictures from those of random codes
m_i                 mined: codes go where C finds the picture worst; until three quarters of the training, tanh(v_i)
d                   pixels times channels
==================  =========================================================================================

Pixels are in [-1, 1]. A step is a move of D_l and D_v on L_l + L_v, one of C on L_c and one of the autoencoder on L_a.
This is the authors' public code, but for these:

- Their code leaves the latent unbounded where their text bounds it by tanh, and so does this. lambda_context is 500, as
  in the code; the text says 10. sigma is 0.2, as in the text.
- Mining begins as a second phase of the training, with Adam's moments anew: by steps, not at epoch 150 of 201.
- They take convolutions without padding for pictures of 61 x 61; here those of DCGAN, for any size. D_l ends in one
  number, not in the mean of sixteen.
- Scored are pictures without noise, by the last weights. Judges and C are not kept.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from esad.core.arguments import NOT_NEGATIVE, parameter, with_parameters
from esad.core.arrays import Labels, Rows
from esad.detectors.deep import Phase
from esad.detectors.standard import AdversarialDetector
from esad.networks.dcgan import DCGANEncoder
from esad.networks.layers import DenseLayers, inference
from esad.networks.spec import NetworkSpec
from esad.train.adversarial import deception_loss, judge_loss
from esad.train.objective import Batch, Move, Objective, RebuildingObjective, mean_over_rows

__all__ = ["OCGAN"]

LATENT_WEIGHT = 10.0
MINED_SHARE = 0.25  # of the training, at its end
JUDGE_WIDTHS = (128, 64, 32, 16)  # of codes


@with_parameters
class OCGAN(AdversarialDetector):
    """Reconstruction error of an autoencoder that can decode nothing but normal pictures.

    Parameters
    ----------
    sigma : float
        Deviation of the noise that is added to pictures, whose pixels are within [-1, 1].
    lambda_context : float
        Weight of the reconstruction against the judges.
    mining_step : float
        How far codes go towards pictures that the classifier finds worst.
    hidden, latent : sequence of int and int, or "auto"
        Channels of the levels, and the size of the code. Auto: (64, 128, 256), a quarter of that on a CPU; 16.
    lr : float or "auto"
        Of Adam. Auto: 2e-4.
    n_epochs : int or "auto"
        Auto: 201, less on large data.
    ... : those of `AdversarialDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> detector = OCGAN(hidden=(4,), latent=4, n_epochs=2, random_state=0).fit(pictures)
    >>> list(detector.loss_curves_)                    # of the last phase, which mines: Eqs. (2) to (4) and (6)
    ['code_judge', 'picture_judge', 'classifier', 'codes', 'pictures', 'reconstruction']
    """

    summary = "OCGAN: an autoencoder whose latent space holds normal pictures alone (Perera et al. 2019)"
    auto_hidden = (64, 128, 256)
    auto_latent = 16
    auto_epochs = 201

    sigma: float = parameter(default=0.2, allowed=NOT_NEGATIVE)
    lambda_context: float = parameter(default=500.0, allowed=NOT_NEGATIVE)
    mining_step: float = parameter(default=2.0, allowed=NOT_NEGATIVE)
    batch_size: int = 512

    def _objective(self, spec: NetworkSpec, *, mines: bool = True) -> Objective:
        return OCGANObjective(
            spec, sigma=self.sigma, lambda_context=self.lambda_context, mining_step=self.mining_step, mines=mines
        )

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        (last,) = super()._phases(rows, y, device)
        first = self._objective(self.network_, mines=False)
        n_mined = max(1, round(MINED_SHARE * last.settings.n_steps))
        n_before = max(1, last.settings.n_steps - n_mined)
        return [
            replace(last, objective=first, settings=replace(last.settings, n_steps=n_before)),
            replace(last, settings=replace(last.settings, n_steps=n_mined)),
        ]


class OCGANObjective(RebuildingObjective):
    """An autoencoder, which scores, and until the training has ended two judges and a classifier.

    `mines` says whether this is the phase that mines codes, the last one.
    """

    for_training = ("code_judge", "picture_judge", "classifier")

    def __init__(
        self, spec: NetworkSpec, *, sigma: float, lambda_context: float, mining_step: float, mines: bool
    ) -> None:
        super().__init__()
        self.n_members, self.n_codes, self.mines = spec.n_members, spec.latent, mines
        self.sigma, self.lambda_context, self.mining_step = sigma, lambda_context, mining_step
        self.encoder, self.decoder = spec.encoder(), spec.decoder()
        narrow = [max(1, width // 8) for width in spec.hidden]
        self.code_judge = DenseLayers([spec.latent, *JUDGE_WIDTHS, 1], n_members=spec.n_members)
        self.picture_judge = DCGANEncoder(spec.picture, narrow, (1,), n_members=spec.n_members)
        self.classifier = DCGANEncoder(spec.picture, spec.hidden, (1,), n_members=spec.n_members)

    def inherit(self, previous: Objective) -> None:
        """Mining goes on from what was learned without."""
        self.load_state_dict(previous.state_dict())

    def moves(self) -> tuple[Move, ...]:
        """The judges, the classifier, the autoencoder."""
        return (
            Move(self.judge_loss, (self.code_judge, self.picture_judge)),
            Move(self.classifier_loss, (self.classifier,)),
            Move(self.loss, (self.encoder, self.decoder)),
        )

    def judge_loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eqs. (2) and (3), (members,)."""
        real_code, other_code = self._draw_uniform_codes(batch), self._draw_uniform_codes(batch)
        codes = judge_loss(self.code_judge(real_code), self.code_judge(self._encode(batch)))
        made = self.picture_judge(self._decode(other_code))
        pictures = judge_loss(self.picture_judge(2 * batch.unlabelled - 1), made)
        return {"code_judge": codes / 2, "picture_judge": pictures / 2}

    def classifier_loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (4), (members,)."""
        made = self.classifier(self._decode(self._draw_uniform_codes(batch)))
        rebuilt = self.classifier(self._decode(self._encode(batch)))
        return {"classifier": judge_loss(rebuilt, made) / 2}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (6), (members,)."""
        mined = self._mine(self._draw_uniform_codes(batch)).tanh()
        code = self._encode(batch)
        error = (self._decode(code) - (2 * batch.unlabelled - 1)).square().flatten(2).mean(2)
        return {
            "codes": LATENT_WEIGHT * deception_loss(self.code_judge(code)),
            "pictures": deception_loss(self.picture_judge(self._decode(mined))),
            "reconstruction": self.lambda_context / 2 * mean_over_rows(error),
        }

    def _mine(self, start: Tensor) -> Tensor:
        """Eq. (5): one step on codes before their tanh, (members, batch, latent)."""
        if not self.mines:
            return start
        start = start.detach().requires_grad_()
        doubt = F.softplus(self.classifier(self._decode(start.tanh())))  # -log(1 - C)
        (slope,) = torch.autograd.grad(doubt.sum(), start)
        return (start - self.mining_step * slope).detach()

    def _draw_uniform_codes(self, batch: Batch) -> Tensor:
        return 2 * batch.random.uniform(batch.unlabelled.shape[1], self.n_codes) - 1

    def _encode(self, batch: Batch) -> Tensor:
        """The codes of noisy pictures."""
        x = 2 * batch.unlabelled - 1
        return self.encoder(x + self.sigma * batch.random.normal(*x.shape[1:])).tanh()

    def _decode(self, code: Tensor) -> Tensor:
        return self.decoder(code).tanh()

    def errors(self) -> Callable[[Tensor], Tensor]:
        """A function giving d times Eq. (7) pixel by pixel, (members, batch, *features)."""
        rebuild = self.rebuilder()
        return lambda x: 4 * (rebuild(x) - x).square()

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving x^ without noise, pixels in [0, 1] again, (members, batch, *features)."""
        encode, decode = inference(self.encoder), inference(self.decoder)
        return lambda x: (decode(encode(2 * x[None] - 1).tanh()).tanh() + 1) / 2
