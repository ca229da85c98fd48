"""A small summary of the training columns to hold new data against: percentiles, shares of categories and of gaps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Counts
from esad.table.columns import Kind, Values
from esad.table.encode import MAX_CATEGORIES, ColumnFeatures
from esad.table.statistics import TextCounts
from esad.table.table import KINDS, Table, expect, expect_fields, expect_texts

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
    >>> from esad.table.columns import read_array
    >>> column = ColumnProfile.fit("size", read_array(np.array([1.0, 1.0, 2.0, np.nan]), "size"))
    >>> column.training.counts.tolist(), column.training.n_missing
    ([0, 2, 0, 1, 0], 1)
    >>> column.count(read_array(np.array([0.5, 1.0, 9.0]), "size")).counts.tolist()
    [1, 1, 0, 0, 1]
    """

    name: str
    kind: Kind
    edges: NDArray[np.float64]
    categories: tuple[str, ...]
    training: ColumnCounts

    @classmethod
    def fit(cls, name: str, values: Values) -> Self:
        """Choose the cells by the training values and count these.

        Categories are chosen by one half and counted in the other: those that chance makes frequent in the rows that
        they are chosen by would seem to be rarer ever after.
        """
        kind, edges, categories = values.kind, np.empty(0), tuple[str, ...]()
        if kind == "category":
            order = np.random.default_rng(0).permutation(len(values))
            chosen = values.take(order[::2])
            categories = TextCounts.of(chosen, np.ones(len(chosen), dtype=bool)).most_frequent(MAX_CATEGORIES)
            values = values.take(order[1::2])
        elif kind == "boolean":
            edges = np.zeros(1)
        else:
            edges = _choose_edges(_to_numbers(values))
        empty = cls(name, kind, edges, categories, ColumnCounts(0, np.empty(0, dtype=np.int64)))
        return cls(name, kind, edges, categories, empty.count(values))

    @property
    def n_cells(self) -> int:
        """How many cells there are."""
        return 1 + (len(self.categories) if self.kind == "category" else len(self.edges))

    def count(self, values: Values) -> ColumnCounts:
        """Count values of an aligned column."""
        if self.kind == "category":
            marks = ColumnFeatures("category", marks_missing=True, categories=self.categories)
            counts = np.bincount(marks.codes_of(values), minlength=self.n_cells + 1)
            return ColumnCounts(int(counts[-1]), counts[:-1])
        numbers = _to_numbers(values)
        present = numbers[~np.isnan(numbers)]
        return ColumnCounts(len(values) - len(present), count_between(self.edges, present))


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
        columns = (ColumnProfile.fit(name, table.values(index)) for index, name in enumerate(table.names))
        return cls(tuple(columns))

    def count(self, table: Table) -> list[ColumnCounts]:
        """Count an aligned table, column by column."""
        return [column.count(table.values(index)) for index, column in enumerate(self.columns)]

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
        expect(set(arrays) == {"edges", "counts"}, "arrays of the summary of the training columns")
        edges, counts = arrays["edges"], arrays["counts"]
        expect(
            edges.dtype == np.float64 and edges.ndim == 1 and bool(np.isfinite(edges).all()),
            "edges of the summary of the training columns",
        )
        expect(counts.dtype == np.int64 and counts.ndim == 1, "counts of the summary of the training columns")
        expect(bool(((counts >= 0) & (counts <= MAX_ROWS)).all()), "counts of the summary of the training columns")
        expect(isinstance(plain, list) and len(plain) == len(names), "columns of the summary of the training columns")
        columns = tuple(_columns_from_state(edges, counts, plain))
        expect([column.name for column in columns] == list(names), "names of the summary of the training columns")
        return cls(columns)


def draw_profiled_rows(is_reference: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Numbers of the rows to summarise: those marked, of very many some drawn at random.

    Examples
    --------
    >>> draw_profiled_rows(np.array([True, False, True])).tolist()
    [0, 2]
    """
    rows = np.flatnonzero(is_reference)
    if len(rows) > MAX_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(rows, MAX_ROWS, replace=False))
    return rows


def _columns_from_state(edges: NDArray[np.float64], counts: Counts, plain: list[Any]) -> Iterator[ColumnProfile]:
    first_edge = first_count = 0
    for part in plain:
        expect_fields(part, "a column", name=str, kind=str, n_edges=int, categories=list, n_missing=int)
        kind, categories, n_edges, n_missing = (part[key] for key in ("kind", "categories", "n_edges", "n_missing"))
        expect(kind in KINDS, "the kind of a column")
        expect_texts(categories, MAX_CATEGORIES if kind == "category" else 0, "categories")
        expect(0 <= n_edges <= (0 if kind == "category" else _MAX_EDGES), "edges")
        expect(0 <= n_missing <= MAX_ROWS, "missing values")
        own = edges[first_edge : first_edge + n_edges]
        expect(len(own) == n_edges and bool((np.diff(own) > 0).all()), "edges out of order")
        n_cells = 1 + n_edges + len(categories)
        cells = counts[first_count : first_count + n_cells]
        expect(len(cells) == n_cells, "counts of the summary of the training columns")
        first_edge, first_count = first_edge + n_edges, first_count + n_cells
        yield ColumnProfile(part["name"], kind, own, tuple(categories), ColumnCounts(n_missing, cells))
    expect(first_edge == len(edges) and first_count == len(counts), "arrays of the summary of the training columns")


def _to_numbers(values: Values) -> NDArray[np.float64]:
    """Numbers and dates as float64, NaN where missing."""
    array = values.to_numpy()
    return array if values.kind != "date" else np.where(np.isnat(array), np.nan, array.astype(np.int64).astype(float))


def count_between(edges: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many values lie up to the first edge, up to the second, ..., above the last; none of them may be NaN.

    Many values are sorted sooner than each is looked up among the edges.

    Examples
    --------
    >>> count_between(np.array([0.0, 1.0]), np.array([-5.0, 0.0, 0.5, 1.0, 7.0])).tolist()
    [2, 2, 1]
    """
    return np.diff(np.searchsorted(np.sort(values), edges, side="right"), prepend=0, append=len(values))


def _choose_edges(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Percentiles; below one that occurs twice there is an edge too, so that the value has its own cell."""
    present = numbers[~np.isnan(numbers)]
    if not len(present):
        return np.empty(0)
    found, times = np.unique(np.quantile(present, _PERCENTILES, method="inverted_cdf"), return_counts=True)
    with np.errstate(over="ignore"):
        edges = np.union1d(found, np.nextafter(found[times > 1], -np.inf))
    return np.asarray(edges[np.isfinite(edges)])
