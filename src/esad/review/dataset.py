"""The rows or pictures under review, as the model takes them and as people read them."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReviewDataset", "TrainingRows"]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """What the model learned from, where that is other data than the data under review.

    Attributes
    ----------
    X : arrow table, ndarray or None
        Rows that were found again, in the form of the data under review; None where there are none.
    y : ndarray of int8, (n,)
        Their labels: -1, 0, +1.
    lost : str
        What was not found again, in a sentence; empty where all is here.
    """

    X: Any = None
    y: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    lost: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class ReviewDataset:
    """The data under review.

    Attributes
    ----------
    title : str
        What the data is called.
    X : arrow table or ndarray
        What the model takes; pictures as (n, channels, height, width).
    known : ndarray of int8, (n,)
        Labels that came with the data: -1, 0, +1.
    names : sequence or None
        What the rows are called, where they have names of their own.
    id_name : str
        What such a name is: the id column, or "file".
    cells : arrow table or None
        All cells to show, as they stand in the file; None for pictures.
    titles : sequence or None
        What people call the rows, where a column of text says it and the rows have no names.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"size": [1.0, 9.5], "colour": ["red", "Blue"]})
    >>> known = np.zeros(2, np.int8)
    >>> rows = ReviewDataset(title="t", X=table, known=known, names=["a", "b"], id_name="serial", cells=table)
    >>> rows.name_of(1), rows.cells_of(1), rows.search("blu").tolist()
    ('b', [('size', '9.5'), ('colour', 'Blue')], [False, True])
    """

    title: str
    X: Any
    known: NDArray[np.int8]
    names: Sequence[Any] | None
    id_name: str
    cells: "pa.Table | None"
    titles: Sequence[str | None] | None = None

    @property
    def n_rows(self) -> int:
        """How many there are."""
        return len(self.known)

    @property
    def noun(self) -> str:
        """What one of them is."""
        return "picture" if self.cells is None else "row"

    def name_of(self, row: int) -> str:
        """The name or title of a row, or its number, from 0."""
        called = self.titles if self.names is None else self.names
        name = None if called is None else called[row]
        return f"row {row}" if name is None else str(name)

    def cells_of(self, row: int) -> list[tuple[str, str]]:
        """Every cell of a row as text."""
        if self.cells is None:
            return []
        return [(name, _text(column[row])) for name, column in zip(self.cells.column_names, self.cells, strict=True)]

    def search(self, query: str) -> NDArray[np.bool_]:
        """Which rows hold a text in any cell or in their name, whatever its case."""
        import pyarrow as pa
        import pyarrow.compute as pc

        columns = [] if self.cells is None else list(self.cells.columns)
        if self.names is not None:
            columns.append(pa.chunked_array([[str(name) for name in self.names]]))
        else:
            columns.append(pa.chunked_array([[f"row {row}" for row in range(self.n_rows)]]))
        found = np.zeros(self.n_rows, dtype=bool)
        for column in columns:
            if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
                column = _as_text(column)
            hits = pc.match_substring(column, query, ignore_case=True)
            found |= hits.fill_null(False).to_numpy().astype(bool)
        return found

    def fingerprint(self) -> str:
        """Names the data by its cells or pixels, so that labels are not put on other rows."""
        digest = hashlib.sha256(f"{self.noun} {self.n_rows}".encode())
        if self.cells is None:
            for name, picture in zip(self.names or (), self.X, strict=True):
                digest.update(f"{name}\0".encode("utf-8", "surrogateescape"))
                digest.update(np.ascontiguousarray(picture).data)
            return digest.hexdigest()
        for name, column in zip(self.cells.column_names, self.cells, strict=True):
            digest.update(f"\1{name}\1".encode())
            for text in _as_text(column).to_pylist():
                digest.update(b"\0" if text is None else f"{text}\2".encode())
        return digest.hexdigest()


def _as_text(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.chunked_array([[None if cell is None else str(cell) for cell in column.to_pylist()]], pa.string())


def _text(cell: Any) -> str:
    """A cell for people; empty where it is missing."""
    value = cell.as_py()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
