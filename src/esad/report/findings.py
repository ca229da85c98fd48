"""The contents of a report, collected before anything is drawn."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Scores
from esad.detectors.opening import Block, open_source
from esad.detectors.scored_file import Worst, score_blocks
from esad.errors import InputError, LabelError
from esad.io import checks
from esad.io.checks import OnProgress, OnRemark, Remark
from esad.io.dialect import Reading
from esad.labels import truth as read_truth
from esad.report.explained import ExplainedFile, explain_worst
from esad.score.metrics import Evaluation, Truth, evaluate

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.detectors.training import TrainingData
    from esad.score.drift import Drift


@dataclass(frozen=True)
class KindResult:
    """How well one kind of anomaly is found; `seen` is None if training may or may not have had labels of it."""

    name: str
    seen: bool | None
    n_rows: int
    n_flagged: int
    found: Evaluation


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """A model, a data set, and what came of scoring one with the other.

    Attributes
    ----------
    detector : Detector
    model_name, data_name : str
        Files, as they shall be called.
    n_bytes : int or None
        Size of the model file.
    scores : ndarray, (n,)
        Of all rows.
    truth : ndarray of bool, (n,), or None
        Whether each is an anomaly, where that is known.
    evaluation : Evaluation or None
        What `evaluate` says, where the truth is known.
    kinds : sequence of KindResult
        Kinds of anomalies, where they are known.
    p_values : ndarray, (n,), or None
        Where the model is calibrated.
    drift : Drift or None
        How far the rows are from those of training, where the model can tell.
    n_missing : mapping of str to int
        Missing cells of each column, in these rows.
    explained : ExplainedFile or None
        The worst rows, with the reasons for their scores.
    """

    detector: "Detector"
    model_name: str
    data_name: str
    n_bytes: int | None = None
    scores: Scores
    truth: Truth | None = None
    evaluation: Evaluation | None = None
    kinds: Sequence[KindResult] = ()
    p_values: Scores | None = None
    drift: "Drift | None" = None
    n_missing: Mapping[str, int] = field(default_factory=dict)
    explained: ExplainedFile | None = None

    @property
    def flagged(self) -> Truth:
        """Which rows raise an alarm."""
        return self.scores > self.detector.threshold_

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return {
            "n_rows": len(self.scores),
            "n_flagged": int(self.flagged.sum()),
            "threshold": self.detector.threshold_,
            "evaluation": None if self.evaluation is None else self.evaluation.to_json(),
            "kinds": [
                {"kind": kind.name, "seen": kind.seen, "n_rows": kind.n_rows, "n_flagged": kind.n_flagged}
                | {"auc": kind.found.auc}
                for kind in self.kinds
            ],
            "drifted": None if self.drift is None else self.drift.drifted,
            "calibrated": self.p_values is not None,
        }


def measure_kinds(
    scores: Scores, truth: Truth, kinds: NDArray[Any], *, threshold: float, seen: Sequence[str] | None
) -> list[KindResult]:
    """Each kind of anomaly against all normal rows, the most frequent first; anomalies without a kind are left out.

    Examples
    --------
    >>> kinds = np.array([None, None, "scratch", "dent"], dtype=object)
    >>> found = measure_kinds(np.arange(4.0), np.array([False, False, True, True]), kinds, threshold=2.5, seen=["dent"])
    >>> [(kind.name, kind.seen, kind.n_flagged, kind.found.auc) for kind in found]
    [('dent', True, 1, 1.0), ('scratch', False, 0, 1.0)]
    """
    words = np.array([None if kind is None or kind != kind else str(kind) for kind in kinds], dtype=object)
    names, counts = np.unique([word for word in words[truth] if word is not None], return_counts=True)  # sorted
    out = []
    for name in names[np.argsort(-counts, kind="stable")].tolist():
        mine = truth & (words == name)
        chosen = mine | ~truth
        out.append(
            KindResult(
                name=name,
                seen=None if seen is None else name in seen,
                n_rows=int(mine.sum()),
                n_flagged=int((scores[mine] > threshold).sum()),
                found=evaluate(scores[chosen], mine[chosen], ks=()),
            )
        )
    return out


def collect_findings(
    detector: "Detector",
    data: str | os.PathLike[str],
    *,
    truth_column: str | None = None,
    anomaly_value: object = None,
    kind_column: str | None = None,
    seen_kinds: Sequence[str] | None = None,
    id_column: str | None = None,
    labels_csv: str | os.PathLike[str] | None = None,
    reading: Reading | None = None,
    cases: "TrainingData | None" = None,
    top: int = 10,
    model_name: str = "",
    n_bytes: int | None = None,
    on_progress: OnProgress | None = None,
    on_remark: OnRemark = checks.tell,
) -> Findings:
    """Score all rows of a file or folder, measure them where the truth is known, and explain the worst.

    Parameters
    ----------
    detector : Detector
    data : str or path-like
    truth_column, kind_column, id_column, labels_csv, reading
        As for `esad.detectors.opening.open_source`.
    anomaly_value : object, optional
        The value of the truth that marks an anomaly.
    seen_kinds : sequence of str, optional
        Those of `kind_column` that training had labels of; the others had none.
    cases : TrainingData, optional
        Labelled rows to hold the worst against; by default those that the model keeps.
    top : int
        How many of the worst rows to explain.
    model_name, n_bytes : str, int
        What the model file is called, and its size.
    on_progress, on_remark : callable, optional
        As for `esad.score_file`.
    """
    is_table = detector.inputs_.kind == "table"
    if is_table:
        _check_columns(truth_column, anomaly_value, kind_column, seen_kinds)
    source = open_source(
        data,
        detector,
        id_column=id_column,
        truth_column=truth_column,
        kind_column=kind_column,
        labels_csv=labels_csv,
        reading=reading,
        on_remark=on_remark,
    )
    worst, monitor = Worst(top), detector.drift_monitor()
    parts: dict[str, list[Any]] = {"scores": [], "p_values": [], "words": [], "kinds": []}
    n_missing: dict[str, int] = {}
    for block, X, some, p_some in score_blocks(detector, source, on_progress):
        worst.add(block, some)
        if monitor is not None:
            monitor.add(X, some)
        kinds_here = block.kinds if is_table else _folder_kinds(block)
        found = {"scores": some, "p_values": p_some, "words": block.truth, "kinds": kinds_here}
        for name, values in found.items():
            if values is not None:
                parts[name].append(np.asarray(values, dtype=None if name in ("scores", "p_values") else object))
        if is_table:
            for name in block.X.column_names:
                n_missing[name] = n_missing.get(name, 0) + block.X[name].null_count
    whole = {name: np.concatenate(part) if part else None for name, part in parts.items()}
    scores, name = whole["scores"], truth_column or ("label" if labels_csv is not None else "sub-folder")
    assert scores is not None  # a source has one block at least
    is_said = truth_column is not None or anomaly_value is not None or labels_csv is not None
    truth = _find_truth(whole["words"], anomaly_value, name, is_said, on_remark)
    evaluation, kinds = None, []
    if truth is not None:
        evaluation = evaluate(scores, truth, threshold=detector.threshold_, ks=())
        words = np.full(len(truth), None) if whole["kinds"] is None else whole["kinds"]
        kinds = measure_kinds(scores, truth, words, threshold=detector.threshold_, seen=seen_kinds)
    return Findings(
        detector=detector,
        model_name=model_name,
        data_name=Path(data).name,
        n_bytes=n_bytes,
        scores=scores,
        truth=truth,
        evaluation=evaluation,
        kinds=kinds,
        p_values=whole["p_values"],
        drift=None if monitor is None else monitor.report(),
        n_missing=n_missing,
        explained=explain_worst(detector, worst, source, cases=cases),
    )


def _check_columns(
    truth_column: str | None, anomaly_value: object, kind_column: str | None, seen_kinds: Sequence[str] | None
) -> None:
    """Refuse options that describe a column where no column is named."""
    given = {"anomaly_value": anomaly_value, "kind_column": kind_column}
    if truth_column is None and (names := [name for name, value in given.items() if value is not None]):
        raise InputError(f"`{names[0]}` is about the truth of the rows: give `truth_column` too.")
    if kind_column is None and seen_kinds is not None:
        raise InputError("`seen_kinds` are among the kinds of anomalies: give `kind_column` too.")


def _find_truth(
    words: NDArray[Any] | None, anomaly_value: object, name: str, is_said: bool, on_remark: OnRemark
) -> Truth | None:
    """The truth of all rows; None where there is none, or nothing to measure by it."""
    if words is None:
        return None
    try:
        truth = read_truth(words, anomaly_value=anomaly_value, name=name)
    except LabelError:
        if is_said:
            raise
        on_remark(Remark("note", "the sub-folders do not say the truth (anomaly, normal): the report goes without."))
        return None
    if truth.all() == truth.any():
        text = "the rows are all normal or all anomalies: there is nothing to measure against."
        on_remark(Remark("note", text))
        return None
    return truth


def _folder_kinds(block: Block) -> list[str | None]:
    """The sub-folder below anomaly/ that each picture lies in, if it does."""
    return [parts[1] if len(parts := str(name).split("/")) > 2 else None for name in block.ids]
