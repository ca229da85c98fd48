"""From a table to the numbers a network sees: scaled values, category marks, calendar cycles, missing marks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esad.core.arrays import Floats
from esad.table.columns import Kind, Values, as_texts, text_of_number
from esad.table.parse import parse_numbers
from esad.table.statistics import (
    BANDS,
    CYCLES,
    MAX_BAND_TEXTS,
    ColumnStatistics,
    Cycle,
    TableStatistics,
    careful_moments,
    date_features,
    moments_without_extremes,
)
from esad.table.table import Schema, Table, expect, expect_fields, expect_texts

MAX_CATEGORIES = 32
CLIP = 10.0  # standard deviations; farther out counts as this
_SAMPLE_ROWS = 4096  # to look for extreme values
_MARK_STD_FLOOR = 0.1  # a mark seen in fewer than 1 % of the rows weighs at most 10
_BLOCK_BYTES = 1 << 20  # working memory of one block of rows, so that it stays in cache
_BAND_CELLS = ("(a usual one)", "(one seldom seen)", "(a rare one)", "(a very rare one)")  # what `BANDS` are called
_FORMAT = 1
_WHOLE = re.compile(r"-?(?:0|[1-9]\d*)")
_YEARS = tuple(np.array(["0001-01-01", "9999-12-31"], dtype="M8[s]").astype(float))  # that a date can be shown of


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
        """The cells that such features, before scaling, stand for: the way back from `raw`; None where missing.

        Parameters
        ----------
        raw : ndarray of shape (n, n_features), or (n, 1 + n_features) with the plain value first where there is one
            Any numbers, such as a network's guess: the category with the largest mark counts; the mark of missing
            ones from a half on.
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
            if self.marks_missing:  # where most are there, one of them is more telling than none
                raw = np.where((np.arange(raw.shape[1]) == raw.shape[1] - 1) & (raw < 0.5), -np.inf, raw)
            bands = _BAND_CELLS[: len(self.bands)]
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

        A number finds the one category that spells it otherwise: 7 finds "7.0" or "007". So does 7.0, as which a table
        with gaps is often written.

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
        for text in [text for text in codes if _WHOLE.fullmatch(text or "")]:
            codes.setdefault(f"{text}.0", codes[text])
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
        value = {"bands": []} | value if type(value) is dict else value
        expect_fields(value, "a column", marks_missing=bool, categories=list, cycles=list, bands=list)
        categories, cycles, bands = value["categories"], value["cycles"], value["bands"]
        is_text = kind == "category"
        expect_texts(categories, MAX_CATEGORIES if is_text else 0, "`categories`")
        expect(cycles == [cycle for cycle in CYCLES if cycle in cycles] and (not cycles or kind == "date"), "`cycles`")
        expect(len(bands) <= (len(BANDS) if is_text else 0), "`bands`")
        expect(all(type(texts) is list and texts for texts in bands), "`bands`")
        expect_texts(
            [*categories, *(text for texts in bands for text in texts)], MAX_CATEGORIES + MAX_BAND_TEXTS, "texts"
        )
        return cls(kind, value["marks_missing"], tuple(categories), tuple(cycles), tuple(map(tuple, bands)))


class TabularPreprocessor:
    """Turn tables into float32 features without NaN or infinity, always the same way after `fit`.

    Numbers and truth values become (x - mean) / std, clipped to +-10; infinite values become +-10 and missing ones 0.
    Categories become one mark each, and later unseen ones share one; of more than 32, those about as frequent share a
    mark. Dates become their time, and the position in the day, the week and the year where the training data covers
    these. A column with missing values gets a mark for them. Marks are standardised too, with a std of at least 0.1.
    Means and standard deviations come from the finite values of the reference rows, in float64.

    Attributes
    ----------
    schema_ : Schema
        Columns seen in `fit`.
    features_ : tuple of ColumnFeatures
        What each column gives.
    n_features_out_ : int
        Number of features.
    feature_sources_ : ndarray of shape (n_features_out_,)
        Index of the column behind each feature. Numbers and truth values come first, in column order, then the rest.
    mean_, scale_ : ndarray of shape (n_features_out_,)
        Subtracted and divided by.

    Examples
    --------
    >>> table = Table.from_any([[1.0, "red"], [3.0, "blue"], [None, "red"]])
    >>> preprocessor = TabularPreprocessor().fit(table)
    >>> preprocessor.feature_names_out()
    ('x0', 'x0 is missing', 'x1 = blue', 'x1 = red', 'x1 = (other)')
    >>> preprocessor.transform(Table.from_any([[2.0, "red"], [np.inf, "green"]])).round(1)
    array([[ 0. , -0.7, -0.7,  0.7,  0. ],
           [10. , -0.7, -0.7, -1.4, 10. ]], dtype=float32)
    """

    schema_: Schema
    mean_: NDArray[np.float64]
    scale_: NDArray[np.float64]
    n_features_out_: int
    feature_sources_: NDArray[np.intp]
    features_: tuple[ColumnFeatures, ...]
    _value_columns: NDArray[np.intp]

    def fit(self, table: Table, reference_mask: NDArray[np.bool_] | None = None) -> "TabularPreprocessor":
        """Learn columns, categories and scales.

        Parameters
        ----------
        table : Table
            Training rows.
        reference_mask : ndarray of bool, shape (n_rows,), optional
            Rows whose mean and standard deviation count, at least one; all rows when None.

        Returns
        -------
        TabularPreprocessor
            Itself.
        """
        reference_mask = np.ones(table.n_rows, dtype=bool) if reference_mask is None else reference_mask
        return self._learn(TableStatistics.of(table, reference_mask), table, reference_mask)

    @classmethod
    def from_statistics(cls, statistics: TableStatistics, sample: Table) -> "TabularPreprocessor":
        """What `fit` would learn from all rows, from their statistics and some of the reference rows.

        The sample serves columns whose scale a few extreme values would set: their moments are those of the sample.

        Examples
        --------
        >>> table = Table.from_any([[1.0, "red"], [3.0, "blue"], [None, "red"]])
        >>> statistics = TableStatistics()
        >>> statistics.add(table, np.ones(3, dtype=bool))
        >>> both = TabularPreprocessor.from_statistics(statistics, table), TabularPreprocessor().fit(table)
        >>> bool((both[0].transform(table) == both[1].transform(table)).all())
        True
        """
        return cls()._learn(statistics, sample, np.ones(sample.n_rows, dtype=bool))

    def _learn(
        self, statistics: TableStatistics, table: Table, reference_mask: NDArray[np.bool_]
    ) -> "TabularPreprocessor":
        """Take columns, categories and scales from statistics; rows at hand serve columns that need a closer look."""
        self._set(statistics.schema, tuple(map(_choose_features, statistics.columns)))
        values, others = [], []
        for column, part in zip(statistics.columns, self.features_, strict=True):
            scales = np.stack(_measure_scales(column, part, statistics.n_reference))  # (mean and std, features)
            values.append(scales[:, : int(part.has_value)])
            others.append(scales[:, int(part.has_value) :])
        self.mean_, std = np.concatenate(values + others, axis=1)
        aligned, numbers = self.schema_.align(table), np.flatnonzero(reference_mask)
        sample = aligned.take(numbers[:: -(-len(numbers) // _SAMPLE_ROWS)])
        with np.errstate(over="ignore", invalid="ignore"):
            for place, index in enumerate(self._value_columns):
                if not (np.isfinite(self.mean_[place]) and np.isfinite(std[place])):
                    self.mean_[place], std[place] = careful_moments(aligned.column(index)[reference_mask])
                whole = partial(_reference_values, aligned, index, reference_mask)
                moments = moments_without_extremes(sample.column(index), float(std[place]), whole)
                if moments is not None:
                    self.mean_[place], std[place] = moments
        is_mark = [False] * len(self._value_columns) + [mark for part in self.features_ for mark in part.is_mark]
        self.scale_ = np.where(is_mark, np.maximum(std, _MARK_STD_FLOOR), np.where(std == 0.0, 1.0, std))
        return self

    def transform(self, table: Table, *, estimator: str = "ESAD") -> NDArray[np.float32]:
        """Features of a table whose columns fit the training table's.

        Parameters
        ----------
        table : Table
            Any rows; see `Schema.align` for what is allowed to differ.
        estimator : str
            Name of the model, for messages.

        Returns
        -------
        ndarray of float32, shape (n_rows, n_features_out_)
            C-contiguous, finite. A row's features do not depend on the other rows.
        """
        aligned = self.schema_.align(table, estimator=estimator)
        out = np.empty((table.n_rows, self.n_features_out_), dtype=np.float32)
        n_values = len(self._value_columns)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            if n_values:
                n_block = max(64, _BLOCK_BYTES // (8 * n_values))
                buffer = np.empty((min(n_block, table.n_rows), n_values))
                for rows in _blocks(table.n_rows, n_block):
                    block = aligned.numbers(rows, self._value_columns, buffer[: rows.stop - rows.start])
                    self._scale(block, slice(0, n_values), out[rows, :n_values])
            first = n_values
            for index, part in enumerate(self.features_):
                if part.n_features:
                    self._encode(part, aligned.values(index), slice(first, first + part.n_features), out)
                first += part.n_features
        return out

    def _scale(self, raw: NDArray[np.float64], features: slice, out: NDArray[np.float32]) -> None:
        """Write features, which are overwritten, scaled; 0 where they are missing."""
        raw -= self.mean_[features]
        raw /= self.scale_[features]
        np.clip(raw, -CLIP, CLIP, out=raw)
        out[:] = raw
        missing = np.isnan(out)
        if missing.any():
            out[missing] = 0.0

    def _encode(self, part: ColumnFeatures, values: Values, features: slice, out: NDArray[np.float32]) -> None:
        """Write the features of one column beside its plain value; of text, each that can be once."""
        if part.kind == "category":
            scaled = np.empty((part.n_features, part.n_features), dtype=np.float32)
            self._scale(np.eye(part.n_features), features, scaled)
            codes = part.codes_of(values)
            for rows in _blocks(len(values), _BLOCK_BYTES // (8 * part.n_features)):
                out[rows, features] = scaled[codes[rows]]
            return
        for rows in _blocks(len(values), _BLOCK_BYTES // (8 * part.n_features)):
            self._scale(part.raw(values.take(rows)), features, out[rows, features])

    def cells(self, rows: NDArray[Any], has_value: NDArray[np.bool_] | None = None) -> list[NDArray[Any]]:
        """Features in the user's own units and categories, column by column: the way back from `transform`.

        Parameters
        ----------
        rows : ndarray of shape (n, n_features_out_)
            Any numbers, such as a network's reconstruction.
        has_value : ndarray of bool, (n, columns), optional
            Cells that are not to be missing, whatever the rows say; in a column that never had a value they are.

        Returns
        -------
        list of ndarray of object, shape (n,)
            As `ColumnFeatures.read` gives them.

        Examples
        --------
        >>> table = Table.from_any([[1.0, "red"], [3.0, "blue"]])
        >>> preprocessor = TabularPreprocessor().fit(table)
        >>> [column.tolist() for column in preprocessor.cells(preprocessor.transform(table))]
        [[1.0, 3.0], ['red', 'blue']]
        """
        raw = np.asarray(rows, dtype=np.float64) * self.scale_ + self.mean_
        known = [column.n_missing < self.schema_.n_rows for column in self.schema_.columns]
        return [
            part.read(
                raw[:, self.feature_sources_ == index],
                None if has_value is None else has_value[:, index] & known[index],
            )
            for index, part in enumerate(self.features_)
        ]

    def feature_names_out(self) -> tuple[str, ...]:
        """Name of every feature, in order."""
        values = [self.schema_.names[index] for index in self._value_columns]
        parts = zip(self.schema_.names, self.features_, strict=True)
        return (*values, *(name for column, part in parts for name in part.names(column)))

    def state(self) -> tuple[dict[str, NDArray[np.float64]], dict[str, Any]]:
        """Fitted state as arrays and JSON values, for a model file."""
        meta = {
            "format": _FORMAT,
            "schema": self.schema_.to_json(),
            "features": [part.to_json() for part in self.features_],
        }
        return {"mean": self.mean_.copy(), "scale": self.scale_.copy()}, meta

    @classmethod
    def from_state(cls, tensors: dict[str, NDArray[Any]], meta: Any) -> "TabularPreprocessor":
        """Read what `state` gave; anything else is a ModelFileError.

        Examples
        --------
        >>> table = Table.from_any([[1.0], [2.0]])
        >>> tensors, meta = TabularPreprocessor().fit(table).state()
        >>> TabularPreprocessor.from_state(tensors, meta).transform(table).tolist()
        [[-1.0], [1.0]]
        """
        expect(type(meta) is dict and set(meta) == {"format", "schema", "features"}, "its parts")
        expect(type(meta["format"]) is int and meta["format"] == _FORMAT, "`format`")
        schema = Schema.from_json(meta["schema"])
        parts = meta["features"]
        expect(type(parts) is list and len(parts) == len(schema.columns), "`features`")
        features = tuple(
            ColumnFeatures.from_json(part, column.kind) for part, column in zip(parts, schema.columns, strict=True)
        )
        self = cls()
        self._set(schema, features)
        expect(type(tensors) is dict and set(tensors) == {"mean", "scale"}, "its arrays")
        for name, array in tensors.items():
            expect(isinstance(array, np.ndarray) and array.dtype == np.float64, f"the type of {name!r}")
            expect(array.shape == (self.n_features_out_,), f"the shape of {name!r}")
            expect(bool(np.isfinite(array).all()), f"{name!r} is not finite")
        expect(bool((tensors["scale"] > 0).all()), "'scale' is not positive")
        self.mean_, self.scale_ = tensors["mean"].copy(), tensors["scale"].copy()
        return self

    def _set(self, schema: Schema, features: tuple[ColumnFeatures, ...]) -> None:
        """Take the layout: plain values of number and boolean columns first, then every column's other features."""
        self.schema_, self.features_ = schema, features
        self._value_columns = np.array([index for index, part in enumerate(features) if part.has_value], dtype=np.intp)
        others = np.repeat(np.arange(len(features)), [part.n_features for part in features])
        self.feature_sources_ = np.concatenate([self._value_columns, others]).astype(np.intp)
        self.n_features_out_ = len(self.feature_sources_)


def _blocks(n_rows: int, n_block: int) -> Iterator[slice]:
    """Slices of so many rows that follow each other."""
    for start in range(0, n_rows, max(1, n_block)):
        yield slice(start, min(start + max(1, n_block), n_rows))


def _reference_values(table: Table, index: int, reference_mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    return table.column(index)[reference_mask]


def _choose_features(column: ColumnStatistics) -> ColumnFeatures:
    """The features of a column beside the plain value."""
    kind, marks_missing = column.final_kind, column.n_missing > 0
    if kind == "category":
        assert column.texts is not None
        if len(column.texts.texts) > MAX_CATEGORIES:
            return ColumnFeatures(kind, marks_missing, bands=column.texts.bands())
        return ColumnFeatures(kind, marks_missing, categories=column.texts.most_frequent(MAX_CATEGORIES))
    return ColumnFeatures(kind, marks_missing, cycles=column.covered_cycles() if kind == "date" else ())


def _measure_scales(column: ColumnStatistics, features: ColumnFeatures, n_reference: int) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the plain value, if there is one, then of each feature."""
    mean, std = np.zeros(1), np.zeros(1)  # without a value in any reference row
    if features.kind == "category":
        assert column.texts is not None
        counts = column.texts.reference_counts(features.categories)
        bands = [column.texts.reference_counts(texts).sum() for texts in features.bands]
        counts = np.append(counts, np.array(bands, dtype=np.int64))
        others = n_reference - counts.sum() - column.n_missing_reference
        mean, std = _scale_shares(np.append(counts, others) / max(1, n_reference))
    elif column.moments is not None:
        kept = [0]
        if features.kind == "date":
            kept += [1 + 2 * column.cycles.index(cycle) + wave for cycle in features.cycles for wave in (0, 1)]
        mean, std = column.moments.mean[kept], column.moments.std[kept]
    if features.marks_missing:
        own_mean, own_std = _scale_shares(np.array([column.n_missing_reference / max(1, n_reference)]))
        mean, std = np.append(mean, own_mean), np.append(std, own_std)
    return mean, std


def _scale_shares(shares: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of marks that so many rows carry."""
    return shares, np.sqrt(np.clip(shares * (1 - shares), 0.0, None))
