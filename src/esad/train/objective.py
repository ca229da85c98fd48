"""The interface between a method and the loop: what a batch is, and what a method must compute from it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from esad.core.arrays import Labels
from esad.core.processes import ALONE, Processes
from esad.core.random import MemberRandom

HELD_OUT = 2  # marks rows that no member draws

T = TypeVar("T")
Scorer = Callable[[Tensor], dict[str, Tensor]]


def unlabel_all(y: Labels) -> Labels:
    """Return labels for a phase that learns from every row alike: all 0."""
    return np.zeros_like(y)


def hold_out_anomalies(y: Labels) -> Labels:
    """Return labels that count normal rows as unlabelled and hold known anomalies out of a phase.

    Where there is nothing but known anomalies, it learns from them.

    Examples
    --------
    >>> hold_out_anomalies(np.array([-1, 0, 1], dtype=np.int8))
    array([2, 0, 0], dtype=int8)
    """
    return np.where((y < 0) & (y >= 0).any(), np.int8(HELD_OUT), np.int8(0))


def mean_over_rows(values: Tensor) -> Tensor:
    """Mean of (members, batch) over the batch, (members,); zero for an empty batch."""
    return values.sum(1) / max(1, values.shape[1])


class Refill(Protocol):
    """A function that puts new rows into the pool; an interrupted training can return to where it was."""

    n_done: int
    n_rows: int  # all unlabelled rows, including those still to be read

    def __call__(self) -> None:
        """Put other rows in place of the unlabelled ones."""

    def restore(self, n_done: int) -> None:
        """Go to the state after so many calls."""


@dataclass(frozen=True)
class RowPool:
    """Rows on the device, and which of them each member may draw.

    Attributes
    ----------
    x : Tensor, (n, *features)
        All rows; members share them, or own disjoint parts through their row numbers.
    unlabelled : Tensor of int64, (members, n_unlabelled)
        Row numbers of the unlabelled rows, per member.
    labelled : Tensor of int64, (members, n_labelled)
        Row numbers of the labelled rows, anomalies first, per member.
    y : Tensor, (members, n_labelled)
        Their labels, -1 or +1.
    n_anomalies : int
        How many of the labelled rows, counted from the front, are anomalies.
    refill : callable, optional
        Puts other unlabelled rows into `x` once all of them have been drawn, of data that does not fit into memory.
    """

    x: Tensor
    unlabelled: Tensor
    labelled: Tensor
    y: Tensor
    n_anomalies: int
    refill: "Refill | None" = None

    @classmethod
    def from_shared_rows(cls, x: Tensor, y: Tensor, *, n_members: int, unseen_by: Tensor | None = None) -> "RowPool":
        """All members draw from the same rows.

        `y` is (n,) of -1, 0, +1, or `HELD_OUT` for rows that nobody draws. `unseen_by` is (n,) with numbers of equally
        large parts, -1 for rows in none; member k draws no row of part k, counted round if there are more members.
        """
        by_member = y.repeat(n_members, 1)
        n_parts = 0 if unseen_by is None else int(unseen_by.max()) + 1
        for member in range(n_members if n_parts else 0):
            by_member[member, unseen_by == member % n_parts] = HELD_OUT
        return cls.from_own_rows(x, by_member)

    @classmethod
    def from_own_rows(cls, x: Tensor, y: Tensor) -> "RowPool":
        """Each member draws from rows of its own.

        `y` is (members, n) of -1, 0, +1, or `HELD_OUT` for rows that the member does not draw. All members must have
        equally many rows of each label.
        """
        anomalies, unlabelled, normals = (_rows_with(y, label) for label in (-1, 0, 1))
        labelled = torch.cat([anomalies, normals], dim=1)
        signs = y.gather(1, labelled).to(x.dtype)
        return cls(x=x, unlabelled=unlabelled, labelled=labelled, y=signs, n_anomalies=anomalies.shape[1])

    @property
    def n_members(self) -> int:
        """How many members train."""
        return self.unlabelled.shape[0]

    @property
    def n_unlabelled(self) -> int:
        """Unlabelled rows per member."""
        return self.unlabelled.shape[1]

    @property
    def n_labelled(self) -> int:
        """Labelled rows per member."""
        return self.labelled.shape[1]


def _rows_with(y: Tensor, label: int) -> Tensor:
    """Numbers of the rows that carry a label, (members, rows)."""
    return torch.stack([torch.nonzero(row == label).flatten() for row in y])


@dataclass(frozen=True)
class Batch:
    """The rows and labels of one step, per member.

    Attributes
    ----------
    unlabelled : Tensor, (members, n, *features)
    labelled : Tensor, (members, m, *features)
        Drawn apart from the unlabelled rows, because the losses average the two parts apart. Either may be empty.
    y : Tensor, (members, m)
        -1 or +1.
    random : MemberRandom
        For noise, permutations and rotations.
    processes : Processes
        Those that hold the other rows of the batch, for what depends on all of them.
    """

    unlabelled: Tensor
    labelled: Tensor
    y: Tensor
    random: MemberRandom
    processes: Processes = ALONE

    @property
    def rows(self) -> Tensor:
        """The unlabelled rows, then the labelled ones, (members, n + m, *features)."""
        return torch.cat([self.unlabelled, self.labelled], dim=1)

    def split(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Split values (members, n + m, ...) of `rows` into those of the unlabelled and of the labelled ones."""
        unlabelled, labelled = torch.split(values, [self.unlabelled.shape[1], self.labelled.shape[1]], dim=1)
        return unlabelled, labelled

    def draw_codes(self, size: int) -> Tensor:
        """A code of N(0, I) for every unlabelled row, (members, n, size)."""
        return self.random.normal(self.unlabelled.shape[1], size)


@dataclass(frozen=True)
class Move:
    """A part of a step: which networks move, and the loss that they move on.

    Attributes
    ----------
    loss : callable
        From a batch to named, already weighted terms, each (members,); the loop minimises their sum.
    networks : tuple of Module
        Those whose parameters move; every other parameter is a constant. Where none is named, all of them move.
    every : int
        It is made in steps 0, `every`, 2 `every`, ...; in the steps between its curves stay where they are.
    lr_ratio : float
        Times the learning rate of the settings, for these networks; all moves of a network have the same.
    """

    loss: Callable[[Batch], dict[str, Tensor]]
    networks: tuple[nn.Module, ...] = ()
    every: int = 1
    lr_ratio: float = 1.0


class Objective(nn.Module, ABC):
    """Networks with a loss and a score. Every parameter's leading axis is a multiple of the number of members.

    Attributes
    ----------
    n_members : int
    for_training : tuple of str
        Names of networks that only the training needs, such as judges; a model file does not hold them.
    recordable : bool
        Whether a step has fixed shapes and never looks at values on the host, so that a GPU can replay it.
    near_zero : float
        Scores that pass through 0 are there differences of larger numbers, of which float32 leaves few digits: below
        this size they are computed in float64. 0 for scores that do not.
    """

    n_members: int
    for_training: ClassVar[tuple[str, ...]] = ()
    recordable: ClassVar[bool] = False
    near_zero: float = 0.0

    def make_once(self, name: str, make: Callable[[], T]) -> T:
        """Call `make` once and keep its result under a name until a weight changes.

        For scoring a row at a time, which would take longer to prepare than to do.
        """
        weights = [*self.parameters(), *self.buffers()]
        if any(weight.is_inference() for weight in weights):  # they do not count their changes
            return make()
        now = tuple((weight.data_ptr(), weight._version) for weight in weights)
        kept: dict[str, tuple[object, T]] = self.__dict__.setdefault("_kept", {})
        if name not in kept or kept[name][0] != now:
            kept[name] = (now, make())
        return kept[name][1]

    def __getstate__(self) -> dict[str, object]:
        """Return the state without cached results, which copies and files make anew."""
        state: dict[str, object] = dict(super().__getstate__())  # type: ignore[no-untyped-call]
        state.pop("_kept", None)
        return state

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights, each member from its own stream: of all networks, in the order they were made."""
        _reset_networks(self, random)

    @abstractmethod
    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Named, already weighted terms, each (members,); the loop minimises their sum.

        A term is a mean over the rows of the batch, so that the mean over equal parts of a batch is that of the whole;
        what depends on all rows at once asks `batch.processes` for those of other processes.
        """

    def moves(self) -> Sequence[Move]:
        """The parts of a step, made one after the other on the same rows; by default one, in which all weights move.

        Networks that work against each other move in turn: what is fixed in one move learns in another. A move that
        comes twice is made twice, with other random numbers.
        """
        return (Move(self.loss),)

    def after_step(self) -> None:
        """Let what follows the weights, such as their moving average, catch up. Nothing by default."""

    @abstractmethod
    def scorer(self) -> Scorer:
        """A function from rows (batch, *features) to raw score terms, each (members, batch), made once per pass."""

    def codes(self, x: Tensor) -> dict[str, Tensor]:
        """Codes of rows (batch, *features) in evaluation mode, by their names, each (members, batch, code)."""
        return {}

    def summands(self) -> Scorer:
        """The summands (members, batch, *features) of those raw terms that are sums over the features of a row.

        By default there are none.
        """
        return lambda x: {}

    def rebuilder(self) -> Callable[[Tensor], Tensor] | None:
        """A function from rows (batch, *features) to their reconstruction (members, batch, *features).

        By default there is none.
        """
        return None

    def inherit(self, previous: "Objective") -> None:
        """Take over what the phase before this one has learned. Nothing by default."""

    def prepare(self, data: RowPool) -> None:
        """Look at the data once before the first step (a centre, say). Nothing by default."""

    def finish(self, data: RowPool) -> None:
        """Look at the data once more after the last step, in evaluation mode. Nothing by default."""

    def keep_for_scoring(self) -> None:
        """Drop the networks that only the training needs: after the last phase, or to load a model file."""
        for name in self.for_training:
            delattr(self, name)

    def calibrate(self, terms: dict[str, Tensor]) -> None:
        """Learn the scales of the terms from presumed normal rows after training. Nothing by default."""

    def contributions(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """What each term adds to each member's score, (members, batch); the anomaly score is the mean of members."""
        return {name: term.double() for name, term in terms.items()}


class RebuildingObjective(Objective):
    """An objective whose score is the mean over the features of an error, such as that of what is rebuilt.

    Attributes
    ----------
    error_name : str
        What the only term of the score is called.
    """

    error_name: ClassVar[str] = "reconstruction"

    @abstractmethod
    def errors(self) -> Callable[[Tensor], Tensor]:
        """A function from rows (batch, *features) to the error of every feature (members, batch, *features)."""

    def scorer(self) -> Scorer:
        """A function giving the mean error of every row, (members, batch)."""
        errors = self.errors()
        return lambda x: {self.error_name: errors(x).flatten(2).mean(2)}

    def summands(self) -> Scorer:
        """The error of every feature over their number, (members, batch, *features)."""
        errors = self.errors()
        return lambda x: {self.error_name: errors(x) / x[0].numel()}


def _reset_networks(module: nn.Module, random: MemberRandom) -> None:
    for part in module.children():
        reset = getattr(part, "reset", None)
        if reset is None:
            _reset_networks(part, random)
        else:
            reset(random)
