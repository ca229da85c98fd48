"""Finds labels that look wrong: every labelled row is judged by detectors that were not trained on it.

The rows are dealt into folds, several times. A detector trained on the other folds scores each fold, and a labelled row
gets the share of held-out unlabelled rows that score below it, its rank r in [0, 1]. It says how anomalous the row
looks without its label:

    suspicion of an anomaly's label      1 - p(r)
    suspicion of a normal row's label    p(r)

where p(r) is the chance of an anomaly at rank r if both kinds were equally common: a logistic curve in
log((r + e) / (1 - r + e)) that is fitted to the labelled anomalies against all other rows. Without labelled anomalies
p(r) = r.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression

from esad import labels
from esad.advice.crossfit import make_folds, read_whole, score_held_out, thin_rows
from esad.core.arrays import Floats, Labels, RowNumbers
from esad.core.random import seed_from
from esad.detectors.base import Detector
from esad.errors import LabelError
from esad.table.table import take_rows

N_FOLDS = 5
_EDGE = 0.005  # ranks nearer to 0 or 1 than this count alike: so few rows cannot tell them apart
_WORDS = {labels.ANOMALY: "anomaly", labels.NORMAL: "normal"}


@dataclass(frozen=True)
class Doubt:
    """How much speaks against one label.

    Attributes
    ----------
    row : int
        Number of the row, from 0.
    label : int
        The label given, -1 or +1.
    suspicion : float
        From 0, everything agrees with the label, to 1, nothing does.
    rank : float
        Share of the unlabelled rows that look less anomalous, by detectors that have not seen the row.
    """

    row: int
    label: int
    suspicion: float
    rank: float

    def to_json(self) -> dict[str, Any]:
        """Plain values; the label as a word."""
        return asdict(self) | {"label": _WORDS[self.label]}


def audit_labels(detector: Detector, X: Any, y: ArrayLike, *, n_repeats: int = 2) -> tuple[Doubt, ...]:
    """Rank the labelled rows by how much speaks against their labels.

    Parameters
    ----------
    detector : Detector
        Fitted or not: copies of it are trained, with one member in place of several. In place of a fitted committee,
        these are copies of the judge with the largest weight.
    X : array, table or pictures
        All rows, as for `fit`.
    y : array-like of -1, 0, +1
        Their labels; some rows must be labelled and some not.
    n_repeats : int
        How often the rows are dealt into five folds; each repeat costs about one training of a few members.

    Returns
    -------
    tuple of Doubt
        Every labelled row once, the most doubtful first.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(100, 2)), rng.normal(7, 1, size=(6, 2))]
    >>> y = np.r_[np.zeros(100, int), -np.ones(6, int)]
    >>> y[0] = -1                                        # an ordinary row, labelled by mistake
    >>> audit_labels(IsolationForest(random_state=0), X, y, n_repeats=1)[0].row
    0
    """
    data, checked = read_whole(X, y)
    if not (checked != labels.UNLABELLED).any():
        raise LabelError("There are no labels to look into. Label some rows first.")
    if not (checked == labels.UNLABELLED).any():
        raise LabelError("An audit holds labelled rows against unlabelled ones. Got labels for all rows.")
    if "anomaly" in detector.labels_needed and np.count_nonzero(checked == labels.ANOMALY) == 1:
        raise LabelError(
            f"An audit trains without the label that it looks into, and {type(detector).__name__} cannot learn without "
            "a labelled anomaly (-1). Got one. Label a second anomaly, or take ESAD."
        )
    rng = np.random.default_rng(seed_from(detector.random_state))
    rows = thin_rows(checked, rng=rng)
    ranks = _compute_ranks(detector, data, checked, rows, n_repeats, rng)
    suspicions = _compute_suspicions(ranks, checked[rows])
    found = [
        Doubt(int(row), int(checked[row]), float(suspicion), float(rank))
        for row, suspicion, rank in zip(rows, suspicions, ranks, strict=True)
        if checked[row] != labels.UNLABELLED
    ]
    return tuple(sorted(found, key=lambda doubt: (-doubt.suspicion, doubt.row)))


def _compute_ranks(
    detector: Detector, X: Any, y: Labels, rows: RowNumbers, n_repeats: int, rng: np.random.Generator
) -> Floats:
    """Compute for each row the share of its fold's unlabelled rows that score lower, mean over repeats, (n,)."""
    own, y = take_rows(X, rows), y[rows]
    total, n_times = np.zeros(len(y)), np.zeros(len(y))
    parts = [part for _ in range(n_repeats) for part in make_folds(y, N_FOLDS, rng=rng)]
    for part, scores in zip(parts, score_held_out(detector, own, parts, seed=0), strict=True):
        others = np.sort(scores[y[part.test] == labels.UNLABELLED])
        below, not_above = (np.searchsorted(others, scores, side=side) for side in ("left", "right"))
        total[part.test] += (below + not_above) / (2 * len(others))
        n_times[part.test] += 1
    return np.asarray(total / n_times)


def _compute_suspicions(ranks: Floats, y: Labels) -> Floats:
    """Compute how much speaks against each label, (n,); values of unlabelled rows have no meaning."""
    is_anomaly = y == labels.ANOMALY
    chance = ranks
    if is_anomaly.any():
        log_odds = np.log((ranks + _EDGE) / (1 - ranks + _EDGE))[:, None]
        curve = LogisticRegression(class_weight="balanced").fit(log_odds, is_anomaly)
        chance = curve.predict_proba(log_odds)[:, 1] if curve.coef_[0, 0] > 0 else ranks
    return np.where(is_anomaly, 1 - chance, chance)
