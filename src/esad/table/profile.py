"""A small summary of the training columns to hold new data against: percentiles, shares of categories and of gaps."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from esad.errors import ModelFileError
from esad.table.binning import count_between
from esad.table.features import MAX_CATEGORIES, ColumnFeatures, most_frequent
from esad.table.parse import Kind
from esad.table.schema import KINDS, Table

__all__ = ["MAX_ROWS", "ColumnCounts", "ColumnProfile", "Profile", "profiled_rows"]

Counts = NDArray[np.int64]

MAX_ROWS: Final = 50_000  # looked at in training; more tell nothing new
_PERCENTILES: Final = np.arange(1, 100) / 100
_MAX_EDGES: Final = 2 * len(_PERCENTILES)


@dataclass(frozen=True, eq=False)
class ColumnCounts:
    """Rows of a column, counted: without a value, and in each cell of its profile."""

    n_missing: int
    counts: Counts

    @property
    def n_present(self) -> int:
        """Rows that have a value."""
        return int(self.counts.sum())

    def __add__(self, other: "ColumnCounts") -> "ColumnCounts":
        return ColumnCounts(self.n_missing + other.n_missing, self.counts + other.counts)


@dataclass(frozen=True, eq=False)
class ColumnProfile:
    """The cells that values of one column are counted in, and how many training rows fell into each.

    Attributes
    ----------
    name, kind
        As in the schema.
    edges : ndarray
        Of numbers and dates: cells are (-inf, e_0], (e_0, e_1], ..., (e_last, inf). Edges are percentiles of the
        training rows; a value that many rows share has a cell of its own. Truth values have one edge.
    categories : tuple of str
        Of text: a cell for each, and one for all others.
    training : ColumnCounts
        Counts of the training rows.

    Examples
    --------
    >>> column = ColumnProfile.fit("size", "number", np.array([1.0, 1.0, 2.0, np.nan]))
    >>> column.training.counts.tolist(), column.training.n_missing
    ([0, 2, 0, 1, 0], 1)
    >>> column.count(np.array([0.5, 1.0, 9.0])).counts.tolist()
    [1, 1, 0, 0, 1]
    """

    name: str
    kind: Kind
    edges: NDArray[np.float64]
    categories: tuple[str, ...]
    training: ColumnCounts

    @classmethod
    def fit(cls, name: str, kind: Kind, values: NDArray[Any]) -> Self:
        """Choose the cells by the training values and count these.

        Categories are chosen by one half and counted in the other: those that chance makes frequent in the rows that
        they are chosen by would seem to be rarer ever after.
        """
        edges, categories = np.empty(0), tuple[str, ...]()
        if kind == "category":
            order = np.random.default_rng(0).permutation(len(values))
            categories = most_frequent(values[order[::2]])
            values = values[order[1::2]]
        elif kind == "boolean":
            edges = np.zeros(1)
        else:
            edges = _edges(_numbers(values))
        empty = cls(name, kind, edges, categories, ColumnCounts(0, np.empty(0, dtype=np.int64)))
        return cls(name, kind, edges, categories, empty.count(values))

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return 1 + (len(self.categories) if self.kind == "category" else len(self.edges))

    def count(self, values: NDArray[Any]) -> ColumnCounts:
        """Count values of an aligned column."""
        if self.kind == "category":
            return self._count_texts(Counter(values.tolist()))
        numbers = _numbers(values)
        present = numbers[~np.isnan(numbers)]
        return ColumnCounts(len(values) - len(present), count_between(self.edges, present))

    def _count_texts(self, times: Counter[str | None]) -> ColumnCounts:
        n_missing = times.pop(None, 0)
        texts = np.array(list(times), dtype=object)
        marks = np.empty((len(texts), self.n_cells))  # one row per different text
        ColumnFeatures("category", marks_missing=False, categories=self.categories).fill(texts, marks)
        counts = marks.T @ np.array(list(times.values()), dtype=np.float64)
        return ColumnCounts(n_missing, counts.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Profile:
    """The profiles of all columns.

    Examples
    --------
    >>> profile = Profile.fit(Table.from_any([[1.0, "red"], [2.0, "blue"], [3.0, "red"]]))
    >>> [column.training.n_present for column in profile.columns]
    [3, 1]
    """

    columns: tuple[ColumnProfile, ...]

    @classmethod
    def fit(cls, table: Table) -> Self:
        """Summarise an aligned table."""
        columns = (
            ColumnProfile.fit(name, kind, table.column(index))
            for index, (name, kind) in enumerate(zip(table.names, table.kinds, strict=True))
        )
        return cls(tuple(columns))

    def count(self, table: Table) -> list[ColumnCounts]:
        """Count an aligned table, column by column."""
        return [column.count(table.column(index)) for index, column in enumerate(self.columns)]

    # ------------------------------------------------------------------ files

    def state(self) -> tuple[dict[str, NDArray[Any]], list[dict[str, Any]]]:
        """Arrays and plain values for the model file."""
        plain = [
            {
                "name": column.name,
                "kind": column.kind,
                "n_edges": len(column.edges),
                "categories": list(column.categories),
                "n_missing": column.training.n_missing,
            }
            for column in self.columns
        ]
        arrays: dict[str, NDArray[Any]] = {
            "edges": np.concatenate([column.edges for column in self.columns]),
            "counts": np.concatenate([column.training.counts for column in self.columns]),
        }
        return arrays, plain

    @classmethod
    def from_state(cls, arrays: dict[str, NDArray[Any]], plain: Any, *, names: Sequence[str]) -> Self:
        """Rebuild from `state`, checking everything; `names` are those of the model's columns."""
        _expect(set(arrays) == {"edges", "counts"}, "its arrays")
        edges, counts = arrays["edges"], arrays["counts"]
        _expect(edges.dtype == np.float64 and edges.ndim == 1 and bool(np.isfinite(edges).all()), "its edges")
        _expect(counts.dtype == np.int64 and counts.ndim == 1, "its counts")
        _expect(bool(((counts >= 0) & (counts <= MAX_ROWS)).all()), "its counts")
        _expect(isinstance(plain, list) and len(plain) == len(names), "its columns")
        columns = tuple(_columns_from_state(edges, counts, plain))
        _expect([column.name for column in columns] == list(names), "its names")
        return cls(columns)


def profiled_rows(is_reference: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Numbers of the rows to summarise: those marked, of very many some drawn at random.

    Examples
    --------
    >>> profiled_rows(np.array([True, False, True])).tolist()
    [0, 2]
    """
    rows = np.flatnonzero(is_reference)
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MAX_ROWS, replace=False))
    return rows


def _columns_from_state(edges: NDArray[np.float64], counts: Counts, plain: list[Any]) -> Iterator[ColumnProfile]:
    first_edge = first_count = 0
    for part in plain:
        _expect(isinstance(part, dict), "a column")
        _expect(set(part) == {"name", "kind", "n_edges", "categories", "n_missing"}, "parts of a column")
        kind, categories, n_edges, n_missing = (part[key] for key in ("kind", "categories", "n_edges", "n_missing"))
        _expect(isinstance(part["name"], str) and kind in KINDS, "the kind of a column")
        _expect(isinstance(categories, list) and all(isinstance(text, str) for text in categories), "categories")
        _expect(len(categories) <= (MAX_CATEGORIES if kind == "category" else 0), "categories")
        _expect(len(set(categories)) == len(categories), "doubled categories")
        _expect(type(n_edges) is int and 0 <= n_edges <= (0 if kind == "category" else _MAX_EDGES), "edges")
        _expect(type(n_missing) is int and 0 <= n_missing <= MAX_ROWS, "missing values")
        own = edges[first_edge : first_edge + n_edges]
        _expect(len(own) == n_edges and bool((np.diff(own) > 0).all()), "edges out of order")
        n_cells = 1 + n_edges + len(categories)
        cells = counts[first_count : first_count + n_cells]
        _expect(len(cells) == n_cells, "its counts")
        first_edge, first_count = first_edge + n_edges, first_count + n_cells
        yield ColumnProfile(part["name"], kind, own, tuple(categories), ColumnCounts(n_missing, cells))
    _expect(first_edge == len(edges) and first_count == len(counts), "its arrays")


def _numbers(values: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers and dates as float64, NaN where missing."""
    if values.dtype.kind != "M":
        return np.asarray(values, dtype=np.float64)
    return np.where(np.isnat(values), np.nan, values.astype(np.int64).astype(np.float64))


def _edges(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles; below one that occurs twice there is an edge too, so that the value has its own cell."""
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        return np.empty(0)
    found, times = np.unique(np.quantile(present, _PERCENTILES, method="inverted_cdf"), return_counts=True)
    with np.errstate(over="ignore"):
        edges = np.union1d(found, np.nextafter(found[times > 1], -np.inf))
    return np.asarray(edges[np.isfinite(edges)])


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ModelFileError(f"the summary of the training columns is damaged: {what}")
