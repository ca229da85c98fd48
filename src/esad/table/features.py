"""The features of one column beside its plain value: category marks, calendar cycles and the mark for missing."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esad.errors import ModelFileError
from esad.table.columns import Kind, Values, as_texts, text_of_number
from esad.table.parse import parse_numbers

__all__ = [
    "BANDS",
    "CYCLES",
    "MAX_BAND_TEXTS",
    "MAX_CATEGORIES",
    "ColumnFeatures",
    "Cycle",
    "covered_cycles",
    "date_features",
    "expect",
]

Cycle = Literal["day", "week", "year"]
CYCLES: tuple[Cycle, ...] = get_args(Cycle)

MAX_CATEGORIES = 32
BANDS = ("usual", "seldom", "rare", "very rare")  # how frequent a text is among very many
MAX_BAND_TEXTS = 10_000  # that are listed; rarer ones are like those never seen
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
    bands : tuple of tuple of str
        In place of categories where there are too many: texts about as frequent share a mark, the usual ones first. So
        the mark of a rare text is rarer than that of a frequent one.
    cycles : tuple of {"day", "week", "year"}
        Cycles whose position is given as sine and cosine.

    Examples
    --------
    >>> features = ColumnFeatures("category", marks_missing=True, categories=("blue", "red"))
    >>> features.names("colour")
    ['colour = blue', 'colour = red', 'colour = (other)', 'colour is missing']
    >>> features.raw(Values("category", pa.array(["red", "green", None])))
    array([[0., 1., 0., 0.],
           [0., 0., 1., 0.],
           [0., 0., 0., 1.]])
    """

    kind: Kind
    marks_missing: bool
    categories: tuple[str, ...] = ()
    cycles: tuple[Cycle, ...] = ()
    bands: tuple[tuple[str, ...], ...] = ()

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
        n_marks = {"category": self.other_code + 1, "date": 2 * len(self.cycles)}.get(self.kind, 0)
        return (False,) * (self.kind == "date") + (True,) * (n_marks + self.marks_missing)

    def names(self, column: str) -> list[str]:
        """Name of each feature."""
        missing = [f"{column} is missing"] * self.marks_missing
        if self.kind == "category":
            own = [f"{column} = {category}" for category in self.categories]
            own += [f"{column} is {band}" for band, _ in zip(BANDS, self.bands, strict=False)]
            return [*own, f"{column} = (other)", *missing]
        if self.kind == "date":
            waves = [f"{column} {wave} of {cycle}" for cycle in self.cycles for wave in ("sine", "cosine")]
            return [column, *waves, *missing]
        return missing

    def raw(self, values: Values) -> NDArray[np.float64]:
        """The features of some cells before scaling, shape (len(values), n_features); NaN where a date is missing."""
        if self.kind == "category":
            return np.asarray(np.eye(self.n_features)[self.codes_of(values)])
        if self.kind == "date":
            features = date_features(values.array, self.cycles)
            return np.column_stack([features, np.isnat(values.array)]) if self.marks_missing else features
        return np.asarray(np.isnan(values.to_numpy())[:, None][:, : self.n_features], dtype=np.float64)

    def codes_of(self, values: Values) -> NDArray[np.int64]:
        """The feature that each cell of a column of text marks, one look-up for each different text."""
        (rows, texts), (known, codes) = values.encoded, self._known
        places = pc.index_in(texts, value_set=known.cast(texts.type)).fill_null(len(known)).to_numpy()
        return np.asarray(np.append(codes[places], self.codes.get(None, self.other_code))[rows])

    @cached_property
    def _known(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """The texts of `codes`, and the feature of each, then of all others."""
        known = {text: code for text, code in self.codes.items() if text is not None}
        return as_texts(known), np.array([*known.values(), self.other_code], dtype=np.int64)

    def read(self, raw: NDArray[np.float64], has_value: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """The cells that such features, before scaling, speak for: what `raw` undone gives, None where missing.

        Parameters
        ----------
        raw : ndarray of shape (n, n_features), or (n, 1 + n_features) with the plain value first where there is one
            Any numbers, such as a network's guess: the category with the largest mark counts.
        has_value : ndarray of bool, (n,), optional
            Cells that are not to be missing, whatever their mark says.

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
        if self.marks_missing and has_value is not None:
            raw = raw.copy()
            raw[has_value, -1] = -np.inf
        if self.kind == "category":
            bands = [f"({band})" for band, _ in zip(BANDS, self.bands, strict=False)]
            words = np.array([*self.categories, *bands, "(other)", *[None] * self.marks_missing], dtype=object)
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
        return len(self.categories) + len(self.bands)

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
            parsed, bad_row = parse_numbers(pa.array([category]))
            if bad_row is None:
                spelled.setdefault(text_of_number(float(parsed[0])), []).append(index)
        codes: dict[str | None, int] = {text: found[0] for text, found in spelled.items() if text and len(found) == 1}
        codes.update((category, index) for index, category in enumerate(self.categories))
        for index, texts in enumerate(self.bands, len(self.categories)):
            codes.update(dict.fromkeys(texts, index))
        if self.marks_missing:
            codes[None] = self.other_code + 1
        return codes

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; the kind is in the schema."""
        plain = {"marks_missing": self.marks_missing, "categories": list(self.categories), "cycles": list(self.cycles)}
        return plain | ({"bands": [list(texts) for texts in self.bands]} if self.bands else {})

    @classmethod
    def from_json(cls, value: Any, kind: Kind) -> "ColumnFeatures":
        """Read what `to_json` gave; anything else is a ModelFileError."""
        parts = {"marks_missing", "categories", "cycles"}
        expect(type(value) is dict and set(value) - {"bands"} == parts, "parts of a column")
        categories, cycles = value["categories"], value["cycles"]
        expect(type(value["marks_missing"]) is bool, "`marks_missing`")
        expect(type(categories) is list and all(type(text) is str for text in categories), "`categories`")
        expect(len(categories) <= (MAX_CATEGORIES if kind == "category" else 0), "too many `categories`")
        expect(len(set(categories)) == len(categories), "doubled `categories`")
        expect(type(cycles) is list and cycles == [cycle for cycle in CYCLES if cycle in cycles], "`cycles`")
        expect(not cycles or kind == "date", "`cycles` of a column that is no date")
        bands = value.get("bands", [])
        expect(type(bands) is list and len(bands) <= (len(BANDS) if kind == "category" else 0), "`bands`")
        expect(all(type(texts) is list and texts for texts in bands), "`bands`")
        listed = [text for texts in bands for text in texts]
        expect(all(type(text) is str for text in listed) and len(listed) <= MAX_BAND_TEXTS, "texts of `bands`")
        expect(len({*listed, *categories}) == len(listed) + len(categories), "doubled texts of `bands`")
        return cls(kind, value["marks_missing"], tuple(categories), tuple(cycles), tuple(map(tuple, bands)))


def expect(holds: bool, what: str) -> None:
    """Refuse damaged preprocessing state."""
    if not holds:
        raise ModelFileError(f"The model file's preprocessing is damaged: {what}. Train and save the model again.")


def covered_cycles(microseconds: NDArray[np.int64]) -> tuple[Cycle, ...]:
    """The day if times of day differ; the week and the year if the dates span a whole one."""
    if not len(microseconds):
        return ()
    time_of_day = microseconds % _DAY
    span = int(microseconds.max()) - int(microseconds.min())
    covered = {"day": bool((time_of_day != time_of_day[0]).any()), "week": span >= _WEEK, "year": span >= _YEAR}
    return tuple(cycle for cycle in CYCLES if covered[cycle])


def date_features(dates: NDArray[Any], cycles: tuple[Cycle, ...]) -> NDArray[np.float64]:
    """The time in seconds, then sine and cosine of the position in each cycle, (n, features); NaN where missing."""
    microseconds = dates.astype(np.int64)
    features = np.empty((len(dates), 1 + 2 * len(cycles)))
    features[:, 0] = microseconds / 1e6
    for index, cycle in enumerate(cycles):
        angle = 2.0 * np.pi * _phase(dates, microseconds, cycle)
        features[:, 1 + 2 * index] = np.sin(angle)
        features[:, 2 + 2 * index] = np.cos(angle)
    missing = microseconds == _NAT
    if missing.any():
        features[missing] = np.nan
    return features


def _phase(values: NDArray[Any], microseconds: NDArray[np.int64], cycle: Cycle) -> NDArray[np.float64]:
    """Position within the cycle, from 0 to below 1."""
    length = {"day": _DAY, "week": _WEEK, "year": _YEAR}[cycle]
    start = values.astype("M8[Y]").astype("M8[us]").astype(np.int64) if cycle == "year" else 0
    return np.asarray((microseconds - start) % length / length, dtype=np.float64)
