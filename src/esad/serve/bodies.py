"""From the body of a request to rows or pictures, by the readers that the command line uses.

Sizes that a body claims are checked before memory is taken for them.
"""

import contextlib
import io
import itertools
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic_core import from_json

from esad.data.columns import read_array
from esad.data.csv_faults import one_line
from esad.data.frame import Schema
from esad.data.images import as_images
from esad.data.pictures import read_header
from esad.data.table import Table
from esad.errors import InputError, RequestError, SchemaError
from esad.opening import Block, open_pictures, open_table, plain_id
from esad.serve.model import Served
from esad.wording import listed

__all__ = [
    "CSV",
    "JPEG",
    "JSON",
    "MULTIPART",
    "NPY",
    "PARQUET",
    "PNG",
    "TSV",
    "Rows",
    "media_types",
    "read",
    "read_uploads",
]

JSON, CSV, TSV = "application/json", "text/csv", "text/tab-separated-values"
PARQUET, NPY = "application/vnd.apache.parquet", "application/x-npy"
PNG, JPEG, MULTIPART = "image/png", "image/jpeg", "multipart/form-data"

_NUMBERS = {int, float, type(None)}
_SCALARS = {str, int, float, bool, type(None)}
_MAX_EXPANDED = 2**28  # bytes that a Parquet file or a set of pictures may become
_PARQUET_ROWS = 64  # looked at in one go
_SUFFIXES = {CSV: ".csv", TSV: ".tsv", PARQUET: ".parquet", PNG: ".png", JPEG: ".jpg"}


@dataclass(frozen=True, eq=False)
class Rows:
    """What one request asks about: rows in the form of the model, and what they are called."""

    served: Served
    X: Table | NDArray[Any]
    ids: Sequence[Any] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows or pictures."""
        return self.X.n_rows if isinstance(self.X, Table) else len(self.X)


def media_types(kind: str) -> tuple[str, ...]:
    """What a model of tables or pictures takes."""
    return (JSON, CSV, TSV, PARQUET, NPY) if kind == "table" else (PNG, JPEG, MULTIPART, NPY)


def read(media_type: str, body: bytes, served: Served, *, max_rows: int) -> Rows:
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
    readers: Mapping[str, Callable[[], Rows]] = {
        JSON: lambda: _json_rows(body, served, max_rows),
        NPY: lambda: _npy_rows(body, served, max_rows),
        **dict.fromkeys((CSV, TSV), lambda: _text_rows(body, media_type, served, max_rows)),
        PARQUET: lambda: _parquet_rows(body, served, max_rows),
        **dict.fromkeys((PNG, JPEG), lambda: _pictures([("the picture", body)], served, max_rows)),
    }
    return readers[media_type]()


def read_uploads(uploads: Sequence[tuple[str, bytes]], served: Served, *, max_rows: int) -> Rows:
    """Pictures that came as files of a form, with their names."""
    if not uploads:
        raise RequestError(422, "The form has no file. Send PNG or JPEG pictures as files.")
    found = _pictures([(f"{name!r}", content) for name, content in uploads], served, max_rows)
    return replace(found, ids=[name for name, _ in uploads])


# ---------------------------------------------------------------------- JSON


def _json_rows(body: bytes, served: Served, max_rows: int) -> Rows:
    if body.count(b"[") + body.count(b"{") > 10 * max_rows + len(body) // 64:  # each would become an object in memory
        raise RequestError(413, "There are too many lists and objects in the body. Send less at a time.")
    document = _document(body)
    rows, given = document["rows"], document.get("columns")
    _check_count(len(rows), max_rows)
    names = served.columns
    id_name = served.detector.notes_.get("id_column")
    kinds = set(map(type, rows))
    if kinds == {dict}:
        if given is not None:
            raise RequestError(422, "`columns` goes with rows that are lists. These are objects.")
        columns = _columns_of_objects(rows, names)
        ids = [row[id_name] for row in rows] if all(id_name in row for row in rows) else None
    elif kinds == {list}:
        columns, ids = _columns_of_lists(rows, given, names, id_name)
    else:
        raise RequestError(422, "`rows` must be objects {column: value}, or lists of values, all of one sort.")
    if ids is not None:
        _check_scalars(ids, str(id_name))
    return Rows(served, _json_table(columns, served), ids)


def _json_table(columns: dict[str, list[Any]], served: Served) -> Table:
    """Columns of cells as a table in the form of training; numbers alone, the usual case, in one go."""
    schema = _schema(served)
    cells = list(columns.values())
    if served.takes_numbers and set(map(type, itertools.chain.from_iterable(cells))) <= _NUMBERS:
        with contextlib.suppress(OverflowError):  # an integer beyond all floats
            matrix = np.array(cells, dtype=np.float64).T
            return Table(names=served.columns, named=schema.named, matrix=matrix)
    read_columns = tuple(_column(cells, name) for name, cells in columns.items())
    return schema.align(Table(names=served.columns, named=schema.named, columns=read_columns))


def _document(body: bytes) -> dict[str, Any]:
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


def _columns_of_objects(rows: list[dict[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    try:
        return {name: [row[name] for row in rows] for name in names}
    except KeyError as error:
        missing = error.args[0]
        number = next(number for number, row in enumerate(rows) if missing not in row)
        raise SchemaError(
            f"Row {number} lacks the column {missing!r} that the model was trained on. Give null where it has no value."
        ) from None


def _columns_of_lists(
    rows: list[list[Any]], given: list[str] | None, names: Sequence[str], id_name: Any
) -> tuple[dict[str, list[Any]], list[Any] | None]:
    """Columns in training order, and ids if they are among those given."""
    order = list(names) if given is None else given
    _check_names(order, names)
    for number, row in enumerate(rows):
        if len(row) != len(order):
            raise SchemaError(f"Every row must have {len(order)} values. Row {number} has {len(row)}.")
    by_name = dict(zip(order, map(list, zip(*rows, strict=True)), strict=True))
    return {name: by_name[name] for name in names}, by_name.get(id_name)


def _column(cells: list[Any], name: str) -> Any:
    _check_scalars(cells, name)
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return read_array(array, name)


def _check_scalars(cells: list[Any], name: str) -> None:
    if set(map(type, cells)) <= _SCALARS:
        return
    number = next(number for number, cell in enumerate(cells) if type(cell) not in _SCALARS)
    raise SchemaError(
        f"Column {name!r} must hold text, numbers, truth values or null. Row {number} holds a list or object."
    )


# ---------------------------------------------------------------------- CSV and Parquet


def _text_rows(body: bytes, media_type: str, served: Served, max_rows: int) -> Rows:
    header = re.match(rb'(?:\xef\xbb\xbf)?(?:"?sep=[^\r\n]*)?\s*[^\r\n]*', body)
    assert header is not None  # an empty one at least
    _check_width(sum(map(header[0].count, (b",", b";", b"\t", b"|"))), served)
    with _lying(body, media_type) as path:
        return _table_rows(path, served, max_rows)


def _parquet_rows(body: bytes, served: Served, max_rows: int) -> Rows:
    with _lying(body, PARQUET) as path:
        _check_parquet(path, served, max_rows)
        return _table_rows(path, served, max_rows)


def _table_rows(path: Path, served: Served, max_rows: int) -> Rows:
    """Rows of a file, read as `esad score` reads it."""
    source = open_table(path, served.detector)
    blocks: list[Block] = []
    n_rows = 0
    for block in source.blocks:
        n_rows += block.n_rows
        _check_count(n_rows, max_rows)
        blocks.append(block)
    schema = _schema(served)
    table = replace(Table.from_any(pa.concat_tables([block.X for block in blocks])), named=schema.named)
    ids = None
    if source.id_name is not None:
        ids = [plain_id(cell) for block in blocks for cell in block.ids.to_pylist()]
    return Rows(served, schema.align(table), ids)


def _check_parquet(path: Path, served: Served, max_rows: int) -> None:
    """Refuse what would become too much: first by what the file says of itself, then, if it lies, as it is read."""
    try:
        with pq.ParquetFile(str(path), pre_buffer=False, buffer_size=1 << 16) as source:
            metadata = source.metadata
            _check_count(metadata.num_rows, max_rows)
            groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
            _check_expanded(sum(max(0, group.total_byte_size) for group in groups))
            _check_width(metadata.num_columns, served)
            known = {*_schema(served).names} if _schema(served).named else {*source.schema_arrow.names}
            features = [name for name in source.schema_arrow.names if name in known]
            n_rows, n_bytes = 0, 0
            for batch in source.iter_batches(batch_size=_PARQUET_ROWS, columns=features, use_threads=False):
                n_rows, n_bytes = n_rows + batch.num_rows, n_bytes + sum(map(_n_bytes, batch.columns))
                _check_count(n_rows, max_rows)
                _check_expanded(n_bytes)
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise RequestError(422, f"The body is damaged or no Parquet file ({one_line(error)}).") from error


def _n_bytes(column: pa.Array) -> int:
    """What a column takes when a text that is kept once and meant often is spelt out."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return int(column.nbytes)
    return int(column.nbytes) + (pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        of(kind) for of in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


# ---------------------------------------------------------------------- pictures and arrays


def _pictures(named: Sequence[tuple[str, bytes]], served: Served, max_rows: int) -> Rows:
    """PNG and JPEG files; the size that each claims is checked before any is unpacked."""
    _check_count(len(named), max_rows)
    channels, height, width = served.detector.inputs_.shape
    _check_expanded(4 * len(named) * channels * height * width)
    with tempfile.TemporaryDirectory(prefix="esad-") as folder:
        paths = [Path(folder) / f"{number:08d}.png" for number in range(len(named))]
        for path, (name, content) in zip(paths, named, strict=True):
            path.write_bytes(content)
            with _renamed(path, name):
                header = read_header(path)
            if (header.width, header.height) != (width, height):
                raise SchemaError(
                    f"Pictures must have {width} x {height} pixels, as in training. "
                    f"{name} has {header.width} x {header.height}."
                )
        with _renamed(Path(folder), "the pictures"):
            images = [block.X for block in open_pictures(Path(folder), served.detector).blocks]
    return Rows(served, np.concatenate(images))


def _npy_rows(body: bytes, served: Served, max_rows: int) -> Rows:
    """An array file of numbers: nothing that could run code, no more than its bytes can hold."""
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = reader(file)
    except (
        ValueError,
        KeyError,
        OverflowError,
        MemoryError,
        SyntaxError,
        TypeError,
        EOFError,
        RecursionError,
    ) as error:
        raise RequestError(400, "The body is no .npy file of version 1 or 2.") from error
    if dtype.kind not in "fiub":
        raise RequestError(422, f"The array must hold numbers or truth values. Got {str(dtype)[:100]}.")
    if min(shape, default=0) < 1 or len(shape) > 4:
        raise RequestError(422, f"The array must have 2 to 4 axes, none of them empty. Got {str(shape)[:100]}.")
    _check_count(shape[0], max_rows)
    if math.prod(shape) * dtype.itemsize != len(body) - file.tell():
        raise RequestError(400, "The .npy file is cut, or longer than its shape says.")
    file.seek(0)
    return _array_rows(np.load(file, allow_pickle=False), served)


def _array_rows(array: NDArray[Any], served: Served) -> Rows:
    inputs = served.detector.inputs_
    schema = inputs.schema
    if schema is None:
        images = as_images(array)
        if images.shape[1:] != inputs.shape:
            raise SchemaError(f"Pictures must have (channels, height, width) = {inputs.shape}. Got {images.shape[1:]}.")
        return Rows(served, images)
    if array.ndim != 2 or array.shape[1] != len(schema.columns):
        raise SchemaError(f"The array must have the shape (rows, {len(schema.columns)}). Got {array.shape}.")
    table = replace(Table.from_any(array), names=schema.names, named=schema.named)
    return Rows(served, schema.align(table))


# ---------------------------------------------------------------------- what they share


def _schema(served: Served) -> Schema:
    schema = served.detector.inputs_.schema
    assert schema is not None  # the model takes tables
    return schema


def _check_names(given: Sequence[str], wanted: Sequence[str]) -> None:
    known = set(given)
    missing = [name for name in wanted if name not in known]
    if missing:
        raise SchemaError(f"Columns that the model was trained on are missing: {listed(missing)}.")


def _check_count(n_rows: int, max_rows: int) -> None:
    if n_rows == 0:
        raise RequestError(422, "There is no row. Send one at least.")
    if n_rows < 0 or n_rows > max_rows:
        raise RequestError(413, f"A request may have {max_rows:,} rows or pictures. Send less at a time.")


def _check_width(n_columns: int, served: Served) -> None:
    most = 1000 + 20 * len(_schema(served).columns)
    if n_columns > most:
        raise RequestError(413, f"A table for this model may have {most:,} columns. Got {n_columns:,}.")


def _check_expanded(n_bytes: int) -> None:
    if n_bytes > _MAX_EXPANDED:
        raise RequestError(413, f"Unpacked, this is more than {_MAX_EXPANDED >> 20} MiB. Send less at a time.")


@contextlib.contextmanager
def _lying(body: bytes, media_type: str) -> Iterator[Path]:
    """The body as a file of its own, for readers that want one."""
    with tempfile.TemporaryDirectory(prefix="esad-") as folder:
        path = Path(folder) / f"body{_SUFFIXES[media_type]}"
        path.write_bytes(body)
        with _renamed(path, "the body"):
            yield path


@contextlib.contextmanager
def _renamed(path: Path, name: str) -> Iterator[None]:
    """Errors that name a temporary file name what was sent instead."""
    try:
        yield
    except RequestError:
        raise
    except InputError as error:
        raise RequestError(422, str(error).replace(repr(str(path)), name).replace(str(path), name)) from error
    except (pa.ArrowException, OverflowError) as error:  # dates beyond all calendars, nanoseconds of the day
        raise RequestError(422, f"{name} holds a value that cannot be read: {one_line(error)}.") from error
