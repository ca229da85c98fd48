"""The rows or pictures under review, as the model takes them and as people read them."""

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Labels
from esad.detectors.training import TrainingData, mention_broken
from esad.io import checks
from esad.io.checks import OnRemark
from esad.io.dialect import Reading
from esad.io.files import open_tables
from esad.io.notes import Notes, check_column

if TYPE_CHECKING:
    import pyarrow as pa

    from esad.detectors.base import Detector

MAX_TITLE = 200  # characters: every list holds titles, and the whole text is among the cells


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
    known: Labels
    names: Sequence[Any] | None
    id_name: str
    cells: "pa.Table | None"
    titles: Sequence[str | None] | None = None

    @classmethod
    def from_file(
        cls,
        path: Path,
        detector: "Detector",
        *,
        ignore: Sequence[str] = (),
        on_remark: OnRemark = checks.tell,
        **roles: Any,
    ) -> "ReviewDataset":
        """Read everything that is judged, for a fitted model.

        Parameters
        ----------
        path : Path
        detector : Detector
        ignore : sequence of str
            Columns not to show.
        on_remark : callable, optional
            Told of what looks odd.
        **roles
            As for `TrainingData.for_model`.
        """
        rows = TrainingData.for_model(path, detector, on_remark=on_remark, **roles)
        mention_broken(rows.broken, on_remark)
        cells = None
        if rows.kind == "table":
            aside = {rows.roles.label_column, rows.roles.id_column}
            cells = _read_cells(path, detector, ignore, aside, roles.get("reading"))
        return cls(
            title=path.name,
            X=rows.X,
            known=rows.labels,
            names=rows.ids,
            id_name=rows.id_name,
            cells=cells,
            titles=None if cells is None else _find_titles(cells, detector),
        )

    @property
    def n_rows(self) -> int:
        """Return the number of rows or pictures."""
        return len(self.known)

    @property
    def noun(self) -> str:
        """Return the word for one item, such as "row" or "picture"."""
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
        return [
            (name, _format_cell(column[row])) for name, column in zip(self.cells.column_names, self.cells, strict=True)
        ]

    def search(self, query: str) -> NDArray[np.bool_]:
        """Return a mask of the rows that hold a text in a cell or in their name, ignoring case."""
        import pyarrow as pa
        import pyarrow.compute as pc

        names = [f"row {row}" for row in range(self.n_rows)] if self.names is None else list(map(str, self.names))
        columns = [pa.chunked_array([names]), *([] if self.cells is None else self.cells.columns)]
        found = np.zeros(self.n_rows, dtype=bool)
        for column in columns:
            hits = pc.match_substring(_cast_to_text(column), query, ignore_case=True)
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
            for text in _cast_to_text(column).to_pylist():
                digest.update(b"\0" if text is None else f"{text}\2".encode())
        return digest.hexdigest()


def _read_cells(
    path: str | os.PathLike[str],
    detector: "Detector",
    ignore: Sequence[str],
    aside: set[str | None],
    reading: Reading | None,
) -> "pa.Table":
    """Read all columns to show as they stand in the files, without ignored ones and those named like answers."""
    import pyarrow as pa

    data = open_tables(path, Notes.from_json(detector.notes_).add_reading(reading))
    for name in ignore:
        check_column(name, data.names, data.files[0], "ignore")
    schema, hidden = detector.inputs_.schema, aside | set(ignore)
    learned = set(schema.names) if schema is not None and schema.named else set()
    shown = [name for name in data.names if name in learned or not (name in hidden or checks.names_the_answer(name))]
    return pa.concat_tables(data.batches(shown), promote_options="permissive")


def _find_titles(cells: "pa.Table", detector: "Detector") -> list[str | None] | None:
    """Return titles from a text column that differs in every row and was left out of the training."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ignored = Notes.from_json(detector.notes_).roles.ignore
    left_out = [name for name in cells.column_names if name in ignored]
    for column in (cells[name] for name in left_out if pa.types.is_string(cells[name].type)):
        if 0 < pc.count_distinct(column).as_py() == len(column) - column.null_count:
            return [(text or "")[:MAX_TITLE] or None for text in column.to_pylist()]
    return None


def _cast_to_text(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.chunked_array([[None if cell is None else str(cell) for cell in column.to_pylist()]], pa.string())


def _format_cell(cell: Any) -> str:
    """A cell for people; empty where it is missing."""
    value = cell.as_py()
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.10g}" if isinstance(value, float) else str(value)
