r"""A common scale for the scores of different detectors: how surprising a score is for a presumed normal row.

    v(s) = -log(1 - F(s))                                                        Eq. (1)

=========  =======================================================================
F          distribution of the scores of presumed normal rows that training has not seen
v(s)       0.7 for the median, 2.3 where one row in ten scores higher, 4.6 for one in a hundred
=========  =======================================================================

F is kept by its quantiles, evenly spaced in v, with straight lines between them. Beyond the largest score v goes on
straight, as for an exponential tail; below the first quantile it falls towards 0. So v rises everywhere: it never turns
the order of two rows.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from esad.core.arrays import Arrays, Floats
from esad.errors import ModelFileError

N_KNOTS: Final = 48
FIRST: Final = 0.1  # v of the first quantile
TAIL_SHARE: Final = 20  # one in so many of the rows, five at least, tells how the tail goes on
MIN_SPREAD: Final = 1e-6  # of the scores' size: less is taken for rounding
MIN_SIZE: Final = 1e-12  # scores that are all smaller are taken for 0
MAX_VALUE: Final = 1e6  # a score that far out is as surprising as can be


@dataclass(frozen=True, eq=False)
class Surprisal:
    """Eq. (1).

    Attributes
    ----------
    knots, values : ndarray, (k,)
        Scores, rising, and how surprising they are.
    below, above : float
        The slope below the first knot, and beyond the last.

    Examples
    --------
    >>> surprisal = Surprisal.of(np.arange(999.0))
    >>> surprisal([499, 899, 998]).round(1)
    array([0.7, 2.3, 6.9])
    """

    knots: Floats
    values: Floats
    below: float
    above: float

    @classmethod
    def of(cls, scores: ArrayLike) -> Self:
        """Learn the scale from one score or more."""
        ordered = np.sort(np.asarray(scores, dtype=np.float64))
        spaced = np.linspace(FIRST, np.log(len(ordered) + 1.0), N_KNOTS)
        quantiles = np.quantile(ordered, -np.expm1(-spaced), method="weibull")
        least = MIN_SPREAD * max(float(np.abs(ordered).max()), MIN_SIZE)
        _, places = np.unique(np.round(quantiles / least), return_inverse=True)
        knots, values = (
            np.bincount(places, each) / np.bincount(places) for each in (quantiles, spaced)
        )  # ties are one
        tail = ordered[-max(5, len(ordered) // TAIL_SHARE) :]
        below = (values[1] - values[0]) / (knots[1] - knots[0]) if len(knots) > 1 else 1.0 / least
        return cls(knots, values, float(below), 1.0 / max(float(np.mean(tail - tail[0])), least))

    def __call__(self, scores: ArrayLike) -> Floats:
        """How surprising scores of any shape are."""
        given = np.asarray(scores, dtype=np.float64)
        found = np.asarray(np.interp(given, self.knots, self.values))
        under, over = given < self.knots[0], given > self.knots[-1]
        found[under] *= np.exp((given[under] - self.knots[0]) * (self.below / self.values[0]))
        found[over] += np.minimum((given[over] - self.knots[-1]) * self.above, MAX_VALUE)
        return found

    def secant(self, scores: Floats, others: Floats) -> Floats:
        """The slope between two scores; the slope at the score where they are the same."""
        apart = scores - others
        near = np.abs(apart) <= MIN_SPREAD * np.maximum(np.abs(scores), np.abs(others))
        step = np.where(near, 1.0 / self.above, apart)
        return (self(np.where(near, others + step, scores)) - self(others)) / step

    def state(self) -> dict[str, Floats]:
        """Arrays for the model file."""
        return {"knots": self.knots, "values": self.values, "slopes": np.array([self.below, self.above])}

    @classmethod
    def from_state(cls, arrays: Arrays) -> Self:
        """Undo `state`, checking everything."""
        if arrays.keys() != {"knots", "values", "slopes"}:
            raise ModelFileError("its scale of scores is incomplete")
        knots, values, slopes = (arrays[name] for name in ("knots", "values", "slopes"))
        fits = knots.ndim == 1 and len(knots) > 0 and values.shape == knots.shape and slopes.shape == (2,)
        if not fits or any(array.dtype != np.float64 or not np.isfinite(array).all() for array in arrays.values()):
            raise ModelFileError("its scale of scores is damaged")
        if (np.diff(knots) <= 0).any() or (np.diff(values) <= 0).any() or values[0] <= 0 or (slopes <= 0).any():
            raise ModelFileError("its scale of scores does not rise")
        return cls(knots, values, float(slopes[0]), float(slopes[1]))


class SurprisalModule(nn.Module):
    """A `Surprisal` in float64, for other runtimes: bends of straight lines instead of a search."""

    knots: Tensor
    bends: Tensor
    ends: Tensor

    def __init__(self, surprisal: Surprisal) -> None:
        super().__init__()
        slopes = np.diff(surprisal.values) / np.diff(surprisal.knots)
        bends = np.diff(slopes, prepend=0.0, append=0.0)  # the line is level below the first knot and beyond the last
        ends = [surprisal.knots[0], surprisal.knots[-1], surprisal.values[0], surprisal.below, surprisal.above]
        for name, array in {"knots": surprisal.knots, "bends": bends, "ends": np.array([*ends, MAX_VALUE])}.items():
            self.register_buffer(name, torch.from_numpy(np.asarray(array, dtype=np.float64).copy()))

    def forward(self, scores: Tensor) -> Tensor:
        """How surprising scores of any shape are."""
        first, last, value, below, above, most = self.ends.unbind()
        zero = torch.zeros_like(scores)
        within = torch.minimum(scores, last.expand_as(scores))[..., None]
        inside = value + (torch.maximum(within - self.knots, zero[..., None]) * self.bends).sum(-1)
        under, over = torch.minimum(scores - first, zero), torch.maximum(scores - last, zero)
        return inside * (under * (below / value)).exp() + torch.minimum(over * above, most.expand_as(over))
