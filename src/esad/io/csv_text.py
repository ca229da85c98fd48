"""CSV as people really send it: other separators, decimal commas, byte-order marks, ragged lines and mixed columns."""

import collections
import logging
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.csv as pa_csv

from esad.core.text import listed
from esad.errors import DataFileError
from esad.io.csv_dialect import MISSING, Dialect, sniff
from esad.io.csv_faults import NumberFault, check_closed, explain, no_number, not_utf8, number_fault
from esad.table.parse import Style, read_numerals

__all__ = ["WRITTEN", "fault", "last_text", "mention_written", "options", "read", "stream", "style_of", "turned"]

logger = logging.getLogger("esad")

# Numbers as `esad.table.parse` knows them are read as different texts, then turned; pyarrow knows plain ones only.
WRITTEN = pa.dictionary(pa.int32(), pa.string())
_MAX_OPENED = 8  # times that a file is opened for one column each; then all columns are turned at once

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def read(
    path: Path, *, columns: Sequence[str] | None = None, text: Sequence[str] = (), dialect: Dialect | None = None
) -> pa.Table:
    """Read a whole file; a column's type is what all its values agree on, text if they do not or if named in `text`.

    Numbers may be written as `esad.table.parse` knows them; a line in the log says so. Dates and times stay text, so
    that one parser reads them in training and in scoring.
    """
    dialect = dialect or sniff(path)
    names = dialect.names if columns is None else tuple(columns)
    table = _read_with(path, dialect, names, {name: pa.string() for name in names if name in text})
    if any(pa.types.is_binary(field.type) for field in table.schema):
        raise not_utf8(path)
    written = [name for name in names if name not in text and _is_written(table.column(name), dialect)]
    for name in written:
        encoded = table.column(name).combine_chunks().dictionary_encode()
        table = table.set_column(names.index(name), name, encoded)
    if written:
        mention_written(written)
        table = turned(path, dialect, table)
    temporal = {field.name: pa.string() for field in table.schema if pa.types.is_temporal(field.type)}
    for name, column in zip(temporal, _read_with(path, dialect, tuple(temporal), temporal).columns, strict=True):
        table = table.set_column(names.index(name), name, column)
    for index, field in enumerate(table.schema):
        if pa.types.is_null(field.type):  # no value at all
            table = table.set_column(index, field.name, table.column(index).cast(pa.float64()))
    return table


def stream(
    path: Path,
    *,
    types: Mapping[str, pa.DataType],
    columns: Sequence[str] | None,
    dialect: Dialect | None = None,
) -> Generator[pa.RecordBatch]:
    """Open a file and give its rows in small batches; columns without an entry in `types` are text.

    pyarrow reads plain numbers fast. Where it meets another way of writing one, the file is opened again, that column
    is read as text and turned here, and the rows that were given already are passed over.
    """
    dialect = dialect or sniff(path)
    names = dialect.names if columns is None else tuple(columns)
    return _streamed(path, dialect, names, {name: types.get(name, pa.string()) for name in names})


def _streamed(
    path: Path, dialect: Dialect, names: tuple[str, ...], types: dict[str, pa.DataType]
) -> Generator[pa.RecordBatch]:
    n_given, n_opened, is_done = 0, 1, False
    while not is_done:
        n_read = 0
        try:
            for batch in _batches(path, dialect, names, types):
                n_new = max(0, n_read + batch.num_rows - n_given)
                n_read += batch.num_rows
                if n_new > 0:
                    yield turned(path, dialect, batch.slice(batch.num_rows - n_new), n_before=n_given)
                    n_given += n_new
            is_done = True
        except (pa.ArrowException, OSError) as error:
            wrong = number_fault(dialect, error)
            if wrong is None or read_numerals(pa.array([wrong.value]), decimal_point=dialect.decimal_point)[1] is None:
                raise explain(path, dialect, error) from error
            n_opened += 1
            numbers = [name for name, type_ in types.items() if pa.types.is_floating(type_)]
            types = types | dict.fromkeys([wrong.column] if n_opened < _MAX_OPENED else numbers, WRITTEN)


# ---------------------------------------------------------------------- numbers as people write them


def style_of(column: pa.ChunkedArray, dialect: Dialect) -> Style | None:
    """How numbers are written in a column of text, None if it holds something else."""
    return read_numerals(column.unique().drop_null(), decimal_point=dialect.decimal_point)[1]


def _is_written(column: pa.ChunkedArray, dialect: Dialect) -> bool:
    style = style_of(column, dialect) if pa.types.is_string(column.type) else None
    return style is not None and style.is_sound


def mention_written(names: Sequence[str]) -> None:
    """Say in the log which columns of text are read as numbers."""
    logger.warning("read as numbers, though not written plainly: %s", listed(names))


def turned(path: Path, dialect: Dialect, rows: _Rows, *, n_before: int | None = None) -> _Rows:
    """Rows with numbers in the columns of the type `WRITTEN`; `n_before` rows of the file precede them."""
    for index, field in enumerate(rows.schema):
        if field.type != WRITTEN:
            continue
        column = rows.column(index)
        encoded = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        values, _, wrong = read_numerals(encoded.dictionary, decimal_point=dialect.decimal_point)
        if wrong is not None:
            row = encoded.indices.to_pylist().index(wrong)
            record = None if n_before is None else dialect.n_lines_before + 2 + n_before + row
            raise no_number(path, dialect, NumberFault(field.name, encoded.dictionary[wrong].as_py()), record=record)
        numbers = pa.array(values, pa.float64(), from_pandas=True).take(encoded.indices)
        rows = rows.set_column(index, field.name, numbers)
    return rows


# ---------------------------------------------------------------------- pyarrow's readers


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
        collections.deque(_streamed(path, dialect, names, dict.fromkeys(names, pa.string())), maxlen=0)
    except DataFileError as found:
        return found
    return explain(path, dialect, error)


def _batches(
    path: Path, dialect: Dialect, names: tuple[str, ...], types: Mapping[str, pa.DataType]
) -> Generator[pa.RecordBatch]:
    last = None
    # pyarrow knows the row of an error only in a single thread, which costs this reader nothing
    with pa_csv.open_csv(str(path), **options(dialect, names, types, use_threads=False)) as reader:
        for batch in reader:
            last = last_text(batch, dialect) if batch.num_rows > 0 else last
            yield batch.select(names)
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
            skip_rows=dialect.n_lines_before if has_header else 0,
        ),
        "parse_options": pa_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
        "convert_options": pa_csv.ConvertOptions(
            column_types={last: pa.string(), **types} if last not in names else dict(types),
            include_columns=list(dict.fromkeys((*names, last))),
            null_values=list(MISSING),
            strings_can_be_null=True,
            true_values=["true", "True", "TRUE"],
            false_values=["false", "False", "FALSE"],
            decimal_point=dialect.decimal_point,
        ),
    }
