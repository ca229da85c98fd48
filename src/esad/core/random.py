"""The one place where training randomness is made: a stream of its own for every member, rows that are held out.

A member draws from its own generator only, so it sees the same numbers whether it is trained alone or stacked
with others.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esad import labels
from esad.core import processes
from esad.core.arguments import check_share
from esad.core.arrays import Labels
from esad.core.processes import BatchShare
from esad.errors import InputError

N_PARTS = 10  # of the unlabelled rows; a member trains without one of them
MIN_PART_ROWS = 2
MIN_ANOMALY_PARTS = 5  # no member does without more than a fifth of the known anomalies
_CALIBRATION = 1  # the stream of random numbers that draws calibration rows


def seed_from(random_state: int | np.random.RandomState | np.random.Generator | None) -> int:
    """Turn scikit-learn's `random_state` into one integer seed; `None` takes fresh entropy, in all processes alike."""
    if random_state is None:
        fresh = int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
        return int(processes.current().broadcast_first(fresh))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if not isinstance(random_state, int | np.integer) or isinstance(random_state, bool) or random_state < 0:
        raise InputError(f"`random_state` must be a whole number, 0 or more, or None. Got {random_state!r}.")
    return int(random_state)


def member_seeds(seed: int, n_members: int, *, phase: int = 0) -> list[int]:
    """One seed per member and phase of the training; member k's seed does not depend on how many members there are."""
    children = np.random.SeedSequence([seed, phase] if phase else seed).spawn(n_members)
    return [int(child.generate_state(1, np.uint64)[0] >> np.uint64(1)) for child in children]


class MemberRandom:
    """Random tensors of shape (members, ...), each member's slice from its own generator.

    Parameters
    ----------
    seeds : sequence of int
        One seed per member.
    device : torch.device, default cpu
        Where the numbers are drawn.
    dtype : torch.dtype, default float32
        Type of the real numbers drawn.

    Examples
    --------
    >>> both, alone = MemberRandom([1, 2]), MemberRandom([2])
    >>> bool((both.normal(3)[1] == alone.normal(3)[0]).all())
    True
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        device: torch.device | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device = device or torch.device("cpu")
        self.dtype = dtype
        self._generators = [torch.Generator(self.device).manual_seed(seed) for seed in seeds]
        self._part = BatchShare()

    def for_part(self, part: BatchShare) -> "MemberRandom":
        """The same streams for a part of a batch: draws are made for the whole batch and the part's rows are given.

        Examples
        --------
        >>> whole, half = MemberRandom([1]), MemberRandom([1]).for_part(BatchShare(1, 2))
        >>> bool((whole.normal(6, 3)[:, 1::2] == half.normal(3, 3)).all())
        True
        """
        view = copy.copy(self)
        view._part = part
        return view

    @property
    def n_members(self) -> int:
        """How many members draw."""
        return len(self._generators)

    def _fill(
        self, shape: tuple[int, ...], dtype: torch.dtype, draw: Callable[[Tensor, torch.Generator], object]
    ) -> Tensor:
        if shape and self._part.n_parts > 1:
            shape = (shape[0] * self._part.n_parts, *shape[1:])
        out = torch.empty((self.n_members, *shape), dtype=dtype, device=self.device)
        for member, generator in zip(out, self._generators, strict=True):
            draw(member, generator)
        return self._part.of(out)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, (members, *shape); the first axis of `shape` counts the rows of a batch."""
        return self._fill(shape, self.dtype, lambda t, g: t.normal_(generator=g))

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1), (members, *shape)."""
        return self._fill(shape, self.dtype, lambda t, g: t.uniform_(generator=g))

    def integers(self, high: int, *shape: int) -> Tensor:
        """Uniform integers in 0 .. high - 1, (members, *shape)."""
        return self._fill(shape, torch.int64, lambda t, g: t.random_(0, high, generator=g))

    def permutation(self, n: int) -> Tensor:
        """A permutation of 0 .. n - 1 per member, (members, n)."""
        out = torch.empty((self.n_members, n), dtype=torch.int64, device=self.device)
        for member, generator in zip(out, self._generators, strict=True):
            torch.randperm(n, generator=generator, out=member)
        return out

    def register(self, graph: torch.cuda.CUDAGraph) -> None:
        """Let a graph draw from these streams anew at every replay."""
        for generator in self._generators:
            graph.register_generator_state(generator)

    def state(self) -> Tensor:
        """The generators' states as one tensor, (members, bytes)."""
        return torch.stack([generator.get_state() for generator in self._generators])

    def set_state(self, state: Tensor) -> None:
        """Continue from a state that `state()` gave."""
        for row, generator in zip(state, self._generators, strict=True):
            generator.set_state(row.cpu().clone())  # a copy is aligned, which torch takes for granted


# ---------------------------------------------------------------------- rows that are held out


def n_held_out_rows(n_unlabelled: int, n_members: int) -> int:
    """How many unlabelled rows some member leaves out of its training.

    Examples
    --------
    >>> n_held_out_rows(1000, 5), n_held_out_rows(1000, 20), n_held_out_rows(15, 5)
    (500, 1000, 0)
    """
    size = n_unlabelled // N_PARTS
    return size * min(n_members, N_PARTS) if size >= MIN_PART_ROWS else 0


def draw_held_out(y: Labels, seed: int, *, n_anomaly_parts: int = 0) -> NDArray[np.int64]:
    """Draw which rows each member leaves out, (n,): member k trains without part k; rows with -1 are in no part.

    The parts do not depend on the number of members. Thanks to them the threshold can be set on scores of rows that
    were not seen in training. With `n_anomaly_parts`, as many as there are members, each of these leaves out some of
    the known anomalies too, a fifth at most.

    Examples
    --------
    >>> np.bincount(draw_held_out(np.zeros(105, dtype=np.int8), seed=0) + 1).tolist()
    [5, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]
    >>> y = np.r_[np.zeros(105), -np.ones(11)].astype(np.int8)
    >>> np.bincount(draw_held_out(y, seed=0, n_anomaly_parts=3)[105:] + 1).tolist()
    [5, 2, 2, 2]
    """
    parts = np.full(len(y), -1, dtype=np.int64)
    rng = np.random.default_rng(seed)
    unlabelled, anomalies = (
        rng.permutation(np.flatnonzero(y == label)) for label in (labels.UNLABELLED, labels.ANOMALY)
    )
    size = n_held_out_rows(len(unlabelled), 1)
    n_anomalies = len(anomalies) // max(n_anomaly_parts, MIN_ANOMALY_PARTS) if size else 0
    for part in range(N_PARTS):
        parts[unlabelled[part * size : (part + 1) * size]] = part
        if part < n_anomaly_parts:
            parts[anomalies[part * n_anomalies : (part + 1) * n_anomalies]] = part
    return parts


def draw_calibration(y: Labels, ratio: float, seed: int) -> NDArray[np.bool_]:
    """Mark the share `ratio` of the unlabelled rows (if there are none, of the normal ones) for calibration, (n,).

    Examples
    --------
    >>> draw_calibration(np.array([-1, 0, 0, 0, 0, 1], dtype=np.int8), 0.5, seed=0).sum()
    np.int64(2)
    """
    check_share("`calibration_ratio`", ratio)
    label = labels.UNLABELLED if (y == labels.UNLABELLED).any() else labels.NORMAL
    rows = np.flatnonzero(y == label)
    n_held_out = round(ratio * len(rows))
    if not 1 <= n_held_out < len(rows) or len(y) - n_held_out < 2:
        raise InputError(
            f"`calibration_ratio` of {ratio:g} leaves {n_held_out} rows to calibrate with and {len(rows) - n_held_out} "
            "presumed normal rows to train on. Both need one at least, a training two of any kind. Give more rows or "
            "another share."
        )
    chosen = np.zeros(len(y), dtype=bool)
    chosen[np.random.default_rng([seed, _CALIBRATION]).permutation(rows)[:n_held_out]] = True
    return chosen
