"""Which rows to label next: most of them highly anomalous, some at the border, all different from each other.

Rows at the very top are most often anomalies, but many of one kind: the tenth of them teaches little. Of rows at the
border the detector is least sure; whatever they turn out to be, the border moves. So seven in ten rows come from the
top and the others from around the border. In both groups five times as many candidates as wanted are put into clusters,
as many as rows are wanted, and of each cluster the row nearest to its centre is taken: rows that stand for others, not
the oddest ones. While no anomaly is known there is no border to ask about: all rows come from the top, of twice as many
candidates, to meet one of any kind.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans

from esad import labels
from esad.advice.crossfit import read_whole
from esad.core.arrays import Labels, RowNumbers, Rows, Scores
from esad.detectors.base import Detector
from esad.errors import InputError

TOP_RATIO = 0.7  # of the rows asked for
N_CANDIDATES, N_CANDIDATES_AT_FIRST = 5, 10  # per row wanted; at first: while no anomaly is known

RowsOf = Callable[[RowNumbers], Rows]


@dataclass(frozen=True)
class Suggestion:
    """One row worth a label.

    Attributes
    ----------
    row : int
        Its number, from 0.
    score : float
        Its anomaly score.
    why : {"top", "border"}
        Among the most anomalous, or at the `border`, where the detector is least sure.
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
    >>> y = np.r_[np.zeros(99, dtype=int), -1]
    >>> detector = IsolationForest(random_state=0).fit(X, y)
    >>> sorted(found.why for found in suggest_labels(detector, X, y, n=4))
    ['border', 'top', 'top', 'top']
    """
    data, checked = read_whole(X, y)
    pool = np.flatnonzero(checked == labels.UNLABELLED)
    if not isinstance(n, int) or n < 1:
        raise InputError(f"`n` must be a whole number, 1 or more. Got {n!r}.")
    if n > len(pool):
        raise InputError(f"`n` must be at most {len(pool):,}, the unlabelled rows there are. Got {n:,}.")
    rows = detector.rows_of(data)
    scores = detector.score_rows(rows)
    where = find_border(scores, checked, threshold=detector.threshold_, n=n)
    return suggest_rows(rows.__getitem__, scores, pool, where=where, n=n)


def find_border(scores: Scores, y: Labels, *, threshold: float, n: int) -> float | None:
    """Return the score midway between the highest known normal row and the median known anomaly.

    The threshold stands in for known normal rows while there are none. The upper half of the unlabelled rows but for
    the n highest holds the border. None while no anomaly is known, or no row is unlabelled.

    Examples
    --------
    >>> scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 9.0, 1.5])
    >>> y = np.array([0, 0, 0, 0, 0, 0, -1, 1], dtype=np.int8)
    >>> find_border(scores, y, threshold=3.0, n=1)  # the middle of 1.5 and 9 would be 5.25
    5.0
    """
    anomalies, normals, pool = (scores[y == kind] for kind in (labels.ANOMALY, labels.NORMAL, labels.UNLABELLED))
    if not len(anomalies) or not len(pool):
        return None
    middle = (np.median(anomalies) + (normals.max() if len(normals) else threshold)) / 2
    return float(np.clip(middle, np.median(pool), np.sort(pool)[-min(n, len(pool))]))


def suggest_rows(
    rows_of: RowsOf, scores: Scores, pool: RowNumbers, *, where: float | None, n: int
) -> tuple[Suggestion, ...]:
    """Do the work of `suggest_labels` for given scores and a given border, `where`.

    `rows_of` gives the preprocessed rows of some row numbers, `pool` the numbers of the rows to choose from.

    Examples
    --------
    >>> rows = np.arange(6, dtype=np.float32)[:, None]
    >>> [one.row for one in suggest_rows(rows.__getitem__, np.arange(6.0), np.arange(6), where=2.0, n=2)]
    [3, 2]
    """
    highest = pool[np.argsort(-scores[pool], kind="stable")]
    if where is None:
        top, near = choose_typical(rows_of, highest[: N_CANDIDATES_AT_FIRST * n], n), pool[:0]
    else:
        n_top = round(TOP_RATIO * n) or 1
        top = choose_typical(rows_of, highest[: N_CANDIDATES * n_top], n_top)
        others = np.setdiff1d(pool, top)
        nearest = others[np.argsort(np.abs(scores[others] - where), kind="stable")]
        near = choose_typical(rows_of, nearest[: N_CANDIDATES * (n - n_top)], n - n_top)
    whys = dict.fromkeys(top.tolist(), "top") | dict.fromkeys(near.tolist(), "border")
    ordered = sorted(whys, key=lambda row: (-scores[row], row))
    return tuple(Suggestion(row, float(scores[row]), whys[row]) for row in ordered)


def choose_typical(rows_of: RowsOf, candidates: RowNumbers, n: int) -> RowNumbers:
    """Choose the row nearest to the centre of each of n clusters; add the first candidates if there are fewer.

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [2.0], [9.0], [10.0], [11.0]], dtype=np.float32)
    >>> sorted(choose_typical(line.__getitem__, np.arange(6), 2).tolist())
    [1, 4]
    """
    if n == 0 or n >= len(candidates):
        return candidates[:n]
    rows = rows_of(candidates).reshape(len(candidates), -1).astype(np.float64)
    n_clusters = min(n, len(np.unique(rows, axis=0)))
    clusters = KMeans(n_clusters, n_init=1, random_state=0).fit(rows)
    nearest = np.argmin(clusters.transform(rows), axis=0)  # (clusters,)
    chosen = list(dict.fromkeys(nearest.tolist()))
    left = [index for index in range(len(candidates)) if index not in chosen]
    return candidates[[*chosen, *left[: n - len(chosen)]]]
