"""All that can be said about labels at once: which rows to label next, what more would bring, which look wrong."""

import csv
import os
from dataclasses import dataclass
from typing import Any

from esad.advice.audit import Doubt, audit_labels
from esad.advice.curve import LearningCurve, learning_curve
from esad.advice.suggest import Suggestion, suggest_labels
from esad.core.atomic import atomic_path
from esad.detectors.base import Detector
from esad.detectors.training import TrainingData
from esad.errors import InputError, LabelError
from esad.io.checks import OnProgress


@dataclass(frozen=True)
class LabelAdvice:
    """What `advise_on_labels` found.

    Attributes
    ----------
    rows : TrainingData
        What the advice is about.
    suggestions : tuple of Suggestion
        Rows to label next.
    curve : LearningCurve or None
        What labels have brought, and what the next ones would.
    doubts : tuple of Doubt
        The labels, the most doubtful first.
    left_out : tuple of str
        Why something is missing.
    """

    rows: TrainingData
    suggestions: tuple[Suggestion, ...]
    curve: LearningCurve | None = None
    doubts: tuple[Doubt, ...] = ()
    left_out: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes; rows go by their ids."""
        suggestions, doubts = (
            [{self.rows.id_name: self.rows.name_of(one.row)} | one.to_json() for one in found]
            for found in (self.suggestions, self.doubts)
        )
        curve = None if self.curve is None else self.curve.to_json()
        return {"suggestions": suggestions, "curve": curve, "audit": doubts, "left_out": list(self.left_out)}

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the suggestions as a CSV file to be filled in: id or row number, score, why, and an empty label.

        Where ids do not tell the rows apart, the row number comes last.
        """
        more = [] if self.rows.ids_tell else ["row"]
        with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([self.rows.id_name, "score", "why", "label", *more])
            for one in self.suggestions:
                row = [one.row for _ in more]
                writer.writerow([self.rows.name_of(one.row), repr(one.score), one.why, "", *row])


def advise_on_labels(
    detector: Detector,
    rows: TrainingData,
    *,
    n: int = 10,
    quick: bool = False,
    on_progress: OnProgress | None = None,
) -> LabelAdvice:
    r"""Suggest rows to label, measure what labels bring, and look for wrong ones; what cannot be said is left out.

    Parameters
    ----------
    detector : Detector
        Fitted.
    rows : TrainingData
        Rows with the labels so far, as from `TrainingData.for_model`.
    n : int
        How many rows to suggest, and how many further labels the learning curve looks ahead.
    quick : bool
        Only suggest rows; the others train anew.
    on_progress : callable, optional
        As for `esad.score_file`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from esad import IsolationForest, TrainingData
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "sizes.csv")
    ...     _ = file.write_text("size,label\n" + "".join(f"{row % 7},\n" for row in range(60)) + "99,anomaly\n")
    ...     rows = TrainingData.from_file(file, label_column="label")
    >>> found = advise_on_labels(rows.fit(IsolationForest(random_state=0)), rows, n=2)
    >>> len(found.suggestions), len(found.doubts), found.left_out
    (2, 1, ('A learning curve needs 4 labelled anomalies (-1) at least. Got 1.',))
    """
    if not rows.label_counts().n_unlabelled:
        raise InputError("Every row is labelled: there is none to suggest.")
    suggestions = suggest_labels(detector, rows.X, rows.labels, n=n)
    if quick:
        return LabelAdvice(rows, suggestions)
    tell = on_progress or (lambda stage, n_more, n_in_all: None)
    curve, left_out = None, []
    doubts: tuple[Doubt, ...] = ()
    try:
        tell("the learning curve", 0, None)
        curve = learning_curve(detector, rows.X, rows.labels, n_next=n)
    except LabelError as error:
        left_out.append(str(error))
    try:
        tell("the audit", 0, None)
        doubts = audit_labels(detector, rows.X, rows.labels)
    except LabelError as error:
        left_out.append(str(error))
    return LabelAdvice(rows, suggestions, curve, doubts, tuple(dict.fromkeys(left_out)))
