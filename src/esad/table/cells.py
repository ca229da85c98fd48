"""Loose cells in, typed columns out: the one place that decides what a column of Python objects holds."""

import datetime as dt
import math
import numbers
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from esad.errors import SchemaError
from esad.table.parse import Kind, as_microseconds, as_utc, text_of_number

__all__ = ["CellError", "as_texts", "read_cells", "text_of"]

Family = Literal["missing", "boolean", "number", "date", "duration", "clock", "text"]

_MISSING_TYPES = ("NoneType", "NAType", "NaTType", "MaskedConstant")  # by name, so that pandas need not be loaded
_LONGEST_INTEGER = 10**300  # Python refuses to spell out integers of thousands of digits
_CONTAINER_METHODS = ("__len__", "__iter__", "__array__")


class CellError(SchemaError, TypeError):
    """A cell is neither text nor a number, truth value, date or duration; scikit-learn looks for a TypeError here."""


def read_cells(values: Iterable[Any], *, name: str) -> tuple[Kind, NDArray[Any]]:
    """Decide what a column of Python objects holds, and give it as an array of that kind.

    Parameters
    ----------
    values : iterable of objects
        Cells of one column; None, NaN, NaT and pandas' NA are missing.
    name : str
        Column name, for error messages.

    Returns
    -------
    kind : {"number", "boolean", "category", "date"}
        Pure kinds keep theirs; a mixture becomes text categories, and so does a column without any value.
    column : ndarray
        float64 (NaN missing), object array of str or None, or datetime64[us].

    Examples
    --------
    >>> read_cells([1, None, 2.5], name="size")
    ('number', array([1. , nan, 2.5]))
    >>> read_cells([3.0, "red", None], name="colour")
    ('category', array(['3', 'red', None], dtype=object))
    """
    cells = list(values)
    families = {cell_type: _family(cell_type, name) for cell_type in set(map(type, cells))}
    held = set(families.values()) - {"missing"}
    if held and not held <= {"number", "boolean"}:  # a float NaN between texts or dates is a missing cell, not a number
        cells = [None if families[type(cell)] == "missing" or _is_nan(cell) else cell for cell in cells]
        held = {families[type(cell)] for cell in cells if cell is not None}
    if held and held <= {"number", "boolean"}:
        return ("boolean" if held == {"boolean"} else "number"), _floats(cells)
    if held == {"date"}:
        return "date", _dates(cells)
    if held == {"duration"}:
        return "number", np.array([_seconds(cell) for cell in cells], dtype=np.float64)
    if held == {"clock"}:
        return "number", np.array([_clock_seconds(cell) for cell in cells], dtype=np.float64)
    return "category", as_texts(cells)


def as_texts(cells: Iterable[Any]) -> NDArray[Any]:
    """Turn every cell into its text; missing and blank cells become None.

    Examples
    --------
    >>> as_texts(["red", 3.0, " "])
    array(['red', '3', None], dtype=object)
    """
    texts = [text_of(cell) for cell in cells]
    column = np.empty(len(texts), dtype=object)
    column[:] = texts
    return column


def text_of(cell: Any) -> str | None:
    """Text of one cell, the same for 3, 3.0 and "3"; None when missing or blank.

    Examples
    --------
    >>> text_of(3.0), text_of(dt.date(2024, 2, 29)), text_of(float("nan"))
    ('3', '2024-02-29', None)
    """
    if type(cell) is str:
        return cell if cell.strip() else None
    if type(cell).__name__ in _MISSING_TYPES or _is_nan(cell):
        return None
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell))
    if isinstance(cell, np.timedelta64 | np.datetime64):
        return str(cell)
    if isinstance(cell, numbers.Integral) and abs(int(cell)) < _LONGEST_INTEGER:
        return str(int(cell))
    if isinstance(cell, numbers.Real | Decimal):
        return text_of_number(_float(cell))
    if isinstance(cell, bytes):
        return text_of(cell.decode("utf-8", errors="replace"))
    text = cell.isoformat() if isinstance(cell, dt.date | dt.time) else str(cell)
    return text if text.strip() else None


def _family(cell_type: type, name: str) -> Family:
    """What cells of one Python type stand for."""
    if cell_type.__name__ in _MISSING_TYPES:
        return "missing"
    if issubclass(cell_type, bool | np.bool_):
        return "boolean"
    if issubclass(cell_type, dt.timedelta | np.timedelta64):  # before numbers: numpy's is an integer type too
        return "duration"
    if issubclass(cell_type, numbers.Real | Decimal):
        return "number"
    if issubclass(cell_type, dt.date | np.datetime64):
        return "date"
    if issubclass(cell_type, dt.time):
        return "clock"
    if issubclass(cell_type, str | bytes):
        return "text"
    if issubclass(cell_type, numbers.Complex):
        raise CellError(f"Complex data not supported: column {name!r} holds {cell_type.__name__}. Split it in two.")
    textless = cell_type.__str__ is object.__str__ and cell_type.__repr__ is object.__repr__
    if textless or any(method in vars(base) for base in cell_type.__mro__ for method in _CONTAINER_METHODS):
        raise CellError(
            f"Column {name!r} holds a {cell_type.__name__}: a cell argument must be a string or a number, truth value, "
            "date, duration or missing. Spread it over several columns or drop it."
        )
    return "text"


def _is_nan(cell: Any) -> bool:
    """Whether a cell is a NaN of a float, Decimal or numpy type, or numpy's NaT."""
    if isinstance(cell, Decimal):  # a signalling NaN refuses to be compared
        return cell.is_nan()
    return isinstance(cell, numbers.Real | np.datetime64 | np.timedelta64) and bool(cell != cell)


def _float(cell: Any) -> float:
    """Nearest float; beyond the range of floats infinite, missing NaN."""
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def _floats(cells: list[Any]) -> NDArray[np.float64]:
    """Numbers, truth values and missing cells as float64."""
    try:
        with np.errstate(over="ignore"):
            return np.array(cells, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_float(cell) for cell in cells], dtype=np.float64)


def _dates(cells: list[Any]) -> NDArray[np.datetime64]:
    """Dates, moments and missing cells as datetime64[us] in UTC."""
    naive = [as_utc(cell) if isinstance(cell, dt.datetime) else cell for cell in cells]
    dates = [as_microseconds(cell) if isinstance(cell, np.datetime64) else np.datetime64(cell, "us") for cell in naive]
    return np.array(dates, dtype="M8[us]")


def _seconds(cell: Any) -> float:
    """A duration in seconds."""
    if cell is None:
        return math.nan
    return float(cell / np.timedelta64(1, "s")) if isinstance(cell, np.timedelta64) else float(cell.total_seconds())


def _clock_seconds(cell: dt.time | None) -> float:
    """A time of day as seconds since midnight."""
    return math.nan if cell is None else cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond / 1e6
