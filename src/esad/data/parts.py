"""Tables on disk in parts that can be read apart: row groups of Parquet, some megabytes of lines of CSV."""

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from esad.data import csv_parts, pictures
from esad.data.files import PARQUET, SUFFIXES, parquet_blocks, parquet_groups
from esad.errors import DataFileError

__all__ = ["Part", "find_tables", "is_table", "parts_of"]

_HIDDEN = (".", "_")  # as Spark, Hive and Arrow have it


@dataclass(frozen=True)
class Part:
    """Rows of a file that follow each other.

    Attributes
    ----------
    file : Path
    n_rows : int
    batches : callable
        Gives some columns, at most so many rows at a time.
    """

    file: Path
    n_rows: int
    batches: Callable[[tuple[str, ...], int], Iterator[pa.RecordBatch]]


def parts_of(
    files: Sequence[Path], columns: Sequence[str], *, on_bytes: Callable[[int], None] | None = None
) -> list[Part]:
    """The parts of tables with the same columns.

    CSV is read once for it, which `on_bytes` can watch: columns hold the same in all files, text where these do not
    agree.
    """
    scanned = {file: csv_parts.scan(file, columns, on_bytes=on_bytes) for file in files if not _is_parquet(file)}
    types = csv_parts.settled(found for _, found in scanned.values())
    parts = []
    for file in files:
        if file in scanned:
            parts += [Part(file, part.n_rows, partial(part.batches, types)) for part in scanned[file][0]]
        else:
            counts = enumerate(parquet_groups(file))
            parts += [Part(file, n_rows, partial(parquet_blocks, file, group)) for group, n_rows in counts]
    return parts


def find_tables(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Tables that a path means: itself, those below a folder, or those that a pattern matches; none if none.

    What begins with "." or "_" is left out. CSV files beside pictures are about these, and no tables to learn from.
    """
    text = os.fspath(path)
    place = Path(text)
    if place.is_dir():
        found = tuple(sorted(file for file in place.rglob("*") if is_table(file, place)))
        return () if not any(map(_is_parquet, found)) and _has_pictures(place) else found
    if place.exists() or not glob.has_magic(text):
        return (place,) if text.lower().endswith(SUFFIXES) else ()
    matches = sorted(Path(match) for match in glob.glob(text, recursive=True))
    if not matches:
        raise DataFileError(f"Cannot read {text!r}: no file matches.")
    others = [str(match) for match in matches if not match.name.lower().endswith(SUFFIXES)]
    if others:
        raise DataFileError(f"Cannot read {others[0]!r}: its name must end in one of {', '.join(SUFFIXES)}.")
    return tuple(matches)


def is_table(path: Path, folder: Path) -> bool:
    """Whether a path below a folder is a table that is not hidden."""
    below = path.relative_to(folder).parts
    return (
        path.name.lower().endswith(SUFFIXES) and not any(part.startswith(_HIDDEN) for part in below) and path.is_file()
    )


def _is_parquet(file: Path) -> bool:
    return file.name.lower().endswith(PARQUET)


def _has_pictures(folder: Path) -> bool:
    return any(path.name.lower().endswith(pictures.SUFFIXES) for path in folder.rglob("*"))
