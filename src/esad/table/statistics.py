"""What the preprocessing of a table needs to know, from blocks of rows: in one pass, and mergeable over shards.

This is the only way to fit: rows at hand are one block. A column's moments are those of its finite values in the
reference rows, joined by Chan, Golub and LeVeque's formula; its texts are counted, the rare ones of very many
forgotten. Nothing grows with the number of blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esad.core.arrays import Floats
from esad.errors import SchemaError
from esad.table.columns import Kind, Values
from esad.table.table import Column, Schema, Table

MAX_TEXTS = 20_000  # of a column that are counted over several blocks; beyond, the rarer half is forgotten

Cycle = Literal["day", "week", "year"]
CYCLES: tuple[Cycle, ...] = get_args(Cycle)
CYCLE_LENGTHS = {cycle: days * 86_400_000_000 for cycle, days in zip(CYCLES, (1, 7, 366), strict=True)}  # microseconds
BANDS = ("usual", "seldom", "rare", "very rare")  # how frequent a text is among very many
MAX_BAND_TEXTS = 10_000  # that are listed; rarer ones are like those never seen

_ID_MIN_ROWS = 20  # fewer rows may well differ by chance
_BLOCK_BYTES = 1 << 20  # of numbers that are looked at together, so that they stay in cache
_BLOCK_ROWS = 1 << 13  # of dates
_SAFE_SUM = 1e-200  # below this, squares may have underflowed: the column is constant or needs the careful way
_EXTREME = 100.0  # robust standard deviations from the median at which a value no longer counts
_SUSPECT = 3.0  # times the robust standard deviation at which extreme values are looked for

Mask = NDArray[np.bool_]


@dataclass
class Moments:
    """Number, mean and sum of squared deviations of the finite values of some features.

    Where squares leave the range of floats, mean or squares are not finite: then `careful_moments` of a sample must do.

    Examples
    --------
    >>> left, right = Moments.of(np.array([[1.0], [3.0]])), Moments.of(np.array([[5.0], [np.nan]]))
    >>> left.merge(right).mean, left.std
    (array([3.]), array([1.63299316]))
    """

    n: Floats
    mean: Floats
    squares: Floats

    @classmethod
    def of(cls, values: Floats) -> Self:
        """Moments of rows (n, features)."""
        sums = _Sums(values.shape[1])
        sums.add(values.copy())
        return cls(*sums.moments())

    def merge(self, other: Self) -> Self:
        """Take in the moments of other rows."""
        total = np.maximum(self.n + other.n, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = other.mean - self.mean
            squares = self.squares + other.squares + np.square(apart) * (self.n * other.n / total)
            is_lost = (self.n * other.n * apart != 0.0) & (squares <= _SAFE_SUM)
            self.squares = np.where(is_lost, np.nan, squares)
            self.mean = self.mean + apart * (other.n / total)
        self.n = self.n + other.n
        return self

    @property
    def std(self) -> Floats:
        """Population standard deviation, 0 without a value."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.sqrt(self.squares / np.maximum(self.n, 1.0)))


class _Sums:
    """Sums over x - s, where s is the first finite value of the column.

    As s is itself one of the n values, the variance is at least (mean - s)^2 / n, so that the relative rounding error
    stays below about n times 1e-16.
    """

    def __init__(self, n_columns: int) -> None:
        self.n, self.total, self.squares = np.zeros((3, n_columns))
        self.shift = np.full(n_columns, np.nan)

    def add(self, block: Floats) -> None:
        """Take in rows, which are overwritten."""
        for index in np.flatnonzero(np.isnan(self.shift)):
            finite = np.isfinite(block[:, index])
            if finite.any():
                self.shift[index] = block[finite.argmax(), index]
        with np.errstate(over="ignore", invalid="ignore"):
            block -= self.shift
            sums = _column_sums(block)
            if np.isfinite(sums).all():
                self.n += len(block)
            else:
                finite = np.isfinite(block)
                block[~finite] = 0.0
                self.n += finite.sum(axis=0)
                sums = _column_sums(block)
            self.total += sums
            np.multiply(block, block, out=block)
            self.squares += _column_sums(block)

    def moments(self) -> tuple[Floats, Floats, Floats]:
        """Number, mean and squares; squares are NaN where the sums are not safe."""
        n = np.maximum(self.n, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            offset = self.total / n
            mean = np.where(np.isnan(self.shift), 0.0, self.shift + offset)
            squares = np.maximum(self.squares - n * offset**2, 0.0)
            is_safe = np.isfinite(mean) & ((self.squares > _SAFE_SUM) | (self.squares == 0.0))
        return self.n, mean, np.where(is_safe, squares, np.nan)


def _column_sums(block: Floats) -> Floats:
    """Sum over rows: as fast as a matrix product, yet the same bits for any number of threads."""
    return np.asarray(np.einsum("ij->j", block))


def careful_moments(values: Floats) -> tuple[float, float]:
    """Mean and standard deviation of one column's finite values of any magnitude, in three passes.

    Examples
    --------
    >>> careful_moments(np.array([1e300, -1e300, np.nan]))
    (0.0, 1e+300)
    """
    values = np.ascontiguousarray(values)
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 0.0
    if (values == values[0]).all():
        return float(values[0]), 0.0
    magnitude = float(np.abs(values).max())
    scaled = values / magnitude  # within [-1, 1]
    centre = float(np.clip(scaled.mean(), -1.0, 1.0))
    deviation = scaled - centre
    spread = float(np.abs(deviation).max())
    ratio = float(np.sqrt(np.mean((deviation / spread) ** 2))) * spread if spread else 0.0
    return centre * magnitude, min(ratio, 1.0) * magnitude  # no column deviates by more than its largest value


def moments_without_extremes(sample: Floats, std: float, column: Callable[[], Floats]) -> tuple[float, float] | None:
    """Mean and standard deviation without values that drown all others, or None where `std` looks sound.

    A placeholder such as 1e15 in one cell would otherwise set the scale of its column and make everything else alike.
    Median and spread (a 90 % range) come from `sample`, some values of the column.

    Examples
    --------
    >>> values = np.append(np.arange(100.0), 1e15)
    >>> mean, std = moments_without_extremes(values, values.std(), lambda: values)
    >>> mean, round(std, 6)
    (49.5, 28.86607)
    """
    sample = sample[np.isfinite(sample)]
    if not len(sample):
        return None
    low, median, high = np.quantile(sample, (0.05, 0.5, 0.95)).tolist()
    spread = high / 3.29 - low / 3.29  # 3.29 standard deviations lie between them for a Gaussian
    if not 0.0 < _EXTREME * spread < np.inf or std < _SUSPECT * spread:
        return None
    values = column()
    return careful_moments(values[np.abs(values - median) <= _EXTREME * spread])


def covered_cycles(microseconds: NDArray[np.int64]) -> tuple[Cycle, ...]:
    """The day if times of day differ; the week and the year if the dates span a whole one."""
    if not len(microseconds):
        return ()
    time_of_day = microseconds % CYCLE_LENGTHS["day"]
    span = int(microseconds.max()) - int(microseconds.min())
    covered = {cycle: span >= length for cycle, length in CYCLE_LENGTHS.items()}
    covered["day"] = bool((time_of_day != time_of_day[0]).any())
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
    features[np.isnat(dates)] = np.nan
    return features


def _phase(values: NDArray[Any], microseconds: NDArray[np.int64], cycle: Cycle) -> NDArray[np.float64]:
    """Position within the cycle, from 0 to below 1."""
    length = CYCLE_LENGTHS[cycle]
    start = values.astype("M8[Y]").astype("M8[us]").astype(np.int64) if cycle == "year" else 0
    return np.asarray((microseconds - start) % length / length, dtype=np.float64)


@dataclass
class TextCounts:
    """How often each text occurs in all rows and in the reference rows.

    Attributes
    ----------
    texts : pyarrow.Array of str
        All different.
    counts : ndarray of shape (2, n)
        In all rows, and in the reference rows.
    is_whole : bool
        Whether no text was forgotten.

    Examples
    --------
    >>> values = Values("category", pa.array(["red", "blue", "red", None]))
    >>> TextCounts.of(values, np.ones(4, dtype=bool)).most_frequent(1)
    ('red',)
    """

    texts: pa.Array
    counts: NDArray[np.int64]
    is_whole: bool = True

    @classmethod
    def of(cls, values: Values, is_reference: Mask) -> Self:
        """Count the rows of a column of text."""
        rows, texts = values.encoded
        n_texts = len(texts)
        everywhere = np.bincount(rows, minlength=n_texts)[:n_texts]
        if is_reference.all():
            return cls(texts, np.stack([everywhere, everywhere]))
        return cls(texts, np.stack([everywhere, np.bincount(rows[is_reference], minlength=n_texts)[:n_texts]]))

    def merge(self, other: Self) -> None:
        """Take in the counts of other rows; beyond `MAX_TEXTS` the rarer half is forgotten."""
        encoded = pa.concat_arrays([self.texts, other.texts]).dictionary_encode()
        rows, n_texts = np.asarray(encoded.indices), len(encoded.dictionary)
        joined = np.concatenate([self.counts, other.counts], axis=1)
        self.texts, self.is_whole = encoded.dictionary, self.is_whole and other.is_whole
        self.counts = np.stack([np.bincount(rows, weights=row, minlength=n_texts) for row in joined]).astype(np.int64)
        if n_texts > MAX_TEXTS:
            kept = self._order(MAX_TEXTS // 2)
            self.texts, self.counts, self.is_whole = self.texts.take(kept), self.counts[:, kept], False

    def most_frequent(self, n_most: int) -> tuple[str, ...]:
        """The most frequent texts, in text order; ties go to the first in text order."""
        return tuple(sorted(self.texts.take(self._order(n_most)).to_pylist()))

    def bands(self) -> tuple[tuple[str, ...], ...]:
        """Texts by how frequent they are: each band is four times as rare as the one before, beginning with the usual.

        A row is usual whose text is at least a quarter as frequent as that of the median row.

        Examples
        --------
        >>> counts = TextCounts(pa.array(["a", "b", "c", "d"]), np.array([[40, 30, 5, 1]] * 2))
        >>> counts.bands()
        (('a', 'b'), ('c',), ('d',))
        """
        counts = self.counts[0]
        ascending = np.sort(counts)
        median = int(ascending[np.searchsorted(np.cumsum(ascending), counts.sum() / 2)])
        if median == 1:  # nearly all differ, which tells nothing
            return ()
        chosen = np.asarray(self._order(MAX_BAND_TEXTS))
        levels = np.clip(np.floor(np.log(median / counts[chosen]) / np.log(4)), 0, len(BANDS) - 1)
        found = [self.texts.take(pa.array(chosen[levels == level])).to_pylist() for level in range(len(BANDS))]
        return tuple(tuple(sorted(texts)) for texts in found if texts)

    def reference_counts(self, texts: tuple[str, ...]) -> NDArray[np.int64]:
        """How often each of these texts occurs in the reference rows."""
        places = pc.index_in(pa.array(texts, pa.string()), value_set=self.texts.cast(pa.string()))
        return np.asarray(self.counts[1][np.asarray(places)])

    def _order(self, n_most: int) -> pa.Array:
        keys = pa.table({"text": self.texts, "count": self.counts[0]})
        order = [("count", "descending"), ("text", "ascending")]
        return pc.select_k_unstable(keys, k=min(n_most, len(self.texts)), sort_keys=order)


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
    texts : TextCounts or None
        Of text.
    moments : Moments or None
        Of numbers; of dates, the time and the position in `cycles`: in all of them if other rows may follow.
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
    texts: TextCounts | None = None
    moments: Moments | None = None
    spells_dates: bool = True
    times_vary: bool = False
    first_time: int = np.iinfo(np.int64).max
    last_time: int = np.iinfo(np.int64).min
    cycles: tuple[Cycle, ...] = CYCLES

    @classmethod
    def of_text(cls, name: str, values: Values, is_reference: Mask, *, is_all: bool) -> Self:
        """A column of text; where these are all rows, texts that are dates need not be counted."""
        self = cls(name, "category")
        dates, bad_row = values.dates
        self.spells_dates = bad_row is None
        if self.spells_dates:
            self.add_dates(dates, is_reference, is_all=is_all)
        if not (is_all and self.spells_dates and self.first is not None):
            self.texts = TextCounts.of(values, is_reference)
            self.n_missing = len(values) - int(self.texts.counts[0].sum())
            self.n_missing_reference = int(is_reference.sum()) - int(self.texts.counts[1].sum())
            self.first = self.texts.texts[0].as_py() if len(self.texts.texts) else None
            self.varies = len(self.texts.texts) > 1
        return self

    def add_dates(self, dates: NDArray[Any], is_reference: Mask, *, is_all: bool) -> None:
        """Take in dates, or text that spells dates."""
        missing = np.isnat(dates)
        self.n_missing, self.n_missing_reference = int(missing.sum()), int((missing & is_reference).sum())
        times = dates[~missing].astype(np.int64) if self.n_missing else dates.astype(np.int64)
        if len(times):
            self.first, self.varies = dates[~missing][0], bool((times != times[0]).any())
            self.first_time, self.last_time = int(times.min()), int(times.max())
            self.times_vary = "day" in covered_cycles(times)
        known = dates if is_reference.all() else dates[is_reference]
        self.cycles = self.covered_cycles() if is_all else CYCLES
        sums = _Sums(1 + 2 * len(self.cycles))
        for start in range(0, len(known), _BLOCK_ROWS):
            sums.add(date_features(known[start : start + _BLOCK_ROWS], self.cycles))
        self.moments = Moments(*sums.moments()) if len(known) else None

    def merge(self, other: "ColumnStatistics") -> None:
        """Take in the same column of another block; one that was empty so far takes the kind that comes."""
        if self.first is None and other.kind != self.kind:
            self.kind, self.texts, self.moments, self.spells_dates = other.kind, None, None, True
        elif other.first is None and other.kind != self.kind:
            other = ColumnStatistics(
                self.name, self.kind, n_missing=other.n_missing, n_missing_reference=other.n_missing_reference
            )
        if self.kind != other.kind:
            raise _kind_error(self.name, self.kind, other.kind)
        self.n_missing += other.n_missing
        self.n_missing_reference += other.n_missing_reference
        if other.first is not None:
            self.varies = self.varies or other.varies or (self.first is not None and bool(other.first != self.first))
            self.first = other.first if self.first is None else self.first
        if other.texts is not None:
            if self.texts is None:
                self.texts = other.texts
            else:
                self.texts.merge(other.texts)
        self.spells_dates = self.spells_dates and other.spells_dates
        if other.first_time <= other.last_time:
            is_known = self.first_time <= self.last_time
            day = CYCLE_LENGTHS["day"]
            differs = is_known and other.first_time % day != self.first_time % day
            self.times_vary = self.times_vary or other.times_vary or differs
            self.first_time = min(self.first_time, other.first_time)
            self.last_time = max(self.last_time, other.last_time)
        if other.moments is not None:
            self.moments = other.moments if self.moments is None else self.moments.merge(other.moments)

    # ------------------------------------------------------------------ in the end

    @property
    def final_kind(self) -> Kind:
        """What the column holds."""
        return "date" if self.kind == "category" and self.first is not None and self.spells_dates else self.kind

    def column(self, n_rows: int) -> Column:
        """The column as a schema has it; of very many different texts, how many there are at least."""
        kind, n_distinct, all_differ = self.final_kind, None, False
        if kind == "category":
            assert self.texts is not None
            n_texts = len(self.texts.texts)
            n_distinct = n_texts if self.texts.is_whole else min(MAX_TEXTS, n_rows)
            all_differ = n_texts > 0 and not self.n_missing and int(self.texts.counts[0].max()) == 1
        elif kind == "boolean":
            n_distinct = int(self.first is not None) + int(self.varies)
        proposes_id = all_differ and n_rows > _ID_MIN_ROWS
        return Column(self.name, kind, self.n_missing, n_distinct, not self.varies, proposes_id)

    def covered_cycles(self) -> tuple[Cycle, ...]:
        """Cycles that the dates cover."""
        span = covered_cycles(np.array([self.first_time, self.last_time])) if self.first_time <= self.last_time else ()
        return tuple(cycle for cycle in CYCLES if (self.times_vary if cycle == "day" else cycle in span))


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
    >>> statistics.schema == TableStatistics.of(table).schema
    True
    """

    n_rows: int = 0
    n_reference: int = 0
    named: bool = True
    columns: list[ColumnStatistics] = field(default_factory=list)
    is_reference: Mask | None = field(default=None, compare=False, repr=False)  # of rows that are all there is

    @classmethod
    def of(cls, table: Table, is_reference: Mask | None = None) -> "TableStatistics":
        """Statistics of a whole table, or those that it carries of these reference rows; all rows are by default."""
        is_reference = np.ones(table.n_rows, dtype=bool) if is_reference is None else is_reference
        known = table.statistics
        if known is not None and known.is_reference is not None and (known.is_reference == is_reference).all():
            return known
        columns = _count_columns(table, is_reference, is_all=True)
        return cls(table.n_rows, int(is_reference.sum()), table.named, columns, is_reference)

    def add(self, table: Table, is_reference: Mask) -> None:
        """Take in a block of rows."""
        columns = _count_columns(self._convert_kinds(table), is_reference, is_all=False)
        self.merge(type(self)(table.n_rows, int(is_reference.sum()), table.named, columns))

    def merge(self, other: "TableStatistics") -> None:
        """Take in the statistics of another shard."""
        if not self.columns:
            self.named, self.columns = other.named, other.columns
        elif other.columns:
            self._check_names(tuple(column.name for column in other.columns))
            for own, its in zip(self.columns, other.columns, strict=True):
                own.merge(its)
        self.n_rows += other.n_rows
        self.n_reference += other.n_reference
        vars(self).pop("schema", None)

    def leave_out(self, names: Sequence[str]) -> None:
        """Forget some columns."""
        kept = tuple(column for column in self.schema.columns if column.name not in names)
        self.columns = [column for column in self.columns if column.name not in names]
        self.schema = replace(self.schema, columns=kept)

    @cached_property
    def schema(self) -> Schema:
        """What the columns hold."""
        return Schema(tuple(column.column(self.n_rows) for column in self.columns), self.named, self.n_rows)

    def _check_names(self, names: tuple[str, ...]) -> None:
        own = tuple(column.name for column in self.columns)
        if names != own:
            raise SchemaError(f"All parts must have the same columns. Got {list(names)} after {list(own)}.")

    def _convert_kinds(self, table: Table) -> Table:
        """A block whose columns are of the kinds of earlier blocks, where that is certain."""
        if not self.columns or table.kinds == tuple(column.kind for column in self.columns):
            return table
        self._check_names(table.names)
        turned = []
        for index, column in enumerate(self.columns):
            values = table.values(index)
            converted, bad_row = values.as_kind(column.kind) if column.first is not None else (values, None)
            if bad_row is not None:
                raise _kind_error(column.name, column.kind, values.kind)
            turned.append(converted)
        return Table(names=table.names, named=table.named, columns=tuple(turned))


def _kind_error(name: str, before: str, after: str) -> SchemaError:
    return SchemaError(f"Column {name!r} must hold one kind of values in all parts. Got {after} after {before}.")


def _count_columns(table: Table, is_reference: Mask, *, is_all: bool) -> list[ColumnStatistics]:
    """The statistics of one block."""
    numbers = iter(_count_numbers(table, is_reference))
    columns = []
    for index, (name, kind) in enumerate(zip(table.names, table.kinds, strict=True)):
        if kind == "category":
            columns.append(ColumnStatistics.of_text(name, table.values(index), is_reference, is_all=is_all))
        elif kind == "date":
            columns.append(ColumnStatistics(name, kind))
            columns[-1].add_dates(table.values(index).array, is_reference, is_all=is_all)
        else:
            columns.append(next(numbers))
    return columns


def _count_numbers(table: Table, is_reference: Mask) -> list[ColumnStatistics]:
    """The statistics of number and boolean columns, all of them together, in blocks of rows that stay in cache."""
    kinds = table.kinds
    indices = np.array([index for index, kind in enumerate(kinds) if kind in ("number", "boolean")], dtype=np.intp)
    n_columns = len(indices)
    if not n_columns:
        return []
    n_block = min(table.n_rows, max(64, _BLOCK_BYTES // (8 * n_columns)))
    buffer = np.empty((n_block, n_columns))
    sums, is_whole = _Sums(n_columns), bool(is_reference.all())
    n_missing, n_missing_reference = np.zeros((2, n_columns), dtype=np.int64)
    first, constant = np.full(n_columns, np.nan), np.arange(n_columns)
    for start in range(0, table.n_rows, n_block):
        rows = slice(start, min(start + n_block, table.n_rows))
        block = table.numbers(rows, indices, buffer[: rows.stop - start])
        missing = np.isnan(block)
        if missing.any():
            n_missing += missing.sum(axis=0)
            n_missing_reference += missing[is_reference[rows]].sum(axis=0)
        if len(constant):
            constant = constant[~_find_varying(block[:, constant], first, constant)]
        sums.add(block if is_whole else block[is_reference[rows]])
    n, mean, squares = sums.moments()
    varies = np.ones(n_columns, dtype=bool)
    varies[constant] = False
    is_fixed = ~varies & np.isfinite(first)
    mean, squares = np.where(is_fixed & (n > 0), first, mean), np.where(is_fixed, 0.0, squares)
    squares[varies & (squares == 0.0)] = np.nan  # too small to be squared
    return [
        ColumnStatistics(
            table.names[index],
            kinds[index],
            n_missing=int(n_missing[place]),
            n_missing_reference=int(n_missing_reference[place]),
            first=None if np.isnan(first[place]) else first[place],
            varies=bool(varies[place]),
            moments=Moments(*(values[place : place + 1] for values in (n, mean, squares))) if n[place] else None,
        )
        for place, index in enumerate(indices)
    ]


def _find_varying(block: Floats, first: Floats, columns: NDArray[np.intp]) -> Mask:
    """Whether each of the columns holds a value other than its first one, which is noted in `first` once it comes."""
    present = block == block  # not NaN
    for index in np.flatnonzero(np.isnan(first[columns])):
        first[columns[index]] = block[present[:, index].argmax(), index]
    return np.asarray(((block != first[columns]) & present).any(axis=0))
