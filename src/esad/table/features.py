"""The features of one column beside its plain value: category marks, calendar cycles and the mark for missing."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from esad.errors import ModelFileError
from esad.table.parse import Kind, parse_numbers, text_of_number
from esad.table.schema import Column

__all__ = ["CYCLES", "MAX_CATEGORIES", "ColumnFeatures", "Cycle", "covered_cycles", "expect", "most_frequent"]

Cycle = Literal["day", "week", "year"]
CYCLES: tuple[Cycle, ...] = get_args(Cycle)

MAX_CATEGORIES = 32
_DAY, _WEEK, _YEAR = (days * 86_400_000_000 for days in (1, 7, 366))  # in microseconds
_YEARS = tuple(np.array(["0001-01-01", "9999-12-31"], dtype="M8[s]").astype(float))  # that a date can be shown of
_NAT = np.iinfo(np.int64).min


@dataclass(frozen=True)
class ColumnFeatures:
    """What one column gives beside its plain value.

    Parameters
    ----------
    kind : {"number", "boolean", "category", "date"}
        Kind of the column. Numbers and truth values have a plain value, the others are all in the features here.
    marks_missing : bool
        Whether missing cells have a mark of their own, because training had some.
    categories : tuple of str
        Categories with a mark of their own, in text order.
    cycles : tuple of {"day", "week", "year"}
        Cycles whose position is given as sine and cosine.

    Examples
    --------
    >>> features = ColumnFeatures("category", marks_missing=True, categories=("blue", "red"))
    >>> features.names("colour")
    ['colour = blue', 'colour = red', 'colour = (other)', 'colour is missing']
    >>> marks = np.empty((3, 4))
    >>> features.fill(np.array(["red", "green", None], dtype=object), marks)
    >>> marks
    array([[0., 1., 0., 0.],
           [0., 0., 1., 0.],
           [0., 0., 0., 1.]])
    """

    kind: Kind
    marks_missing: bool
    categories: tuple[str, ...] = ()
    cycles: tuple[Cycle, ...] = ()

    @classmethod
    def fit(cls, column: Column, values: NDArray[Any] | None) -> "ColumnFeatures":
        """Choose the features of a training column; `values` are needed for categories and dates only."""
        marks_missing = column.n_missing > 0
        if values is None or column.kind in ("number", "boolean"):
            return cls(column.kind, marks_missing)
        if column.kind == "category":
            return cls(column.kind, marks_missing, categories=most_frequent(values))
        return cls(column.kind, marks_missing, cycles=covered_cycles(values[~np.isnat(values)].astype(np.int64)))

    @property
    def has_value(self) -> bool:
        """Whether the column has a plain value."""
        return self.kind in ("number", "boolean")

    @cached_property
    def n_features(self) -> int:
        """Number of features beside the plain value."""
        return len(self.is_mark)

    @cached_property
    def is_mark(self) -> tuple[bool, ...]:
        """For each feature, whether it is bounded (a mark or a cycle); the time of a date is not."""
        n_marks = {"category": len(self.categories) + 1, "date": 2 * len(self.cycles)}.get(self.kind, 0)
        return (False,) * (self.kind == "date") + (True,) * (n_marks + self.marks_missing)

    def names(self, column: str) -> list[str]:
        """Name of each feature."""
        missing = [f"{column} is missing"] * self.marks_missing
        if self.kind == "category":
            return [*(f"{column} = {category}" for category in self.categories), f"{column} = (other)", *missing]
        if self.kind == "date":
            waves = [f"{column} {wave} of {cycle}" for cycle in self.cycles for wave in ("sine", "cosine")]
            return [column, *waves, *missing]
        return missing

    def fill(self, values: NDArray[Any], out: NDArray[np.float64]) -> None:
        """Write the features of a block of cells into `out`, shape (len(values), n_features)."""
        if self.kind == "category":
            out[:] = 0.0
            codes = (self.codes.get(text, self.other_code) for text in values)
            out[np.arange(len(values)), np.fromiter(codes, dtype=np.intp, count=len(values))] = 1.0
        elif self.kind == "date":
            self._fill_date(values, out)
        elif self.marks_missing:
            out[:, 0] = np.isnan(values)

    def read(self, raw: NDArray[np.float64]) -> NDArray[Any]:
        """The cells that such features, before scaling, speak for: what `fill` undone gives, None where missing.

        Parameters
        ----------
        raw : ndarray of shape (n, n_features), or (n, 1 + n_features) with the plain value first where there is one
            Any numbers, such as a network's guess: the category with the largest mark counts.

        Returns
        -------
        ndarray of object, shape (n,)
            float, bool, str or datetime64[s]; "(other)" for categories without a mark of their own.

        Examples
        --------
        >>> colour = ColumnFeatures("category", marks_missing=True, categories=("blue", "red"))
        >>> colour.read(np.array([[0.1, 0.7, 0.0, 0.2], [0.0, 0.3, 0.1, 0.6]]))
        array(['red', None], dtype=object)
        """
        cells = np.empty(len(raw), dtype=object)
        if self.kind == "category":
            words = np.array([*self.categories, "(other)", *[None] * self.marks_missing], dtype=object)
            cells[:] = words[raw.argmax(axis=1)]
            return cells
        if self.kind == "date":
            unit = "M8[s]" if "day" in self.cycles else "M8[D]"  # no time of day where all are the same
            cells[:] = list(np.clip(raw[:, 0], *_YEARS).astype("M8[s]").astype(unit).astype("M8[s]"))
        elif self.kind == "boolean":
            cells[:] = (raw[:, 0] >= 0.5).tolist()
        else:
            cells[:] = raw[:, 0].tolist()
        if self.marks_missing:
            cells[raw[:, -1] >= 0.5] = None
        return cells

    @property
    def other_code(self) -> int:
        """The feature of categories without a mark of their own."""
        return len(self.categories)

    @cached_property
    def codes(self) -> dict[str | None, int]:
        """The feature of each text, `other_code` for all that are not here; None is a missing cell.

        A number finds the one category that spells it otherwise: 7 finds "7.0" or "007".

        Examples
        --------
        >>> ColumnFeatures("category", marks_missing=True, categories=("7.0", "red")).codes
        {'7': 0, '7.0': 0, 'red': 1, None: 3}
        """
        spelled: dict[str | None, list[int]] = {}
        for index, category in enumerate(self.categories):
            parsed, bad_row = parse_numbers(np.array([category], dtype=object))
            if bad_row is None:
                spelled.setdefault(text_of_number(float(parsed[0])), []).append(index)
        codes: dict[str | None, int] = {text: found[0] for text, found in spelled.items() if text and len(found) == 1}
        codes.update((category, index) for index, category in enumerate(self.categories))
        if self.marks_missing:
            codes[None] = self.other_code + 1
        return codes

    def _fill_date(self, values: NDArray[Any], out: NDArray[np.float64]) -> None:
        microseconds = values.astype(np.int64)
        missing = microseconds == _NAT
        out[:, 0] = microseconds / 1e6
        for index, cycle in enumerate(self.cycles):
            angle = 2.0 * np.pi * _phase(values, microseconds, cycle)
            out[:, 1 + 2 * index] = np.sin(angle)
            out[:, 2 + 2 * index] = np.cos(angle)
        out[missing] = np.nan
        if self.marks_missing:
            out[:, -1] = missing

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; the kind is in the schema."""
        return {
            "marks_missing": self.marks_missing,
            "categories": list(self.categories),
            "cycles": list(self.cycles),
        }

    @classmethod
    def from_json(cls, value: Any, kind: Kind) -> "ColumnFeatures":
        """Read what `to_json` gave; anything else is a ModelFileError."""
        expect(type(value) is dict and set(value) == {"marks_missing", "categories", "cycles"}, "parts of a column")
        categories, cycles = value["categories"], value["cycles"]
        expect(type(value["marks_missing"]) is bool, "`marks_missing`")
        expect(type(categories) is list and all(type(text) is str for text in categories), "`categories`")
        expect(len(categories) <= (MAX_CATEGORIES if kind == "category" else 0), "too many `categories`")
        expect(len(set(categories)) == len(categories), "doubled `categories`")
        expect(type(cycles) is list and cycles == [cycle for cycle in CYCLES if cycle in cycles], "`cycles`")
        expect(not cycles or kind == "date", "`cycles` of a column that is no date")
        return cls(kind, value["marks_missing"], tuple(categories), tuple(cycles))


def expect(holds: bool, what: str) -> None:
    """Refuse damaged preprocessing state."""
    if not holds:
        raise ModelFileError(f"The model file's preprocessing is damaged: {what}. Train and save the model again.")


def most_frequent(texts: NDArray[Any]) -> tuple[str, ...]:
    """The most frequent texts, in text order; ties go to the first in text order."""
    counts: dict[str, int] = {}
    for text in texts:
        if text is not None:
            counts[text] = counts.get(text, 0) + 1
    return tuple(sorted(sorted(counts, key=lambda text: (-counts[text], text))[:MAX_CATEGORIES]))


def covered_cycles(microseconds: NDArray[np.int64]) -> tuple[Cycle, ...]:
    """The day if times of day differ; the week and the year if the dates span a whole one."""
    if not len(microseconds):
        return ()
    time_of_day = microseconds % _DAY
    span = int(microseconds.max()) - int(microseconds.min())
    covered = {"day": bool((time_of_day != time_of_day[0]).any()), "week": span >= _WEEK, "year": span >= _YEAR}
    return tuple(cycle for cycle in CYCLES if covered[cycle])


def _phase(values: NDArray[Any], microseconds: NDArray[np.int64], cycle: Cycle) -> NDArray[np.float64]:
    """Position within the cycle, from 0 to below 1."""
    length = {"day": _DAY, "week": _WEEK, "year": _YEAR}[cycle]
    start = values.astype("M8[Y]").astype("M8[us]").astype(np.int64) if cycle == "year" else 0
    return np.asarray((microseconds - start) % length / length, dtype=np.float64)
