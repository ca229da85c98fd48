"""What a refit learns from: the data the model was trained on, found again, and the judged rows of the review."""

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad import labels
from esad.core.arrays import Labels
from esad.core.text import count_text
from esad.detectors.base import Detector
from esad.errors import DataFileError, EsadError
from esad.io.notes import DataSource, Notes
from esad.review.dataset import ReviewDataset
from esad.review.store import JudgementStore
from esad.table.table import join_rows, take_rows


def _no_labels() -> Labels:
    return np.zeros(0, dtype=np.int8)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """What a model learned from, beside and among the rows under review.

    Attributes
    ----------
    y_here : ndarray of int8, (n_reviewed,)
        Labels that it learned of the rows under review.
    sources : tuple of DataSource
        Other data that was found again.
    X : arrow table, ndarray or None
        Its rows, in the form of the data under review; None where there are none.
    y : ndarray of int8, (n,)
        Their labels: -1, 0, +1.
    is_first : bool
        Whether the data under review is what the model learned from in the first place, also from rows without a label.
    lost : str
        What was not found again, in a sentence; empty where all is here.
    """

    y_here: Labels = field(default_factory=_no_labels)
    sources: tuple[DataSource, ...] = ()
    X: Any = None
    y: Labels = field(default_factory=_no_labels)
    is_first: bool = True
    lost: str = ""


@dataclass(frozen=True, eq=False)
class RefitData:
    """Rows and labels that a refit learns from.

    Attributes
    ----------
    X : arrow table or ndarray
    y : ndarray of int8, (n,)
    y_before : ndarray of int8, (n,)
        Labels that the old model learned from.
    is_added : ndarray of bool, (n,)
        Rows that the old model did not learn from at all.
    """

    X: Any
    y: Labels
    y_before: Labels
    is_added: NDArray[np.bool_]

    @classmethod
    def of(cls, X: Any, y: Labels, training: TrainingRows) -> "RefitData":
        """The data under review, beside what the model learned from elsewhere.

        Rows of a review that nobody judged stay out of a training that began with other data: among rows that are
        reviewed since they may be anomalies, many are, and learned from as normal they would hide the others.

        Examples
        --------
        >>> training = TrainingRows(np.zeros(3), (), np.zeros((2, 1)), np.array([0, -1], np.int8), is_first=False)
        >>> data = RefitData.of(np.ones((3, 1)), np.array([0, -1, 0]), training)
        >>> data.y.tolist(), data.is_added.tolist()
        ([0, -1, -1], [False, False, True])
        """
        if training.X is None:
            return cls(X, y, training.y_here, np.zeros(len(y), dtype=bool))
        chosen = np.arange(len(y)) if training.is_first else np.flatnonzero(y)
        y_before = training.y_here[chosen]
        is_added = np.zeros(len(training.y) + len(chosen), dtype=bool)
        if not training.is_first:
            is_added[len(training.y) :] = y_before == labels.UNLABELLED
        return cls(
            join_rows([training.X, take_rows(X, chosen)]),
            np.concatenate([training.y, y[chosen]]),
            np.concatenate([training.y, y_before]),
            is_added,
        )


def make_training_finder(
    dataset: ReviewDataset, store: JudgementStore, source: DataSource | None, given: Path | None
) -> Callable[[Detector], TrainingRows]:
    """A function that finds what a model learned from; without a source it was the data under review.

    Everything is read once. What is given stands for all that a model notes.
    """
    read: dict[tuple[DataSource, ...], TrainingRows] = {}

    def find(detector: Detector) -> TrainingRows:
        noted = Notes.from_json(detector.notes_).sources if given is None else (DataSource.of(given),)
        others = tuple(
            one for one in noted if source and source.path != one.path and source.fingerprint != one.fingerprint
        )
        y_here = store.labels_of_fit(detector.fingerprint_)
        here = [one for one in noted if one not in others]
        if y_here is None and any(one.judgements == str(store.path.absolute()) for one in here):
            y_here = store.judgements.labels(dataset.known)  # it was fitted in a review of other data
        elif y_here is None:
            learned_here = source is None or here or (not noted and detector.learned_from(dataset.X, dataset.known))
            y_here = dataset.known if learned_here else None
        is_unknown = y_here is None and not others
        if y_here is None:
            y_here = np.zeros(dataset.n_rows, dtype=np.int8)
        if others not in read:
            read[others] = _read_sources(others, noted[:1], detector)
        found = replace(read[others], y_here=y_here)
        return replace(found, lost=_describe_lost(detector, found, store.path, is_unknown=is_unknown))

    return find


def _describe_lost(detector: Detector, found: TrainingRows, judgements: Path, *, is_unknown: bool) -> str:
    """Say in a sentence which training data cannot be found; "" if all of it is here."""
    counts = detector.label_counts_
    n_labels = counts.n_anomaly + counts.n_normal
    n_gone = n_labels - int(np.count_nonzero(found.y)) - int(np.count_nonzero(found.y_here))
    missing = found.lost
    if not missing and not is_unknown:
        if n_gone <= 0:
            return ""
        missing = f": {count_text(n_gone, 'label')} neither in the data nor in {judgements}"
    learned = f"{count_text(sum(vars(counts).values()), 'row')} with {count_text(n_labels, 'label')}"
    return f"The model learned from {learned}, which are not all here{missing}."


def _read_sources(sources: Sequence[DataSource], first: Sequence[DataSource], detector: Detector) -> TrainingRows:
    """Read rows and labels of all sources that are unchanged, and say what is wrong with the others.

    Of a review only the judged rows were learned from, unless it was the `first` data.
    """
    X, y, found, missing = [], [], [], []
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
                on_remark=lambda remark: None,  # all was said when the model was fitted
            )
            known, rows = dataset.known, dataset.X
            if source.judgements:
                with JudgementStore.of(Path(source.judgements), dataset) as store:
                    known = store.judgements.labels(known)
                if source not in first:
                    rows, known = take_rows(rows, np.flatnonzero(known)), known[known != 0]
        except EsadError as error:
            missing.append(f"{source.path} ({str(error).rstrip('.')})")
            continue
        X.append(rows)
        y.append(known)
        found.append(source)
    return TrainingRows(
        sources=tuple(found),
        X=join_rows(X) if X else None,
        y=np.concatenate([_no_labels(), *y]),
        is_first=not sources or sources[:1] != first,
        lost=": " + ", ".join(missing) if missing else "",
    )
