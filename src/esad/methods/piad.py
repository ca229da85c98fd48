r"""PIAD (Tuluptceva et al. 2019), perceptual image anomaly detection: VGG19 judges an adversarial autoencoder.

    d(x, y) = ||f(x) - f(y)||_1 / ||f(x)||_1                                                            Eq. (1)
    L_rec   = 1/n sum_i d(x_i, Gen(Enc(x_i)))                                                           Eq. (2)
    L_x     = - 1/n sum_i C_x(Gen(u_i)),   L_z = - 1/n sum_i C_z(Enc(x_i)),   u_i ~ N(0, I)             Eq. (3)

    L_Gen   = L_x + gamma_Gen L_rec,   L_Enc = L_z + gamma_Enc L_rec                                    Eq. (4)

    L_C     = 1/n sum_i C(b_i) - C(a_i) + penalty (||grad C(c_i)|| - 1)^2 + drift (C(a_i)^2 + C(b_i)^2) Eq. (5)

    S(x)    = d(x, Gen(Enc(x)))                                                                         Eq. (6)

================  ===========================================================================================
i = 1 .. n        unlabelled and normal pictures; known anomalies are left out
f                 what a layer of a fixed VGG19 gives, every channel with mean 0 and deviation 1 on the pictures
C_x, C_z          critics of pictures and of codes. In Eq. (5) a, b are x_i, Gen(u_i) for C_x and u_i, Enc(x_i) for
                  C_z; c_i lies between a_i and b_i, drawn anew
gamma             the median over the layers of a network of s(L_adv) / s(L_rec), s the norm of a loss's
                  gradient by the weights of a layer; every 100 steps, smoothed; 1 before
================  ===========================================================================================

A step is a move of both critics, twice, and one of Enc and Gen. This follows the code of the authors' comparison of
methods, github.com/ninatu/anomaly_detection (that of PIAD alone, ninatu/piad, has deviations of gradients in place of
norms, and 1e-4 for Enc and Gen), but for these: features are standardised on the training pictures instead of on
ImageNet; gamma is the newest smoothed ratio, not the median of the last 200; the picture's critic sees no deviation
over the batch; widths, see `PIAD`. The critics are not kept after training.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from esad.core.arguments import NOT_NEGATIVE, parameter, with_parameters
from esad.core.arrays import Labels, Rows
from esad.core.processes import Processes
from esad.detectors.deep import Phase
from esad.detectors.standard import GAME, PerceptualDetector
from esad.networks.layers import DenseLayers
from esad.networks.residual import ResidualDecoder, ResidualEncoder
from esad.networks.spec import NetworkSpec
from esad.networks.vgg import PerceptualDistance
from esad.train.adversarial import critic_loss
from esad.train.objective import Batch, Move, Objective, RowPool, Scorer, mean_over_rows

__all__ = ["PIAD"]

LOOK_EVERY = 100  # steps between two looks at the gradients
SMOOTHING = 0.05  # weight of the newest look
CRITIC_STEPS = 2
CRITIC_RATIO = 2.5  # of their learning rate to that of encoder and generator
CODE_CRITIC = (128, 128)  # widths


@with_parameters
class PIAD(PerceptualDetector):
    """Perceptual error of an autoencoder that is trained against critics of pictures and of codes; for pictures.

    Parameters
    ----------
    gradient_penalty : float
        `penalty` of Eq. (5).
    norm_penalty : float
        `drift` of Eq. (5): the weight of the critics' squared answers, which keeps them near 0.
    network : {"auto", "residual"}
    hidden, latent : sequence of int and int, or "auto"
        Channels of the entry and of each level that halves the picture, and the size of the code; the critic of
        pictures has the same channels. Auto: 32 each, as the authors have for MNIST and Fashion-MNIST. For CIFAR-10
        they have (64, 128, 256, 256) and 256, for X-rays and tissue (32, 64, 128, 256, 256) and 256.
    lr : float or "auto"
        Of Adam, constant; critics have 2.5 times that. Auto: 2e-4.
    ... : those of `PerceptualDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> detector = PIAD(features="random", layer="r11", hidden=(4, 4), latent=4, n_epochs=2, random_state=0)
    >>> detector.fit(pictures).anomaly_score(pictures).shape
    (40,)
    """

    summary = "PIAD: an adversarial autoencoder, its error seen by VGG19 (Tuluptceva et al. 2019)"
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"images": ("residual",)}
    learning_rates: ClassVar[dict[str, float]] = {"images": 2e-4}
    loop: ClassVar[dict[str, Any]] = GAME | {"beta_1": 0.5, "beta_2": 0.99}
    schedule = "constant"

    gradient_penalty: float = parameter(default=10.0, allowed=NOT_NEGATIVE)
    norm_penalty: float = parameter(default=1e-3, allowed=NOT_NEGATIVE)
    batch_size: int = 32
    weight_decay: float = 1e-8

    def _objective(self, spec: NetworkSpec) -> Objective:
        weights = {"penalty": float(self.gradient_penalty), "drift": float(self.norm_penalty)}
        return PIADObjective(spec, self.layer_, **weights)

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        return self._fill_vgg(super()._phases(rows, y, device))


class PIADObjective(Objective):
    """An encoder and a generator, which score, and until the training has ended their critics."""

    for_training = ("game",)

    encoder: ResidualEncoder
    generator: ResidualDecoder
    game: "_Critics"

    def __init__(self, spec: NetworkSpec, layer: str, *, penalty: float, drift: float) -> None:
        super().__init__()
        self.n_members, self.n_codes = spec.n_members, spec.latent
        self.weights = {"penalty": penalty, "drift": drift}
        self.encoder, self.generator = spec.encoder(), spec.decoder()  # type: ignore[assignment]
        self.distance = PerceptualDistance(layer)
        self.game = _Critics(spec, self)

    def prepare(self, data: RowPool) -> None:
        """Learn the usual features of the pictures."""
        self.distance.standardise(data.x[torch.unique(data.unlabelled)] if data.n_unlabelled else data.x)

    def moves(self) -> tuple[Move, ...]:
        """Two of both critics, one of the autoencoder."""
        judge = Move(self.critics_loss, (self.game.pictures, self.game.codes), lr_ratio=CRITIC_RATIO)
        return *[judge] * CRITIC_STEPS, Move(self.loss, (self.encoder, self.generator))

    def critics_loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (5) of both critics, each (members,)."""
        x = 2 * batch.unlabelled - 1
        prior = batch.draw_codes(self.n_codes)
        with torch.no_grad():
            made, code = self.generator(prior), self.encoder(x)
        return {
            "critic of pictures": critic_loss(self.game.pictures, x, made, batch.random, **self.weights),
            "critic of codes": critic_loss(self.game.codes, prior, code, batch.random, **self.weights),
        }

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eqs. (2) and (3) with the weights of Eq. (4), each (members,)."""
        x = batch.unlabelled
        code = self.encoder(2 * x - 1)
        terms = {
            "pictures": -mean_over_rows(self.game.pictures(self.generator(batch.draw_codes(self.n_codes)))[..., 0]),
            "codes": -mean_over_rows(self.game.codes(code)[..., 0]),
        }
        of_generator, of_encoder = self.game.gamma.clone()
        factor = of_encoder / of_generator  # gradients reach the encoder through the generator
        rebuilt = (self.generator(code * factor + (code * (1 - factor)).detach()) + 1) / 2
        error = self.distance(x, rebuilt).mean(1)
        self.game.step += 1
        if int(self.game.step) % LOOK_EVERY == 0:
            self.game.update_gamma(self.generator, terms["pictures"], error, 0, factor.new_ones(()), batch.processes)
            self.game.update_gamma(self.encoder, terms["codes"], error, 1, factor, batch.processes)
        return terms | {"perception": of_generator * error}

    def scorer(self) -> Scorer:
        """A function giving Eq. (6), (members, batch)."""
        rebuild = self.rebuilder()
        return lambda x: {"perception": self.distance(x.expand(self.n_members, *x.shape), rebuild(x))}

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving Gen(Enc(x)), pixels in [0, 1], (members, batch, *features)."""
        return lambda x: (self.generator(self.encoder((2 * x - 1).expand(self.n_members, *x.shape))) + 1) / 2


class _Critics(nn.Module):
    """Both critics, which only the training needs, and the weight of L_rec against their losses."""

    gamma: Tensor
    step: Tensor

    def __init__(self, spec: NetworkSpec, players: PIADObjective) -> None:
        super().__init__()
        self.pictures = ResidualEncoder(spec.picture, spec.hidden, 1, n_members=spec.n_members, n_blocks=1)
        self.codes = DenseLayers([spec.latent, *CODE_CRITIC, 1], n_members=spec.n_members, slope=0.2)
        self.register_buffer("gamma", torch.ones(2))  # of the generator, of the encoder
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        for number, network in enumerate((players.generator, players.encoder)):
            self.register_buffer(f"norms_{number}", torch.zeros(2, len(_list_layer_weights(network))))

    def update_gamma(
        self, network: nn.Module, adversarial: Tensor, error: Tensor, number: int, factor: Tensor, processes: Processes
    ) -> None:
        """Update the weight of the error by the gradients of both losses, of the generator (0) or the encoder (1)."""
        gradients = (
            torch.autograd.grad(loss.sum(), _list_layer_weights(network), retain_graph=True)
            for loss in (adversarial, error)
        )
        found = [torch.stack([torch.linalg.vector_norm(processes.mean(p)) for p in parts]) for parts in gradients]
        now = torch.stack([found[0], found[1] / factor])
        smooth = self.get_buffer(f"norms_{number}")
        smooth.copy_(torch.lerp(smooth, now, SMOOTHING) if int(self.step) > LOOK_EVERY else now)
        self.gamma[number] = (smooth[0] / smooth[1].clamp(min=torch.finfo(smooth.dtype).tiny)).median()


def _list_layer_weights(network: nn.Module) -> list[Tensor]:
    """The weights of a network's layers, without biases."""
    return [parameter for parameter in network.parameters() if parameter.dim() == 4]
