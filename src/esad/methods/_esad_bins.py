r"""Members of ESAD that see every column as its place within quantile bins.

A column with bin edges e_0 < ... < e_k becomes k features, the piecewise linear encoding

    v_i(x) = clip((x - e_(i-1)) / (e_i - e_(i-1)), 0, 1),   i = 1 .. k                                     Eq. (1)

(the first bin goes on to -1 and the last to 2, for what lies outside), each brought to mean 0 and deviation 1. Every
stretch of a column with equally many rows has a feature of its own then, however skewed the column is, and what is far
outside counts no more than what is outside. The decoder rebuilds the features; the column that they stand for is

    x^ = e_0 + sum_i v^_i (e_i - e_(i-1))                                                                  Eq. (2)

With r features in place of each column the squared error is divided by r and the noise on the input multiplied by
sqrt(r), so that noise, error and norm weigh against each other as they do for the columns themselves.

Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022, has Eq. (1).
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esad.core.random import MemberRandom
from esad.methods._esad_objective import ESADObjective, sums_of_squares
from esad.methods._esad_settings import LossSettings
from esad.networks.mlp import FrozenMLP, StackedMLP
from esad.networks.spec import NetworkSpec

__all__ = ["BinnedESADObjective", "Bins"]

MAX_ROWS = 10_000  # that edges are taken from
MIN_WIDTH, MIN_DEVIATION = 1e-6, 0.05  # of a bin, where columns have deviation 1; of a place within it
OUTSIDE = 1.0  # the outer bins go on for so many of their widths
FAR = 1e30  # where no column goes
AS_IT_IS = {"slope": 1.0, "shift": 0.0, "floor": -FAR, "ceiling": FAR, "exists": 1.0}  # the line of a column itself


class Bins(nn.Module):
    """Eq. (1) as clip(slope x + shift, floor, ceiling), each (members, bins, columns).

    Members that see the columns themselves have one line per column, with slope 1, in place of the first bin.

    Parameters
    ----------
    n_columns : int
    n_bins : tuple of int
        For every member; 0 for the column itself.

    Attributes
    ----------
    exists : Tensor, (members, bins, columns)
        1, or 0 for features that are not there: bins without width, of which a column with few values has some.
    ratio : Tensor, (members,)
        r: how many features stand for a column, on average.
    """

    slope: Tensor
    shift: Tensor
    floor: Tensor
    ceiling: Tensor
    exists: Tensor
    ratio: Tensor

    def __init__(self, n_columns: int, n_bins: tuple[int, ...]) -> None:
        super().__init__()
        self.n_columns, self.n_bins, self.n_rooms = n_columns, n_bins, max(n_bins)
        for name in ("slope", "shift", "floor", "ceiling", "exists"):
            self.register_buffer(name, torch.zeros(len(n_bins), self.n_rooms, n_columns))
        self.register_buffer("ratio", torch.ones(len(n_bins)))

    def learn(self, rows: NDArray[np.float32], which: NDArray[np.intp] | None = None) -> None:
        """Take the edges from these of the rows (n, columns), all by default; of many, from evenly spaced ones."""
        which = np.arange(len(rows)) if which is None else which
        sample = rows[which[:: -(-len(which) // MAX_ROWS)]].astype(np.float64)
        known = {n: _lines(sample, n) if n else AS_IT_IS for n in set(self.n_bins)}
        for member, n in enumerate(self.n_bins):
            for name, lines in known[n].items():
                self.get_buffer(name)[member, : max(n, 1)] = torch.as_tensor(lines)
        self.ratio.copy_(self.exists.sum((1, 2)).clamp(min=1) / self.n_columns)

    def forward(self, x: Tensor) -> Tensor:
        """Rows (members, batch, columns) as (members, batch, bins * columns)."""
        line = torch.addcmul(self.shift[:, None], x[:, :, None], self.slope[:, None])
        return torch.clamp(line, self.floor[:, None], self.ceiling[:, None]).flatten(2)

    def frozen(self, members: Tensor) -> Callable[[Tensor], Tensor]:
        """For scoring: from rows (batch, columns) to (members, bins * columns, batch), or (1, ...) if members agree."""
        lines = [line[members] for line in (self.slope, self.shift, self.floor, self.ceiling)]
        if all(bool((line == line[:1]).all()) for line in lines):
            lines = [line[:1] for line in lines]
        slope, shift, floor, ceiling = (line[..., None].clone() for line in lines)
        return lambda x: torch.clamp(torch.addcmul(shift, x.t(), slope), floor, ceiling).flatten(1, 2)

    def back(self, features: Tensor) -> Tensor:
        """Eq. (2): features (members, batch, bins * columns) as columns (members, batch, columns)."""
        start = torch.where(self.exists.cumsum(1) == 1, self.shift, self.floor)
        width = self.exists / torch.where(self.exists > 0, self.slope, 1.0)  # of a feature's unit, in the column
        return ((self.by_column(features) - start[:, None]) * width[:, None]).sum(2)

    def by_column(self, features: Tensor) -> Tensor:
        """From (members, batch, bins * columns) to (members, batch, bins, columns)."""
        return torch.unflatten(features, 2, (self.n_rooms, self.n_columns))


def _lines(sample: NDArray[np.float64], n_bins: int) -> dict[str, NDArray[np.float64]]:
    """The buffers of `Bins` for one member that sees bins of these rows, each (bins, columns)."""
    edges = np.quantile(sample, np.linspace(0, 1, n_bins + 1), axis=0)  # (bins + 1, columns)
    low, width = edges[:-1], np.diff(edges, axis=0)
    exists = width >= MIN_WIDTH
    number = exists.cumsum(0)  # counted from 1 among the bins of a column that have a width
    width = np.where(exists, width, 1.0)
    least = np.where(number == 1, -OUTSIDE, 0.0)
    most = np.where(number == number[-1], 1.0 + OUTSIDE, 1.0)
    mean, deviation = np.empty_like(width), np.empty_like(width)
    for index in range(n_bins):  # one after the other: all at once take many times the room of the rows
        places = np.clip((sample - low[index]) / width[index], least[index], most[index])
        mean[index], deviation[index] = places.mean(0), np.maximum(places.std(0), MIN_DEVIATION)
    lines = {
        "slope": 1 / (width * deviation),
        "shift": (-low / width - mean) / deviation,
        "floor": (least - mean) / deviation,
        "ceiling": (most - mean) / deviation,
        "exists": np.ones_like(width),
    }
    return {name: np.where(exists, line, 0.0) for name, line in lines.items()}


class BinnedESADObjective(ESADObjective):
    """ESAD some of whose members see the features of Eq. (1); `spec` and `settings` speak of the columns."""

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        (n_columns,) = spec.in_shape
        super().__init__(replace(spec, in_shape=(max(settings.bins) * n_columns,), sigmoid=False), settings)
        self.n_columns = n_columns
        self.bins = Bins(n_columns, settings.bins)

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights, for as many features as there are."""
        super().reset(random)
        n_rooms = self.bins.n_rooms / self.bins.ratio  # for each feature that exists
        for encoder in (self.encoder_1, self.encoder_2):
            if isinstance(encoder, StackedMLP):
                n_in, n_out = encoder.shapes[0]
                with torch.no_grad():
                    encoder.weights[:, : n_in * n_out] *= n_rooms.sqrt()[:, None]

    def _view(self, x: Tensor) -> Tensor:
        seen: Tensor = self.bins(x)
        return seen

    def _rebuilt(self, code: Tensor) -> Tensor:
        return super()._rebuilt(code) * self.bins.exists.flatten(1)[:, None]

    def _columns(self, rebuilt: Tensor) -> Tensor:
        return self.bins.back(rebuilt)

    def _by_column(self, errors: Tensor) -> Tensor:
        return self.bins.by_column(errors).sum(2) / self.bins.ratio[:, None, None]

    def _per_column(self, totals: Tensor) -> Tensor:
        return super()._per_column(totals) / self.bins.ratio[:, None]

    def _scaled(self, sigma: Tensor) -> Tensor:
        return sigma * self.bins.exists.flatten(1)[:, None] * self.bins.ratio.sqrt()[:, None, None]

    def _sums_of_rows(self, networks: list[FrozenMLP]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        kinds = self.kinds(networks)
        order = torch.cat([members for members, _, _ in kinds]).argsort()

        def sums(x: Tensor) -> tuple[Tensor, Tensor]:
            found = [sums_of_squares(own, view(x)) for _, view, own in kinds]
            error, code = (torch.cat(part).index_select(0, order) for part in zip(*found, strict=True))
            return error, code

        return sums

    def kinds(self, networks: list[FrozenMLP]) -> list[tuple[Tensor, Callable[[Tensor], Tensor], list[FrozenMLP]]]:
        """Members of either kind apart, because those that see columns need no room for bins.

        For each kind: its members, what they see of rows (batch, columns) as (1 or members, features, batch), and their
        networks.
        """
        is_binned = torch.tensor(self.bins.n_bins, device=self.bins.ratio.device) > 0
        plain, binned = (torch.nonzero(kind).flatten() for kind in (~is_binned, is_binned))
        matrix, bias = networks[1].layers[-1]
        exists = self.bins.exists.flatten(1)[:, :, None]
        networks[1].layers[-1] = (matrix * exists, bias * exists)
        n = self.n_columns
        on_columns = [network.part(plain, n_in=n) for network in networks]
        on_columns[1] = networks[1].part(plain, n_out=n)
        found = [(binned, self.bins.frozen(binned), [network.part(binned) for network in networks])]
        return [(plain, lambda x: x.t()[None], on_columns), *found] if len(plain) else found
