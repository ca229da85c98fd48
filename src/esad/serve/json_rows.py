"""Rows from a JSON body."""

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic_core import from_json

from esad.core.text import listed
from esad.errors import RequestError, SchemaError
from esad.serve.model import Served
from esad.serve.rows import SCALARS, Rows, check_count, schema_of
from esad.table.columns import read_array
from esad.table.table import Table

__all__ = ["json_rows"]

_NUMBERS = {int, float, type(None)}


def json_rows(body: bytes, served: Served, max_rows: int) -> Rows:
    """Rows that are objects {column: value}, or lists of values."""
    if body.count(b"[") + body.count(b"{") > 10 * max_rows + len(body) // 64:  # each would become an object in memory
        raise RequestError(413, "There are too many lists and objects in the body. Send less at a time.")
    document = _document(body)
    rows, given = document["rows"], document.get("columns")
    check_count(len(rows), max_rows)
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
    schema = schema_of(served)
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
    if set(map(type, cells)) <= SCALARS:
        return
    number = next(number for number, cell in enumerate(cells) if type(cell) not in SCALARS)
    raise SchemaError(
        f"Column {name!r} must hold text, numbers, truth values or null. Row {number} holds a list or object."
    )


def _check_names(given: Sequence[str], wanted: Sequence[str]) -> None:
    known = set(given)
    missing = [name for name in wanted if name not in known]
    if missing:
        raise SchemaError(f"Columns that the model was trained on are missing: {listed(missing)}.")
