"""Which rows to label next: some of the most anomalous, some near the threshold, none like another.

Rows at the very top are most often anomalies, but many of one kind: the tenth of them teaches little. Of rows at the
threshold the detector is least sure; whatever they turn out to be, the border moves. So three in ten rows come from
the top and the others from around the threshold. In both groups they are chosen one by one, each time the row that
lies farthest from all labelled and chosen rows (greedy k-centre), among five times as many candidates as are wanted.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels
from esad.advice.crossfit import label_check
from esad.detector import Detector, Scores
from esad.errors import InputError
from esad.preprocess.inputs import Rows

__all__ = ["Suggestion", "farthest", "suggest_labels"]

TOP_RATIO = 0.3  # of the rows asked for
N_CANDIDATES = 5  # per row wanted

Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Suggestion:
    """One row worth a label.

    Attributes
    ----------
    row : int
        Its number, from 0.
    score : float
        Its anomaly score.
    why : {"top", "threshold"}
        Among the most anomalous, or where the detector is least sure.
    """

    row: int
    score: float
    why: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def suggest_labels(detector: Detector, X: Any, y: ArrayLike | None = None, *, n: int = 10) -> tuple[Suggestion, ...]:
    """Choose the rows whose labels would help most.

    Parameters
    ----------
    detector : Detector
        Fitted, best on these very rows with the labels so far.
    X : array, table or pictures
        The rows to choose from.
    y : array-like of -1, 0, +1, optional
        Labels so far; only unlabelled rows are suggested.
    n : int
        How many.

    Returns
    -------
    tuple of Suggestion
        The most anomalous first.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(95, 2)), rng.normal(7, 1, size=(5, 2))]
    >>> detector = IsolationForest(random_state=0).fit(X)
    >>> [found.why for found in suggest_labels(detector, X, n=4)]
    ['top', 'threshold', 'threshold', 'threshold']
    """
    checked = label_check(X, y)
    pool = np.flatnonzero(checked == labels.UNLABELLED)
    if not isinstance(n, int) or n < 1:
        raise InputError(f"`n` must be a whole number, 1 or more. Got {n!r}.")
    if n > len(pool):
        raise InputError(f"`n` must be at most {len(pool)}, the unlabelled rows there are. Got {n}.")
    rows = detector._rows(X)
    flat, scores = rows.reshape(len(rows), -1), detector._total(rows)
    top = _from_top(flat, scores, pool, np.flatnonzero(checked != labels.UNLABELLED), round(TOP_RATIO * n) or 1)
    taken = np.concatenate([np.flatnonzero(checked != labels.UNLABELLED), top])
    near = _near(flat, scores, np.setdiff1d(pool, top), taken, n - len(top), threshold=detector.threshold_)
    whys = dict.fromkeys(top.tolist(), "top") | dict.fromkeys(near.tolist(), "threshold")
    ordered = sorted(whys, key=lambda row: (-scores[row], row))
    return tuple(Suggestion(row, float(scores[row]), whys[row]) for row in ordered)


def _from_top(flat: Rows, scores: Scores, pool: Numbers, taken: Numbers, n: int) -> Numbers:
    """The most anomalous row, and others of the highest scores that lie apart from it."""
    ordered = pool[np.argsort(-scores[pool], kind="stable")][: N_CANDIDATES * n]
    others = farthest(flat, ordered[1:], np.append(taken, ordered[0]), n - 1)
    return np.append(ordered[:1], others)


def _near(flat: Rows, scores: Scores, pool: Numbers, taken: Numbers, n: int, *, threshold: float) -> Numbers:
    """Rows whose scores are nearest to the threshold and that lie apart."""
    nearest = pool[np.argsort(np.abs(scores[pool] - threshold), kind="stable")][: N_CANDIDATES * n]
    return farthest(flat, nearest, taken, n)


def farthest(flat: Rows, candidates: Numbers, taken: Numbers, n: int) -> Numbers:
    """Choose n candidates one by one, each the farthest from all rows taken or chosen so far.

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [9.0], [10.0]], dtype=np.float32)
    >>> farthest(line, np.array([1, 2, 3]), np.array([0]), 2).tolist()
    [3, 1]
    """
    distance = np.full(len(candidates), np.inf)
    for row in taken:
        distance = np.minimum(distance, _squared(flat, candidates, row))
    chosen: list[int] = []
    for _ in range(min(n, len(candidates))):
        best = int(np.argmax(distance))
        chosen.append(best)
        distance = np.minimum(distance, _squared(flat, candidates, candidates[best]))
        distance[chosen] = -1.0  # of rows that all lie upon each other, none is chosen twice
    return candidates[chosen]


def _squared(flat: Rows, candidates: Numbers, row: np.intp) -> NDArray[np.float64]:
    """Squared distance of every candidate to one row."""
    difference = flat[candidates].astype(np.float64) - flat[row]
    return np.asarray(np.einsum("ij,ij->i", difference, difference))
