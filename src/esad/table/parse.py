"""A column of one kind turned into another where the meaning is certain: text that spells numbers, dates or truths."""

import datetime as dt
import math
import re
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Kind",
    "as_microseconds",
    "as_utc",
    "convert",
    "parse_booleans",
    "parse_dates",
    "parse_numbers",
    "text_of_number",
]

Kind = Literal["number", "boolean", "category", "date"]

_ISO_DATE = re.compile(r"\s*\d{4}-\d{2}-\d{2}(?!\d)")
_OTHER_DATE = re.compile(
    r"\s*(?:(?P<y>\d{4})(?P<mark>[-/.])(?P<m>\d{1,2})(?P=mark)(?P<d>\d{1,2})|(?P<D>\d{1,2})\.(?P<M>\d{1,2})\.(?P<Y>\d{4}))"
    r"(?:(?:T| +)(?P<hour>\d{1,2})(?P<clock>:\d{2}(?!\d).*?))?\s*"
)
_COARSE_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms")
_LAST = np.iinfo(np.int64).max  # in microseconds; the smallest integer means missing
_EXACT_INTEGERS = 2.0**53  # floats above this do not tell neighbouring whole numbers apart
_TRUTHS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}


def convert(column: NDArray[Any], *, came: Kind, wanted: Kind) -> tuple[NDArray[Any], int | None]:
    """Turn a column into the kind wanted, and tell the row of the first value that cannot be.

    Parameters
    ----------
    column : ndarray
        Real numbers (NaN missing), object array of str or None, or datetime64[us], as `came` says.
    came, wanted : {"number", "boolean", "category", "date"}
        Kind it has and kind it should have.

    Returns
    -------
    converted : ndarray
        Of the kind wanted; to be used only if `bad_row` is None.
    bad_row : int or None
        Row of the first value without a certain meaning there. A column that is all missing is any kind.

    Examples
    --------
    >>> convert(np.array([3.0, np.nan, 0.5]), came="number", wanted="category")
    (array(['3', None, '0.5'], dtype=object), None)
    >>> convert(np.array([1.0, 2.0]), came="number", wanted="boolean")[1]
    1
    """
    if came == wanted or (came == "boolean" and wanted == "number"):
        return column, None
    if came == "category":
        if wanted == "date":
            return parse_dates(column)
        return parse_numbers(column) if wanted == "number" else parse_booleans(column)
    if came == "number" and wanted == "boolean":
        return column, _first(~(np.isnan(column) | (column == 0) | (column == 1)))
    if came in ("number", "boolean") and wanted == "category":
        spell = _text_of_truth if came == "boolean" else text_of_number if column.dtype.kind == "f" else str
        texts = np.empty(len(column), dtype=object)
        texts[:] = [spell(value) for value in column.tolist()]
        return texts, None
    missing = np.isnat(column) if came == "date" else np.isnan(column)
    blanks: dict[Kind, Any] = {
        "number": np.nan,
        "boolean": np.nan,
        "category": None,
        "date": np.datetime64("NaT", "us"),
    }
    return np.full(len(column), blanks[wanted]), _first(~missing)


def text_of_number(value: float) -> str | None:
    """Text of a number: whole numbers without a point, NaN as None.

    Examples
    --------
    >>> text_of_number(3.0), text_of_number(0.5), text_of_number(float("nan"))
    ('3', '0.5', None)
    """
    if math.isnan(value):
        return None
    whole = abs(value) < _EXACT_INTEGERS and value == int(value)
    return str(int(value)) if whole else repr(float(value))


def parse_numbers(texts: NDArray[Any]) -> tuple[NDArray[np.float64], int | None]:
    """Numbers that texts spell, and the row of the first that spells none (None when all do).

    Examples
    --------
    >>> parse_numbers(np.array(["1e3", None, "x"], dtype=object))
    (array([1000.,   nan,   nan]), 2)
    """
    parsed = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        if text is None:
            continue
        try:
            parsed[row] = float("x" if "_" in text else text)
        except ValueError:
            return parsed, row
    return parsed, None


def parse_booleans(texts: NDArray[Any]) -> tuple[NDArray[np.float64], int | None]:
    """Truth values that texts spell (true, false, 1, 0), and the row of the first that spells none.

    Examples
    --------
    >>> parse_booleans(np.array(["True", "0", None], dtype=object))
    (array([ 1.,  0., nan]), None)
    """
    parsed = np.full(len(texts), np.nan)
    for row, text in enumerate(texts):
        if text is None:
            continue
        truth = _TRUTHS.get(text.strip().lower())
        if truth is None:
            return parsed, row
        parsed[row] = truth
    return parsed, None


def parse_dates(texts: NDArray[Any]) -> tuple[NDArray[np.datetime64], int | None]:
    """Dates that texts spell year first or, with points, day first, in UTC, and the row of the first that spells none.

    29/02/2024 is none: elsewhere the month comes first.

    Examples
    --------
    >>> parse_dates(np.array(["29.02.2024", "2024-02-29T12:00:00+02:00"], dtype=object))[0].astype(str).tolist()
    ['2024-02-29T00:00:00.000000', '2024-02-29T10:00:00.000000']
    """
    parsed: list[dt.datetime | None] = [None] * len(texts)
    bad = None
    for row, text in enumerate(texts):
        if text is None:
            continue
        try:
            parsed[row] = as_utc(dt.datetime.fromisoformat(_iso(text)))
        except ValueError:
            parsed[row] = None
        if parsed[row] is None:
            bad = row
            break
    return np.array(parsed, dtype="datetime64[us]"), bad


def _iso(text: str) -> str:
    """The same date in ISO form; anything else as it is, to be refused."""
    if _ISO_DATE.match(text):
        return text.strip()
    found = _OTHER_DATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day = (found[long] or found[short] for long, short in ("yY", "mM", "dD"))
    date = f"{year}-{month:0>2}-{day:0>2}"
    return date if found["hour"] is None else f"{date}T{found['hour']:0>2}{found['clock']}"


def as_utc(moment: dt.datetime) -> dt.datetime:
    """The same moment in UTC without a zone; moments without a zone are taken as they are.

    Examples
    --------
    >>> as_utc(dt.datetime.fromisoformat("2024-02-29T12:00+02:00")).isoformat()
    '2024-02-29T10:00:00'
    """
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:  # within hours of the first or last year that Python knows
        return moment.replace(tzinfo=None)


def as_microseconds(dates: Any) -> NDArray[Any]:
    """Dates of any unit as datetime64[us]; those beyond its 290,000 years stop at its ends, where numpy would wrap.

    Examples
    --------
    >>> as_microseconds(np.array(["2024-02-29", "NaT"], dtype="M8[D]"))
    array(['2024-02-29T00:00:00.000000', 'NaT'], dtype='datetime64[us]')
    """
    dates = np.asarray(dates)
    converted: NDArray[Any] = dates.astype("M8[us]")
    if np.datetime_data(dates.dtype)[0] in _COARSE_UNITS:
        beyond = (converted.astype(dates.dtype) != dates) & ~np.isnat(dates)
        ends = np.where(dates.astype(np.int64) > 0, _LAST, -_LAST).astype("M8[us]")
        converted = np.where(beyond, ends, converted)
    return converted


def _first(rows: NDArray[np.bool_]) -> int | None:
    """First row that is true."""
    return int(rows.argmax()) if rows.any() else None


def _text_of_truth(value: float) -> str | None:
    """True, False or None for a truth value held as a float."""
    return None if math.isnan(value) else str(bool(value))
