r"""ADGAN (Deecke et al. 2018): how well a generator of normal pictures, itself bent a little, can be made to draw one.

    L_D   = 1/n sum_i [D(G(z_i)) - D(x_i) + lambda_penalty (||dD/dx(x'_i)||_2 - 1)^2]                   Eq. (1)
            x'_i = u_i x_i + (1 - u_i) G(z_i),   z_i ~ N(0, I),   u_i ~ U(0, 1)
    L_G   = - 1/n sum_i D(G(z_i))                                                                       Eq. (2)

    l(z, theta) = ||x - G_theta(z)||^2 / d                                                              Eq. (3)
    z_j       <-  z_j - Adam(dl/dz),   theta_j <- theta_j - Adam(dl/dtheta),   T times                  Eq. (4)

    S(x)  = 1/k sum_j l(z_j, theta_j),   j = 1 .. k                                                     Eq. (5)

==================  =========================================================================================
i = 1 .. n          unlabelled and normal pictures; known anomalies are left out
G, D                transposed convolutions; convolutions without batch norm, a critic of Wasserstein's distance
z_j, theta_j        begin with one of k fixed codes and with the generator's weights, for every picture anew
k, T                `n_starts`, `search_steps`
==================  =========================================================================================

Pixels are in [-1, 1]. The critic moves in every step, the generator in every second one. Learning rates, sizes, starts
and steps are the authors'. Not known and chosen: codes are normal; the search is Adam's, since plain steps would hardly
leave the start, the slopes of a mean over pixels being small; all pictures have the same k first codes, drawn with the
weights, so that a score is a picture's own and the same every time.

The score is a search and no forward pass: such models cannot be exported.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import functional_call

from esad.core.arguments import NOT_NEGATIVE, parameter, with_parameters
from esad.core.random import MemberRandom
from esad.detectors.standard import GAME, AdversarialDetector
from esad.networks.dcgan import DCGANEncoder
from esad.networks.spec import NetworkSpec
from esad.train.adversarial import BOUNDED, enable_gradients, gradient_penalty, log_steps
from esad.train.objective import Batch, Move, Objective, Scorer, mean_over_rows

__all__ = ["ADGAN"]

CODE_RATE, WEIGHT_RATE = 0.25, 5e-5
MAX_WEIGHTS = 2**25  # of all copies of the generator that are searched with at once
CRITIC_STEPS = 2  # for one of the generator


@with_parameters
class ADGAN(AdversarialDetector):
    """Error of the pictures that copies of a generator are made to draw, from several starts.

    Parameters
    ----------
    lambda_penalty : float
        Weight of the penalty on the critic's slope.
    n_starts, search_steps : int
        Codes from which the search starts, and its steps from each.
    hidden, latent : sequence of int and int, or "auto"
        Channels of the levels, and the size of the code. Auto: (64, 128, 256), a quarter of that on a CPU; 256.
    lr : float or "auto"
        Of Adam. Auto: 1e-4.
    n_epochs : int or "auto"
        Auto: 100, less on large data.
    ... : those of `AdversarialDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> bright = np.full((1, 8, 8), 225, dtype=np.uint8)
    >>> detector = ADGAN(hidden=(4,), latent=4, lr=0.01, n_epochs=20, random_state=0).fit(pictures)
    >>> bool(detector.anomaly_score(bright)[0] > detector.anomaly_score(pictures).max())
    True
    """

    summary = "ADGAN: how near a bent generator of normal pictures can come (Deecke et al. 2018)"
    can_export = False
    not_exported = "its score is a search for every picture, not a forward pass"
    auto_hidden = (64, 128, 256)
    auto_latent = 256
    auto_epochs = 100
    learning_rates: ClassVar[dict[str, float]] = {"images": 1e-4}
    loop: ClassVar[dict[str, Any]] = GAME | {"beta_1": 0.0, "beta_2": 0.9}

    lambda_penalty: float = parameter(default=20.0, allowed=NOT_NEGATIVE)
    n_starts: int = parameter(default=8, allowed=BOUNDED)
    search_steps: int = parameter(default=5, allowed=BOUNDED)

    def _objective(self, spec: NetworkSpec) -> Objective:
        return ADGANObjective(
            spec, lambda_penalty=self.lambda_penalty, n_starts=int(self.n_starts), search_steps=int(self.search_steps)
        )


class ADGANObjective(Objective):
    """A generator and a critic."""

    def __init__(self, spec: NetworkSpec, *, lambda_penalty: float, n_starts: int, search_steps: int) -> None:
        super().__init__()
        self.spec, self.n_members = spec, spec.n_members
        self.lambda_penalty, self.n_starts, self.search_steps = lambda_penalty, n_starts, search_steps
        self.generator = spec.decoder()
        self.critic = DCGANEncoder(spec.picture, spec.hidden, (1,), n_members=spec.n_members, norm=False)
        self.register_buffer("starts", torch.zeros(spec.n_members, n_starts, spec.latent))

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights, and the codes from which every search starts."""
        super().reset(random)
        self.get_buffer("starts").copy_(random.normal(self.n_starts, self.spec.latent))

    def moves(self) -> tuple[Move, ...]:
        """One of the critic, and every other time one of the generator."""
        return Move(self.critic_loss, (self.critic,)), Move(self.loss, (self.generator,), every=CRITIC_STEPS)

    def critic_loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (1), (members,)."""
        real, made = 2 * batch.unlabelled - 1, self._draw_pictures(batch)
        penalty = gradient_penalty(self.critic, real, made, batch.random)
        distance = self.critic(made) - self.critic(real)
        return {"critic": mean_over_rows(distance[..., 0]), "penalty": self.lambda_penalty * penalty}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (2), (members,)."""
        return {"generator": -mean_over_rows(self.critic(self._draw_pictures(batch))[..., 0])}

    def _draw_pictures(self, batch: Batch) -> Tensor:
        """G(z) for as many codes as there are pictures, pixels in [-1, 1]."""
        return self.generator(batch.draw_codes(self.spec.latent)).tanh()

    def scorer(self) -> Scorer:
        """A function giving Eq. (5), (members, batch)."""
        return lambda x: {"reconstruction": self._mean(x, lambda error: error.square().flatten(3).mean((0, 3)))}

    def summands(self) -> Scorer:
        """Eq. (5) pixel by pixel."""
        return lambda x: {"reconstruction": self._mean(x, lambda error: error.square().mean(0)) / x[0].numel()}

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving the mean of the pictures found, pixels in [0, 1] again, (members, batch, *features)."""
        return lambda x: x - self._mean(x, lambda error: error.mean(0)) / 2

    def _mean(self, x: Tensor, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the mean over the starts of a measure (members, batch, ...) of the pictures that Eq. (4) finds.

        The measure takes errors (starts, members, batch, *features) of pixels in [-1, 1] and has a mean over starts.
        """
        n_weights = sum(weight.numel() for weight in self.generator.parameters())
        n_starts = min(self.n_starts, max(1, MAX_WEIGHTS // n_weights))  # at a time, as the pictures
        pictures = torch.split(x.detach(), max(1, MAX_WEIGHTS // (n_weights * n_starts)))
        starts = torch.split(self.get_buffer("starts"), n_starts, dim=1)
        found = [x.new_zeros(())] * len(pictures)
        for step in log_steps(len(pictures) * len(starts), f"{len(x)} pictures"):
            number, some = step // len(starts), starts[step % len(starts)]
            error = 2 * pictures[number] - 1 - self._search(pictures[number], some)
            found[number] = found[number] + measure(error) * (some.shape[1] / self.n_starts)
        return torch.cat(found, dim=1)

    def _search(self, x: Tensor, starts: Tensor) -> Tensor:
        """Every start and picture has its own copy of the generator: as many more members of one stacked network."""
        n_copies = starts.shape[1] * len(x)
        with enable_gradients():
            with torch.device("meta"):
                wide = replace(self.spec, n_members=n_copies * self.n_members).decoder().eval()
            target = (2 * x.clone() - 1).expand(starts.shape[1], self.n_members, *x.shape).transpose(1, 2)
            state = {
                name: _repeat_weights(value.detach(), n_copies) for name, value in self.generator.state_dict().items()
            }
            weights = [state[name].requires_grad_() for name, _ in self.generator.named_parameters()]
            first = starts.transpose(0, 1)[:, None]  # (starts, 1, members, latent)
            code = first.repeat(1, len(x), 1, 1).flatten(0, 2)[:, None].requires_grad_()  # (wide members, 1, latent)
            adam = torch.optim.Adam([{"params": [code], "lr": CODE_RATE}, {"params": weights, "lr": WEIGHT_RATE}])

            def draw() -> Tensor:
                made: Tensor = functional_call(wide, state, (code,)).tanh()
                return made.reshape(target.shape)  # (starts, batch, members, *features)

            for _ in range(self.search_steps):
                adam.zero_grad()
                (draw() - target).square().flatten(3).mean(3).sum().backward()  # type: ignore[no-untyped-call]
                adam.step()
            with torch.no_grad():
                return draw().transpose(1, 2)


def _repeat_weights(value: Tensor, n_copies: int) -> Tensor:
    """Weights of so many copies of a stacked network, one behind the other; a count of batches stays one."""
    return value.clone() if value.dim() == 0 else value.repeat(n_copies, *[1] * (value.dim() - 1))
