"""What a fit takes from data that does not fit into memory.

One pass makes the survey: statistics of the columns, a uniform sample of the unlabelled rows, the labelled rows. Of the
sample, a part stays out of the training, for thresholds, calibration and drift; the rest is what the training begins
with. While it goes on, rows that were drawn make room for others from the stream.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch

from esad.core import processes
from esad.core.arguments import check_share
from esad.core.arrays import Floats, Labels, Rows
from esad.errors import InputError, LabelError, SchemaError
from esad.io.stream import LabelledBlock, Sample, Stream, TableStream, priorities
from esad.labels import LabelCounts
from esad.preprocess.image import ImagePreprocessor
from esad.preprocess.inputs import Inputs, read_rows
from esad.table.encode import TabularPreprocessor
from esad.table.profile import MAX_ROWS
from esad.table.statistics import TableStatistics
from esad.table.table import Table, join_rows, take_rows

N_SLOTS = 1 << 17  # rows that are at hand at a time: all that a training of 1,000 steps with the defaults draws
N_HELD_OUT = MAX_ROWS  # rows that stay out of the training
HELD_OUT_RATIO = 0.1
MIN_UNLABELLED = 10  # so that one can be held out
MAX_VALUES = 1 << 26  # numbers in the rows at hand, and in those that are held out, however wide they are
MAX_LABELLED = 100_000  # labelled rows of each kind that are kept at hand

OnBlock = Callable[[int], None]


@dataclass
class Survey:
    """What one pass over a stream tells; surveys of several shards can be merged.

    Examples
    --------
    >>> import tempfile, pyarrow.parquet as pq
    >>> from esad.io.stream import open_stream
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"size": np.arange(1000.0)}), f"{folder}/part.parquet")
    ...     survey = Survey.of(open_stream(folder), seed=0)
    >>> survey.counts.n_unlabelled, float(survey.statistics.columns[0].moments.mean[0])
    (1000, 499.5)
    """

    source: Stream
    seed: int
    unlabelled: Sample
    anomalies: Sample
    normals: Sample
    statistics: TableStatistics = field(default_factory=TableStatistics)
    picture_sum: Floats | None = None
    n_by_label: dict[int, int] = field(default_factory=lambda: {-1: 0, 0: 0, 1: 0})

    @classmethod
    def of(cls, source: Stream, *, seed: int, on_block: OnBlock | None = None) -> Self:
        """Read all rows once, each of several processes its share; `on_block` is told how many have been read."""
        together, own = processes.current(), None
        for block in source.blocks(together.rank, together.size):
            own = own or cls.empty(source, block, seed=seed)
            own.add(block)
            if on_block is not None:
                on_block(len(block.y) * together.size)
        survey: Self | None = None
        for found in together.gather_each(None if own is None else own._without_source()):
            its = None if found is None else cls(source=source, **found)
            if survey is None:
                survey = its
            elif its is not None:
                survey.merge(its)
        assert survey is not None  # no stream is empty
        if survey.n_by_label[0] < MIN_UNLABELLED:
            raise LabelError(
                f"Data that is read in parts must have {MIN_UNLABELLED} unlabelled rows or more. "
                f"Got {survey.n_by_label[0]} of {source.n_rows} rows."
            )
        return survey

    @classmethod
    def empty(cls, source: Stream, block: LabelledBlock, *, seed: int) -> Self:
        """A survey of nothing yet, for rows like those of the block."""
        width = block.X.num_columns if isinstance(block.X, pa.Table) else block.X[0].size
        n_rows = _limit_rows(N_SLOTS, width) + 2 * _limit_rows(N_HELD_OUT, width)
        n_labelled = min(MAX_LABELLED, n_rows)
        return cls(
            source,
            seed,
            unlabelled=Sample(n_rows, seed=seed),
            anomalies=Sample(n_labelled, seed=seed),
            normals=Sample(n_labelled, seed=seed),
        )

    def add(self, block: LabelledBlock) -> None:
        """Take in some rows."""
        reference = block.y == 0
        if isinstance(block.X, pa.Table):
            try:
                self.statistics.add(Table.from_any(block.X), reference)
            except SchemaError as error:
                raise SchemaError(f"Cannot use {str(block.file)!r}: {error}") from error
        else:
            images = ImagePreprocessor().fit(block.X).transform(block.X)
            total = images[reference].sum(axis=0, dtype=np.float64)
            self.picture_sum = total if self.picture_sum is None else self.picture_sum + total
        for label, sample in ((0, self.unlabelled), (-1, self.anomalies), (1, self.normals)):
            chosen = np.flatnonzero(block.y == label)
            self.n_by_label[label] += len(chosen)
            if len(chosen):
                sample.add(block.numbers[chosen], take_rows(block.X, chosen))

    def merge(self, other: Self) -> None:
        """Take in the survey of another shard, whose rows have other numbers."""
        self.statistics.merge(other.statistics)
        if other.picture_sum is not None:
            self.picture_sum = other.picture_sum + (0.0 if self.picture_sum is None else self.picture_sum)
        for own, its in zip(self._samples, other._samples, strict=True):
            own.merge(its)
        self.n_by_label = {label: number + other.n_by_label[label] for label, number in self.n_by_label.items()}

    def _without_source(self) -> dict[str, Any]:
        """All but the source, which every process has."""
        return {name: value for name, value in vars(self).items() if name != "source"}

    def leave_out(self, names: Sequence[str]) -> None:
        """Forget some columns of a table."""
        if not names:
            return
        assert isinstance(self.source, TableStream)
        self.source = self.source.without(names)
        self.statistics.leave_out(names)
        for sample in self._samples:
            sample.leave_out(names)

    @property
    def _samples(self) -> tuple[Sample, Sample, Sample]:
        return self.unlabelled, self.anomalies, self.normals

    @property
    def counts(self) -> LabelCounts:
        """How many rows carry each label."""
        return LabelCounts(n_anomaly=self.n_by_label[-1], n_unlabelled=self.n_by_label[0], n_normal=self.n_by_label[1])

    @property
    def kind(self) -> str:
        """What the rows are: "table" or "images"."""
        return "table" if self.picture_sum is None else "images"

    def inputs(self, *, scaling: str, estimator: str = "ESAD") -> Inputs:
        """The preprocessing of all rows; "minmax" takes its limits from the sample."""
        sample = read_rows(self.unlabelled.rows(0, len(self.unlabelled)))
        if isinstance(sample, Table):
            preprocessor = TabularPreprocessor.from_statistics(self.statistics, sample)
            return Inputs.of_table(preprocessor, sample, scaling=scaling, estimator=estimator)
        assert self.picture_sum is not None
        mean = (self.picture_sum / self.n_by_label[0]).astype(np.float32)
        return Inputs(ImagePreprocessor().fit(sample), mean_picture=mean, estimator=estimator)

    def labelled(self) -> tuple[Any, Labels]:
        """The labelled rows at hand, anomalies first, None if there are none."""
        pairs = [(sample, label) for sample, label in ((self.anomalies, -1), (self.normals, 1)) if len(sample)]
        y = np.repeat(np.array([label for _, label in pairs], dtype=np.int8), [len(sample) for sample, _ in pairs])
        parts = [sample.rows(0, len(sample)) for sample, _ in pairs]
        return (join_rows(parts) if parts else None), y

    def held_out(self, *, n_calibration: int = 0) -> tuple[Any, Labels]:
        """Rows that the training does not see, but for the labelled ones at the end, and the labels of all."""
        kept, y = self.labelled()
        rows = self.unlabelled.rows(n_calibration, n_calibration + self.n_held_out())
        y = np.concatenate([np.zeros(len(rows), dtype=np.int8), y])
        return (rows if kept is None else join_rows([rows, kept])), y

    def n_held_out(self) -> int:
        """How many unlabelled rows the training does not see."""
        return min(_limit_rows(N_HELD_OUT, self._width), int(HELD_OUT_RATIO * len(self.unlabelled)))

    def n_calibration(self, ratio: float | None) -> int:
        """How many more a calibration gets; of very many rows, as many as are held out at most."""
        if ratio is None:
            return 0
        check_share("`calibration_ratio`", ratio)
        n_most = len(self.unlabelled) - self.n_held_out()
        n_rows = min(_limit_rows(N_HELD_OUT, self._width), round(ratio * len(self.unlabelled)))
        if not 1 <= n_rows < n_most:
            n_left = max(0, n_most - n_rows)
            raise InputError(
                f"`calibration_ratio` of {ratio:g} leaves {n_rows} rows to calibrate with and {n_left} to train on. "
                "Both need one at least. Give more rows or another share."
            )
        return n_rows

    @property
    def _width(self) -> int:
        return len(self.statistics.columns) if self.picture_sum is None else self.picture_sum.size


@dataclass(frozen=True, eq=False)
class Portion:
    """What of a survey goes into a training.

    Attributes
    ----------
    rows : ndarray, (n, *features)
        Unlabelled rows to begin with, then the labelled ones.
    y : ndarray of int8, (n,)
    n_slots : int
        How many are unlabelled.
    n_unlabelled : int
        How many unlabelled rows the whole stream offers to the training.
    scored, scored_y : ndarray
        Rows that thresholds are set on, and their labels.
    survey : Survey
    inputs : Inputs
    limit : int
        Largest priority of a row that is not for training.
    """

    rows: Rows
    y: Labels
    n_slots: int
    n_unlabelled: int
    scored: Rows
    scored_y: Labels
    survey: Survey
    inputs: Inputs
    limit: int

    @classmethod
    def of(cls, survey: Survey, inputs: Inputs, *, n_calibration: int) -> Self:
        """Divide the sample: calibration rows, held-out rows, rows to begin with."""

        def rows_of(rows: Any) -> Rows:
            return inputs.rows_of(read_rows(rows))

        first = n_calibration + survey.n_held_out()
        n_values = int(np.prod(inputs.shape))
        begin = rows_of(survey.unlabelled.rows(first, first + _limit_rows(N_SLOTS, n_values)))
        kept, y = survey.labelled()
        scored, scored_y = survey.held_out(n_calibration=n_calibration)
        numbers = survey.unlabelled.numbers[:first]
        return cls(
            rows=begin if kept is None else np.concatenate([begin, rows_of(kept)]),
            y=np.concatenate([np.zeros(len(begin), dtype=np.int8), y]),
            n_slots=len(begin),
            n_unlabelled=survey.n_by_label[0] - first,
            scored=rows_of(scored),
            scored_y=scored_y,
            survey=survey,
            inputs=inputs,
            limit=int(priorities(numbers[-1:], survey.seed)[0]) if first else -1,
        )

    @property
    def is_whole(self) -> bool:
        """Whether all rows are at hand from the beginning."""
        return self.n_slots >= self.n_unlabelled


class StreamRefill:
    """Puts the next rows of the stream in place of those that were drawn: a shuffle buffer that changes as a whole.

    Parameters
    ----------
    portion : Portion
    x : Tensor, (n, *features)
        The rows that the training draws from; the first `n_slots` are replaced.
    """

    def __init__(self, portion: Portion, x: torch.Tensor) -> None:
        self._portion, self._x = portion, x
        self.n_done, self.n_rows = 0, portion.n_unlabelled
        self._coming = self._read_lots()

    def __call__(self) -> None:
        """Replace the rows."""
        self._replace_rows(next(self._coming))
        self.n_done += 1

    def restore(self, n_done: int) -> None:
        """Be where an interrupted training was after so many calls."""
        if n_done == self.n_done:
            return
        self._coming, self.n_done = self._read_lots(), n_done
        for number in range(n_done):
            lot = next(self._coming)
            if number == n_done - 1:
                self._replace_rows(lot)

    def _replace_rows(self, lot: Rows) -> None:
        self._x[: len(lot)] = torch.from_numpy(lot).to(self._x.device, self._x.dtype)

    def _read_lots(self) -> Iterator[Rows]:
        """The rows of pass after pass, as many at a time as there is room for."""
        held: list[Rows] = []
        n_held, n_slots = 0, self._portion.n_slots
        for rows in self._read_rows():
            held.append(rows)
            n_held += len(rows)
            while n_held >= n_slots:
                joined = np.concatenate(held)
                yield joined[:n_slots]
                held, n_held = [joined[n_slots:]], n_held - n_slots

    def _read_rows(self) -> Iterator[Rows]:
        """Unlabelled rows for training, pass after pass, each in another order."""
        portion, survey = self._portion, self._portion.survey
        for number in count():
            for block in survey.source.shuffled(np.random.default_rng([survey.seed, number])):
                keys = priorities(block.numbers, survey.seed)
                wanted = block.y == 0
                if portion.limit >= 0:
                    wanted &= keys > np.uint64(portion.limit)
                chosen = np.flatnonzero(wanted)
                if len(chosen):
                    yield portion.inputs.rows_of(read_rows(take_rows(block.X, chosen)))


def _limit_rows(n_rows: int, width: int) -> int:
    """`n_rows`, or as many as hold `MAX_VALUES` numbers, if these are fewer."""
    return max(1, min(n_rows, MAX_VALUES // max(1, width)))
