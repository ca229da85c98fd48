"""Scores of rows that a detector was not trained on, for many splits of the same rows.

Where it can be done, all splits train side by side as members of one stack, which costs little more than one training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from esad import labels
from esad.core.arrays import Labels, RowNumbers, Scores
from esad.datasets.scenario import Scenario
from esad.detectors.base import Detector
from esad.detectors.deep import DeepDetector
from esad.detectors.stacked import can_stack, fit_stack
from esad.methods.committee import Committee
from esad.preprocess.inputs import read_rows
from esad.table.table import Table, take_rows
from esad.train.callbacks import Callback

MAX_ROWS = 5000  # rows that cross-fitting uses; more of them change little and cost much
MAX_MEMBERS = 1  # of each split's detector: the mean over splits does what members do


@dataclass(frozen=True)
class Fold:
    """One split.

    Attributes
    ----------
    train, test : ndarray of int
        Row numbers.
    y : ndarray of int8
        Labels of the training rows, as this split sees them.
    """

    train: RowNumbers
    y: Labels
    test: RowNumbers


def score_held_out(
    detector: Detector,
    X: Any,
    parts: Sequence[Fold],
    *,
    seed: int,
    whole: bool = False,
    callbacks: Sequence[Callback] = (),
) -> list[Scores]:
    """Scores of every part's test rows by a copy of the detector trained on that part's other rows.

    Parameters
    ----------
    detector : Detector
        Only its parameters are used, with one member in place of several. In place of a fitted committee, the judge
        with the largest weight is trained.
    X : array or table
        All rows.
    parts : sequence of Fold
    seed : int
        The k-th part trains with the seed `seed + k`.
    whole : bool
        Train as many members as the detector has, not one.
    callbacks : sequence of Callback
        Watch or stop every training.

    Examples
    --------
    >>> from esad.methods.iforest import IsolationForest
    >>> X = np.r_[np.random.default_rng(0).normal(size=(20, 2)), [[9.0, 9.0]]]
    >>> part = Fold(np.arange(19), np.zeros(19, dtype=np.int8), np.array([19, 20]))
    >>> scores, = score_held_out(IsolationForest(), X, [part], seed=0)
    >>> bool(scores[1] > scores[0])
    True
    """
    judge = _leading_judge(detector, parts)
    detectors = [_copy(judge, seed + number, whole=whole) for number in range(len(parts))]
    data, _ = read_whole(X, None)
    drawn = [
        Scenario(take_rows(data, part.train), part.y, take_rows(data, part.test), np.zeros(len(part.test), dtype=bool))
        for part in parts  # what is true of the test rows nobody asks
    ]
    deep = [one for one in detectors if isinstance(one, DeepDetector)]
    if not can_stack(detectors, drawn) or not fit_stack(deep, drawn, callbacks=callbacks):
        for one, part in zip(detectors, drawn, strict=True):
            one.fit(part.X_train, part.y_train, callbacks=callbacks)
    return [one.anomaly_score(part.X_test) for one, part in zip(detectors, drawn, strict=True)]


def _leading_judge(detector: Detector, parts: Sequence[Fold]) -> Detector:
    """Return the judge with the largest weight in a fitted committee, if every part has an anomaly to learn from.

    Many trainings of a whole committee, one after the other, take minutes. Trees alone take seconds, and networks alone
    train side by side.
    """
    if not isinstance(detector, Committee) or not hasattr(detector, "weights_"):
        return detector
    if any(labels.ANOMALY not in part.y for part in parts):
        return detector
    return detector.judges_[max(detector.weights_, key=lambda name: detector.weights_[name])]


def _copy(detector: Detector, seed: int, *, whole: bool) -> Detector:
    copied: Detector = clone(detector).set_params(random_state=seed)
    n_members = None if whole else copied.get_params(deep=False).get("n_members")
    if n_members == "auto" or (isinstance(n_members, int) and n_members > MAX_MEMBERS):
        copied.set_params(n_members=MAX_MEMBERS)
    return copied


def read_whole(X: Any, y: ArrayLike | None, *, warn: bool = False) -> tuple[Table | NDArray[Any], Labels]:
    """Read rows, so that parts of them are columns of the same kinds as all, and check their labels.

    Examples
    --------
    >>> table, y = read_whole([["2024-02-29"], ["soon"]], [0, -1])
    >>> y, table.take([0]).settle().kinds
    (array([ 0, -1], dtype=int8), ('category',))
    """
    data = read_rows(X)
    data = data.settle() if isinstance(data, Table) else data
    return data, labels.check(y, data.shape[0], warn=warn)


def make_folds(y: Labels, n_folds: int, *, rng: np.random.Generator) -> Iterator[Fold]:
    """Splits that hold out every row once, each with the same number of rows of each label.

    Where the number of rows is no multiple of `n_folds`, some rows are held out twice.

    Examples
    --------
    >>> y = np.array([-1, -1, 0, 0, 0, 0, 0], dtype=np.int8)
    >>> parts = list(make_folds(y, 2, rng=np.random.default_rng(0)))
    >>> [len(part.test) for part in parts], np.unique(np.concatenate([part.test for part in parts])).tolist()
    ([4, 4], [0, 1, 2, 3, 4, 5, 6])
    """
    kinds = [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    for number in range(n_folds):
        is_test = np.zeros(len(y), dtype=bool)
        for rows in kinds:
            size = -(-len(rows) // n_folds)
            is_test[rows[(number * size + np.arange(size)) % len(rows)]] = True
        train = np.flatnonzero(~is_test)
        yield Fold(train, y[train], np.flatnonzero(is_test))


def thin_rows(y: Labels, *, rng: np.random.Generator, max_rows: int = MAX_ROWS) -> RowNumbers:
    """Return all labelled rows and, up to a limit, unlabelled ones drawn at random.

    Examples
    --------
    >>> thin_rows(np.array([0, 0, 0, -1], dtype=np.int8), rng=np.random.default_rng(0), max_rows=2).tolist()
    [2, 3]
    """
    labelled = np.flatnonzero(y != labels.UNLABELLED)
    unlabelled = rng.permutation(np.flatnonzero(y == labels.UNLABELLED))
    room = max(max_rows - len(labelled), 0)
    return np.sort(np.concatenate([labelled, unlabelled[:room]]))
