r"""What ESAD's networks see of a row: columns as they are, columns in quantile bins, or pictures.

A column with bin edges e_0 < ... < e_k becomes k features, the piecewise linear encoding

    v_i(x) = clip((x - e_(i-1)) / (e_i - e_(i-1)), 0, 1),   i = 1 .. k                                     Eq. (a)

(the first bin goes on to -1 and the last to 2, for what lies outside), each brought to mean 0 and deviation 1. Every
stretch of a column with equally many rows has a feature of its own then, however skewed the column is, and what is far
outside counts no more than what is outside. The decoder rebuilds the features; the column that they stand for is

    x^ = e_0 + sum_i v^_i (e_i - e_(i-1))                                                                  Eq. (b)

With r features in place of each column the squared error is divided by r and the noise on the input multiplied by
sqrt(r), so that noise, error and norm weigh against each other as they do for the columns themselves.

Columns that have nothing to do with the known anomalies weigh less, in every view of a table:

    w_c = clip(C imp_c, 0.1, 6)^power,   sum_c imp_c = 1                                                   Eq. (c)

with the power n / (n + C) for C columns and n known anomalies: few cannot tell which of many columns matter. imp_c is
how much of the impurity the cuts at column c take away in bagged trees that tell known anomalies from unlabelled rows.
Each member has trees of its own, grown without the rows it leaves out.

Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022, has Eq. (a).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esad.core.arrays import Floats, Labels, RowNumbers, Rows
from esad.core.processes import Processes
from esad.core.random import MemberRandom
from esad.methods.esad.turns import Turns
from esad.networks.layers import Network
from esad.networks.mlp import FrozenMLP, StackedMLP
from esad.networks.spec import NetworkSpec
from esad.solvers.trees import BaggedTreesModel
from esad.train.objective import Batch
from esad.train.transforms import quarter_turns, random_turns, rotate, shift_and_flip, to_grey

if TYPE_CHECKING:
    from esad.methods.esad.loss import LossSettings

MAX_ROWS = 10_000  # that edges are taken from
MIN_WIDTH, MIN_DEVIATION = 1e-6, 0.05  # of a bin, where columns have deviation 1; of a place within it
OUTSIDE = 1.0  # the outer bins go on for so many of their widths
FAR = 1e30  # where no column goes
AS_IT_IS = {"slope": 1.0, "shift": 0.0, "floor": -FAR, "ceiling": FAR, "exists": 1.0}  # the line of a column itself
LEAST_WEIGHT, MOST_WEIGHT = 0.1, 6.0  # of a column, where the power is 1
N_TREES = 64  # that a member's columns are weighed by
Sums = Callable[[Tensor], tuple[Tensor, Tensor]]


def make_view(spec: NetworkSpec, settings: LossSettings) -> ColumnView:
    """The view for rows that this network takes."""
    if spec.kind != "mlp":
        return PictureView(spec, settings)
    return (BinnedView if settings.bins else ColumnView)(spec, settings)


class ColumnView(nn.Module):
    """The view of a table's columns as they are; other views override what is different for them.

    Attributes
    ----------
    network : NetworkSpec
        The networks, for what this view shows them.
    n_columns : int
        Numbers in a row.
    ratio : Tensor, (members,), or None
        How many features stand for a column, where it is not one.
    decoys, turns : Decoys and Turns, or None
        What pictures may have besides.
    """

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__()
        self.network, self.settings = spec, settings
        self.n_columns = math.prod(spec.in_shape)
        self.decoys: Decoys | None = None
        self.turns: Turns | None = None
        if settings.column_weights and not settings.bins:
            self.register_buffer("weights", torch.ones(spec.n_members, self.n_columns))

    @property
    def ratio(self) -> Tensor | None:
        """Return None: every column has one feature."""
        return None

    def learn(self, rows: Rows, which: RowNumbers, weights: NDArray[np.float32] | None = None) -> None:
        """Learn from the presumed normal training rows before the training, and weigh columns by member."""
        if weights is not None:
            self.get_buffer("weights").copy_(torch.from_numpy(weights))

    def _weight(self) -> Tensor | None:
        """Weights of the columns, (members, columns)."""
        return self.get_buffer("weights") if self.settings.column_weights else None

    def adjust(self, *encoders: nn.Module | None) -> None:
        """Change the initial weights of the encoders where the view needs others."""

    # ------------------------------------------------------------------ features

    def show(self, x: Tensor) -> Tensor:
        """Rows (members, batch, *features) as the networks get them."""
        weight = self._weight()
        return x if weight is None else x * weight[:, None]

    def trim(self, rebuilt: Tensor) -> Tensor:
        """Set the decoder's output to 0 for features that do not exist."""
        return rebuilt

    def columns(self, rebuilt: Tensor) -> Tensor:
        """Turn what the networks rebuilt back into rows (members, batch, *features)."""
        weight = self._weight()
        return rebuilt if weight is None else rebuilt / weight[:, None]

    def by_column(self, errors: Tensor) -> Tensor:
        """Squared errors of what the networks see, summed up by column."""
        return errors

    # ------------------------------------------------------------------ training

    def augment(self, batch: Batch) -> Batch:
        """The batch, changed at random without changing what it means."""
        return batch

    def rearrange(self, x: Tensor, random: MemberRandom) -> Tensor:
        """Shuffle the columns of every row by its own permutation: the part of phi that is not noise."""
        return x.gather(2, random.uniform(*x.shape[1:]).argsort(dim=2))

    def disturb(self, x: Tensor, n_unlabelled: int, random: MemberRandom) -> Tensor:
        """What Enc1 sees while training: rows with noise, labelled ones with less of it."""
        levels = self.settings.input_noise
        if not any(levels):
            return x
        noise = random.normal(*x.shape[1:])
        if self.settings.labelled_noise_ratio != 1:
            noise[:, n_unlabelled:] *= self.settings.labelled_noise_ratio
        # filled on the device: a step that a GPU replays cannot copy numbers from the host
        sigma = torch.stack([x.new_full([1] * (x.dim() - 1), level) for level in levels])
        return torch.addcmul(x, self._by_feature(sigma), noise)

    def _by_feature(self, sigma: Tensor) -> Tensor:
        """Return the noise per feature, given the noise per column, (members, 1, ...)."""
        return sigma

    # ------------------------------------------------------------------ scoring

    def forms(self, x: Tensor) -> Iterator[Tensor]:
        """Rows (batch, *features) in every form that they are scored in, (members, batch, ...)."""
        yield self.show(x.expand(self.network.n_members, *x.shape))

    def sums(self, networks: list[Network]) -> Sums | None:
        """Return a fast function from rows (batch, columns) to summed squared errors and codes, (members, batch)."""
        frozen = [network.freeze() for network in networks]  # type: ignore[operator]
        weight = self._weight()
        if weight is None:
            return lambda x: _sums_of_squares(frozen, x.t()[None])
        factor = weight[:, :, None].clone()
        return lambda x: _sums_of_squares(frozen, x.t()[None] * factor)


def weigh_columns(
    rows: Rows, y: Labels, unseen_by: NDArray[np.int64], *, power: float, n_members: int, seed: int
) -> NDArray[np.float32]:
    """Eq. (c), (members, columns), by trees of each member's own rows; ones where it has no known anomaly.

    `unseen_by` (n,) says which member leaves a row out, -1 for none; it is counted round if there are more members.
    """
    weights = np.ones((n_members, rows.shape[1]), dtype=np.float32)
    n_parts = max(1, int(unseen_by.max()) + 1)
    for member in range(n_members):
        own = unseen_by != member % n_parts
        if (y[own] < 0).any() and (y[own] >= 0).any():
            trees = BaggedTreesModel(n_trees=N_TREES, min_unlabelled=64, with_ranks=False)
            importances = trees.fit(rows[own], y[own], seed=seed + member).importances
            weights[member] = np.clip(rows.shape[1] * importances, LEAST_WEIGHT, MOST_WEIGHT) ** power
    return weights


class Bins(nn.Module):
    """Eq. (a) as clip(slope x + shift, floor, ceiling), each (members, bins, columns).

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

    def learn(self, rows: Rows, which: RowNumbers | None = None) -> None:
        """Take the edges from these of the rows (n, columns), all by default; of many, from evenly spaced ones."""
        which = np.arange(len(rows)) if which is None else which
        sample = rows[which[:: -(-len(which) // MAX_ROWS)]].astype(np.float64)
        known = {n: _bin_lines(sample, n) if n else AS_IT_IS for n in set(self.n_bins)}
        for member, n in enumerate(self.n_bins):
            for name, lines in known[n].items():
                self.get_buffer(name)[member, : max(n, 1)] = torch.as_tensor(lines)
        self.ratio.copy_(self.exists.sum((1, 2)).clamp(min=1) / self.n_columns)

    def weigh(self, weights: NDArray[np.float32]) -> None:
        """Multiply the features of every column by its weight, (members, columns)."""
        for line in (self.slope, self.shift, self.floor, self.ceiling):
            line.mul_(torch.from_numpy(weights)[:, None])

    def forward(self, x: Tensor) -> Tensor:
        """Rows (members, batch, columns) as (members, batch, bins * columns)."""
        line = torch.addcmul(self.shift[:, None], x[:, :, None], self.slope[:, None])
        return torch.clamp(line, self.floor[:, None], self.ceiling[:, None]).flatten(2)

    def freeze(self, members: Tensor) -> Callable[[Tensor], Tensor]:
        """For scoring: from rows (batch, columns) to (members, bins * columns, batch), or (1, ...) if members agree."""
        lines = [line[members] for line in (self.slope, self.shift, self.floor, self.ceiling)]
        if all(bool((line == line[:1]).all()) for line in lines):
            lines = [line[:1] for line in lines]
        slope, shift, floor, ceiling = (line[..., None].clone() for line in lines)
        return lambda x: torch.clamp(torch.addcmul(shift, x.t(), slope), floor, ceiling).flatten(1, 2)

    def back(self, features: Tensor) -> Tensor:
        """Eq. (b): features (members, batch, bins * columns) as columns (members, batch, columns)."""
        start = torch.where(self.exists.cumsum(1) == 1, self.shift, self.floor)
        width = self.exists / torch.where(self.exists > 0, self.slope, 1.0)  # of a feature's unit, in the column
        return ((self.by_column(features) - start[:, None]) * width[:, None]).sum(2)

    def by_column(self, features: Tensor) -> Tensor:
        """From (members, batch, bins * columns) to (members, batch, bins, columns)."""
        return torch.unflatten(features, 2, (self.n_rooms, self.n_columns))


def _bin_lines(sample: Floats, n_bins: int) -> dict[str, Floats]:
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


class BinnedView(ColumnView):
    """Rows of a table some of whose members see the features of Eq. (a); `spec` and `settings` speak of the columns."""

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__(spec, settings)
        self.network = replace(spec, in_shape=(max(settings.bins) * self.n_columns,), sigmoid=False)
        self.bins = Bins(self.n_columns, settings.bins)

    @property
    def ratio(self) -> Tensor:
        """Return the number of features per column, (members,)."""
        return self.bins.ratio

    def learn(self, rows: Rows, which: RowNumbers, weights: NDArray[np.float32] | None = None) -> None:
        """Take the edges of the bins from the presumed normal rows; weigh columns by member."""
        self.bins.learn(rows, which)
        if weights is not None:
            self.bins.weigh(weights)

    def adjust(self, *encoders: nn.Module | None) -> None:
        """Initial weights for as many features as exist."""
        n_rooms = self.bins.n_rooms / self.bins.ratio  # for each feature that exists
        for encoder in encoders:
            if isinstance(encoder, StackedMLP):
                n_in, n_out = encoder.shapes[0]
                with torch.no_grad():
                    encoder.weights[:, : n_in * n_out] *= n_rooms.sqrt()[:, None]

    def show(self, x: Tensor) -> Tensor:
        """Rows as places within bins."""
        features: Tensor = self.bins(x)
        return features

    def trim(self, rebuilt: Tensor) -> Tensor:
        """Set the output for bins without width to 0."""
        return rebuilt * self.bins.exists.flatten(1)[:, None]

    def columns(self, rebuilt: Tensor) -> Tensor:
        """Places within bins as columns."""
        return self.bins.back(rebuilt)

    def by_column(self, errors: Tensor) -> Tensor:
        """The mean over the bins of a column."""
        return self.bins.by_column(errors).sum(2) / self.bins.ratio[:, None, None]

    def _by_feature(self, sigma: Tensor) -> Tensor:
        return sigma * self.bins.exists.flatten(1)[:, None] * self.bins.ratio.sqrt()[:, None, None]

    def sums(self, networks: list[Network]) -> Sums:
        """The same for bins; members without bins are computed apart, since they need no memory for them."""
        kinds = self.split_members([network.freeze() for network in networks])  # type: ignore[operator]
        order = torch.cat([members for members, _, _ in kinds]).argsort()

        def sums(x: Tensor) -> tuple[Tensor, Tensor]:
            found = [_sums_of_squares(own, show(x)) for _, show, own in kinds]
            error, code = (torch.cat(part).index_select(0, order) for part in zip(*found, strict=True))
            return error, code

        return sums

    def split_members(
        self, networks: list[FrozenMLP]
    ) -> list[tuple[Tensor, Callable[[Tensor], Tensor], list[FrozenMLP]]]:
        """Split the members by what they see: their numbers, how they see rows (batch, columns), and their networks.

        What they see is (1 or members, features, batch).
        """
        is_binned = torch.tensor(self.bins.n_bins, device=self.bins.ratio.device) > 0
        plain, binned = (torch.nonzero(kind).flatten() for kind in (~is_binned, is_binned))
        matrix, bias = networks[1].layers[-1]
        exists = self.bins.exists.flatten(1)[:, :, None]
        networks[1].layers[-1] = (matrix * exists, bias * exists)
        n = self.n_columns
        on_columns = [network.take_members(plain, n_in=n) for network in networks]
        on_columns[1] = networks[1].take_members(plain, n_out=n)
        found = [(binned, self.bins.freeze(binned), [network.take_members(binned) for network in networks])]
        if not len(plain):
            return found
        factor = self.bins.slope[plain, 0][:, :, None].clone()
        weighted = self.settings.column_weights > 0
        return [(plain, lambda x: x.t()[None] * factor if weighted else x.t()[None], on_columns), *found]


def _sums_of_squares(networks: list[FrozenMLP], h: Tensor) -> tuple[Tensor, Tensor]:
    """||x^ - x||^2 and ||z^||^2 of rows (1 or members, features, batch), each (members, batch)."""
    code = networks[0](h)
    reconstruction = networks[1](code)
    second_code = networks[2](reconstruction) if len(networks) > 2 else code
    if networks[1].sigmoid:  # whose slope is taken from what it gave
        reconstruction = reconstruction.clone()
    return reconstruction.sub_(h).square_().sum(1), second_code.square_().sum(1)


class PictureView(ColumnView):
    """Pictures, (members, batch, C, H, W) while training: moved, without what is to be restored, and with decoys."""

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__(spec, settings)
        self.hides_colour = settings.restore in ("grey", "both")
        self.hides_turn = settings.restore in ("rotate", "both")
        self.turns = Turns(spec, settings) if settings.turns else None
        self.decoys = Decoys(settings.decoys, spec.n_members) if settings.decoys else None

    def show(self, x: Tensor) -> Tensor:
        """Pixels in [0, 1] or [-1, 1]."""
        return 2 * x - 1 if self.settings.signed else x

    def columns(self, rebuilt: Tensor) -> Tensor:
        """Pixels in [0, 1] again."""
        return (rebuilt + 1) / 2 if self.settings.signed else rebuilt

    def augment(self, batch: Batch) -> Batch:
        """The batch with its pictures shifted and mirrored: those of labelled anomalies farther than the others."""
        settings, random = self.settings, batch.random
        if settings.shift or settings.flip:
            moved = shift_and_flip(batch.unlabelled, settings.shift, random, flip=settings.flip)
            batch = replace(batch, unlabelled=moved)
        if settings.augment and batch.labelled.shape[1]:
            moved = shift_and_flip(batch.labelled, settings.augment, random)
            is_anomaly = (batch.y < 0).view(*batch.y.shape, 1, 1, 1)
            batch = replace(batch, labelled=torch.where(is_anomaly, moved, batch.labelled))
        elif settings.flip and batch.labelled.shape[1]:
            batch = replace(batch, labelled=shift_and_flip(batch.labelled, 0, random))
        return batch

    def rearrange(self, x: Tensor, random: MemberRandom) -> Tensor:
        """Pictures, turned."""
        return rotate(x, random_turns(x, random, identity=False))

    def disturb(self, x: Tensor, n_unlabelled: int, random: MemberRandom) -> Tensor:
        """What Enc1 sees while training: pictures without what is to be restored, with noise."""
        if self.hides_colour:
            x = to_grey(x)
        if self.hides_turn:
            x = rotate(x, random_turns(x, random, identity=True))
        return super().disturb(x, n_unlabelled, random)

    def forms(self, x: Tensor) -> Iterator[Tensor]:
        """Pictures without what is to be restored: upright, then turned where that is hidden."""
        (pictures,) = super().forms(x)
        upright = to_grey(pictures) if self.hides_colour else pictures
        for turn in quarter_turns(x.shape) if self.hides_turn else (0,):
            yield torch.rot90(upright, turn, dims=(-2, -1)) if turn else upright

    def sums(self, networks: list[Network]) -> None:
        """Return None: pictures have no faster way than the networks themselves."""


class Decoys(nn.Module):
    """Unlabelled pictures turned by 90, 180 or 270 degrees: known anomalies in L_norm, rows in L_ass, not in L_rec.

    The norm of a picture is then held against that of its turned copies; docs/decisions/0008-decoys.md says why.

    Parameters
    ----------
    ratio : float
        Share of the unlabelled pictures of a step that are seen once more.
    n_members : int

    Attributes
    ----------
    told_apart : Tensor, (members, turns)
        How well pictures turned 0, 90, 180, 270 degrees are told from normal ones; the first is never used.
    """

    N_TURNS = 4  # of a picture, by 90 degrees
    MIN_TOLD_APART, RATE = 0.1, 0.01  # smallest weight of a decoy, and how quickly it follows what is seen
    told_apart: Tensor

    def __init__(self, ratio: float, n_members: int) -> None:
        super().__init__()
        self.ratio = ratio
        self.register_buffer("told_apart", torch.ones(n_members, self.N_TURNS))

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Draw unlabelled pictures and turn them; also return their numbers of quarter turns, (members, decoys)."""
        pictures = batch.unlabelled[:, : round(self.ratio * batch.unlabelled.shape[1])]
        turns = random_turns(pictures, batch.random, identity=False)
        return rotate(pictures, turns), turns

    @torch.no_grad()
    def weigh(self, turns: Tensor, norm: Tensor, normal_norm: Tensor, processes: Processes) -> Tensor:
        """Weights of decoys (members, decoys), which follow how well each turn is told apart.

        Turns that leave pictures as normal as they were must not count as anomalies. A decoy is told apart if its norm
        is above the median of the unlabelled pictures: half of them by chance.
        """
        norms, normal_norms, all_turns = (processes.gather_rows(rows) for rows in (norm, normal_norm, turns))
        dtype = self.told_apart.dtype  # norms may come in the low precision of autocast
        by_turn = (all_turns[..., None] == torch.arange(self.N_TURNS, device=turns.device)).to(dtype)
        caught = (norms > normal_norms.median(1, keepdim=True).values).to(dtype)  # (members, decoys)
        count = by_turn.sum(1)
        share = (caught[..., None] * by_turn).sum(1) / count.clamp(min=1)
        found = (2 * share - 1).clamp(min=self.MIN_TOLD_APART)
        self.told_apart.copy_(torch.where(count > 0, self.told_apart.lerp(found, self.RATE), self.told_apart))
        return self.told_apart.gather(1, turns)
