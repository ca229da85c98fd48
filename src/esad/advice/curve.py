"""What labels have brought so far, and what more of them would bring.

Repeated label-aware splits hold a quarter of each kind of label out. Of the labels in the training part a third, two
thirds and all are used; the others count as unlabelled, as they were before somebody looked. The measure is the AUC of
the held-out labelled anomalies against all other held-out rows.

Within a split the AUC is taken to grow by the same amount whenever the labels grow by the same factor, a straight line
in log m. With b_r the slope in split r, b the mean and s the standard deviation of the slopes, the next N labels on top
of m bring

    gain = b L, not below 0 nor above 1 - AUC,    L = log(1 + N / m)
    interval = gain +- 1.28 w sqrt(L^2 s^2 (1 / R + q) + noise^2)

with R splits, q = held-out share / training share (Nadeau and Bengio's correction for splits that share rows), and
noise, the standard deviation of the AUCs around the lines, because the user trains once and not R times. Both s and
noise are measured on a few held-out anomalies with one network. What the user gets is about all rows to come, mostly
with several networks, and scatters less. So the interval is narrowed by w = 0.6, which was measured on development
tables.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from esad import labels
from esad.advice.crossfit import MAX_ROWS, Fold, read_whole, score_held_out, thin_rows
from esad.advice.displays import LabelCurveDisplay
from esad.core.arrays import Floats, Labels, RowNumbers
from esad.core.random import seed_from
from esad.detectors.base import Detector
from esad.errors import InputError, LabelError
from esad.score.metrics import compute_auc
from esad.score.splits import LabelAwareSplit, corrected_error
from esad.table.table import take_rows
from esad.train.callbacks import Callback

MIN_ANOMALIES: Final = 4  # one to hold out and three to grow from
TEST_SIZE: Final = 0.25
SHARES: Final = (1 / 3, 2 / 3, 1.0)  # of the labels in the training part
LEVEL: Final = 0.8
_QUANTILE: Final = 1.2816  # of the normal distribution, for that level
_WIDTH_RATIO: Final = 0.6  # w, measured: docs/decisions/0010


@dataclass(frozen=True)
class CurvePoint:
    """How well a model with so many labels ranks.

    Attributes
    ----------
    n_anomaly, n_normal : int
        Labels trained with.
    auc, spread : float
        Mean and standard deviation over the splits.
    """

    n_anomaly: int
    n_normal: int
    auc: float
    spread: float


@dataclass(frozen=True)
class Gain:
    """What so many more labels are expected to bring.

    Attributes
    ----------
    n_next : int
        Further labels, of the same kinds in the same shares as those so far.
    auc : float
        Expected change of the AUC on new rows when the detector is trained again with them.
    low, high : float
        80 % interval of that change, for one further training.
    """

    n_next: int
    auc: float
    low: float
    high: float


@dataclass(frozen=True)
class LearningCurve:
    """What `learning_curve` found.

    Attributes
    ----------
    points : tuple of CurvePoint
        Fewest labels first.
    gain : Gain
        The estimate for the next labels.
    n_repeats : int
        How many splits there were.
    """

    points: tuple[CurvePoint, ...]
    gain: Gain
    n_repeats: int

    def plot(self, *, ax: Any = None) -> LabelCurveDisplay:
        """Draw the curve and the gain to come (extra `plot`)."""
        return LabelCurveDisplay(self).plot(ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes."""
        return asdict(self)


def learning_curve(
    detector: Detector,
    X: Any,
    y: ArrayLike,
    *,
    n_next: int = 10,
    n_repeats: int = 6,
    max_rows: int = MAX_ROWS,
    callbacks: Sequence[Callback] = (),
) -> LearningCurve:
    """Measure what labels have brought so far and estimate what the next ones would.

    Parameters
    ----------
    detector : Detector
        Fitted or not: copies of it are trained, with one member in place of several. In place of a fitted committee,
        these are copies of the judge with the largest weight.
    X : array, table or pictures
        All rows, as for `fit`.
    y : array-like of -1, 0, +1
        Their labels, with four anomalies at least.
    n_next : int
        How many further labels the estimate is for.
    n_repeats : int
        How many splits to draw. A single one cannot tell how splits differ: its interval is infinite.
    max_rows : int
        Train on so many rows at most, all labelled ones among them.
    callbacks : sequence of Callback
        Watch or stop every training.

    Examples
    --------
    >>> from esad import ESAD
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(100, 2)), rng.normal(3, 1, size=(12, 2))]
    >>> y = np.r_[np.zeros(100, int), -np.ones(12, int)]
    >>> found = learning_curve(ESAD(n_members=1, n_epochs=5, random_state=0), X, y, n_repeats=3)
    >>> [point.n_anomaly for point in found.points], found.gain.low <= found.gain.auc <= found.gain.high
    ([3, 6, 9], True)
    """
    data, checked = read_whole(X, y)
    n_anomaly = labels.counts(checked).n_anomaly
    if n_anomaly < MIN_ANOMALIES:
        raise LabelError(f"A learning curve needs {MIN_ANOMALIES} labelled anomalies (-1) at least. Got {n_anomaly}.")
    if n_next < 1:
        raise InputError(f"`n_next` must be 1 or more. Got {n_next!r}.")
    seed = seed_from(detector.random_state)
    rng = np.random.default_rng(seed)
    rows = thin_rows(checked, rng=rng, max_rows=max_rows)
    own, checked = take_rows(data, rows), checked[rows]
    splitter = LabelAwareSplit(n_repeats, test_size=TEST_SIZE, random_state=seed)
    splits = [(train, test, rng.permutation(train)) for train, test in splitter.split(checked, checked)]
    points, measured = [], []
    for n_kept in _plan_sizes(checked[splits[0][0]]):
        parts = [Fold(train, _keep_labels(checked, train, order, n_kept), test) for train, test, order in splits]
        scores = score_held_out(detector, own, parts, seed=seed, callbacks=callbacks)
        aucs = [compute_auc(one, checked[part.test] == labels.ANOMALY) for one, part in zip(scores, parts, strict=True)]
        points.append(CurvePoint(*n_kept, float(np.mean(aucs)), float(np.std(aucs))))
        measured.append(aucs)
    n_labels = np.array([point.n_anomaly + point.n_normal for point in points], dtype=float)
    gain = extrapolate(n_labels, np.array(measured).T, n_now=int(np.count_nonzero(checked)), n_next=n_next)
    return LearningCurve(tuple(points), gain, n_repeats)


def _plan_sizes(y: Labels) -> list[tuple[int, int]]:
    """Choose how many anomalies and normal rows keep their label at each point of the curve."""
    counts = labels.counts(y)
    return [(max(1, round(share * counts.n_anomaly)), round(share * counts.n_normal)) for share in SHARES]


def _keep_labels(y: Labels, train: RowNumbers, order: RowNumbers, n_kept: Sequence[int]) -> Labels:
    """Return the labels of the training rows, keeping only the first ones of each kind in the order given."""
    seen = np.zeros(len(y), dtype=np.int8)
    for label, n in zip((labels.ANOMALY, labels.NORMAL), n_kept, strict=True):
        seen[order[y[order] == label][:n]] = label
    return seen[train]


def extrapolate(n_labels: Floats, aucs: Floats, *, n_now: int, n_next: int) -> Gain:
    """Estimate the gain from the AUC (splits, points) with each number of labels (points,).

    Examples
    --------
    >>> found = extrapolate(np.array([2.0, 4.0]), np.array([[0.6, 0.7], [0.7, 0.8]]), n_now=8, n_next=8)
    >>> round(found.auc, 6), round(found.low, 6), round(found.high, 6)
    (0.1, 0.1, 0.1)
    """
    x = np.log(n_labels) - np.log(n_labels).mean()
    level = aucs.mean(axis=1, keepdims=True)
    slopes = (aucs - level) @ x / (x @ x)
    residuals = aucs - level - slopes[:, None] * x
    n_splits, n_points = aucs.shape
    growth = float(np.log1p(n_next / n_now))
    spread = corrected_error(slopes, test_size=TEST_SIZE)
    noise = (residuals**2).sum() / max(1, n_splits * (n_points - 2))
    gain = min(max(growth * float(slopes.mean()), 0.0), 1 - float(aucs[:, -1].mean()))
    width = _WIDTH_RATIO * _QUANTILE * float(np.sqrt(growth**2 * spread**2 + noise))
    return Gain(n_next, gain, gain - width, gain + width)
