"""Tables on disk in parts that can be read apart: row groups of Parquet, some megabytes of lines of CSV."""

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from esad.errors import DataFileError, SchemaError
from esad.io import csv_parts, pictures
from esad.io.csv_dialect import Dialect
from esad.io.csv_parts import Types
from esad.io.files import SUFFIXES, is_parquet, parquet_blocks, parquet_layout, read_table

__all__ = ["Part", "find_tables", "is_table", "parts_of", "read_tables"]

_BATCH_ROWS = 1 << 16
_HIDDEN = (".", "_")  # as Spark, Hive and Arrow have it


@dataclass(frozen=True)
class Part:
    """Rows of a file that follow each other.

    Attributes
    ----------
    file : Path
    n_rows : int
    read : callable
        Gives some columns, at most so many rows at a time.
    types : dict of str to DataType
        What columns are turned into; others stay as they are.
    """

    file: Path
    n_rows: int
    read: Callable[[tuple[str, ...], int], Iterator[pa.RecordBatch]]
    types: Types

    def batches(self, names: tuple[str, ...], n_rows: int) -> Iterator[pa.RecordBatch]:
        """Its rows, at most so many at a time."""
        for batch in self.read(names, n_rows):
            if all(self.types.get(field.name, field.type) == field.type for field in batch.schema):
                yield batch
            else:
                columns = zip(names, batch.columns, strict=True)
                turned = [column.cast(self.types.get(name, column.type), safe=False) for name, column in columns]
                yield pa.RecordBatch.from_arrays(turned, names=list(names))


def parts_of(
    files: Sequence[Path],
    columns: Sequence[str],
    *,
    label_column: str | None = None,
    text: Sequence[str] = (),
    on_bytes: Callable[[int], None] | None = None,
    dialects: Mapping[Path, Dialect] | None = None,
) -> list[Part]:
    """The parts of tables with the same columns, which are then of the same types in all of them.

    CSV is read once for it, which `on_bytes` can watch: its columns are text where the files do not agree, or if named
    in `text`. Labels stay as they are, for only their meaning counts; so do the columns in `text` that are not CSV.
    """
    wanted = [*columns, *([] if label_column is None else [label_column])]
    known = dialects or {}
    scanned = {
        file: csv_parts.scan(file, wanted, on_bytes=on_bytes, dialect=known.get(file))
        for file in files
        if not is_parquet(file)
    }
    csv_types = csv_parts.settled(held for _, found in scanned.values() for held in found)
    csv_types = {**csv_types, **{name: pa.string() for name in text if name in csv_types}}
    groups = {file: parquet_layout(file) for file in files if is_parquet(file)}
    held = {file: types for file, (_, types) in groups.items()} | dict.fromkeys(scanned, csv_parts.given(csv_types))
    checked = [name for name in columns if name not in text]
    types = {name: _common_type(name, {file: held[file][name] for file in files}) for name in checked}
    parts = []
    for file in files:
        if file in scanned:
            parts += [Part(file, part.n_rows, partial(part.batches, csv_types), types) for part in scanned[file][0]]
        else:
            counts = enumerate(groups[file][0])
            parts += [Part(file, n_rows, partial(parquet_blocks, file, group), types) for group, n_rows in counts]
    return parts


def _common_type(name: str, found: Mapping[Path, pa.DataType]) -> pa.DataType:
    """The type for a column that files hold in several; an error when they mean different things."""
    plain = {file: type_.value_type if pa.types.is_dictionary(type_) else type_ for file, type_ in found.items()}
    held = {file: type_ for file, type_ in plain.items() if not pa.types.is_null(type_)}
    if len(set(held.values())) < 2:
        return next(iter(held.values()), pa.null())
    meant = {_meaning(type_): file for file, type_ in reversed(held.items())}
    if len(meant) > 1:
        (one, its), (other, others) = list(meant.items())[-1:-3:-1]
        raise SchemaError(
            f"Column {name!r} holds {one} in {str(its)!r} and {other} in {str(others)!r}. Write it alike in all files."
        )
    return _TYPES[next(iter(meant))]


_TYPES = {"numbers": pa.float64(), "text": pa.string(), "dates": pa.timestamp("us")}


def _meaning(type_: pa.DataType) -> str:
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "numbers"
    if pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return "text"
    return "dates" if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else str(type_)


def read_tables(
    files: Sequence[Path], columns: Sequence[str], *, label_column: str | None = None, text: Sequence[str] = ()
) -> pa.Table:
    r"""All rows of tables with the same columns, file by file; those of a single file as `read_table` gives them.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [Path(folder) / name for name in ("a.csv", "b.csv")]
    ...     _ = [file.write_text(f"size,name\n{cell},x\n") for file, cell in zip(files, ("1", "2.5"))]
    ...     read_tables(files, ["size"]).to_pydict()
    {'size': [1.0, 2.5]}
    """
    wanted = (*columns, *([] if label_column is None else [label_column]))
    if len(files) == 1:
        return read_table(files[0], columns=wanted, text=text)
    parts = parts_of(files, columns, label_column=label_column, text=text)
    tables = [pa.Table.from_batches([batch]) for part in parts for batch in part.batches(wanted, _BATCH_ROWS)]
    if not tables:
        raise DataFileError(f"Cannot read {str(files[0])!r}: there are columns but no rows.")
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataFileError(f"Cannot read {str(files[0])!r} and the others as one table: {error}.") from error


def find_tables(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Tables that a path means: itself, those below a folder, or those that a pattern matches; none if none.

    What begins with "." or "_" is left out. CSV files beside pictures are about these, and no tables to learn from.
    """
    text = os.fspath(path)
    place = Path(text)
    if place.is_dir():
        found = tuple(sorted(file for file in place.rglob("*") if is_table(file, place)))
        return () if not any(map(is_parquet, found)) and _has_pictures(place) else found
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


def _has_pictures(folder: Path) -> bool:
    return any(path.name.lower().endswith(pictures.SUFFIXES) for path in folder.rglob("*"))
