"""What a refit learns from: the data the model was trained on, found again, and the judged rows of the review."""

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad import labels
from esad.core.text import count_text
from esad.detectors.base import Detector
from esad.errors import DataFileError, EsadError
from esad.io.checks import Remark
from esad.io.notes import DataSource, Notes
from esad.labels import Labels
from esad.review.dataset import ReviewDataset
from esad.review.store import JudgementStore
from esad.table.table import take_rows

__all__ = ["RefitData", "TrainingRows", "make_training_finder"]


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """What the model learned from, where that is other data than the data under review.

    Attributes
    ----------
    X : arrow table, ndarray or None
        Rows that were found again, in the form of the data under review; None where there are none.
    y : ndarray of int8, (n,)
        Their labels: -1, 0, +1.
    lost : str
        What was not found again, in a sentence; empty where all is here.
    """

    X: Any = None
    y: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8))
    lost: str = ""


@dataclass(frozen=True, eq=False)
class RefitData:
    """Rows and labels that a refit learns from.

    Attributes
    ----------
    X : arrow table or ndarray
    y : ndarray of int8, (n,)
    then : ndarray of int8, (n,)
        Labels that the old model learned from.
    is_added : ndarray of bool, (n,)
        Rows that the old model did not learn from at all.
    """

    X: Any
    y: Labels
    y_before: Labels
    is_added: NDArray[np.bool_]

    @classmethod
    def of(cls, X: Any, y: Labels, then: Labels, training: TrainingRows | None = None) -> "RefitData":
        """The data under review; or what the model learned from elsewhere, and the judged rows of the review.

        Rows of a review that nobody judged stay out of a training that has rows of its own: among rows that are
        reviewed since they may be anomalies, many are, and learned from as normal they would hide the others.

        Examples
        --------
        >>> training = TrainingRows(np.zeros((5, 1)), np.array([0, 0, 0, 0, -1], np.int8))
        >>> data = RefitData.of(np.ones((3, 1)), np.array([0, -1, 0], np.int8), np.zeros(3, np.int8), training)
        >>> data.y, data.is_added.sum()
        (array([ 0,  0,  0,  0, -1, -1], dtype=int8), np.int64(1))
        """
        if training is None or training.X is None:
            return cls(X, y, then, np.zeros(len(y), dtype=bool))
        judged = np.flatnonzero(y)
        is_added = np.concatenate([np.zeros(len(training.y), dtype=bool), then[judged] == labels.UNLABELLED])
        return cls(
            _join_rows([training.X, take_rows(X, judged)]),
            np.concatenate([training.y, y[judged]]),
            np.concatenate([training.y, then[judged]]),
            is_added,
        )


def _join_rows(parts: Sequence[Any]) -> Any:
    """Arrow tables, or arrays, one after the other."""
    import pyarrow as pa

    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts, promote_options="permissive")
    return np.concatenate(parts)


def make_training_finder(
    dataset: ReviewDataset, store: JudgementStore, source: DataSource, given: Path | None
) -> Callable[[Detector], TrainingRows | None]:
    """A function that reads what a model learned from, or gives None if that is the data under review; it caches."""
    found: dict[tuple[DataSource, ...], TrainingRows] = {}

    def learned_here(detector: Detector) -> bool:
        """Of a model that does not say what it learned from."""
        known = store.labels_of_fit(detector.fingerprint_)
        return known is not None or detector.learned_from(dataset.X, dataset.known)

    def find(detector: Detector) -> TrainingRows | None:
        noted = Notes.from_json(detector.notes_).sources if given is None else (DataSource.of(given),)
        others = tuple(one for one in noted if source.path != one.path and source.fingerprint != one.fingerprint)
        if not others and (noted or learned_here(detector)):
            return None
        if others not in found:
            found[others] = _read_training_rows(others, detector)
        return found[others]

    return find


def _read_training_rows(sources: Sequence[DataSource], detector: Detector) -> TrainingRows:
    """Rows and labels of all sources that are where they were and as they were."""
    X, y, lost = [], [], []
    notes = Notes.from_json(detector.notes_)
    for source in sources:
        try:
            for path in filter(None, (source.path, source.judgements)):
                if not Path(path).exists() and not glob.has_magic(path):
                    raise DataFileError(f"{path} is not there")
            if not source.is_unchanged():
                raise DataFileError("it was changed since")
            dataset = ReviewDataset.from_file(
                Path(source.path),
                detector,
                anomaly_value=notes.roles.anomaly_value,
                normal_value=notes.roles.normal_value,
                labels_csv=notes.labels_csv,
                on_remark=_ignore_remark,
            )
            known, rows = dataset.known, dataset.X
            if source.judgements:
                with JudgementStore.of(Path(source.judgements), dataset) as store:
                    known = store.judgements.labels(known)
                rows, known = take_rows(rows, np.flatnonzero(known)), known[known != 0]
        except EsadError as error:
            lost.append(f"{source.path} ({str(error).rstrip('.')})")
            continue
        X.append(rows)
        y.append(known)
    counts = detector.label_counts_
    n_rows, n_labels = sum(vars(counts).values()), counts.n_anomaly + counts.n_normal
    words = ""
    if lost or not sources:
        where = ": " + ", ".join(lost) if lost else ""
        rows_words, labels_words = count_text(n_rows, "row"), count_text(n_labels, "label")
        words = f"The model learned from {rows_words} with {labels_words}, which are not all here{where}."
    return TrainingRows(_join_rows(X) if X else None, np.concatenate(y) if y else np.zeros(0, np.int8), words)


def _ignore_remark(remark: Remark) -> None:
    """Remarks on the training file were made when the model was fitted."""
