"""One column of any library's type, read as numbers, truth values, text or dates.

Text is an arrow array, read and counted by arrow's kernels. Numbers, truth values and dates are numpy arrays: in an
arrow column without gaps, the same memory. Loose Python objects are looked at one by one, for only that tells what a
mixture holds.
"""

import datetime as dt
import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esad.errors import SchemaError
from esad.table.parse import parse_booleans, parse_dates, parse_numbers, trim

Kind = Literal["number", "boolean", "category", "date"]
Family = Literal["missing", "boolean", "number", "date", "duration", "clock", "text"]

_NOT_A_TIME = np.datetime64("NaT", "us")
_COARSE_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms")
_LAST = np.iinfo(np.int64).max  # in microseconds; the smallest integer means missing
_EXACT_INTEGERS = 2.0**53  # floats above this do not tell neighbouring whole numbers apart
_MAX_BYTES = 2**31 - 1  # of text in one arrow array of strings


class CellError(SchemaError, TypeError):
    """A cell is neither text nor a number, truth value, date or duration; scikit-learn looks for a TypeError here."""


class Encoded(NamedTuple):
    """A column of text by its different texts, blank ones left out: `texts[rows[i]]`, missing where beyond them."""

    rows: NDArray[np.int64]
    texts: pa.Array


@dataclass(frozen=True, eq=False)
class Values:
    """The values of one column.

    Parameters
    ----------
    kind : {"number", "boolean", "category", "date"}
        What they are.
    array : ndarray or pyarrow.Array
        Real numbers of any type (NaN missing), datetime64[us], or an arrow array of text (null or blank: missing).
    cells : ndarray of objects, or pyarrow.Array of text, or None
        What they were read from. A column of mixed objects is text; when a later table happens to hold only dates or
        only numbers of it, their text must still come out as in the mixture.
    is_text : bool
        Text for good: part of a column that spells no dates as a whole, though these rows alone may.

    Examples
    --------
    >>> values = read_array(np.array(["red", None, " "], dtype=object), "colour")
    >>> values.kind, values.to_numpy()
    ('category', array(['red', None, None], dtype=object))
    """

    kind: Kind
    array: Any
    cells: Any = None
    is_text: bool = False

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def encoded(self) -> Encoded:
        """Of text: each different text once."""
        encoded = self.array.dictionary_encode()
        rows = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        texts = encoded.dictionary
        is_text = np.asarray(pc.not_equal(trim(texts), ""), dtype=bool)
        if not is_text.all():
            n_texts = int(is_text.sum())
            places = np.append(np.where(is_text, np.cumsum(is_text) - 1, n_texts), n_texts)
            rows, texts = places[rows], texts.filter(pa.array(is_text))
        return Encoded(rows, texts)

    @cached_property
    def dates(self) -> tuple[NDArray[Any], int | None]:
        """Of text: the dates that it spells, and the row of the first that spells none."""
        if self.is_text and (bad_row := _find_first(self.encoded.rows < len(self.encoded.texts))) is not None:
            return np.full(len(self), _NOT_A_TIME), bad_row
        dates, bad_row = parse_dates(self.array)
        if bad_row is None or self.encoded.rows[bad_row] < len(self.encoded.texts):
            return dates, bad_row
        return parse_dates(self._without_blanks())

    def _without_blanks(self) -> pa.Array:
        """Text that is null where blank."""
        rows, texts = self.encoded
        return texts.take(pa.array(rows, mask=rows == len(texts)))

    def to_numpy(self) -> NDArray[Any]:
        """As float64 (NaN missing), an object array of str or None, or datetime64[us]."""
        if self.kind == "category":
            rows, texts = self.encoded
            return np.array([*texts.to_pylist(), None], dtype=object)[rows]
        with np.errstate(over="ignore"):
            return np.asarray(self.array if self.kind == "date" else self.array.astype(np.float64, copy=False))

    def take(self, rows: Any) -> "Values":
        """The given rows only: a slice, numbers or a mask."""
        cells = None if self.cells is None else _take(self.cells, rows)
        return Values(self.kind, _take(self.array, rows), cells, self.is_text)

    def settle(self) -> "Values":
        """Text as dates where all of it spells dates, else as text for good: parts of it are then read as the whole.

        Examples
        --------
        >>> column = read_cells(["2024-02-29", "soon"], name="due").settle()
        >>> column.take([0]).dates[1], column.take([0]).settle().kind
        (0, 'category')
        """
        if self.kind != "category" or self.is_text:
            return self
        dates, bad_row = self.dates
        if bad_row is not None:
            return replace(self, is_text=True)
        return self if np.isnat(dates).all() else Values("date", dates, self.array)

    def as_kind(self, wanted: Kind) -> tuple["Values", int | None]:
        """The same values as another kind where the meaning is certain, and the row of the first that cannot be.

        Examples
        --------
        >>> read_array(np.array([3.0, np.nan, 0.5]), "a").as_kind("category")[0].to_numpy()
        array(['3', None, '0.5'], dtype=object)
        >>> read_array(np.array([1.0, 2.0]), "a").as_kind("boolean")[1]
        1
        """
        if self.kind == wanted:
            return self, None
        if wanted == "category" and self.cells is not None:
            return Values(wanted, self.cells if isinstance(self.cells, pa.Array) else as_texts(self.cells)), None
        if self.kind == "category":
            return self._parse(wanted)
        if self.kind == "date" or wanted == "date":  # only where there is no value at all
            missing = np.isnat(self.array) if self.kind == "date" else np.isnan(self.array)
            return _empty_column(wanted, len(self)), _find_first(~missing)
        if wanted == "category":
            return Values(wanted, _texts_of_numbers(self.array, is_truth=self.kind == "boolean")), None
        is_truth = np.isnan(self.array) | (self.array == 0) | (self.array == 1)
        return Values(wanted, self.array), None if wanted == "number" else _find_first(~is_truth)

    def _parse(self, wanted: Kind) -> tuple["Values", int | None]:
        if wanted == "date":
            dates, bad_row = self.dates
            return Values(wanted, dates), bad_row
        parsed, bad_row = (parse_numbers if wanted == "number" else parse_booleans)(self._without_blanks())
        return Values(wanted, parsed), bad_row

    def cell(self, row: int) -> str:
        """One value as it is shown in a message."""
        value = self.array[row]
        return str(value.as_py() if isinstance(value, pa.Scalar) else value)[:40]

    @staticmethod
    def join(parts: Sequence["Values"]) -> "Values":
        """Columns of one kind, one below the other."""
        if parts[0].kind == "category":
            return Values("category", pa.concat_arrays([part.array for part in parts]))
        return Values(parts[0].kind, np.concatenate([part.array for part in parts]))


def _take(array: Any, rows: Any) -> Any:
    if not isinstance(array, pa.Array):
        return array[rows]
    return array.take(pa.array(np.arange(len(array))[rows]))


def _empty_column(kind: Kind, n_rows: int) -> Values:
    """A column without any value."""
    if kind == "category":
        return Values(kind, pa.nulls(n_rows, pa.string()))
    return Values(kind, np.full(n_rows, _NOT_A_TIME if kind == "date" else np.nan))


def _find_first(rows: NDArray[np.bool_]) -> int | None:
    """First row that is true."""
    return int(rows.argmax()) if rows.any() else None


# ---------------------------------------------------------------------- columns with a type


def read_series(series: nw.Series[Any], name: str) -> Values:
    """Read one column of a data frame.

    Examples
    --------
    >>> read_series(nw.from_native(pa.chunked_array([[True, None]]), series_only=True), "good").kind
    'boolean'
    """
    native = nw.to_native(series)
    if isinstance(native, pa.ChunkedArray):
        return read_arrow(native, name)
    if isinstance(series.dtype, nw.Int128 | nw.UInt128 | nw.Object) and not series.implementation.is_pandas():
        return read_cells(series.to_list(), name=name)
    categories = getattr(native.dtype, "categories", None) if series.implementation.is_pandas() else None
    if categories is not None and categories.dtype.kind == "O":  # text, intervals, or a mixture
        codes = native.cat.codes.to_numpy()
        return Values("category", as_texts(categories.tolist()).take(pa.array(codes, mask=codes < 0)))
    plain = (nw.String, nw.Categorical, nw.Enum, nw.Time, nw.Binary)
    if isinstance(series.dtype, plain) or series.implementation.is_polars():
        return read_arrow(series.to_arrow(), name)
    if isinstance(series.dtype, nw.Unknown) and series.null_count() == len(series):
        return read_cells(series.to_list(), name=name)
    array = series.to_numpy()
    return read_array(array, name) if array.ndim == 1 else read_cells(series.to_list(), name=name)


def read_arrow(column: pa.Array | pa.ChunkedArray, name: str) -> Values:
    """Read one column of an arrow table.

    Examples
    --------
    >>> read_arrow(pa.chunked_array([[1, None]]), "size").array
    array([ 1., nan])
    """
    type_ = column.type
    if pa.types.is_null(type_):
        return _empty_column("category", len(column))
    if pa.types.is_dictionary(type_):
        encoded = join_chunks(column)
        texts = read_arrow(encoded.dictionary, name).as_kind("category")[0].array
        return Values("category", texts.take(encoded.indices))
    if is_text_type(type_):
        wide = column.nbytes > _MAX_BYTES
        return Values("category", join_chunks(column.cast(pa.large_string() if wide else pa.string())))
    if pa.types.is_time(type_):
        ticks = pa.int32() if pa.types.is_time32(type_) else pa.int64()
        per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[type_.unit]
        column = pc.divide(column.cast(ticks).cast(pa.float64(), safe=False), per_second)
    if pa.types.is_boolean(type_) and column.null_count:
        return Values("boolean", join_chunks(column).cast(pa.int8()).cast(pa.float64()).to_numpy(zero_copy_only=False))
    if pa.types.is_decimal(type_):
        column = column.cast(pa.float64(), safe=False)
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_temporal)
    if any(check(column.type) for check in plain):
        return read_array(join_chunks(column).to_numpy(zero_copy_only=False), name)
    return read_cells(column.to_pylist(), name=name)


def join_chunks(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def decode_categories(column: Any) -> Any:
    """An arrow column with the value of every cell in its place.

    Arrow turns chunked categories into a numpy array that holds the first of them where a cell is missing.
    """
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def is_text_type(type_: pa.DataType) -> bool:
    """Whether arrow has text of any width there."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def read_array(array: NDArray[Any], name: str) -> Values:
    """Read one column of a numpy array of any type.

    Examples
    --------
    >>> read_array(np.array([90, 30], dtype="m8[s]"), "duration").array
    array([90., 30.])
    """
    kind = array.dtype.kind
    if kind in "fiub":
        return Values("boolean" if kind == "b" else "number", array)
    if kind == "M":
        return Values("date", _as_microseconds(array))
    if kind == "m":
        return Values("number", array / np.timedelta64(1, "s"))
    if kind in "US":  # numpy made text of everything: columns that spell numbers were numbers
        texts = Values("category", as_texts(array.tolist()))
        parsed, bad_row = texts.as_kind("number")
        return Values("number", parsed.array, texts.array) if bad_row is None else texts
    return _read_objects(np.asarray(array), name)


def _read_objects(array: NDArray[Any], name: str) -> Values:
    """Read a column of objects: by arrow where all are text or all are numbers, else one by one."""
    try:
        column = pa.array(array, from_pandas=True)
    except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError):
        return read_cells(array, name=name)
    if pa.types.is_string(column.type):
        return Values("category", column)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return Values("number", column.to_numpy(zero_copy_only=False), array)
    return read_cells(array, name=name)


def _as_microseconds(dates: Any) -> NDArray[Any]:
    """Dates of any unit as datetime64[us]; those beyond its 290,000 years stop at its ends, where numpy would wrap."""
    dates = np.asarray(dates)
    converted: NDArray[Any] = dates.astype("M8[us]")
    if np.datetime_data(dates.dtype)[0] in _COARSE_UNITS:
        beyond = (converted.astype(dates.dtype) != dates) & ~np.isnat(dates)
        ends = np.where(dates.astype(np.int64) > 0, _LAST, -_LAST).astype("M8[us]")
        converted = np.where(beyond, ends, converted)
    return converted


def _texts_of_numbers(array: NDArray[Any], *, is_truth: bool) -> pa.Array:
    """The text of each number, spelled once for each that is different."""
    different, rows = np.unique(array, return_inverse=True)
    if is_truth:
        texts = [None if value != value else str(bool(value)) for value in different.tolist()]
    elif array.dtype.kind == "f":
        texts = [text_of_number(value) for value in different.tolist()]
    else:
        texts = [str(value) for value in different.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(rows))


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


# ---------------------------------------------------------------------- loose cells

_MISSING_TYPES = ("NoneType", "NAType", "NaTType", "MaskedConstant")  # by name, so that pandas need not be loaded
_LONGEST_INTEGER = 10**300  # Python refuses to spell out integers of thousands of digits
_CONTAINER_METHODS = ("__len__", "__iter__", "__array__")


def read_cells(values: Iterable[Any], *, name: str) -> Values:
    """Decide what a column of Python objects holds.

    Parameters
    ----------
    values : iterable of objects
        Cells of one column; None, NaN, NaT and pandas' NA are missing.
    name : str
        Column name, for error messages.

    Returns
    -------
    Values
        Pure kinds keep theirs; a mixture becomes text categories, and so does a column without any value.

    Examples
    --------
    >>> read_cells([1, None, 2.5], name="size").array
    array([1. , nan, 2.5])
    >>> read_cells([3.0, "red", None], name="colour").to_numpy()
    array(['3', 'red', None], dtype=object)
    """
    cells = loose = list(values)
    families = {cell_type: _family(cell_type, name) for cell_type in set(map(type, cells))}
    held = set(families.values()) - {"missing"}
    if held and not held <= {"number", "boolean"}:  # a float NaN between texts or dates is a missing cell, not a number
        cells = [None if families[type(cell)] == "missing" or _is_nan(cell) else cell for cell in cells]
        held = {families[type(cell)] for cell in cells if cell is not None}
    if held and held <= {"number", "boolean"}:
        return Values("boolean" if held == {"boolean"} else "number", _to_floats(cells), _objects(loose))
    if held == {"date"}:
        return Values("date", _to_dates(cells), _objects(loose))
    if held in ({"duration"}, {"clock"}):
        seconds = _seconds if held == {"duration"} else _clock_seconds
        return Values("number", np.array([seconds(cell) for cell in cells], dtype=np.float64), _objects(loose))
    return Values("category", as_texts(cells))


def _objects(cells: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    return array


def as_texts(cells: Iterable[Any]) -> pa.Array:
    """Turn every cell into its text; missing and blank cells become null.

    Examples
    --------
    >>> as_texts(["red", 3.0, " "]).to_pylist()
    ['red', '3', None]
    """
    texts = [text_of(cell) for cell in cells]
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:  # a half of a surrogate pair, which no file can hold
        return pa.array([text and text.encode(errors="replace").decode() for text in texts], pa.string())


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
        return text_of_number(_to_float(cell))
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


def _to_float(cell: Any) -> float:
    """Nearest float; beyond the range of floats infinite, missing NaN."""
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def _to_floats(cells: list[Any]) -> NDArray[np.float64]:
    """Numbers, truth values and missing cells as float64."""
    try:
        with np.errstate(over="ignore"):
            return np.array(cells, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_to_float(cell) for cell in cells], dtype=np.float64)


def _to_dates(cells: list[Any]) -> NDArray[np.datetime64]:
    """Dates, moments and missing cells as datetime64[us] in UTC."""
    naive = [_as_utc(cell) if isinstance(cell, dt.datetime) else cell for cell in cells]
    dates = [_as_microseconds(cell) if isinstance(cell, np.datetime64) else np.datetime64(cell, "us") for cell in naive]
    return np.array(dates, dtype="M8[us]")


def _as_utc(moment: dt.datetime) -> dt.datetime:
    """The same moment in UTC without a zone; moments without a zone are taken as they are."""
    if moment.tzinfo is None:
        return moment
    try:
        return moment.astimezone(dt.UTC).replace(tzinfo=None)
    except OverflowError:  # within hours of the first or last year that Python knows
        return moment.replace(tzinfo=None)


def _seconds(cell: Any) -> float:
    """A duration in seconds."""
    if cell is None:
        return math.nan
    return float(cell / np.timedelta64(1, "s")) if isinstance(cell, np.timedelta64) else float(cell.total_seconds())


def _clock_seconds(cell: dt.time | None) -> float:
    """A time of day as seconds since midnight."""
    return math.nan if cell is None else cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond / 1e6
