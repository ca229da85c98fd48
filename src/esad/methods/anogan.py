r"""AnoGAN (Schlegl et al. 2017): a picture that the generator of a GAN cannot make, however its code is chosen.

    D(x)     = sigmoid(Head(f(x)))                                                                      Eq. (1)
    L_D      = - 1/n sum_i [log D(x_i) + log(1 - D(G(z_i)))],   z_i ~ N(0, I)                           Eq. (2)
    L_G      = - 1/n sum_i log D(G(z_i))                                                                Eq. (3)

    A_x(z)   = (1 - w) ||x - G(z)||_1 + w ||f(x) - f(G(z))||_1                                          Eq. (4)
    z_{t+1}  = z_t - Adam(dA_x/dz),   t = 1 .. T                                                        Eq. (5)

    S(x)     = A_x(z_T)                                                                                 Eq. (6)

==================  =========================================================================================
i = 1 .. n          unlabelled and normal pictures; known anomalies are left out
G                   dense layers, then transposed convolutions
f, Head             the judge: convolutions with a dense layer, and one number
w                   `feature_weight`
T                   `search_steps`
==================  =========================================================================================

Pixels are in [-1, 1]. Networks, moving averages of the weights (what is scored with) and the search are those of the
public code of Zenati et al. (2018), the authors' own being unpublished. The search's step is 0.01 for two fifths of
the way, then 0.001 and from three fifths on 0.0005, times 500 / T, so that a code can come equally far. What differs:

- The learning rate is DCGAN's, 2e-4. Theirs is 1e-5, with ten times as many pictures and steps. docs/methods.md has how
  far a short training on a CPU came.
- The averages begin quickly, by min(0.999, (1 + t) / (10 + t)): a short training is not scored with its first weights.
- All pictures start from one code, drawn with the weights, so that a score is a picture's own and the same every time.

The score is a search and no forward pass: such models cannot be exported.
"""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from esad.core.arguments import Rule, is_not_negative, parameter, with_parameters
from esad.core.arrays import Labels, Rows
from esad.core.random import MemberRandom
from esad.detectors.deep import Phase
from esad.detectors.standard import AdversarialDetector
from esad.networks.dcgan import DCGANEncoder
from esad.networks.spec import NetworkSpec
from esad.train.adversarial import BOUNDED, deception_loss, enable_gradients, judge_loss, log_steps
from esad.train.objective import Batch, Move, Objective, Scorer

__all__ = ["AnoGAN"]

AVERAGE = 0.999
SLOPE = 0.1
_SHARE = Rule("a number from 0 to 1", lambda value: is_not_negative(value) and value <= 1)
_STEPS = replace(BOUNDED, allowed=f"{BOUNDED.allowed}, or 'auto'", others=("auto",))
SEARCH = ((0.4, 1e-2), (0.6, 1e-3), (1.0, 5e-4))  # until this share of the search, this step


@with_parameters
class AnoGAN(AdversarialDetector):
    """How far the nearest picture is that a generator of normal pictures can make.

    Parameters
    ----------
    feature_weight : float
        Weight w of the judge's features against the pixels, between 0 and 1.
    search_steps : int or "auto"
        Steps of the search for the code of a picture. Auto: 500, on a CPU 50.
    hidden, latent : sequence of int and int, or "auto"
        Channels of the levels, and the size of the code. Auto: (64, 128), a quarter of that on a CPU, more levels for
        pictures above 32 pixels; 200.
    lr : float or "auto"
        Of Adam. Auto: 2e-4.
    n_epochs : int or "auto"
        Auto: 100, less on large data.
    ... : those of `AdversarialDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> detector = AnoGAN(hidden=(4,), latent=4, n_epochs=2, search_steps=10, random_state=0).fit(pictures)
    >>> {name: term.shape for name, term in detector.score_terms(pictures).items()}    # of Eq. (4), which add up
    {'pixels': (40,), 'features': (40,)}
    """

    summary = "AnoGAN: how near a generator of normal pictures can come (Schlegl et al. 2017)"
    can_export = False
    not_exported = "its score is a search for every picture, not a forward pass"
    auto_latent = 200
    dense = (1024,)
    auto_epochs = 100
    settled: ClassVar[dict[str, Rule]] = {"search_steps": BOUNDED}

    feature_weight: float = parameter(default=0.1, allowed=_SHARE)
    search_steps: int | str = parameter(default="auto", allowed=_STEPS)

    def _objective(self, spec: NetworkSpec) -> Objective:
        return AnoGANObjective(spec, feature_weight=self.feature_weight, search_steps=self.search_steps_)

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        self._check("images")
        auto = 50 if device.type == "cpu" else 500
        self.search_steps_ = auto if isinstance(self.search_steps, str) else int(self.search_steps)
        return super()._phases(rows, y, device)


class AnoGANObjective(Objective):
    """A generator and a judge; when the training has ended, the averages of both over its steps."""

    for_training = ("averages", "n_steps")

    def __init__(self, spec: NetworkSpec, *, feature_weight: float, search_steps: int) -> None:
        super().__init__()
        self.n_members, self.feature_weight, self.search_steps = spec.n_members, feature_weight, search_steps
        self.generator = spec.decoder()
        widths, dense = (spec.hidden[0], *spec.hidden[:-1]), (*spec.dense, 1)
        self.judge = DCGANEncoder(spec.picture, widths, dense, n_members=spec.n_members, slope=SLOPE)
        self.averages = nn.ModuleList([copy.deepcopy(self.generator), copy.deepcopy(self.judge)]).requires_grad_(False)
        self.register_buffer("n_steps", torch.zeros(1))
        self.register_buffer("start", torch.zeros(spec.n_members, spec.latent))

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights, and the code from which every search starts."""
        for network, average in zip((self.generator, self.judge), self.averages, strict=True):
            network.reset(random)
            average.load_state_dict(network.state_dict())
        self.get_buffer("start").copy_(random.normal(self.get_buffer("start").shape[1]).clamp(-2, 2))

    def moves(self) -> tuple[Move, ...]:
        """One of the judge, one of the generator."""
        return Move(self.judge_loss, (self.judge,)), Move(self.loss, (self.generator,))

    def judge_loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (2), (members,)."""
        return {"judge": judge_loss(self.judge(2 * batch.unlabelled - 1), self.judge(self._draw_pictures(batch)))}

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (3), (members,)."""
        return {"generator": deception_loss(self.judge(self._draw_pictures(batch)))}

    def _draw_pictures(self, batch: Batch) -> Tensor:
        """G(z) for as many codes as there are pictures."""
        return self._make(batch.draw_codes(self.get_buffer("start").shape[1]))

    def _make(self, code: Tensor) -> Tensor:
        """G(z), (members, batch, *features), pixels in [-1, 1]."""
        return self.generator(code).tanh()

    @torch.no_grad()
    def after_step(self) -> None:
        """Let the averages follow; statistics of batch norm are averages already."""
        n_steps = self.get_buffer("n_steps").add_(1)
        follow = 1 - torch.clamp((1 + n_steps) / (10 + n_steps), max=AVERAGE)[0]
        for average, network in zip(self.averages, (self.generator, self.judge), strict=True):
            for mean, now in zip(average.parameters(), network.parameters(), strict=True):
                mean.lerp_(now, follow.to(now.dtype))
            for kept, statistic in zip(average.buffers(), network.buffers(), strict=True):
                kept.copy_(statistic)

    def keep_for_scoring(self) -> None:
        """Put the averages in the place of the networks."""
        self.generator, self.judge = self.averages  # type: ignore[assignment]
        super().keep_for_scoring()

    def scorer(self) -> Scorer:
        """A function giving the two terms of Eq. (6), (members, batch)."""

        def score(x: Tensor) -> dict[str, Tensor]:
            x = (2 * x - 1).expand(self.n_members, *x.shape)
            return self._distances(x, self._features(x), self._search(x))

        return score

    def summands(self) -> Scorer:
        """The first term of Eq. (6) pixel by pixel."""
        rebuild = self.rebuilder()
        return lambda x: {"pixels": (1 - self.feature_weight) * 2 * (x - rebuild(x)).abs()}

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving G(z_T), pixels in [0, 1] again, (members, batch, *features)."""
        return lambda x: (self._make(self._search((2 * x - 1).expand(self.n_members, *x.shape))) + 1) / 2

    def _features(self, x: Tensor) -> Tensor:
        return self.judge.features_and_code(x)[0]

    def _distances(self, x: Tensor, features: Tensor, code: Tensor) -> dict[str, Tensor]:
        """The terms of Eq. (4), each (members, batch)."""
        made = self._make(code)
        return {
            "pixels": (1 - self.feature_weight) * (x - made).abs().flatten(2).sum(2),
            "features": self.feature_weight * (features - self._features(made)).abs().sum(2),
        }

    def _search(self, x: Tensor) -> Tensor:
        """Eq. (5) for all pictures (members, batch, *features) at once: z_T, (members, batch, latent)."""
        with enable_gradients():
            x, n_pictures = x.detach().clone(), x.shape[1]
            with torch.no_grad():
                features = self._features(x)
            code = self.get_buffer("start")[:, None].repeat(1, n_pictures, 1).requires_grad_()
            adam = torch.optim.Adam([code])
            for step in log_steps(self.search_steps, f"the codes of {n_pictures} pictures"):
                rate = next(rate for share, rate in SEARCH if step < share * self.search_steps)
                adam.param_groups[0]["lr"] = rate * 500 / self.search_steps
                total = torch.stack(list(self._distances(x, features, code).values())).sum()
                (code.grad,) = torch.autograd.grad(total, code)
                adam.step()
        return code.detach()
