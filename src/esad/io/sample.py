"""A uniform sample of rows that come block by block, in any order and in any number of shards.

Every row has a priority that depends on its number and a seed only; the rows of smallest priority are the sample. So
two samples can be merged, and a later pass knows which rows are in it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.table.table import join_rows, take_rows

__all__ = ["Sample", "priorities"]

Numbers = NDArray[np.int64]


def priorities(numbers: Numbers, seed: int) -> NDArray[np.uint64]:
    """Evenly spread, different for different rows: the finaliser of SplitMix64.

    Examples
    --------
    >>> shares = priorities(np.arange(10_000), 0) / 2.0**64
    >>> bool(abs(shares.mean() - 0.5) < 0.01), len(set(shares.tolist()))
    (True, 10000)
    """
    with np.errstate(over="ignore"):
        x = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x += np.uint64(seed) * np.uint64(0xD1B54A32D192ED03)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray(x ^ (x >> np.uint64(31)))


class Sample:
    """At most `n_most` rows, in the order of their priority.

    Parameters
    ----------
    n_most : int
    seed : int

    Examples
    --------
    >>> sample = Sample(3, seed=0)
    >>> for first in (0, 5):
    ...     sample.add(np.arange(first, first + 5), np.arange(first, first + 5))
    >>> bool((np.sort(sample.numbers) == np.sort(np.argsort(priorities(np.arange(10), 0))[:3])).all())
    True
    """

    def __init__(self, n_most: int, *, seed: int) -> None:
        self.n_most, self.seed = n_most, seed
        self._held: list[tuple[NDArray[np.uint64], Numbers, Any]] = []
        self._n_held = 0
        self._limit = np.uint64(2**64 - 1)  # rows above it cannot be in the sample any more

    def add(self, numbers: Numbers, rows: Any) -> None:
        """Take in rows, an arrow table or an array, with their numbers."""
        keys = priorities(numbers, self.seed)
        kept = keys <= self._limit
        if kept.any():
            self._held.append((keys[kept], numbers[kept], take_rows(rows, np.flatnonzero(kept))))
            self._n_held += int(kept.sum())
        if self._n_held > 2 * self.n_most:
            self._settle()

    def merge(self, other: "Sample") -> None:
        """Take in the sample of another shard, of the same seed and size."""
        self._held += other._held
        self._n_held += other._n_held
        self._settle()

    def _settle(self) -> None:
        if not self._held:
            return
        keys, numbers = (np.concatenate([part[index] for part in self._held]) for index in (0, 1))
        order = np.argsort(keys)[: self.n_most]
        rows = take_rows(join_rows([part[2] for part in self._held]), order)
        self._held, self._n_held = [(keys[order], numbers[order], rows)], len(order)
        if len(order) == self.n_most:
            self._limit = keys[order[-1]] if self.n_most else np.uint64(0)

    @property
    def numbers(self) -> Numbers:
        """Which rows are in the sample, by priority."""
        self._settle()
        return self._held[0][1] if self._held else np.empty(0, dtype=np.int64)

    def rows(self, first: int, last: int) -> Any:
        """Rows of the sample, by priority; None if there are none at all."""
        self._settle()
        return take_rows(self._held[0][2], np.arange(first, min(last, self._n_held))) if self._held else None

    def leave_out(self, names: Sequence[str]) -> None:
        """Forget some columns of a table."""
        self._held = [(keys, numbers, rows.drop_columns(list(names))) for keys, numbers, rows in self._held]

    def __len__(self) -> int:
        self._settle()
        return self._n_held
