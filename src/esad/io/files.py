"""Tables on disk: CSV and Parquet read whole for training, or in batches of bounded memory for scoring."""

import contextlib
import os
import re
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from esad.errors import DataFileError
from esad.io import csv_dialect, csv_text
from esad.io.csv_faults import check_names, one_line
from esad.io.scores import ScoreWriter
from esad.table.columns import read_arrow
from esad.table.schema import Schema

__all__ = [
    "SUFFIXES",
    "ScoreWriter",
    "as_text",
    "checked",
    "column_names",
    "count_rows",
    "is_parquet",
    "n_cell_bytes",
    "no_rows",
    "open_batches",
    "parquet_blocks",
    "parquet_layout",
    "read_table",
]

_CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_PARQUET = (".parquet", ".pq")
SUFFIXES = _CSV + _PARQUET
_SHEETS = (".xlsx", ".xls", ".xlsm", ".ods")
_MAX_CELLS = 1 << 22  # of one batch: 32 MiB as float64, however wide the table
_COMPRESSION = 5  # of CSV text by gzip, about
_DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)  # all seen on files with flipped bytes
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")


def read_table(
    path: str | os.PathLike[str], *, columns: Sequence[str] | None = None, text: Sequence[str] = ()
) -> pa.Table:
    r"""Read a whole CSV or Parquet file.

    In CSV the separator (comma, semicolon, tab, bar) is told from the header line, the type of a column from all its
    values: one with numbers here and text there is text. Numbers may be written like 1,234.50, 12 % or $5. Dates stay
    text for `esad.table.schema` to parse. Empty fields and NA, NaN, null, None, ? and the like are missing. An unnamed
    pandas index in Parquet is left out.

    Parameters
    ----------
    path : str or path-like
        File whose name ends in .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq.
    columns : sequence of str, optional
        Columns to read, in this order; all of them when not given.
    text : sequence of str
        Columns to read as text whatever they hold: codes such as 007.

    Returns
    -------
    pyarrow.Table
        With at least one row.

    Raises
    ------
    DataFileError
        In one line: the file is missing, empty, damaged, of another format, has ragged lines, doubled column names or
        text other than UTF-8, or lacks one of `columns`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name;size\nx;1,5\ny;NA\n")
    ...     read_table(file).to_pydict()
    {'name': ['x', 'y'], 'size': [1.5, None]}
    """
    file = checked(path)
    names = _selected(file, columns)
    if is_parquet(file):
        with _parquet(file) as source:
            table = source.read(columns=list(names)).select(list(names))
        table = as_text(table.replace_schema_metadata(None), text)
    else:
        table = csv_text.read(file, columns=names, text=text)
    if table.num_rows == 0:
        raise no_rows(file)
    return table


def as_text(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The same table with some of its columns as text: 7, 7.0 and "7" are the same.

    Examples
    --------
    >>> as_text(pa.table({"code": [7, None], "size": [1, 2]}), ["code"]).to_pydict()
    {'code': ['7', None], 'size': [1, 2]}
    """
    for name in names:
        if name in table.column_names:
            texts = read_arrow(table[name], name).as_kind("category")[0].array
            table = table.set_column(table.column_names.index(name), name, texts)
    return table


def open_batches(
    path: str | os.PathLike[str],
    *,
    schema: Schema | None = None,
    columns: Sequence[str] | None = None,
    batch_rows: int = 65_536,
    may_be_empty: bool = False,
    dialect: csv_dialect.Dialect | None = None,
) -> Iterator[pa.Table]:
    r"""Open a CSV or Parquet file and give its rows in batches, so that memory does not grow with the file.

    Parameters
    ----------
    path : str or path-like
        File whose name ends in .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq.
    schema : Schema, optional
        Columns of training. It fixes the types in CSV, whatever a batch holds: number columns are float64, all
        others text for `Schema.align` to parse. Without it every CSV column is text.
    columns : sequence of str, optional
        Columns to read, in this order; all of them when not given.
    batch_rows : int
        Rows of a batch, fewer in the last one and in tables of more than 64 columns.
    may_be_empty : bool
        Whether a file with columns but no rows gives no batch. By default it is an error.
    dialect : Dialect, optional
        How a CSV file is written, where that is known.

    Returns
    -------
    iterator of pyarrow.Table
        At least one unless `may_be_empty`, none of them empty. The file's beginning is checked at once, the rest as it
        is read.

    Raises
    ------
    DataFileError
        As `read_table`; also when a number column of `schema` holds something else, with column, value and line.

    Examples
    --------
    >>> import tempfile
    >>> from esad.table.schema import Table
    >>> schema = Schema.infer(Table.from_any(pa.table({"size": [1.5, 2.5]})))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name,size\n007,1\n008,\n009,3\n")
    ...     [batch.to_pydict() for batch in open_batches(file, schema=schema, batch_rows=2)]
    [{'name': ['007', '008'], 'size': [1.0, None]}, {'name': ['009'], 'size': [3.0]}]
    """
    file = checked(path)
    names = tuple(columns) if columns is not None and dialect is not None else _selected(file, columns)
    n_rows = max(1, min(batch_rows, _MAX_CELLS // max(1, len(names))))
    if is_parquet(file):
        return _rebatched(file, parquet_blocks(file, None, names, n_rows), n_rows, may_be_empty)
    types = {} if schema is None else _csv_types(schema, names)
    return _rebatched(file, csv_text.stream(file, types=types, columns=names, dialect=dialect), n_rows, may_be_empty)


def column_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    r"""Read the names of a file's columns without reading its rows.

    Parameters
    ----------
    path : str or path-like
        CSV or Parquet file.

    Returns
    -------
    tuple of str
        In the order of the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.tsv"
    ...     _ = file.write_text("name\tsize\nx\t1\n")
    ...     column_names(file)
    ('name', 'size')
    """
    file = checked(path)
    if not is_parquet(file):
        return csv_dialect.sniff(file).names
    with _parquet(file) as source:
        return _parquet_names(file, source)


def count_rows(path: str | os.PathLike[str]) -> int | None:
    """Rows of a Parquet file by its footer; None for CSV, where only reading tells."""
    file = checked(path)
    if not is_parquet(file):
        return None
    with _parquet(file) as source:
        return int(source.metadata.num_rows)


def n_cell_bytes(path: str | os.PathLike[str]) -> int:
    """About what the cells of a file take in memory: eight bytes each, in CSV as many as their text."""
    n_rows = count_rows(path)
    if n_rows is not None:
        return n_rows * len(column_names(path)) * 8
    return os.path.getsize(path) * (_COMPRESSION if Path(path).name.lower().endswith(".gz") else 1)


def checked(path: str | os.PathLike[str]) -> Path:
    """Path of a regular file of a known format that is not empty."""
    file, shown = Path(path), repr(os.fspath(path))
    try:
        if not file.exists():
            raise DataFileError(f"Cannot read {shown}: no such file.")
        if not file.is_file():
            what = "a folder" if file.is_dir() else "not a regular file"
            raise DataFileError(f"Cannot read {shown}: it is {what}. Give a CSV or Parquet file.")
        if not file.name.lower().endswith(SUFFIXES):
            fix = " Save the sheet as CSV." if file.suffix.lower() in _SHEETS else ""
            raise DataFileError(f"Cannot read {shown}: its name must end in one of {', '.join(SUFFIXES)}.{fix}")
        if file.stat().st_size == 0:
            raise DataFileError(f"Cannot read {shown}: it is empty. Columns and at least one row are needed.")
        with file.open("rb"):
            return file
    except OSError as error:
        raise DataFileError(f"Cannot read {shown}: {error.strerror}.") from error
    except ValueError as error:
        if isinstance(error, DataFileError):
            raise
        raise DataFileError(f"Cannot read {shown}: {error}.") from error  # a null byte in the name


def is_parquet(file: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return file.name.lower().endswith(_PARQUET)


@contextlib.contextmanager
def _parquet(file: Path) -> Iterator[pq.ParquetFile]:
    """A Parquet file to read from; what is wrong inside is one line."""
    try:
        # Buffered column readers without pre-buffering: a row group, however large, is never in memory as a whole.
        with pq.ParquetFile(str(file), pre_buffer=False, buffer_size=1 << 16) as source:
            yield source
    except DataFileError:
        raise
    except _DAMAGE as error:
        raise DataFileError(
            f"Cannot read {str(file)!r}: it is damaged or no Parquet file ({one_line(error)})."
        ) from error


def _parquet_names(file: Path, source: pq.ParquetFile) -> tuple[str, ...]:
    names = tuple(name for name in source.schema_arrow.names if not _PANDAS_INDEX.fullmatch(name))
    check_names(file, names)
    return names


def parquet_blocks(file: Path, group: int | None, names: tuple[str, ...], n_rows: int) -> Generator[pa.RecordBatch]:
    """Rows of one row group of a Parquet file, or of all, at most so many at a time."""
    groups = None if group is None else [group]
    with _parquet(file) as source:
        for batch in source.iter_batches(batch_size=n_rows, columns=list(names), row_groups=groups):
            yield batch.select(list(names)).replace_schema_metadata(None)


def parquet_layout(path: str | os.PathLike[str]) -> tuple[list[int], dict[str, pa.DataType]]:
    """Rows of each row group and the types of the columns, from the end of the file."""
    file = checked(path)
    with _parquet(file) as source:
        counts = [source.metadata.row_group(index).num_rows for index in range(source.metadata.num_row_groups)]
        return counts, dict(zip(source.schema_arrow.names, source.schema_arrow.types, strict=True))


def _csv_types(schema: Schema, names: tuple[str, ...]) -> dict[str, pa.DataType]:
    """Types of the number columns, by name or, if training had no names, by position."""
    trained = schema.names if schema.named else names
    kinds = dict(zip(trained, schema.kinds, strict=False))
    return {name: pa.float64() for name, kind in kinds.items() if kind == "number"}


def _rebatched(file: Path, batches: Generator[pa.RecordBatch], n_rows: int, may_be_empty: bool) -> Iterator[pa.Table]:
    """Join and cut batches so that each has `n_rows` rows, the last one the rest."""
    held: list[pa.RecordBatch] = []
    n_held, n_given = 0, 0
    with contextlib.closing(batches):
        for batch in batches:
            rest = batch
            while n_held + rest.num_rows >= n_rows:
                n_taken = n_rows - n_held
                yield pa.Table.from_batches([*held, rest.slice(0, n_taken)])
                rest, held, n_held = rest.slice(n_taken), [], 0
                n_given += 1
            if rest.num_rows > 0:
                held, n_held = [*held, rest], n_held + rest.num_rows
    if held:
        yield pa.Table.from_batches(held)
    elif n_given == 0 and not may_be_empty:
        raise no_rows(file)


def _selected(file: Path, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Names of the columns to read, all of them present."""
    names = column_names(file)
    known = set(names)
    missing = [name for name in columns or () if name not in known]
    if missing:
        shown = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")
        raise DataFileError(f"Cannot read {str(file)!r}: it has no column {missing[0]!r}. Its columns are {shown}.")
    return names if columns is None else tuple(columns)


def no_rows(file: Path) -> DataFileError:
    """Error for a file with a header only."""
    return DataFileError(f"Cannot read {str(file)!r}: it has columns but no rows. At least one row is needed.")
