"""A model over a file or folder of any length: scores into a file, alarms, the worst rows, what is odd, in one pass."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arguments import check_share
from esad.core.arrays import Scores
from esad.core.machine import data_limit
from esad.detectors.base import Detector
from esad.detectors.model_file import load
from esad.detectors.opening import Block, Source, join_truth, label_rows, open_source, plain_id
from esad.errors import DataFileError, InputError
from esad.explain.reasons import MAX_TEXT, Reasons, cell_text
from esad.io import checks
from esad.io.checks import OnProgress, OnRemark, Remark
from esad.io.dialect import Reading
from esad.io.notes import Notes, Roles
from esad.io.scores import ScoreWriter, is_csv
from esad.labels import counts
from esad.preprocess.inputs import read_rows
from esad.preprocess.sketch import hash_rows, share_known
from esad.score.conformal import Calibration
from esad.score.drift import LEVEL, Drift
from esad.score.threshold import Forecast
from esad.table.table import join_rows, take_rows

_Path = str | os.PathLike[str]
_N_REASONS = 3  # columns named for an alarm
_MAX_KNOWN = 0.2  # share of the rows to calibrate on that may have been trained on
_LEAST_SHARE = 0.1  # of the largest share: less is no reason


@dataclass(frozen=True)
class AlarmRule:
    """What makes a row an alarm.

    Attributes
    ----------
    threshold : float
    calibration : Calibration or None
    last_rank : int or None
        The largest p-value of an alarm, as `Calibration.ranks` counts; None: by the threshold.
    alpha, fdr : float or None
        What was asked for.
    forecast : Forecast or None
        What the threshold is expected to do; None for other rules and where the model does not say.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(400, 3))
    >>> forest = IsolationForest(random_state=0).fit(X, calibration_ratio=0.5)
    >>> rule = AlarmRule.of(forest, alpha=0.05)
    >>> bool(rule.flags(*forest.score_with_p_values(X)).mean() < 0.1), rule.describe(3)
    (True, 'with a p-value of at most 0.05')
    """

    threshold: float
    calibration: Calibration | None
    last_rank: int | None = None
    alpha: float | None = None
    fdr: float | None = None
    forecast: Forecast | None = None

    @classmethod
    def of(cls, detector: Detector, *, alpha: float | None = None, fdr: float | None = None) -> "AlarmRule":
        """The rule asked for, checked against the model; one with `fdr` is not complete before `for_file`."""
        if alpha is not None and fdr is not None:
            raise InputError("Give `alpha` or `fdr`, not both.")
        calibration, last_rank = detector.calibration_, None
        for name, share in (("`alpha`", alpha), ("`fdr`", fdr)):
            if share is None:
                continue
            check_share(name, share)
            if calibration is None:
                raise InputError(
                    f"{name} needs p-values, and the model has no calibration. Train it with `calibration_ratio`, or "
                    "give it normal rows with: esad calibrate"
                )
            calibration.check_level(share, name=name)
            last_rank = calibration.last_rank(alpha) if alpha is not None else None
        forecast = detector.forecast_ if alpha is None and fdr is None else None
        return cls(detector.threshold_, calibration, last_rank, alpha, fdr, forecast)

    def for_file(self, p_values: Iterable[Scores | None]) -> tuple["AlarmRule", int]:
        """The rule for a file by the p-values of all rows, for a false-discovery rate, and how many rows there are."""
        assert self.calibration is not None and self.fdr is not None
        n_by_rank = np.zeros(self.calibration.n_rows + 2, dtype=np.int64)
        for some in p_values:
            assert some is not None  # there is a calibration
            n_by_rank += np.bincount(self.ranks(some), minlength=len(n_by_rank))
        rule = replace(self, last_rank=self.calibration.last_discovery(n_by_rank, self.fdr))
        return rule, int(n_by_rank.sum())

    def flags(self, scores: Scores, p_values: Scores | None) -> NDArray[np.bool_]:
        """Which rows are alarms."""
        if self.last_rank is None or p_values is None:
            return scores > self.threshold
        return np.asarray(self.ranks(p_values) <= self.last_rank)

    def ranks(self, p_values: Scores) -> NDArray[np.int64]:
        """p-values as counts of calibration rows."""
        assert self.calibration is not None
        return np.rint(p_values * (self.calibration.n_rows + 1)).astype(np.int64)

    # ------------------------------------------------------------------ in words

    def describe(self, n_flagged: int) -> str:
        """The rule in words, to follow "12 flagged"."""
        if self.last_rank is None:
            return f"above the threshold {self.threshold:.6g}"
        if self.alpha is not None:
            return f"with a p-value of at most {self.alpha:g}"
        assert self.calibration is not None
        told = f"at a false-discovery rate of {100 * (self.fdr or 0):.1f} %"
        largest = self.last_rank / (self.calibration.n_rows + 1)
        return f"{told}: p-values up to {largest:.3g}" if n_flagged else told

    def check_fdr(self, n_flagged: int, n_rows: int) -> Iterator[Remark]:
        """Tell where more alarms may be false than was asked for, and where too few rows allow no alarm at all."""
        if self.fdr is None or self.calibration is None:
            return
        n_calibration = self.calibration.n_rows
        if self.calibration.pollution_ratio:
            yield Remark(
                "warning", "the highest calibration scores were cut off: the false-discovery rate may be much exceeded."
            )
        if self.calibration.is_cross:
            yield Remark(
                "note", "the p-values of this model are cross-conformal: it keeps to the false-discovery rate about."
            )
        n_together = math.ceil(n_rows / (self.fdr * (n_calibration + 1)) - 1e-9)
        if not n_flagged and n_together > 1:
            needed = math.ceil(n_rows / self.fdr - 1e-9) - 1
            yield Remark(
                "note",
                f"with {n_calibration:,} calibration rows, {n_together:,} of {n_rows:,} rows must stand "
                f"out together before any is flagged at this rate; with {needed:,}, a single one can.",
            )

    def to_json(self) -> dict[str, Any]:
        """What was asked for and what came of it."""
        found: dict[str, Any] = {"threshold": self.threshold, "alpha": self.alpha, "fdr": self.fdr}
        if self.calibration is not None:
            found["calibration"] = {"kind": self.calibration.kind, "n_rows": self.calibration.n_rows}
            if self.last_rank is not None:
                found["largest_p_value"] = self.last_rank / (self.calibration.n_rows + 1)
        return found if self.forecast is None else found | {"forecast": self.forecast.to_json()}


class Worst:
    """The rows with the highest scores so far, the worst first; of equal ones the earlier.

    Attributes
    ----------
    X : arrow table, ndarray or None
        The rows themselves.
    scores, rows : ndarray
        Their scores, and their numbers in the file.
    p_values : ndarray or None
    ids : list
        As they stand in the file, or the row numbers.
    """

    def __init__(self, n_kept: int) -> None:
        self.n_kept, self._n_seen = n_kept, 0
        self.X: Any = None
        self.scores, self.rows = np.empty(0), np.empty(0, dtype=np.intp)
        self.p_values: Scores | None = None
        self.ids: list[Any] = []

    def add(self, block: Block, scores: Scores, p_values: Scores | None = None) -> None:
        """Take in one block."""
        chosen = np.argsort(-scores, kind="stable")[: self.n_kept]
        rows = self._n_seen + chosen
        self._n_seen += block.n_rows
        if not self.n_kept or not len(chosen):
            return
        new_ids = rows.tolist() if block.ids is None else [plain_id(block.ids[index]) for index in chosen.tolist()]
        all_scores, all_rows = np.append(self.scores, scores[chosen]), np.append(self.rows, rows)
        kept = np.lexsort((all_rows, -all_scores))[: self.n_kept]
        all_ids = [*self.ids, *new_ids]
        chosen_rows = take_rows(block.X, chosen)
        self.X = take_rows(chosen_rows if self.X is None else join_rows([self.X, chosen_rows]), kept)
        if p_values is not None:
            before = np.empty(0) if self.p_values is None else self.p_values
            self.p_values = np.append(before, p_values[chosen])[kept]
        self.scores, self.rows, self.ids = all_scores[kept], all_rows[kept], [all_ids[index] for index in kept]

    def to_json(self, rule: AlarmRule, id_name: str, *, row_numbers: bool = False) -> list[dict[str, Any]]:
        """One dictionary a row: name, score, whether it is an alarm and, where known, its p-value and number."""
        columns = {id_name: self.ids, "score": self.scores.tolist()}
        columns["anomaly"] = rule.flags(self.scores, self.p_values).tolist()
        if self.p_values is not None:
            columns["p_value"] = self.p_values.tolist()
        if row_numbers:
            columns["row"] = self.rows.tolist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@dataclass(frozen=True)
class ScoredFile:
    """What came of scoring a file.

    Attributes
    ----------
    n_rows, n_flagged : int
    rule : AlarmRule
        What made a row an alarm.
    worst : Worst
        The rows with the highest scores.
    id_name : str
        What the rows go by; "row" where they are numbered from 0.
    drift : Drift or None
        Whether the rows look like the training rows; None for no rows and for models of older files.
    out : Path or None
        The scores file.
    broken : mapping of str to str
        Pictures that could not be read, and why.
    row_numbers : bool
        Whether the rows are numbered beside their ids, since these do not tell them apart.
    """

    n_rows: int
    n_flagged: int
    rule: AlarmRule
    worst: Worst
    id_name: str = "row"
    drift: Drift | None = None
    out: Path | None = None
    broken: dict[str, str] = field(default_factory=dict)
    row_numbers: bool = False

    @property
    def flagged_ratio(self) -> float:
        """Share of the rows that are alarms."""
        return self.n_flagged / max(self.n_rows, 1)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes."""
        return {
            "n_rows": self.n_rows,
            "n_flagged": self.n_flagged,
            "flagged_ratio": self.flagged_ratio,
            **self.rule.to_json(),
            "out": None if self.out is None else str(self.out),
            "drift": None if self.drift is None else self.drift.to_json(),
            "failures": [{"file": name, "reason": reason} for name, reason in sorted(self.broken.items())],
            "top": self.worst.to_json(self.rule, self.id_name, row_numbers=self.row_numbers),
        }


def score_file(
    model: Detector | _Path,
    data: _Path,
    out: _Path | None = None,
    *,
    id_column: str | None = None,
    alpha: float | None = None,
    fdr: float | None = None,
    top: int = 0,
    with_data: bool = False,
    inputs: Sequence[_Path] = (),
    decimal: str | None = None,
    date_format: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    max_unpacked: int | None = None,
    on_progress: OnProgress | None = None,
    on_remark: OnRemark = checks.tell,
) -> ScoredFile:
    r"""Score every row of a table, or every picture of a folder, block by block, so that memory does not grow.

    Parameters
    ----------
    model : Detector or path
        Fitted, or a model file.
    data : str or path-like
        CSV, Parquet or Excel file, a folder or a pattern of them, or a folder of pictures; those that cannot be read
        are left out.
    out : str or path-like, optional
        Scores file to write, .csv, .parquet or .xlsx: the id column (or the row number, from 0), score, anomaly and, if
        the model is calibrated, p_value. It is there when it is complete.
    id_column : str, optional
        Column that names the rows; by default that of the training file, where this file has it.
    alpha : float, optional
        Flag rows whose p-value is at most this, instead of those above the threshold.
    fdr : float, optional
        Flag rows so that at most this share of those flagged is expected to be false; reads the data twice.
    top : int
        How many of the worst rows to keep.
    with_data : bool
        Write all columns of the table along, the line of each row as a spreadsheet counts it, and for each alarm the
        columns that add most to its score. Of CSV into CSV cells stay as they are written, and the file has its
        separator and its decimal mark, in the scores too.
    inputs : sequence of paths
        Files that `out` must not take the place of, beside `data` and a `model` given as a file.
    decimal, date_format, encoding, sheet : str, optional
        How numbers, dates and letters of a table are written, as for `esad.io.dialect.Reading`; as in training where
        nothing is said. A file that shows otherwise is refused.
    max_unpacked : int, optional
        Bytes that 65,536 rows of a Parquet file may take when they are unpacked: a kilobyte can become gigabytes. It is
        read once by a process of its own to see that, and refused with `LimitError` otherwise. So is an Excel file.
    on_progress : callable, optional
        Told what is being done ("scoring", "counting"), with how many more rows, and of how many: of CSV an estimate,
        by the bytes read so far; None where nothing tells.
    on_remark : callable, optional
        Told of what is odd, as `Remark`; by default a warning, or a line in the log.

    Returns
    -------
    ScoredFile

    Examples
    --------
    >>> import tempfile
    >>> from esad import IsolationForest, TrainingData, score_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("\n".join(["size", *(str(row % 7) for row in range(60)), "99"]))
    ...     forest = TrainingData.from_file(file).fit(IsolationForest(random_state=0))
    ...     found = score_file(forest, file, Path(folder) / "scores.csv", top=1)
    >>> found.n_rows, found.worst.ids
    (61, [60])
    """
    detector = load(model) if isinstance(model, str | os.PathLike) else model
    rule = AlarmRule.of(detector, alpha=alpha, fdr=fdr)
    reading = Reading(
        decimal=decimal, date_format=date_format, encoding=encoding, sheet=sheet, max_unpacked=max_unpacked
    )
    source = open_source(
        data,
        detector,
        id_column=id_column,
        reading=reading,
        set_aside=True,
        cells=None if not with_data else "texts" if out is not None and is_csv(out) else "values",
        on_remark=on_remark,
    )
    read = [data, *inputs, *([model] if model is not detector else [])]
    found = score_source(detector, source, rule, out, inputs=read, top=top, on_progress=on_progress)
    for remark in rule.check_fdr(found.n_flagged, found.n_rows):
        on_remark(remark)
    return found


def score_source(
    detector: Detector,
    source: Source,
    rule: AlarmRule,
    out: _Path | None = None,
    *,
    inputs: Sequence[Any] = (),
    top: int = 0,
    drift_level: float = LEVEL,
    on_progress: OnProgress | None = None,
    before_end: Callable[[], None] | None = None,
) -> ScoredFile:
    """Score what is open already; `before_end` may still refuse, before the scores file takes its place."""
    worst, monitor = Worst(top), detector.drift_monitor()
    n_rows = n_flagged = 0
    numbered = (out is not None or top > 0) and source.needs_row_numbers()
    with ExitStack() as opened:
        writer, written = None, source.dialect
        if out is not None:
            writer = ScoreWriter(
                out,
                id_name=source.id_name,
                inputs=[*inputs, *source.files],
                p_values=rule.calibration is not None,
                row_numbers=numbered,
                data=source.cell_names,
                separator="," if written is None else written.delimiter,
                decimal="." if written is None else written.decimal.value,
            )
            opened.enter_context(writer)
        n_before = None
        if rule.fdr is not None:  # how small p-values must be, all of them tell
            blocks = score_blocks(detector, source, on_progress, word="counting")
            rule, n_before = rule.for_file(p_values for *_, p_values in blocks)
        for block, X, scores, p_values in score_blocks(detector, source, on_progress):
            flagged = rule.flags(scores, p_values)
            if writer is not None and block.cells is not None:
                reasons = _main_reasons(detector, block.X, flagged)
                writer.write(scores, flagged, p_values=p_values, data=block.cells, reasons=reasons)
            elif writer is not None:
                writer.write(scores, flagged, ids=block.ids, p_values=p_values)
            if monitor is not None:
                monitor.add(X, scores)
            worst.add(block, scores, p_values)
            n_rows, n_flagged = n_rows + block.n_rows, n_flagged + int(flagged.sum())
        if n_before is not None and n_rows != n_before:
            raise DataFileError(f"The data changed while it was read: {n_before:,} rows first, then {n_rows:,}.")
        if before_end is not None:
            before_end()
    return ScoredFile(
        n_rows=n_rows,
        n_flagged=n_flagged,
        rule=rule,
        worst=worst,
        id_name=source.row_name,
        drift=None if monitor is None or not n_rows else monitor.report(level=drift_level),
        out=None if out is None else Path(out),
        broken=source.broken,
        row_numbers=numbered,
    )


def _main_reasons(detector: Detector, X: Any, flagged: NDArray[np.bool_]) -> list[str | None]:
    """For each alarm the columns that add most to its score, with what was expected there; None for other rows."""
    told: list[str | None] = [None] * len(flagged)
    alarms = np.flatnonzero(flagged)
    if not len(alarms):
        return told
    found = detector.explain(X.take(alarms))
    assert isinstance(found, Reasons)  # of a table
    for number, row in enumerate(alarms.tolist()):
        least = _LEAST_SHARE * found.total[number].max()
        told[row] = "; ".join(
            _describe_reason(found.columns[index], found.observed[number, index], found.expected[number, index])
            for index in found.order(number)[:_N_REASONS]
            if found.total[number, index] > max(least, 0)
        )
    return told


def _describe_reason(column: str, observed: Any, expected: Any) -> str:
    """A column with its value, and what was expected where that is another."""
    value, other = (cell_text(cell, max_length=MAX_TEXT) for cell in (observed, expected))
    told = other[1:-1] if other.startswith("(") and other.endswith(")") else other  # missing, a usual one
    return f"{column} {value}" + (f" (expected {told})" if other != value else "")


def score_blocks(
    detector: Detector, source: Source, on_progress: OnProgress | None = None, *, word: str = "scoring"
) -> Iterator[tuple[Block, Any, Scores, Scores | None]]:
    """Every block, its rows as a model takes them, their cells parsed once for all uses, their scores and p-values."""
    n_done = 0
    for block in source:
        X = read_rows(block.X)
        yield block, X, *detector.score_with_p_values(X)
        n_done += block.n_rows
        if on_progress is not None:
            on_progress(word, block.n_rows, round(n_done / block.share) if block.share else source.n_rows)


def score_all(
    detector: Detector, source: Source, on_progress: OnProgress | None = None
) -> tuple[Scores, NDArray[np.object_] | None]:
    """Scores of all rows, and what the file says of each; None where it says nothing."""
    scored = [(scores, block.truth) for block, _, scores, _ in score_blocks(detector, source, on_progress)]
    return np.concatenate([scores for scores, _ in scored]), join_truth(truth for _, truth in scored)


def calibrate_on_file(
    detector: Detector,
    data: _Path,
    *,
    alpha: float | None = None,
    pollution_ratio: float = 0.0,
    roles: Roles | None = None,
    labels_csv: _Path | None = None,
    reading: Reading | None = None,
    on_progress: OnProgress | None = None,
    on_remark: OnRemark = checks.tell,
) -> tuple[int, int]:
    """Calibrate a detector on the rows of a file that it was not trained on; known anomalies are left out.

    Parameters
    ----------
    detector : Detector
        Fitted; its calibration and, given `alpha`, its threshold are set.
    data : str or path-like
        Normal rows or pictures, or such that are presumed to be. The data of the training and copies of it, whatever
        their format, are refused: a model scores rows that it has seen lower than new ones.
    alpha, pollution_ratio
        As for `Detector.calibrate`.
    roles : Roles, optional
        The label column and its words; by default those of the training, where the file has that column.
    labels_csv : str or path-like, optional
        The labels of pictures; their sub-folders by default.
    reading : Reading, optional
        How a table is written; as in training where it does not say.
    on_progress, on_remark : callable, optional
        As for `score_file`.

    Returns
    -------
    n_rows, n_left_out : int
        How many rows there are, and how many known anomalies of them were left out.
    """
    notes = Notes.from_json(detector.notes_)
    refusal = InputError(
        f"{os.fspath(data)!r} is what the model was trained on, and such rows score lower than new ones. Give rows "
        "that were kept apart, or fit with `calibration_ratio` or `cross_calibration`."
    )
    if any(source.is_unchanged(data) for source in notes.sources):
        raise refusal
    asked = roles or Roles()
    source = open_source(
        data,
        detector,
        truth_column=asked.label_column,
        labels_csv=labels_csv,
        reading=reading,
        noted_labels=True,
        on_remark=on_remark,
    )
    if detector.inputs_.kind == "table" and source.truth_name is None:
        asked.check_values()
        for name in filter(checks.names_the_answer, source.unknown):
            fix = f"If it marks anomalies, pass `label_column={name!r}`."
            on_remark(Remark("warning", f"all rows are taken as normal, whatever column {name!r} says. {fix}"))
    scores, words = score_all(detector, source, on_progress)
    y = np.zeros(len(scores), dtype=np.int8)
    if words is not None:
        known = replace(asked, label_column=source.truth_name)
        y, _ = label_rows(words, data, detector, known, from_csv=labels_csv is not None)
    may_be_copy = counts(y) == detector.label_counts_ and 8 * len(y) * math.prod(detector.inputs_.shape) <= data_limit()
    if may_be_copy and detector.learned_from(join_rows([block.X for block in source]), y):
        raise refusal
    if detector.sketch_:
        hashes = np.concatenate([hash_rows(detector.rows_of(block.X)) for block in source])
        if (share := share_known(detector.sketch_, hashes)) > _MAX_KNOWN:
            on_remark(
                Remark(
                    "warning",
                    f"about {100 * share:.0f} % of these rows seem to be some that the model was trained on, and "
                    "such rows score lower than new ones: p-values will be too small. Give rows that were kept apart.",
                )
            )
    is_anomaly = y < 0
    calibration = Calibration.of_given(scores, is_anomaly, pollution_ratio=pollution_ratio)
    detector.set_calibration(calibration, alpha=alpha)
    return len(scores), int(is_anomaly.sum())
