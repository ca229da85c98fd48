"""From a table to the numbers a network sees: scaled values, category marks, calendar cycles, missing marks."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.errors import InputError
from esad.table.features import ColumnFeatures, expect
from esad.table.moments import careful_moments, finite_moments, moments_without_extremes
from esad.table.schema import Schema, Table
from esad.table.statistics import TableStatistics

__all__ = ["CLIP", "TabularPreprocessor"]

CLIP = 10.0  # standard deviations; farther out counts as this
_SAMPLE_ROWS = 4096  # to look for extreme values
_MARK_STD_FLOOR = 0.1  # a mark seen in fewer than 1 % of the rows weighs at most 10
_BLOCK_BYTES = 1 << 20  # working memory of one block of rows, so that it stays in cache
_FORMAT = 1


class TabularPreprocessor:
    """Turn tables into float32 features without NaN or infinity, always the same way after `fit`.

    Numbers and truth values become (x - mean) / std, clipped to +-10; infinite values become +-10 and missing ones 0.
    Categories become one mark each (at most the 32 most frequent; the others and later unseen ones share one mark).
    Dates become their time, and the position in the day, the week and the year where the training data covers
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
            Rows whose mean and standard deviation count; all rows when None or when none is true.

        Returns
        -------
        TabularPreprocessor
            Itself.
        """
        schema = Schema.infer(table)
        aligned = schema.align(table)
        if reference_mask is not None:
            reference_mask = np.asarray(reference_mask)
            if reference_mask.shape != (table.n_rows,) or reference_mask.dtype != bool:
                raise InputError(f"`reference_mask` must be {table.n_rows} truth values. Got {reference_mask.shape}.")
            if reference_mask.all() or not reference_mask.any():
                reference_mask = None
        features = tuple(
            ColumnFeatures.fit(column, aligned.column(index) if column.kind in ("category", "date") else None)
            for index, column in enumerate(schema.columns)
        )
        self._set(schema, features)
        self.mean_, std = finite_moments(
            self._raw_blocks(aligned, reference_mask),
            lambda index: _column_rows(aligned, self._value_columns[index], reference_mask),
            n_unbounded=len(self._value_columns),
        )
        for index, moments in self._drowned_columns(aligned, reference_mask, std):
            self.mean_[index], std[index] = moments
        self._set_scale(std)
        return self

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
        schema = statistics.schema()
        self = cls()
        self._set(schema, tuple(column.features() for column in statistics.columns))
        values, others = [], []
        for column, part in zip(statistics.columns, self.features_, strict=True):
            scales = np.stack(column.scales(part, statistics.n_reference))  # (mean and std, features)
            values.append(scales[:, : int(part.has_value)])
            others.append(scales[:, int(part.has_value) :])
        self.mean_, std = np.concatenate(values + others, axis=1)
        aligned = schema.align(sample)
        for index, number in enumerate(self._value_columns):
            if not (np.isfinite(self.mean_[index]) and np.isfinite(std[index])):
                self.mean_[index], std[index] = careful_moments(aligned.column(number))
        for index, moments in self._drowned_columns(aligned, None, std):
            self.mean_[index], std[index] = moments
        self._set_scale(std)
        return self

    def _set_scale(self, std: NDArray[np.float64]) -> None:
        is_mark = [False] * len(self._value_columns) + [mark for part in self.features_ for mark in part.is_mark]
        self.scale_ = np.where(is_mark, np.maximum(std, _MARK_STD_FLOOR), np.where(std == 0.0, 1.0, std))

    def _drowned_columns(
        self, aligned: Table, mask: NDArray[np.bool_] | None, std: NDArray[np.float64]
    ) -> Iterator[tuple[int, tuple[float, float]]]:
        """Value columns whose scale a few extreme values would set, with the moments of the others."""
        rows = np.arange(aligned.n_rows) if mask is None else np.flatnonzero(mask)
        sample = aligned.take(rows[:: -(-len(rows) // _SAMPLE_ROWS)])
        with np.errstate(over="ignore", invalid="ignore"):
            for index, number in enumerate(self._value_columns):
                column = partial(_column_rows, aligned, number, mask)
                moments = moments_without_extremes(sample.column(number), float(std[index]), column)
                if moments is not None:
                    yield index, moments

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
        start = 0
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for block in self._raw_blocks(aligned, None):
                block -= self.mean_
                block /= self.scale_
                np.clip(block, -CLIP, CLIP, out=block)
                rows = out[start : start + len(block)]
                rows[:] = block
                missing = np.isnan(rows)
                if missing.any():
                    rows[missing] = 0.0
                start += len(block)
        return out

    def cells(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        """Features in the user's own units and categories: what `transform` undone gives, column by column.

        Parameters
        ----------
        rows : ndarray of shape (n, n_features_out_)
            Any numbers, such as a network's reconstruction.

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
        return [part.read(raw[:, self.feature_sources_ == index]) for index, part in enumerate(self.features_)]

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

    def _raw_blocks(self, aligned: Table, mask: NDArray[np.bool_] | None) -> Iterator[NDArray[np.float64]]:
        """Features before scaling, in blocks of rows that share one buffer."""
        n_block = min(aligned.n_rows, max(64, _BLOCK_BYTES // (8 * self.n_features_out_)))
        buffer = np.empty((n_block, self.n_features_out_))
        n_values = len(self._value_columns)
        for start in range(0, aligned.n_rows, n_block or 1):
            rows = slice(start, min(start + n_block, aligned.n_rows))
            block = buffer[: rows.stop - start]
            aligned.numbers(rows, self._value_columns, block[:, :n_values])
            value, other = 0, n_values
            for index, part in enumerate(self.features_):
                if part.n_features:
                    cells = block[:, value] if part.has_value else aligned.column(index)[rows]
                    part.fill(cells, block[:, other : other + part.n_features])
                value, other = value + part.has_value, other + part.n_features
            yield block if mask is None else block[mask[rows]]


def _column_rows(table: Table, index: int, mask: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    column = table.column(index)
    return column if mask is None else column[mask]
