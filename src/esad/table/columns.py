"""One column of any library's type, read as numbers, truth values, text or dates."""

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from esad.table.cells import as_texts, read_cells
from esad.table.parse import Kind, as_microseconds, convert, parse_numbers

__all__ = ["Values", "read_array", "read_series"]


@dataclass(frozen=True, eq=False)
class Values:
    """The values of one column.

    Parameters
    ----------
    kind : {"number", "boolean", "category", "date"}
        What they are.
    array : ndarray
        Real numbers of any type (NaN missing), object array of str or None, or datetime64[us].
    cells : ndarray of objects or None
        The loose objects they were read from. A column of mixed objects is text; when a later table happens to hold
        only dates or only numbers of it, their text must still come out as in the mixture.

    Examples
    --------
    >>> read_array(np.array([1, None], dtype=object), "size").array
    array([ 1., nan])
    """

    kind: Kind
    array: NDArray[Any]
    cells: NDArray[Any] | None = None

    def take(self, rows: Any) -> "Values":
        """The given rows only."""
        return Values(self.kind, self.array[rows], None if self.cells is None else self.cells[rows])

    def as_kind(self, wanted: Kind) -> tuple[NDArray[Any], int | None]:
        """Values of another kind, and the row of the first that cannot be, as `convert` gives them."""
        if wanted == "category" and self.cells is not None:
            return as_texts(self.cells), None
        return convert(self.array, came=self.kind, wanted=wanted)


def read_series(series: nw.Series[Any], name: str) -> Values:
    """Read one column of a data frame.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_series(nw.from_native(pa.chunked_array([[True, None]]), series_only=True), "good").kind
    'boolean'
    """
    # text needs no look at each cell's type; arrow fills the gaps of a dictionary column in to_numpy
    if isinstance(series.dtype, nw.String | nw.Categorical | nw.Enum):
        return Values("category", as_texts(series.to_list()))
    untyped = isinstance(series.dtype, nw.Unknown) and series.null_count() == len(series)
    if untyped or isinstance(series.dtype, nw.Int128 | nw.UInt128):  # numpy has no such types
        return Values(*read_cells(series.to_list(), name=name))
    array = series.to_numpy()
    return read_array(array, name) if array.ndim == 1 else Values(*read_cells(series.to_list(), name=name))


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
        return Values("date", as_microseconds(array))
    if kind == "m":
        return Values("number", array / np.timedelta64(1, "s"))
    if kind in "US":  # numpy made text of everything: columns that spell numbers were numbers
        texts = as_texts(array.tolist())
        parsed, bad_row = parse_numbers(texts)
        return Values("number", parsed, texts) if bad_row is None else Values("category", texts)
    read, values = read_cells(array, name=name)
    return Values(read, values, None if read == "category" else np.asarray(array))
