"""From the body of a request to rows or pictures in the form of the model; sizes are checked before memory is taken.

Files are read by the readers of the command line. Those that can become more than they are, Parquet and pictures, go
through processes whose memory and time have an end.
"""

import contextlib
import io
import itertools
import math
import operator
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic_core import from_json

from esad.core.text import list_text, one_line
from esad.detectors.opening import Block, open_source, plain_id
from esad.errors import InputError, LimitError, RequestError, SchemaError
from esad.io.dialect import Reading
from esad.io.limits import FileLimits, Readers
from esad.preprocess.image import as_images
from esad.serve.model import ServedModel
from esad.table.columns import Values, read_array
from esad.table.parse import parse_amounts, parse_written_dates
from esad.table.table import Column, Schema, Table

JSON, CSV, TSV = "application/json", "text/csv", "text/tab-separated-values"
PARQUET, NPY = "application/vnd.apache.parquet", "application/x-npy"
PNG, JPEG, MULTIPART = "image/png", "image/jpeg", "multipart/form-data"

MAX_UNPACKED = 2**28  # bytes in memory that a Parquet file or a set of pictures may need
PICTURE_SECONDS = 2.0  # that a body with one picture may take
N_READERS = 2  # processes for Parquet and pictures
_SUFFIXES = {CSV: ".csv", TSV: ".tsv"}
_NUMBERS = {int, float, type(None)}
_SCALARS = {str, int, float, bool, type(None)}


@dataclass(frozen=True, eq=False)
class RequestRows:
    """The rows of one request in the form of the model, with their names."""

    served: ServedModel
    X: Table | NDArray[Any]
    ids: Sequence[Any] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows or pictures."""
        return self.X.n_rows if isinstance(self.X, Table) else len(self.X)


def media_types(kind: str) -> tuple[str, ...]:
    """Return the media types that a model of tables or pictures takes."""
    return (JSON, CSV, TSV, PARQUET, NPY) if kind == "table" else (PNG, JPEG, MULTIPART, NPY)


class BodyReader:
    """Reads bodies, from several threads if need be."""

    def __init__(self) -> None:
        self._readers = Readers(N_READERS)

    def close(self) -> None:
        """End the processes."""
        self._readers.close()

    def read(self, media_type: str, body: bytes, served: ServedModel, *, max_rows: int) -> RequestRows:
        """Rows of a body of one of `media_types`, other than uploads.

        Raises
        ------
        RequestError
            413 for more than `max_rows` rows or too much when unpacked, 400 for what is not of its type.
        InputError
            It does not fit the model.
        """
        if not body:
            raise RequestError(400, "The body is empty. Send rows or pictures.")
        readers: Mapping[str, Callable[[], RequestRows]] = {
            JSON: lambda: read_json(body, served, max_rows),
            NPY: lambda: _read_npy(body, served, max_rows),
            **dict.fromkeys((CSV, TSV), lambda: _read_text(body, _SUFFIXES[media_type], served, max_rows)),
            PARQUET: lambda: self._read_parquet(body, served, max_rows),
            **dict.fromkeys((PNG, JPEG), lambda: self._read_pictures([("'body'", body)], served, max_rows)),
        }
        return readers[media_type]()

    def read_uploads(self, uploads: Sequence[tuple[str, bytes]], served: ServedModel, *, max_rows: int) -> RequestRows:
        """Pictures that came as files of a form, with their names."""
        if not uploads:
            raise RequestError(422, "The form has no file. Send PNG or JPEG pictures as files.")
        found = self._read_pictures([(f"{name!r}", content) for name, content in uploads], served, max_rows)
        return replace(found, ids=[name for name, _ in uploads])

    def _read_parquet(self, body: bytes, served: ServedModel, max_rows: int) -> RequestRows:
        schema = _schema_of(served)
        limits = FileLimits(rows=max_rows, columns=_max_columns(served), unpacked_bytes=MAX_UNPACKED)
        id_name = served.id_name
        known = [*schema.names, *([] if id_name is None else [id_name])] if schema.named else None
        with _write_temporary(body, ".parquet") as path:
            self._readers.check_parquet(path, limits, known=known)
            return _read_table(path, served, max_rows)

    def _read_pictures(self, named: Sequence[tuple[str, bytes]], served: ServedModel, max_rows: int) -> RequestRows:
        """PNG and JPEG files."""
        _check_count(len(named), max_rows)
        with tempfile.TemporaryDirectory(prefix="esad-") as folder, contextlib.ExitStack() as renamed:
            for number, (name, content) in enumerate(named):
                path = Path(folder) / f"{number:08d}.png"
                path.write_bytes(content)
                renamed.enter_context(_rename_in_errors(path, name))
            limits = FileLimits(unpacked_bytes=MAX_UNPACKED, seconds=PICTURE_SECONDS)
            images = self._readers.read_pictures(Path(folder), limits, shape=served.detector.inputs_.shape)
        return RequestRows(served, images)


# ---------------------------------------------------------------------- JSON


def read_json(body: bytes, served: ServedModel, max_rows: int) -> RequestRows:
    """Rows that are objects {column: value}, or lists of values."""
    if body.count(b"[") + body.count(b"{") > 10 * max_rows + len(body) // 64:  # each would become an object in memory
        raise RequestError(413, "There are too many lists and objects in the body. Send less at a time.")
    document = _parse_document(body)
    rows, given = document["rows"], document.get("columns")
    _check_count(len(rows), max_rows)
    id_name = served.id_name
    kinds = set(map(type, rows))
    ids = None
    if kinds == {dict}:
        if given is not None:
            raise RequestError(422, "`columns` goes with rows that are lists. These are objects.")
        cells: Sequence[Sequence[Any]] = _cells_of_objects(rows, served.columns)
        if id_name is not None and all(id_name in row for row in rows):
            ids = [row[id_name] for row in rows]
    elif kinds == {list}:
        order = list(served.columns) if given is None else given
        cells = _cells_of_lists(rows, order, served.columns)
        if id_name in order:
            place = order.index(id_name)
            ids = [row[place] for row in rows]
    else:
        raise RequestError(422, "`rows` must be objects {column: value}, or lists of values, all of one sort.")
    if ids is not None:
        _check_scalars(ids, str(id_name))
    return RequestRows(served, _make_table(cells, served), ids)


def _parse_document(body: bytes) -> dict[str, Any]:
    """The JSON document, its outer form checked."""
    try:
        document = from_json(body, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise RequestError(400, f"The body is no JSON: {error}.") from error
    if type(document) is not dict or type(document.get("rows")) is not list:
        raise RequestError(422, 'The body must be {"rows": [...]}.')
    if unknown := sorted(set(document) - {"rows", "columns"}):
        raise RequestError(422, f"The body may hold `rows` and `columns`. Got {unknown[0][:100]!r}.")
    given = document.get("columns")
    if given is not None and (type(given) is not list or set(map(type, given)) - {str} or len(set(given)) < len(given)):
        raise RequestError(422, "`columns` must be a list of different names.")
    return document


def _cells_of_objects(rows: list[dict[str, Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    try:
        return list(map(_make_picker(names), rows))
    except KeyError as error:
        missing = error.args[0]
        number = next(number for number, row in enumerate(rows) if missing not in row)
        raise SchemaError(
            f"Row {number} lacks the column {missing!r} that the model was trained on. Give null where it has no value."
        ) from None


def _cells_of_lists(rows: list[list[Any]], given: Sequence[str], names: Sequence[str]) -> Sequence[Sequence[Any]]:
    """Cells in training order."""
    places = {name: place for place, name in enumerate(given)}
    missing = [name for name in names if name not in places]
    if missing:
        raise SchemaError(f"Columns that the model was trained on are missing: {list_text(missing)}.")
    for number, row in enumerate(rows):
        if len(row) != len(given):
            raise SchemaError(f"Every row must have {len(given)} values. Row {number} has {len(row)}.")
    if tuple(given) == tuple(names):
        return rows
    return list(map(_make_picker([places[name] for name in names]), rows))


def _make_picker(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives the values of these keys as a tuple, even for one key."""
    if len(keys) == 1:
        return lambda row: (row[keys[0]],)
    return operator.itemgetter(*keys)


def _make_table(cells: Sequence[Sequence[Any]], served: ServedModel) -> Table:
    """Rows of cells as a table in the form of training; numbers alone, the usual case, in one go."""
    schema = _schema_of(served)
    if served.takes_numbers and set(map(type, itertools.chain.from_iterable(cells))) <= _NUMBERS:
        with contextlib.suppress(OverflowError):  # an integer beyond all floats
            return Table(names=served.columns, named=schema.named, matrix=np.array(cells, dtype=np.float64))
    columns = zip(schema.columns, zip(*cells, strict=True), strict=True)
    read_columns = tuple(_read_column(column, given, served.reading) for column, given in columns)
    return schema.align(Table(names=served.columns, named=schema.named, columns=read_columns))


def _read_column(column: Column, cells: Sequence[Any], reading: Reading) -> Values:
    """Cells of a column; text that spells amounts or dates is read as in files, by what the model notes of them."""
    _check_scalars(cells, column.name)
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    found: NDArray[Any]
    rows = [row for row, cell in enumerate(cells) if type(cell) is str and cell.strip()]
    if rows and column.kind == "number":
        found, bad_row = parse_amounts(pa.array(array[rows], pa.string()), reading.decimal or ".")
    elif rows and column.kind == "date" and reading.date_format:
        found, bad_row = parse_written_dates(pa.array(array[rows], pa.string()), reading.date_format)
    else:
        return read_array(array, column.name)
    if bad_row is not None:
        what = "numbers" if column.kind == "number" else f"dates of the form {reading.date_format}"
        raise SchemaError(
            f"Column {column.name!r} must hold {what}, as in training. "
            f"Got {cells[rows[bad_row]][:40]!r} in row {rows[bad_row]}."
        )
    array[rows] = found
    return read_array(array, column.name)


def _check_scalars(cells: Sequence[Any], name: str) -> None:
    if set(map(type, cells)) <= _SCALARS:
        return
    number = next(number for number, cell in enumerate(cells) if type(cell) not in _SCALARS)
    raise SchemaError(
        f"Column {name!r} must hold text, numbers, truth values or null. Row {number} holds a list or object."
    )


# ---------------------------------------------------------------------- files


def _read_text(body: bytes, suffix: str, served: ServedModel, max_rows: int) -> RequestRows:
    """Rows of a text with separators; the suffix says which."""
    header = re.match(rb'(?:\xef\xbb\xbf)?(?:"?sep=[^\r\n]*)?\s*[^\r\n]*', body)
    assert header is not None  # an empty one at least
    n_columns = sum(map(header[0].count, (b",", b";", b"\t", b"|")))
    if n_columns > (most := _max_columns(served)):
        raise RequestError(413, f"A table for this model may have {most:,} columns. Got {n_columns:,}.")
    with _write_temporary(body, suffix) as path:
        return _read_table(path, served, max_rows)


def _read_table(path: Path, served: ServedModel, max_rows: int) -> RequestRows:
    """Rows of a file, read as `esad score` reads it."""
    source = open_source(path, served.detector, on_remark=None)
    blocks: list[Block] = []
    n_rows = 0
    for block in source:
        n_rows += block.n_rows
        _check_count(n_rows, max_rows)
        blocks.append(block)
    schema = _schema_of(served)
    table = replace(Table.from_any(pa.concat_tables([block.X for block in blocks])), named=schema.named)
    ids = None
    if source.id_name is not None:
        ids = [plain_id(cell) for block in blocks for cell in block.ids.to_pylist()]
    return RequestRows(served, schema.align(table), ids)


def _read_npy(body: bytes, served: ServedModel, max_rows: int) -> RequestRows:
    """Read a .npy file of numbers; refuse pickled objects and sizes larger than the body."""
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = reader(file)
    except Exception as error:  # the header is an expression of Python, and malformed ones raise a dozen kinds
        raise RequestError(400, "The body is no .npy file of version 1 or 2.") from error
    if dtype.kind not in "fiub":
        raise RequestError(422, f"The array must hold numbers or truth values. Got {str(dtype)[:100]}.")
    if min(shape, default=0) < 1 or len(shape) > 4:
        raise RequestError(422, f"The array must have 2 to 4 axes, none of them empty. Got {str(shape)[:100]}.")
    _check_count(shape[0], max_rows)
    if math.prod(shape) * dtype.itemsize != len(body) - file.tell():
        raise RequestError(400, "The .npy file is cut, or longer than its shape says.")
    shape = tuple(map(int, shape))  # True is a number there
    array = np.frombuffer(body, dtype, offset=file.tell()).reshape(shape, order="F" if is_fortran else "C").copy()
    inputs = served.detector.inputs_
    if inputs.schema is None:
        images = as_images(array)
        if images.shape[1:] != inputs.shape:
            raise SchemaError(f"Pictures must have (channels, height, width) = {inputs.shape}. Got {images.shape[1:]}.")
        return RequestRows(served, images)
    n_columns = len(inputs.schema.columns)
    if array.ndim != 2 or array.shape[1] != n_columns:
        raise SchemaError(f"The array must have the shape (rows, {n_columns}). Got {array.shape}.")
    table = replace(Table.from_any(array), names=inputs.schema.names, named=inputs.schema.named)
    return RequestRows(served, inputs.schema.align(table))


@contextlib.contextmanager
def _write_temporary(body: bytes, suffix: str) -> Iterator[Path]:
    """Write the body to a temporary file, for readers that need one."""
    with tempfile.TemporaryDirectory(prefix="esad-") as folder:
        path = Path(folder) / f"body{suffix}"
        path.write_bytes(body)
        with _rename_in_errors(path, "the body"):
            yield path


@contextlib.contextmanager
def _rename_in_errors(path: Path, name: str) -> Iterator[None]:
    """Let errors name what was sent instead of the temporary file."""
    try:
        yield
    except InputError as error:
        status = error.status if isinstance(error, RequestError) else 413 if isinstance(error, LimitError) else 422
        raise RequestError(status, str(error).replace(repr(str(path)), name).replace(str(path), name)) from error
    except (pa.ArrowException, OverflowError) as error:  # dates beyond all calendars, nanoseconds of the day
        raise RequestError(422, f"{name} holds a value that cannot be read: {one_line(error)}.") from error


# ---------------------------------------------------------------------- limits


def _schema_of(served: ServedModel) -> Schema:
    """The columns of a model that takes tables."""
    schema = served.detector.inputs_.schema
    assert schema is not None  # the model takes tables
    return schema


def _check_count(n_rows: int, max_rows: int) -> None:
    """Refuse no rows and too many."""
    if n_rows == 0:
        raise RequestError(422, "There is no row. Send one at least.")
    if n_rows < 0 or n_rows > max_rows:
        raise RequestError(413, f"A request may have {max_rows:,} rows or pictures. Send less at a time.")


def _max_columns(served: ServedModel) -> int:
    """Return how many columns a body may have: somewhat more than the model has."""
    return 1000 + 20 * len(_schema_of(served).columns)
