"""Data that does not fit into memory, block by block: Parquet files and folders of pictures, in order or shuffled."""

import copy
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esad import labels
from esad.data.files import PARQUET, column_names, parquet_blocks, parquet_groups
from esad.data.picture_folder import Listing, list_folder
from esad.errors import DataFileError

__all__ = ["Block", "PictureStream", "Stream", "TableStream", "find_tables", "open_stream"]

BLOCK_ROWS = 1 << 16
MAX_CELLS = 1 << 21  # of a block, however wide the table: 16 MiB as float64
MAX_VALUES = 1 << 24  # of a block of pictures
N_OPEN = 8  # parts of a table that are read from in turn, so that neighbours do not stay together
_MAX_WORDS = 1000  # different labels that are looked at

Labels = NDArray[np.int8]
Meaning = Callable[[Any], Labels]


@dataclass(frozen=True, eq=False)
class Block:
    """Some rows: an arrow table or pictures (n, channels, height, width), their labels and their numbers."""

    X: Any
    y: Labels
    numbers: NDArray[np.int64]


class Stream(Protocol):
    """Rows that are read as often as needed; each row has a number that never changes."""

    @property
    def n_rows(self) -> int:
        """How many there are."""

    def blocks(self) -> Iterator[Block]:
        """All rows, in the order of their numbers."""

    def shuffled(self, rng: np.random.Generator) -> Iterator[Block]:
        """All rows, in an order that the generator draws."""


def open_stream(
    path: str | os.PathLike[str], *, label_column: str | None = None, ignore: Sequence[str] = ()
) -> "TableStream | PictureStream":
    """Open a Parquet file, a folder or a pattern of Parquet files, or a folder of pictures.

    Parameters
    ----------
    path : str or path-like
        Such as `parts/`, `parts/2024-*.parquet` or `pictures/`.
    label_column : str, optional
        Column with the words anomaly, normal and unlabelled, or -1, 0 and +1, or blanks. Pictures are labelled by
        their sub-folder.
    ignore : sequence of str
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
    files = find_tables(path)
    if files:
        return TableStream(files, label_column=label_column, ignore=ignore)
    return PictureStream(list_folder(path))


def find_tables(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Parquet files that a path means: itself, those below a folder, or those that a pattern matches; none if none."""
    text = os.fspath(path)
    place = Path(text)
    if place.is_dir():
        found = (file for file in place.rglob("*") if file.name.lower().endswith(PARQUET) and file.is_file())
        return tuple(sorted(file for file in found if not any(part.startswith(".") for part in _below(file, place))))
    if place.exists() or not any(mark in text for mark in "*?["):
        return (place,) if text.lower().endswith(PARQUET) else ()
    matches = sorted(Path(match) for match in glob.glob(text, recursive=True))
    if not matches:
        raise DataFileError(f"Cannot read {text!r}: no file matches.")
    others = [str(match) for match in matches if not match.name.lower().endswith(PARQUET)]
    if others:
        raise DataFileError(f"Cannot read {others[0]!r}: several files must be Parquet, and end in .parquet or .pq.")
    return tuple(matches)


def _below(file: Path, folder: Path) -> tuple[str, ...]:
    return file.relative_to(folder).parts


class TableStream:
    """The rows of Parquet files with the same columns.

    Parameters
    ----------
    files : sequence of path
    label_column : str, optional
    ignore : sequence of str
        Columns that are not read.
    meaning : callable, optional
        From the different values of the label column to labels; `esad.labels.from_column` by default.
    """

    def __init__(
        self,
        files: Sequence[Path],
        *,
        label_column: str | None = None,
        ignore: Sequence[str] = (),
        meaning: Meaning = labels.from_column,
    ) -> None:
        self.files, self.label_column = tuple(files), label_column
        names = column_names(self.files[0])
        for name in [*ignore, *([] if label_column is None else [label_column])]:
            if name not in names:
                raise DataFileError(f"{str(self.files[0])!r} has no column {name!r}.")
        self.columns = tuple(name for name in names if name not in {label_column, *ignore})
        if not self.columns:
            raise DataFileError(f"{str(self.files[0])!r} has no column left to learn from.")
        for file in self.files[1:]:
            lacking = [name for name in names if name not in ignore and name not in column_names(file)]
            if lacking:
                raise DataFileError(f"{str(file)!r} has no column {lacking[0]!r}, which {str(self.files[0])!r} has.")
        self._groups = self._listed()  # (file, row group, number of the first row)
        self._meanings = {} if label_column is None else self._read_meanings(label_column, meaning)

    def _listed(self) -> list[tuple[Path, int, int]]:
        groups, self._n_rows, self.n_bytes = [], 0, 0
        for file in self.files:
            for index, (n_rows, n_bytes) in enumerate(parquet_groups(file)):
                groups.append((file, index, self._n_rows))
                self._n_rows, self.n_bytes = self._n_rows + n_rows, self.n_bytes + n_bytes
        return groups

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self._n_rows

    def _read_meanings(self, label_column: str, meaning: Meaning) -> dict[Any, int]:
        """What each value of the label column means, from one look at that column alone."""
        found: dict[Any, None] = {}
        for file, group, _ in self._groups:
            for batch in parquet_blocks(file, (label_column,), BLOCK_ROWS, group):
                found |= dict.fromkeys(pc.unique(batch.column(0)).to_pylist())
            if len(found) > _MAX_WORDS:
                break  # no labels, as will be said
        values = list(found)
        return dict(zip(values, meaning(values).tolist(), strict=True))

    def without(self, names: Sequence[str]) -> "TableStream":
        """The same rows without some of their columns."""
        other = copy.copy(self)
        other.columns = tuple(name for name in self.columns if name not in names)
        return other

    def blocks(self) -> Iterator[Block]:
        """All rows, file by file."""
        for group in self._groups:
            yield from self._read(group)

    def shuffled(self, rng: np.random.Generator) -> Iterator[Block]:
        """Row groups in random order, several of them at a time; rows within a block stay in order."""
        waiting = [self._groups[index] for index in rng.permutation(len(self._groups))]
        reading: list[Iterator[Block]] = []
        while waiting or reading:
            while waiting and len(reading) < N_OPEN:
                reading.append(self._read(waiting.pop(), n_open=N_OPEN))
            for source in list(reading):
                block = next(source, None)
                if block is None:
                    reading.remove(source)
                else:
                    yield block

    def _read(self, group: tuple[Path, int, int], *, n_open: int = 1) -> Iterator[Block]:
        file, index, first = group
        wanted = (*self.columns, *([] if self.label_column is None else [self.label_column]))
        n_rows = max(1, min(BLOCK_ROWS, MAX_CELLS // len(wanted)) // n_open)
        for batch in parquet_blocks(file, wanted, n_rows, index):
            numbers = np.arange(first, first + batch.num_rows)
            y = self._labels(batch)
            yield Block(pa.Table.from_batches([batch.select(list(self.columns))]), y, numbers)
            first += batch.num_rows

    def _labels(self, batch: pa.RecordBatch) -> Labels:
        if self.label_column is None:
            return np.zeros(batch.num_rows, dtype=np.int8)
        encoded = batch.column(self.label_column).dictionary_encode()
        known = [self._meanings[value] for value in encoded.dictionary.to_pylist()]
        positions = encoded.indices.fill_null(len(known)).to_numpy(zero_copy_only=False)
        return np.asarray(np.array([*known, self._meanings.get(None, 0)], dtype=np.int8)[positions])


class PictureStream:
    """The pictures of a folder; `meaning` as for `TableStream`, of the words for each picture."""

    def __init__(self, listing: Listing, *, meaning: Meaning = labels.from_column) -> None:
        self.listing = listing
        words = listing.label_words
        self._y = np.zeros(self.n_rows, dtype=np.int8) if words is None else meaning(words)
        form = listing.form
        self._n_block = max(1, MAX_VALUES // form.n_values)
        self.n_bytes = self.n_rows * form.n_values * 4  # as the network sees them

    @property
    def n_rows(self) -> int:
        """How many pictures there are."""
        return len(self.listing.ids)

    def blocks(self) -> Iterator[Block]:
        """All pictures, by name."""
        return self._read(np.arange(self.n_rows))

    def shuffled(self, rng: np.random.Generator) -> Iterator[Block]:
        """All pictures in random order."""
        return self._read(rng.permutation(self.n_rows))

    def _read(self, order: NDArray[np.int64]) -> Iterator[Block]:
        for first in range(0, self.n_rows, self._n_block):
            numbers = order[first : first + self._n_block]
            yield Block(self.listing.pixels(numbers.tolist()), self._y[numbers], numbers)
