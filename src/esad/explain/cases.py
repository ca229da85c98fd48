"""The labelled training rows, kept so that an alarm can be compared with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Arrays, Labels, RowNumbers, Rows
from esad.errors import ModelFileError

MAX_CASES = 500  # of each kind of label
MAX_BYTES = 16 << 20
_LEVELS = 255  # pictures are kept with 8 bits


@dataclass(frozen=True)
class Case:
    """A labelled row near an alarm.

    Attributes
    ----------
    row : int
        Its number among the rows that the model was trained on, or that were given as cases, from 0.
    label : int
        -1 anomaly, +1 normal.
    distance : float
        Root mean square difference of the scaled features; two ordinary rows are about 1.4 apart in a table.
    """

    row: int
    label: int
    distance: float

    def describe(self, names: Sequence[Any] | None = None) -> str:
        """For people, by its row number or by the name of that row.

        Examples
        --------
        >>> Case(7, -1, 0.25).describe(), Case(1, 1, 2.0).describe(["a", "b"])
        ('row 7 (anomaly, distance 0.25)', 'b (normal, distance 2.00)')
        """
        name = f"row {self.row}" if names is None else str(names[self.row])
        return f"{name} ({'anomaly' if self.label < 0 else 'normal'}, distance {self.distance:.2f})"


@dataclass(frozen=True, eq=False)
class Cases:
    """Labelled rows as the model sees them.

    Attributes
    ----------
    rows : ndarray of float32, (n, *features); of uint8 for pictures
    labels : ndarray of int8, (n,)
        -1 or +1.
    numbers : ndarray of int64, (n,)
        Their row numbers in the data they come from.
    """

    rows: NDArray[Any]
    labels: Labels
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Rows, y: Labels) -> Self:
        """The labelled ones among preprocessed rows; of very many, evenly spread ones.

        Examples
        --------
        >>> rows = np.arange(4, dtype=np.float32)[:, None]
        >>> Cases.of(rows, np.array([0, -1, 0, 1], dtype=np.int8)).numbers
        array([1, 3])
        """
        pictures = rows.ndim > 2
        most = min(MAX_CASES, MAX_BYTES // (2 * rows[0].size * (1 if pictures else 4)))
        numbers = np.concatenate([_pick_evenly(np.flatnonzero(y == label), most) for label in (-1, 1)])
        kept = rows[numbers]
        if pictures:
            kept = np.round(kept * _LEVELS).astype(np.uint8)
        return cls(kept, y[numbers], numbers)

    def __len__(self) -> int:
        return len(self.rows)

    def nearest(self, rows: Rows, n_cases: int) -> list[list[Case]]:
        """The nearest cases of each row, the nearest first."""
        known = self.rows.reshape(len(self), -1)
        scale = _LEVELS if known.dtype == np.uint8 else 1
        flat = rows.reshape(len(rows), -1)
        found = []
        for row in flat:
            distances = np.sqrt(np.square(known / np.float32(scale) - row).mean(axis=1))
            nearest = np.argsort(distances, kind="stable")[:n_cases].tolist()
            found.append([Case(int(self.numbers[i]), int(self.labels[i]), float(distances[i])) for i in nearest])
        return found

    def state(self) -> Arrays:
        """Arrays for the model file."""
        return {"rows": self.rows, "labels": self.labels, "numbers": self.numbers}

    @classmethod
    def from_state(cls, arrays: Arrays, shape: tuple[int, ...]) -> Self:
        """Undo `state`, checking everything; `shape` is that of one row."""
        if arrays.keys() != {"rows", "labels", "numbers"}:
            raise ModelFileError("its labelled cases are incomplete")
        rows, known, numbers = arrays["rows"], arrays["labels"], arrays["numbers"]
        fits = rows.dtype == (np.uint8 if len(shape) > 1 else np.float32) and rows.shape[1:] == shape
        fits = fits and known.dtype == np.int8 and numbers.dtype == np.int64
        if not fits or not len(rows) == known.size == numbers.size or known.ndim != 1 or numbers.ndim != 1:
            raise ModelFileError("its labelled cases have the wrong type or shape")
        if not np.isfinite(rows).all() or not np.isin(known, (-1, 1)).all() or (numbers < 0).any():
            raise ModelFileError("its labelled cases are damaged")
        return cls(rows, known, numbers)


def _pick_evenly(numbers: RowNumbers, most: int) -> NDArray[np.int64]:
    """Pick at most `most` of them, evenly spread."""
    if len(numbers) > most:
        numbers = numbers[np.linspace(0, len(numbers), most, endpoint=False).astype(np.intp)]
    return numbers.astype(np.int64)
