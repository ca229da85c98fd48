"""Data that does not fit into memory, block by block: tables and pictures, in order or shuffled, and a sample of it."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esad.core.arrays import Labels
from esad.core.text import as_names
from esad.errors import DataFileError
from esad.io.files import Part, TableFiles, open_data
from esad.io.notes import Roles
from esad.io.picture_folder import PictureFolder
from esad.table.table import join_rows, take_rows

BLOCK_ROWS = 1 << 16
MAX_CELLS = 1 << 21  # of a block, however wide the table: 16 MiB as float64
MAX_VALUES = 1 << 24  # of a block of pictures
N_OPEN = 8  # parts of a table that are read from in turn, so that neighbours do not stay together
_MAX_WORDS = 1000  # different labels that are looked at


@dataclass(frozen=True, eq=False)
class LabelledBlock:
    """Some rows: an arrow table or pictures (n, channels, height, width), their labels, their numbers, their file."""

    X: Any
    y: Labels
    numbers: NDArray[np.int64]
    file: Path | None = None


class Stream(Protocol):
    """Rows that are read as often as needed; each row has a number that never changes."""

    @property
    def n_rows(self) -> int:
        """How many there are."""

    def blocks(self, share: int = 0, n_shares: int = 1) -> Iterator[LabelledBlock]:
        """All rows, in the order of their numbers; or share number `share` of `n_shares`, from 0."""

    def shuffled(self, rng: np.random.Generator) -> Iterator[LabelledBlock]:
        """All rows, in an order that the generator draws."""


def open_stream(
    path: str | os.PathLike[str], *, label_column: str | None = None, ignore: Sequence[str] = ()
) -> "TableStream | PictureStream":
    """Open a CSV or Parquet file, a folder or a pattern of them, or a folder of pictures.

    CSV is read once at the opening, to learn what its columns hold.

    Parameters
    ----------
    path : str or path-like
        Such as `parts/`, `parts/2024-*.parquet` or `pictures/`.
    label_column : str, optional
        Column with the words anomaly, normal and unlabelled, or -1, 0 and +1, or blanks. Pictures are labelled by
        their sub-folder.
    ignore : str or sequence of str
        Columns to leave out.

    Examples
    --------
    >>> import tempfile, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         pq.write_table(pa.table({"size": [1.5, 2.5]}), f"{folder}/part-{number}.parquet")
    ...     stream = open_stream(folder)
    ...     stream.n_rows, [block.numbers.tolist() for block in stream.blocks()]
    (6, [[0, 1], [2, 3], [4, 5]])
    """
    data, roles = open_data(path), Roles(label_column=label_column, ignore=as_names(ignore))
    if isinstance(data, TableFiles):
        return TableStream(data, roles)
    words = data.label_words
    return PictureStream(data, None if words is None else roles.labels(words))


class TableStream:
    """The rows of CSV and Parquet files with the same columns, in any order.

    Parameters
    ----------
    data : TableFiles
    roles : Roles
        Which columns hold labels, which are not read, and which are read as text.
    on_bytes : callable, optional
        Called with the number of bytes whenever some of a CSV file have been looked at.
    """

    def __init__(self, data: TableFiles, roles: Roles, *, on_bytes: Callable[[int], None] | None = None) -> None:
        first, self.label_column = data.files[0], roles.label_column
        roles.check(first, data.names)
        self.columns = tuple(roles.features(data.names))
        parts = data.parts(self.columns, label_column=roles.label_column, text=roles.text, on_bytes=on_bytes)
        self._parts = list(zip(parts, accumulate((part.n_rows for part in parts), initial=0), strict=False))
        self.n_rows = sum(part.n_rows for part in parts)
        if not self.n_rows:
            raise DataFileError(f"Cannot read {str(first)!r}: there are columns but no rows.")
        self._meanings = {} if self.label_column is None else self._read_meanings(self.label_column, roles)

    @property
    def _wanted(self) -> tuple[str, ...]:
        """Columns that are read."""
        return (*self.columns, *([] if self.label_column is None else [self.label_column]))

    def _read_meanings(self, label_column: str, roles: Roles) -> dict[Any, int]:
        """What each value of the label column means, from one look at that column alone."""
        found: dict[Any, None] = {}
        for part, _ in self._parts:
            for batch in part.batches((label_column,), BLOCK_ROWS):
                found |= dict.fromkeys(_words(pc.unique(batch[label_column])))
            if len(found) > _MAX_WORDS:
                break  # no labels, as will be said
        values = list(found)
        return dict(zip(values, roles.labels(values).tolist(), strict=True))

    def without(self, names: Sequence[str]) -> "TableStream":
        """The same rows without some of their columns."""
        other = copy.copy(self)
        other.columns = tuple(name for name in self.columns if name not in names)
        return other

    def blocks(self, share: int = 0, n_shares: int = 1) -> Iterator[LabelledBlock]:
        """All rows, file by file; share number k has the parts k, k + n_shares, k + 2 n_shares, ..."""
        for part, first in self._parts[share::n_shares]:
            yield from self._read(part, first)

    def shuffled(self, rng: np.random.Generator) -> Iterator[LabelledBlock]:
        """Parts in random order, several of them at a time; rows within a block stay in order."""
        waiting = [self._parts[index] for index in rng.permutation(len(self._parts))]
        reading: list[Iterator[LabelledBlock]] = []
        while waiting or reading:
            while waiting and len(reading) < N_OPEN:
                reading.append(self._read(*waiting.pop(), n_open=N_OPEN))
            for source in list(reading):
                block = next(source, None)
                if block is None:
                    reading.remove(source)
                else:
                    yield block

    def _read(self, part: Part, first: int, *, n_open: int = 1) -> Iterator[LabelledBlock]:
        n_rows = max(1, min(BLOCK_ROWS, MAX_CELLS // len(self._wanted)) // n_open)
        for rows in part.batches(self._wanted, n_rows):
            if rows.num_rows:
                numbers = np.arange(first, first + rows.num_rows)
                yield LabelledBlock(rows.select(list(self.columns)), self._labels(rows), numbers, part.file)
                first += rows.num_rows

    def _labels(self, rows: pa.Table) -> Labels:
        if self.label_column is None:
            return np.zeros(rows.num_rows, dtype=np.int8)
        encoded = rows[self.label_column].combine_chunks().dictionary_encode()
        known = [self._meanings[value] for value in _words(encoded.dictionary)]
        positions = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*known, self._meanings.get(None, 0)], dtype=np.int8)[positions])


def _words(values: pa.Array) -> list[Any]:
    """Values of a label column; NaN, which does not even equal itself, is missing."""
    return [None if value != value else value for value in values.to_pylist()]


class PictureStream:
    """The pictures of a folder with their labels; without any, all are unlabelled."""

    def __init__(self, folder: PictureFolder, y: Labels | None = None) -> None:
        self.folder = folder
        self._n_left_out = len(folder.broken or ())  # which are not listed
        self._y = np.zeros(folder.n_rows, dtype=np.int8) if y is None else y
        self._n_block = max(1, MAX_VALUES // folder.form.n_values)

    @property
    def n_rows(self) -> int:
        """How many pictures there are, without those that turned out to be broken."""
        return len(self.folder.ids) - (len(self.folder.broken or ()) - self._n_left_out)

    def blocks(self, share: int = 0, n_shares: int = 1) -> Iterator[LabelledBlock]:
        """All pictures, by name; share number k has the pictures k, k + n_shares, k + 2 n_shares, ..."""
        return self._read(np.arange(share, len(self.folder.ids), n_shares))

    def shuffled(self, rng: np.random.Generator) -> Iterator[LabelledBlock]:
        """All pictures in random order."""
        return self._read(rng.permutation(len(self.folder.ids)))

    def _read(self, order: NDArray[np.int64]) -> Iterator[LabelledBlock]:
        for first in range(0, len(order), self._n_block):
            images, read = self.folder.pixels(order[first : first + self._n_block].tolist())
            if read:
                yield LabelledBlock(images, self._y[read], np.array(read))


# ---------------------------------------------------------------------- a sample

# A uniform sample of rows that come in any order and in any number of shards: every row has a priority that depends on
# its number and a seed only; the rows of smallest priority are the sample. So two samples can be merged, and a later
# pass knows which rows are in it.


def priorities(numbers: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
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
        self._held: list[tuple[NDArray[np.uint64], NDArray[np.int64], Any]] = []
        self._n_held = 0
        self._limit = np.uint64(2**64 - 1)  # rows above it cannot be in the sample any more

    def add(self, numbers: NDArray[np.int64], rows: Any) -> None:
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
    def numbers(self) -> NDArray[np.int64]:
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
