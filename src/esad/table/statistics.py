"""What the preprocessing of a table needs to know, from blocks of rows: in one pass, and mergeable over shards.

A column's moments are those of its finite values in the reference rows, joined by Chan, Golub and LeVeque's formula;
its texts are counted, the rare ones of very many forgotten. Nothing grows with the number of rows.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from esad.errors import SchemaError
from esad.table.features import CYCLES, MAX_CATEGORIES, ColumnFeatures, Cycle, covered_cycles
from esad.table.parse import Kind, parse_dates
from esad.table.schema import Column, Schema, Table

__all__ = ["ColumnStatistics", "Moments", "TableStatistics"]

MAX_TEXTS = 20_000  # different texts of a column that are counted; beyond, the rarer half is forgotten
_ID_MIN_ROWS = 20
_ALL_CYCLES = ColumnFeatures("date", marks_missing=False, cycles=CYCLES)


@dataclass
class Moments:
    """Number, mean and sum of squared deviations of the finite values of some features.

    Examples
    --------
    >>> left, right = Moments.of(np.array([[1.0], [3.0]])), Moments.of(np.array([[5.0], [np.nan]]))
    >>> left.merge(right).mean, left.std
    (array([3.]), array([1.63299316]))
    """

    n: NDArray[np.float64]
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self:
        """Moments of rows (n, features)."""
        finite = np.isfinite(values)
        with np.errstate(over="ignore", invalid="ignore"):
            if finite.all():
                n = np.full(values.shape[1], float(len(values)))
                mean = values.mean(axis=0) if len(values) else np.zeros(values.shape[1])
                return cls(n, mean, np.square(values - mean).sum(axis=0))
            known = np.where(finite, values, 0.0)
            n = finite.sum(axis=0).astype(np.float64)
            mean = known.sum(axis=0) / np.maximum(n, 1.0)
            return cls(n, mean, (np.square(known - mean) * finite).sum(axis=0))

    def merge(self, other: Self) -> Self:
        """Take in the moments of other rows."""
        total = np.maximum(self.n + other.n, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = other.mean - self.mean
            self.squares = self.squares + other.squares + np.square(apart) * (self.n * other.n / total)
            self.mean = self.mean + apart * (other.n / total)
        self.n = self.n + other.n
        return self

    @property
    def std(self) -> NDArray[np.float64]:
        """Population standard deviation, 0 without a value."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.sqrt(self.squares / np.maximum(self.n, 1.0)))


@dataclass
class ColumnStatistics:
    """One column.

    Attributes
    ----------
    kind : {"number", "boolean", "category", "date"}
        As the rows came; text that spells dates throughout becomes "date" in the end.
    n_missing, n_missing_reference : int
        Rows without a value, of all and of the reference rows.
    first : object
        Some value, None before there is one.
    varies : bool
        Whether there is another one.
    texts : dict of str to [int, int]
        How often a text occurs in all and in the reference rows.
    is_whole : bool
        Whether no text was forgotten.
    moments : Moments or None
        Of numbers; of dates, the time and the position in every cycle.
    spells_dates : bool
        Whether all texts so far are dates.
    first_time, last_time : int
        Of dates, in microseconds.
    """

    name: str
    kind: Kind
    n_missing: int = 0
    n_missing_reference: int = 0
    first: Any = None
    varies: bool = False
    texts: dict[str, list[int]] = field(default_factory=dict)
    is_whole: bool = True
    moments: Moments | None = None
    spells_dates: bool = True
    times_vary: bool = False
    first_time: int = np.iinfo(np.int64).max
    last_time: int = np.iinfo(np.int64).min

    def add(self, values: NDArray[Any], is_reference: NDArray[np.bool_]) -> None:
        """Take in a block of the column, as `Table.column` gives it."""
        if self.kind == "category":
            missing = np.array([cell is None for cell in values], dtype=bool)
        else:
            missing = np.isnat(values) if self.kind == "date" else np.isnan(values)
        self.n_missing += int(missing.sum())
        self.n_missing_reference += int((missing & is_reference).sum())
        present = values[~missing]
        if not len(present):
            return
        self.first = present[0] if self.first is None else self.first
        self.varies = self.varies or bool((present != self.first).any())
        if self.kind == "category":
            self._add_texts(values, missing, is_reference)
        elif self.kind == "date":
            self._add_dates(values, is_reference)
        else:
            self._add_moments(values[is_reference].astype(np.float64)[:, None])

    def _add_texts(self, values: NDArray[Any], missing: NDArray[np.bool_], is_reference: NDArray[np.bool_]) -> None:
        for counted, rows in enumerate((~missing, ~missing & is_reference)):
            for text, times in Counter(values[rows].tolist()).items():
                self.texts.setdefault(text, [0, 0])[counted] += times
        self._forget_rare()
        if self.spells_dates:
            dates, bad_row = parse_dates(values)
            self.spells_dates = bad_row is None
            if self.spells_dates:
                self._add_dates(dates, is_reference)

    def _forget_rare(self) -> None:
        if len(self.texts) > MAX_TEXTS:
            kept = sorted(self.texts, key=lambda text: (-self.texts[text][0], text))[: MAX_TEXTS // 2]
            self.texts, self.is_whole = {text: self.texts[text] for text in kept}, False

    def _add_dates(self, dates: NDArray[Any], is_reference: NDArray[np.bool_]) -> None:
        times = dates[~np.isnat(dates)].astype("M8[us]").astype(np.int64)
        if len(times):
            self.times_vary = self.times_vary or "day" in covered_cycles(times) or self._other_time_of_day(times)
            self.first_time = min(self.first_time, int(times.min()))
            self.last_time = max(self.last_time, int(times.max()))
        raw = np.empty((int(is_reference.sum()), _ALL_CYCLES.n_features))
        _ALL_CYCLES.fill(dates[is_reference].astype("M8[us]"), raw)
        self._add_moments(raw)

    def _other_time_of_day(self, times: NDArray[np.int64]) -> bool:
        """Whether times of day differ from those of earlier blocks, all of which are alike."""
        day = 86_400_000_000
        return self.first_time <= self.last_time and int(times[0]) % day != self.first_time % day

    def _add_moments(self, rows: NDArray[np.float64]) -> None:
        found = Moments.of(rows)
        self.moments = found if self.moments is None else self.moments.merge(found)

    def merge(self, other: "ColumnStatistics") -> None:
        """Take in the same column of another shard."""
        self.n_missing += other.n_missing
        self.n_missing_reference += other.n_missing_reference
        if other.first is not None:
            self.varies = self.varies or other.varies or (self.first is not None and bool(other.first != self.first))
            self.first = other.first if self.first is None else self.first
        for text, (n_all, n_reference) in other.texts.items():
            counts = self.texts.setdefault(text, [0, 0])
            counts[0], counts[1] = counts[0] + n_all, counts[1] + n_reference
        self.is_whole = self.is_whole and other.is_whole
        self._forget_rare()
        self.spells_dates = self.spells_dates and other.spells_dates
        if other.first_time <= other.last_time:
            first = np.array([other.first_time])
            self.times_vary = self.times_vary or other.times_vary or self._other_time_of_day(first)
            self.first_time = min(self.first_time, other.first_time)
            self.last_time = max(self.last_time, other.last_time)
        if other.moments is not None:
            self.moments = other.moments if self.moments is None else self.moments.merge(other.moments)

    # ------------------------------------------------------------------ in the end

    @property
    def final_kind(self) -> Kind:
        """What the column holds."""
        return "date" if self.kind == "category" and self.texts and self.spells_dates else self.kind

    def column(self, n_rows: int) -> Column:
        """The column as `Schema.infer` would describe it; of very many different texts, how many there are at least."""
        kind, n_distinct = self.final_kind, None
        if kind == "category":
            n_distinct = len(self.texts) if self.is_whole else min(MAX_TEXTS, n_rows)
        elif kind == "boolean":
            n_distinct = int(self.first is not None) + int(self.varies)
        all_differ = not self.n_missing and max((counts[0] for counts in self.texts.values()), default=2) == 1
        proposes_id = kind == "category" and all_differ and n_rows > _ID_MIN_ROWS
        return Column(self.name, kind, self.n_missing, n_distinct, not self.varies, proposes_id)

    def features(self) -> ColumnFeatures:
        """The features beside the plain value."""
        kind, marks_missing = self.final_kind, self.n_missing > 0
        if kind == "category":
            frequent = sorted(self.texts, key=lambda text: (-self.texts[text][0], text))[:MAX_CATEGORIES]
            return ColumnFeatures(kind, marks_missing, categories=tuple(sorted(frequent)))
        return ColumnFeatures(kind, marks_missing, cycles=self._cycles() if kind == "date" else ())

    def _cycles(self) -> tuple[Cycle, ...]:
        span = covered_cycles(np.array([self.first_time, self.last_time])) if self.first_time <= self.last_time else ()
        return tuple(cycle for cycle in CYCLES if (self.times_vary if cycle == "day" else cycle in span))

    def scales(self, features: ColumnFeatures, n_reference: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of the plain value, if there is one, then of each feature."""
        mean, std = np.empty(0), np.empty(0)
        if features.kind == "category":
            counts = np.array([self.texts[text][1] for text in features.categories], dtype=np.float64)
            others = n_reference - counts.sum() - self.n_missing_reference
            mean, std = _of_shares(np.append(counts, others) / max(1, n_reference))
        elif self.moments is not None:
            kept = [0]
            if features.kind == "date":
                kept += [1 + 2 * CYCLES.index(cycle) + wave for cycle in features.cycles for wave in (0, 1)]
            mean, std = self.moments.mean[kept], self.moments.std[kept]
        else:
            mean, std = np.zeros(1), np.zeros(1)  # no value in any reference row
        if features.marks_missing:
            own_mean, own_std = _of_shares(np.array([self.n_missing_reference / max(1, n_reference)]))
            mean, std = np.append(mean, own_mean), np.append(std, own_std)
        return mean, std


def _of_shares(shares: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of marks that so many rows carry."""
    return shares, np.sqrt(np.clip(shares * (1 - shares), 0.0, None))


@dataclass
class TableStatistics:
    """All columns of a table, from its blocks.

    Examples
    --------
    >>> table = Table.from_any([[1.0, "red"], [3.0, "blue"], [None, "red"]])
    >>> statistics, other = TableStatistics(), TableStatistics()
    >>> statistics.add(table.take([0, 1]), np.ones(2, dtype=bool))
    >>> other.add(table.take([2]), np.ones(1, dtype=bool))
    >>> statistics.merge(other)
    >>> statistics.schema() == Schema.infer(table)
    True
    """

    n_rows: int = 0
    n_reference: int = 0
    named: bool = True
    columns: list[ColumnStatistics] = field(default_factory=list)

    def add(self, table: Table, is_reference: NDArray[np.bool_]) -> None:
        """Take in a block of rows."""
        if not self.columns:
            self.named = table.named
            self.columns = [ColumnStatistics(name, kind) for name, kind in zip(table.names, table.kinds, strict=True)]
        self._check_names(table.names)
        for index, column in enumerate(self.columns):
            values = self._in_kind(column, table, index)
            column.add(values, is_reference)
        self.n_rows += table.n_rows
        self.n_reference += int(is_reference.sum())

    def merge(self, other: "TableStatistics") -> None:
        """Take in the statistics of another shard."""
        if not self.columns:
            self.named, self.columns = other.named, other.columns
        elif other.columns:
            self._check_names(tuple(column.name for column in other.columns))
            for own, its in zip(self.columns, other.columns, strict=True):
                if own.kind != its.kind:
                    raise _changes(own.name, own.kind, its.kind)
                own.merge(its)
        self.n_rows += other.n_rows
        self.n_reference += other.n_reference

    def schema(self) -> Schema:
        """The columns as `Schema.infer` would give them for all rows at once."""
        return Schema(tuple(column.column(self.n_rows) for column in self.columns), self.named, self.n_rows)

    def _check_names(self, names: tuple[str, ...]) -> None:
        own = tuple(column.name for column in self.columns)
        if names != own:
            raise SchemaError(f"All parts must have the same columns. Got {list(names)} after {list(own)}.")

    @staticmethod
    def _in_kind(column: ColumnStatistics, table: Table, index: int) -> NDArray[Any]:
        """The column's cells in its kind; a column that was empty so far takes the kind that comes."""
        values = table.values(index)
        if values.kind == column.kind:
            return table.column(index)
        if column.first is None:
            column.kind = values.kind
            return table.column(index)
        converted, bad_row = values.as_kind(column.kind)
        if bad_row is not None:
            raise _changes(column.name, column.kind, values.kind)
        return converted


def _changes(name: str, before: str, after: str) -> SchemaError:
    return SchemaError(f"Column {name!r} must hold one kind of values in all parts. Got {after} after {before}.")
