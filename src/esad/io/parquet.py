"""Parquet files: their names and layout by the footer, their rows a row group at a time."""

import contextlib
import re
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from esad.core.text import one_line
from esad.errors import DataFileError
from esad.io.dialect import check_names

_DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)  # all seen on files with flipped bytes
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")

Batch = TypeVar("Batch", pa.Table, pa.RecordBatch)


class Layout:
    """What the footer of a file says: columns, their types, and the rows of each row group.

    Parameters
    ----------
    file : Path
    source : pyarrow.NativeFile, optional
        Where the bytes are, if elsewhere.
    """

    def __init__(self, file: Path, source: pa.NativeFile | None = None) -> None:
        with _open(file, source) as opened:
            schema = opened.schema_arrow
            groups = range(opened.metadata.num_row_groups)
            self.group_rows = tuple(opened.metadata.row_group(group).num_rows for group in groups)
        self.names = tuple(name for name in schema.names if not _PANDAS_INDEX.fullmatch(name))
        check_names(file, self.names)
        self.types = {field.name: _plain_type(field.type) for field in schema}

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return sum(self.group_rows)


def read(file: Path, names: Sequence[str]) -> pa.Table:
    """All rows."""
    with _open(file) as source:
        return _check_text(source.read(columns=list(names)).select(list(names)))


def batches(
    file: Path, names: Sequence[str], n_rows: int, *, group: int | None = None, source: pa.NativeFile | None = None
) -> Generator[pa.RecordBatch]:
    """Rows of one row group, or of all, at most so many at a time; `source` is where the bytes are, if elsewhere."""
    groups = None if group is None else [group]
    with _open(file, source) as opened:
        for batch in opened.iter_batches(batch_size=n_rows, columns=list(names), row_groups=groups):
            yield _check_text(batch.select(list(names)))


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """The type that rows are read in: for views of text, which polars writes, hardly a kernel of arrow's is made."""
    return pa.large_string() if pa.types.is_string_view(type_) else type_


def _check_text(rows: Batch) -> Batch:
    """Rows in the types that they are read in; text that is not UTF-8, which arrow lets through, is damage."""
    for column in rows.columns:
        if not pa.types.is_primitive(column.type):
            column.validate(full=True)
    return rows.cast(pa.schema([(field.name, _plain_type(field.type)) for field in rows.schema]))


@contextlib.contextmanager
def _open(file: Path, source: pa.NativeFile | None = None) -> Iterator[pq.ParquetFile]:
    """A Parquet file to read from; what is wrong inside is one line."""
    given = str(file) if source is None else source
    try:
        # Buffered column readers without pre-buffering: a row group, however large, is never in memory as a whole.
        with pq.ParquetFile(given, pre_buffer=False, buffer_size=1 << 16) as opened:
            yield opened
    except DataFileError:
        raise
    except _DAMAGE as error:
        raise DataFileError(
            f"Cannot read {str(file)!r}: it is damaged or no Parquet file ({one_line(error)})."
        ) from error
