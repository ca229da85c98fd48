r"""GEOM (Golan & El-Yaniv 2018): tell how a picture was mirrored, shifted and turned; anomalies are told worse.

    y(x)    = softmax(Head(Enc(x))),  the probabilities of the k transformations                        Eq. (1)
    L       = - 1/(n k) sum_i sum_t log y(T_t(x_i))_t                                                   Eq. (2)
    alpha_t = argmax_a sum_i log Dirichlet(y(T_t(x_i)); a),  after training                             Eq. (3)

    S(x)    = - 1/k sum_t (alpha_t - 1) . log y(T_t(x))                                                 Eq. (4)

=============  ==============================================================================================
i = 1 .. n     unlabelled and normal pictures; known anomalies are left out
T_1 .. T_k     mirrored or not, shifted by `shift` pixels up, down or not, left, right or not, turned by 0, 90, 180
               or 270 degrees: 2 x 3 x 3 x 4 = 72
Head           one linear layer
=============  ==============================================================================================

A step draws one transformation for every picture. Eq. (4) is the negative log-likelihood under Eq. (3) without what
does not depend on x; the paper has the sum where this is the mean.

`GEOM.as_published()` has the settings of the authors' code: WRN-10-4, 8 pixels, Adam at 1e-3, batches of 128 and three
passes over all 72 transformations of every picture, which are 216 epochs of one transformation each. They pad grey
pictures to 32 x 32, this does not.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from esad.core.arguments import Rule, is_whole, parameter, with_parameters
from esad.detectors.standard import StandardDetector
from esad.networks.layers import inference
from esad.networks.mlp import StackedMLP
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, Objective, RowPool, Scorer
from esad.train.transforms import quarter_turns

__all__ = ["GEOM"]

MAX_FITTED = 1024  # pictures per member that Eq. (3) takes; each goes through the network k times
BLOCK_PICTURES = 256
AT_ONCE = 8  # transformations in one pass through the network while scoring
KINDS = ("all", "mirrors", "turns")
PUBLISHED: dict[str, Any] = {
    "network": "wide",
    "shift": 8,
    "schedule": "constant",
    "n_epochs": 216,
    "weight_decay": 5e-4,
}
MIN_SUM, MAX_SUM = 1e-6, 1e6  # where all vectors are alike, the likelihood has no maximum and the sum is the largest
N_HALVINGS = 50  # of the interval of log s; 1e-14 is left of it
EULER = 0.5772156649015329  # -psi(1)
N_NEWTON = 5  # steps from Minka's first guess of the inverse digamma; each doubles the correct digits
_PIXELS = Rule("a whole number, 1 or more, or 'auto'", is_whole, ("auto",))


@with_parameters
class GEOM(StandardDetector):
    """Which of many geometric transformations was it? For pictures.

    Scoring passes every picture through the network once per transformation.

    Parameters
    ----------
    transformations : {"all", "mirrors", "turns"}
        "all": the paper's 72. "mirrors": 8, turned and mirrored. "turns": 4. Pictures that are not square are turned
        by 180 degrees only, which halves the numbers.
    shift : int or "auto"
        Pixels that "all" shifts by. Auto: a quarter of the picture.
    network : {"auto", "conv", "lenet", "wide"}
        Auto: "conv", narrow on a CPU. "wide" is the paper's wide residual network, WRN-10-4.
    hidden, latent : sequence of int and int, or "auto"
        Channels per level, and channels ("conv") or size ("lenet") of the code.
    schedule : {"cosine", "constant"}
        Of the learning rate.
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> pictures[:, :2] += 200                                    # normal: bright at the top
    >>> dark = np.full((1, 8, 8), 25, dtype=np.uint8)
    >>> detector = GEOM(transformations="turns", hidden=(4, 4), latent=4, n_epochs=40, random_state=0).fit(pictures)
    >>> bool(detector.anomaly_score(dark)[0] > detector.anomaly_score(pictures).max())
    True
    """

    summary = "Classifier of geometric transformations, for pictures (Golan & El-Yaniv 2018)"
    takes = ("images",)
    labels_used = ("unlabelled", "normal")
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"images": ("conv", "lenet", "wide")}

    transformations: str = parameter(default="all", allowed=KINDS)
    shift: int | str = parameter(default="auto", allowed=_PIXELS)
    schedule: str = "cosine"
    n_members: int = 1

    @classmethod
    def as_published(cls, **changes: Any) -> Self:
        """The settings of the authors' code.

        Examples
        --------
        >>> GEOM.as_published(random_state=0).network
        'wide'
        """
        return cls(**PUBLISHED | changes)

    def _objective(self, spec: NetworkSpec) -> Objective:
        return GEOMObjective(spec, self.transformations, None if isinstance(self.shift, str) else int(self.shift))


class GEOMObjective(Objective):
    """A classifier of transformations and, for each of them, the Dirichlet distribution of its answers."""

    alpha: Tensor

    def __init__(self, spec: NetworkSpec, kind: str, shift: int | None = None) -> None:
        super().__init__()
        self.n_members, self.in_shape = spec.n_members, spec.in_shape
        self.transformations = transformations_of(kind, spec.in_shape, shift)
        k = len(self.transformations)
        self.encoder = spec.encoder()
        self.head = StackedMLP([spec.n_codes, k], n_members=spec.n_members)
        self.register_buffer("alpha", torch.ones(spec.n_members, k, k))

    def prepare(self, data: RowPool) -> None:
        """Find out where each transformation puts the pixels."""
        self.pixels = pixel_maps(self.transformations, data.x.shape).to(data.x.device)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (2) with one transformation drawn for every picture, (members,)."""
        x = batch.unlabelled
        drawn = batch.random.integers(len(self.transformations), x.shape[1])  # (members, batch)
        sources = self.pixels[drawn][:, :, None].expand(-1, -1, x.shape[2], -1)  # (members, batch, C, H * W)
        transformed = x.flatten(3).gather(3, sources).view_as(x)
        log_y = self._log_softmax(self.head(self.encoder(transformed)))
        return {"transformation": -log_y.gather(2, drawn[:, :, None]).flatten(1).mean(1)}

    @torch.no_grad()
    def finish(self, data: RowPool) -> None:
        """Eq. (3) on pictures evenly spread over those that a member may draw."""
        rows = data.unlabelled[:, :: -(-data.n_unlabelled // MAX_FITTED)]  # (members, n)
        answer = self._answerer()
        mean_log = torch.zeros_like(self.alpha, dtype=torch.float64)
        for block in torch.split(rows, BLOCK_PICTURES, dim=1):
            for index in range(len(self.transformations)):
                mean_log[:, index] += answer(data.x[block], [index]).double().sum(1) / rows.shape[1]
        self.alpha.copy_(fit_dirichlet(mean_log))

    def scorer(self) -> Scorer:
        """A function giving Eq. (4), (members, batch)."""
        answer, k = self._answerer(), len(self.transformations)

        def score(x: Tensor) -> dict[str, Tensor]:
            total = x.new_zeros(self.n_members, x.shape[0])
            for first in range(0, k, AT_ONCE):
                some = range(first, min(first + AT_ONCE, k))
                log_y = torch.unflatten(answer(x[None], some), 1, (len(some), -1))  # (members, some, batch, k)
                weights = self.alpha[:, first : some.stop, None] - 1
                total = total - (log_y * weights).sum((1, 3))
            return {"transformation": total / k}

        return score

    def _answerer(self) -> Callable[[Tensor, Sequence[int]], Tensor]:
        """A function from pictures and numbers of transformations to log y of Eq. (1).

        (members, transformations * batch, k): first all pictures with the first transformation, and so on.
        """
        encode, classify = inference(self.encoder), inference(self.head)
        pixels = pixel_maps(self.transformations, self.in_shape).to(self.alpha.device)

        def answer(x: Tensor, numbers: Sequence[int]) -> Tensor:
            seen = x.flatten(3)[..., pixels[list(numbers)]]  # (members or 1, batch, C, transformations, H * W)
            return self._log_softmax(classify(encode(seen.movedim(3, 1).flatten(1, 2).view(len(x), -1, *x.shape[2:]))))

        return answer

    def _log_softmax(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(2, dtype=self.alpha.dtype)  # never in the low precision of autocast


@dataclass(frozen=True)
class Transformation:
    """A picture mirrored left to right, then shifted, then turned.

    Attributes
    ----------
    mirrored : bool
    down, right : int
        Pixels; what comes in at the border is the picture's reflection.
    turns : int
        Quarter turns.
    """

    mirrored: bool = False
    down: int = 0
    right: int = 0
    turns: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        """The pictures (..., height, width), transformed."""
        x = x.flip(-1) if self.mirrored else x
        x = _shift_pixels(_shift_pixels(x, self.down, dim=-2), self.right, dim=-1)
        return torch.rot90(x, self.turns, dims=(-2, -1)) if self.turns else x


def transformations_of(kind: str, shape: tuple[int, ...], shift: int | None = None) -> tuple[Transformation, ...]:
    """The transformations of pictures (..., height, width), the identity first.

    "turns": quarter turns, or half turns where pictures are not square. "mirrors": those, mirrored or not. "all":
    those, shifted or not: by `shift` pixels, by default a quarter of the height and of the width, at most all of it.

    Examples
    --------
    >>> [len(transformations_of(kind, (28, 28))) for kind in ("turns", "mirrors", "all")]
    [4, 8, 72]
    """
    down, right = (
        (0, -reach, reach) if kind == "all" else (0,)
        for reach in (max(1, min(shift or side // 4, side)) for side in shape[-2:])
    )
    mirrored = (False,) if kind == "turns" else (False, True)
    return tuple(Transformation(*choice) for choice in product(mirrored, down, right, quarter_turns(shape)))


def pixel_maps(chosen: tuple[Transformation, ...], shape: tuple[int, ...]) -> Tensor:
    """Return the source of every pixel under each transformation, (transformations, height * width), for `gather`."""
    height, width = shape[-2:]
    pixels = torch.arange(height * width).view(height, width)
    return torch.stack([transformation(pixels).flatten() for transformation in chosen])


def _shift_pixels(x: Tensor, pixels: int, *, dim: int) -> Tensor:
    """Shift pictures along one axis, by no more pixels than it has."""
    if not pixels:
        return x
    last = x.shape[dim] - 1
    source = torch.arange(last + 1, device=x.device) - pixels
    source = torch.where(source < 0, -1 - source, torch.where(source > last, 2 * last + 1 - source, source))
    return x.index_select(dim, source)


@torch.no_grad()
def fit_dirichlet(mean_log: Tensor) -> Tensor:
    """The parameters alpha of Dirichlet distributions of greatest likelihood, Eq. (3), many at a time.

    The likelihood is greatest at the fixed point of Minka's (2000) iteration

        alpha_j <- psi^-1(psi(s) + mean of log p_j),      s = sum_k alpha_k,      psi the digamma function

    whose step depends on alpha through s alone, raises a sum that is too small and lowers one that is too large. So s
    is found here by halving an interval: where one entry outweighs the others, as in the answers of a good classifier,
    plain iteration needs thousands of steps.

    Parameters
    ----------
    mean_log : Tensor, (..., k)
        The mean of log p over the observed probability vectors p.

    Returns
    -------
    Tensor of float64, (..., k)

    Examples
    --------
    >>> alpha = torch.tensor([2.0, 1.0], dtype=torch.float64)
    >>> mean_log = torch.digamma(alpha) - torch.digamma(alpha.sum())  # what infinitely many vectors would give
    >>> fit_dirichlet(mean_log).round(decimals=6)
    tensor([2., 1.], dtype=torch.float64)
    """
    mean_log = mean_log.double()
    low = torch.full_like(mean_log[..., :1], math.log(MIN_SUM))  # of log s, (..., 1)
    high = torch.full_like(low, math.log(MAX_SUM))
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        too_small = _step(middle.exp(), mean_log).sum(-1, keepdim=True) > middle.exp()
        low, high = torch.where(too_small, middle, low), torch.where(too_small, high, middle)
    return _step(low.exp(), mean_log)


def inverse_digamma(y: Tensor) -> Tensor:
    """The x > 0 with psi(x) = y, by Newton's method."""
    x = torch.where(y >= -2.22, y.exp() + 0.5, -1 / (y + EULER))
    for _ in range(N_NEWTON):
        x = x - (torch.digamma(x) - y) / torch.polygamma(1, x)
    return x


def _step(total: Tensor, mean_log: Tensor) -> Tensor:
    return inverse_digamma(torch.digamma(total) + mean_log)
