"""CSV as people really send it: other separators, decimal commas, byte-order marks, ragged lines and mixed columns."""

import collections
import contextlib
import csv
import io
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv

from esad.data.csv_faults import Dialect, check_closed, check_names, explain, not_utf8, one_line
from esad.errors import DataFileError

__all__ = ["fault", "last_text", "options", "read", "sniff", "stream"]

_SAMPLE_BYTES = 1 << 18
_MAX_HEADER_BYTES = 1 << 26
_MISSING = (
    *(" " * width for width in range(9)),  # pyarrow does not take blanks for nothing
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "?", "<NA>", "N/A", "NA"),
    *("NAN", "NULL", "NaN", "NaT", "None", "Null", "n/a", "na", "nan", "null"),
)


def sniff(path: Path) -> Dialect:
    r"""Read the header line, and tell the separator and the decimal point from the first lines.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name;size\nx;1,5\n")
    ...     sniff(file)
    Dialect(names=('name', 'size'), delimiter=';', decimal_point=',', n_header_bytes=9)
    """
    sample = _sample(path)
    if b"\0" in sample and sample[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise DataFileError(f"Cannot read {str(path)!r}: it is binary, not CSV text.")
    try:
        text = sample.decode("utf-8-sig").lstrip("\r\n")
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    if not header:
        raise DataFileError(f"Cannot read {str(path)!r}: it is empty. A header line and at least one row are needed.")
    delimiter = max(",;\t|", key=re.sub(r'"[^"]*"', "", header).count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        names = tuple(next(rows))
    except csv.Error as error:
        raise DataFileError(f"Cannot read {str(path)!r}: its first line is not CSV ({error}).") from error
    check_names(path, names)
    return Dialect(
        names, delimiter, "," if delimiter != "," and _has_decimal_comma(rows) else ".", len(header.encode())
    )


def read(path: Path, *, columns: Sequence[str] | None = None, as_text: bool = False) -> pa.Table:
    """Read a whole file; a column's type is what all its values agree on, text if they do not.

    Dates and times stay text, so that one parser reads them in training and in scoring.
    """
    dialect = sniff(path)
    names = dialect.names if columns is None else tuple(columns)
    types = {name: pa.string() for name in names} if as_text else {}
    table = _read_with(path, dialect, names, types)
    if any(pa.types.is_binary(field.type) for field in table.schema):
        raise not_utf8(path)
    temporal = {field.name: pa.string() for field in table.schema if pa.types.is_temporal(field.type)}
    for name, column in zip(temporal, _read_with(path, dialect, tuple(temporal), temporal).columns, strict=True):
        table = table.set_column(names.index(name), name, column)
    for index, field in enumerate(table.schema):
        if pa.types.is_null(field.type):  # no value at all
            table = table.set_column(index, field.name, table.column(index).cast(pa.float64()))
    return table


def stream(path: Path, *, types: Mapping[str, pa.DataType], columns: Sequence[str] | None) -> Generator[pa.RecordBatch]:
    """Open a file and give its rows in small batches; columns without an entry in `types` are text."""
    dialect = sniff(path)
    names = dialect.names if columns is None else tuple(columns)
    every = {name: types.get(name, pa.string()) for name in names}
    return _stream_with(path, dialect, names, every)


def _read_with(path: Path, dialect: Dialect, names: tuple[str, ...], types: Mapping[str, pa.DataType]) -> pa.Table:
    if not names:
        return pa.table({})
    try:
        table = pa_csv.read_csv(str(path), **options(dialect, names, types, use_threads=True))
    except (pa.ArrowException, OSError) as error:
        raise fault(path, dialect, names, error) from error
    check_closed(path, dialect, last_text(table, dialect))
    return table.select(names)


def fault(path: Path, dialect: Dialect, names: tuple[str, ...], error: Exception) -> DataFileError:
    """What is wrong with a file that could not be read; only a reader that goes line by line knows where."""
    try:
        collections.deque(_stream_with(path, dialect, names, dict.fromkeys(names, pa.string())), maxlen=0)
    except DataFileError as found:
        return found
    return explain(path, dialect, error)


def _stream_with(
    path: Path, dialect: Dialect, names: tuple[str, ...], types: Mapping[str, pa.DataType]
) -> Generator[pa.RecordBatch]:
    last = None
    try:
        # pyarrow knows the row of an error only in a single thread, which costs this reader nothing
        with pa_csv.open_csv(str(path), **options(dialect, names, types, use_threads=False)) as reader:
            for batch in reader:
                last = last_text(batch, dialect) if batch.num_rows > 0 else last
                yield batch.select(names)
    except (pa.ArrowException, OSError) as error:
        raise explain(path, dialect, error) from error
    check_closed(path, dialect, last)


def last_text(rows: pa.Table | pa.RecordBatch, dialect: Dialect) -> str | None:
    """Last cell of the last column, if it is text."""
    column = rows.column(dialect.names[-1])
    return column[-1].as_py() if pa.types.is_string(column.type) and len(column) > 0 else None


def options(
    dialect: Dialect,
    names: tuple[str, ...],
    types: Mapping[str, pa.DataType],
    *,
    use_threads: bool,
    has_header: bool = True,
) -> dict[str, Any]:
    """Keyword arguments for pyarrow's CSV readers, which always read the last column too (see `check_closed`)."""
    last = dialect.names[-1]
    return {
        "read_options": pa_csv.ReadOptions(
            use_threads=use_threads,
            block_size=dialect.n_block_bytes,
            column_names=None if has_header else list(dialect.names),
        ),
        "parse_options": pa_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        "convert_options": pa_csv.ConvertOptions(
            column_types={last: pa.string(), **types} if last not in names else dict(types),
            include_columns=list(dict.fromkeys((*names, last))),
            null_values=list(_MISSING),
            strings_can_be_null=True,
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            decimal_point=dialect.decimal_point,
        ),
    }


def _sample(path: Path) -> bytes:
    """First lines of the file, none of them cut."""
    try:
        with pa.input_stream(str(path), compression="detect") as source:
            sample: bytes = source.read(_SAMPLE_BYTES)
            n_wanted = _SAMPLE_BYTES
            while len(sample) == n_wanted and not re.search(rb"[\r\n]", sample) and n_wanted < _MAX_HEADER_BYTES:
                sample += source.read(n_wanted)
                n_wanted *= 2
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"Cannot read {str(path)!r}: {one_line(error)}.") from error
    if len(sample) < n_wanted:
        return sample
    end = max(sample.rfind(b"\n"), sample.rfind(b"\r"))
    if end < 0:
        raise DataFileError(f"Cannot read {str(path)!r}: its first line has no end, so it is no CSV text.")
    return sample[:end]


def _has_decimal_comma(rows: Iterator[list[str]]) -> bool:
    """Tell whether numbers are written 1,5 and never 1.5."""
    comma = False
    with contextlib.suppress(csv.Error):  # a field too long to look at
        for field in (field for row in rows for field in row):
            if re.fullmatch(r"\s*[+-]?\d*\.\d+(e[+-]?\d+)?\s*", field, re.IGNORECASE):
                return False
            comma = comma or bool(re.fullmatch(r"\s*[+-]?\d+,\d+(e[+-]?\d+)?\s*", field, re.IGNORECASE))
    return comma
