r"""How good scores are against the truth, with intervals that say how far to trust the number.

    |A - a| = z sqrt(V(a))                                                                              Eq. (1)
    V(a)    = a (1 - a) / (m n) [1 + ((m + n) / 2 - 1) ((1 - a) / (2 - a) + a / (1 + a))]
    logit p = logit P +- z / sqrt(m P (1 - P))                                                          Eq. (2)

=========  ====================================================================================
A, P       area under the ROC curve and average precision of m anomalies among n normal rows
a, p       the two ends of their intervals
z          quantile of the normal distribution, 1.96 for 95 %
=========  ====================================================================================

Eq. (1) is Newcombe's (2006, method 5), Eq. (2) that of Boyd, Eng & Page (2013). Resampled rows give intervals that are
too narrow where anomalies are few, and no width at all where every anomaly is found first.
"""

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.metrics import average_precision_score, roc_auc_score

from esad import labels
from esad.core.arrays import Scores
from esad.core.text import percent
from esad.errors import InputError

Truth = NDArray[np.bool_]


@dataclass(frozen=True)
class Confusion:
    """Alarms against the truth at one threshold.

    Examples
    --------
    >>> found = Confusion(threshold=0.5, true_alarms=8, false_alarms=2, missed=4, passed=86)
    >>> found.precision
    0.8
    """

    threshold: float
    true_alarms: int
    false_alarms: int
    missed: int
    passed: int

    @property
    def precision(self) -> float:
        """Share of the alarms that are anomalies; 0 when there is no alarm."""
        return self.true_alarms / max(self.true_alarms + self.false_alarms, 1)

    @property
    def recall(self) -> float:
        """Share of the anomalies that raise an alarm."""
        return self.true_alarms / max(self.true_alarms + self.missed, 1)

    @property
    def false_alarm_rate(self) -> float:
        """Share of the normal rows that raise an alarm."""
        return self.false_alarms / max(self.false_alarms + self.passed, 1)


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Attributes
    ----------
    n_rows, n_anomaly : int
        How much the numbers rest on.
    auc, average_precision : float
        Area under the ROC curve, and average precision.
    precision_at : dict of int to float
        Share of anomalies among the k highest scores. Rows with equal scores at the border count with their mean.
    confusion : Confusion or None
        Alarms at the threshold, where one was given.
    intervals : dict of str to (float, float)
        Of "auc" and "average_precision" at `level`, Eqs. (1) and (2); empty where none were asked for. On Gaussian
        scores with an AUC of 0.64, 0.86 and 0.98 and 3 to 100 anomalies, intervals of 95 % held the true AUC in 94 to
        99 % of the draws and the true average precision in 92 to 100 %.
    level : float
        Level of the intervals.
    """

    n_rows: int
    n_anomaly: int
    auc: float
    average_precision: float
    precision_at: dict[int, float]
    confusion: Confusion | None
    intervals: dict[str, tuple[float, float]]
    level: float

    def __str__(self) -> str:
        known = {
            "auc": f"AUC {percent(self.auc)}",
            "average_precision": f"average precision {percent(self.average_precision)}",
        }
        for name, (low, high) in self.intervals.items():
            known[name] += f" ({percent(low)} to {percent(high)})"
        text = f"{', '.join(known.values())}; {self.n_anomaly:,} anomalies among {self.n_rows:,} rows"
        if (found := self.confusion) is not None:
            text += f"; alarms above {found.threshold:.4g}: precision {percent(found.precision)}, "
            text += f"recall {percent(found.recall)}, false alarms {percent(found.false_alarm_rate)}"
        return text

    def to_json(self) -> dict[str, Any]:
        """Give plain values that `json.dumps` takes."""
        plain = asdict(self)
        plain["precision_at"] = {str(k): value for k, value in self.precision_at.items()}
        plain["intervals"] = {name: list(interval) for name, interval in self.intervals.items()}
        if self.confusion is not None:
            for name in ("precision", "recall", "false_alarm_rate"):
                plain["confusion"][name] = getattr(self.confusion, name)
        return plain


def evaluate(
    scores: ArrayLike,
    truth: ArrayLike,
    *,
    threshold: float | None = None,
    anomaly_value: Any = None,
    ks: tuple[int, ...] = (10, 50, 100),
    intervals: bool = True,
    level: float = 0.95,
    n_bootstrap: int | None = None,
    random_state: int | None = None,
) -> Evaluation:
    """Measure scores against the truth.

    Parameters
    ----------
    scores : array-like of shape (n_rows,)
        Anomaly scores, higher = more anomalous.
    truth : array-like of shape (n_rows,)
        1 = anomaly and 0 = normal, or whatever else `esad.labels.truth` reads.
    anomaly_value : optional
        The value of `truth` that marks anomalies, where it holds other words or numbers.
    threshold : float, optional
        Scores above it are alarms.
    ks : tuple of int
        Precision is reported among the k highest scores; a k above the number of rows is left out.
    intervals : bool
        Whether AUC and average precision come with intervals.
    level : float
        Level of the intervals, between 0 and 1.
    n_bootstrap : int, optional
        Deprecated: intervals need no resamples any more. 0 is `intervals=False`, any other number does nothing.
    random_state : int, optional
        Deprecated: nothing is drawn any more.

    Returns
    -------
    Evaluation

    Examples
    --------
    >>> found = evaluate([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], threshold=0.5, ks=(2,))
    >>> found.auc, found.precision_at[2], found.confusion.missed
    (0.75, 0.5, 1)
    >>> print(evaluate([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], intervals=False))
    AUC 75.0 %, average precision 83.3 %; 2 anomalies among 4 rows
    """
    checked, is_anomaly = _check_rows(scores, labels.truth(truth, anomaly_value=anomaly_value))
    if not 0 < level < 1 or any(k < 1 for k in ks):
        raise InputError(f"`level` must be between 0 and 1 and every k of `ks` 1 or more. Got {level!r} and {ks!r}.")
    for name, value in (("n_bootstrap", n_bootstrap), ("random_state", random_state)):
        if value is not None:
            told = f"`{name}` of evaluate will be removed, as nothing is drawn any more: leave it out"
            warnings.warn(f"{told}, or give intervals=False for no intervals.", DeprecationWarning, stacklevel=2)
    auc, average_precision = compute_auc(checked, is_anomaly), _average_precision(checked, is_anomaly)
    n_anomaly, found = int(is_anomaly.sum()), {}
    if intervals and n_bootstrap != 0:
        z = float(norm.ppf((1.0 + level) / 2.0))
        found = {
            "auc": _auc_interval(auc, n_anomaly, len(checked) - n_anomaly, z),
            "average_precision": _average_precision_interval(average_precision, n_anomaly, z),
        }
    return Evaluation(
        n_rows=len(checked),
        n_anomaly=n_anomaly,
        auc=auc,
        average_precision=average_precision,
        precision_at={k: _precision_at(checked, is_anomaly, k) for k in ks if k <= len(checked)},
        confusion=None if threshold is None else _confusion(checked, is_anomaly, threshold),
        intervals=found,
        level=level,
    )


def auc_scorer(estimator: Any, X: Any, y: ArrayLike) -> float:
    """Score an estimator by the area under the ROC curve, for scikit-learn's `scoring=`.

    Labelled anomalies (y == -1) are held against all other rows, unlabelled ones included.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> X, y = [[0.0], [0.1], [0.2], [9.0]], [0, 0, 0, -1]
    >>> auc_scorer(IsolationForest(random_state=0).fit(X), X, y)
    1.0
    """
    return compute_auc(*_score_rows(estimator, X, y))


def ap_scorer(estimator: Any, X: Any, y: ArrayLike) -> float:
    """Score an estimator by average precision, for scikit-learn's `scoring=`.

    Labelled anomalies (y == -1) are held against all other rows, unlabelled ones included.

    Examples
    --------
    >>> from sklearn.ensemble import IsolationForest
    >>> X, y = [[0.0], [0.1], [0.2], [9.0]], [0, 0, 0, -1]
    >>> ap_scorer(IsolationForest(random_state=0).fit(X), X, y)
    1.0
    """
    return _average_precision(*_score_rows(estimator, X, y))


def _score_rows(estimator: Any, X: Any, y: ArrayLike) -> tuple[Scores, Truth]:
    """Take the scores in scikit-learn's direction, which is the other way round."""
    normality = estimator.score_samples(X) if hasattr(estimator, "score_samples") else estimator.decision_function(X)
    y_checked = labels.check(y, len(normality), warn=False)
    return _check_rows(-np.asarray(normality, dtype=np.float64), y_checked == labels.ANOMALY)


def _check_rows(scores: ArrayLike, is_anomaly: Truth) -> tuple[Scores, Truth]:
    """Refuse what cannot be measured; a rate needs both kinds of rows."""
    checked = np.asarray(scores, dtype=np.float64)
    if checked.shape != is_anomaly.shape:
        raise InputError(f"`scores` must hold one number per truth. Got {checked.shape} and {is_anomaly.shape}.")
    if not np.isfinite(checked).all():
        raise InputError(f"`scores` must be finite. Got {int((~np.isfinite(checked)).sum())} that are not.")
    n_anomaly = int(is_anomaly.sum())
    if n_anomaly in (0, len(is_anomaly)):
        raise InputError(
            f"Evaluation needs anomalies and other rows. Got {n_anomaly} anomalies among {len(is_anomaly)} rows."
        )
    return checked, is_anomaly


def compute_auc(scores: Scores, is_anomaly: Truth) -> float:
    """Share of pairs that are in the right order, ties counting half.

    Examples
    --------
    >>> compute_auc(np.array([1.0, 2.0, 3.0]), np.array([False, True, True]))
    1.0
    """
    return float(roc_auc_score(is_anomaly, scores))


def _average_precision(scores: Scores, is_anomaly: Truth) -> float:
    return float(average_precision_score(is_anomaly, scores))


def _precision_at(scores: Scores, is_anomaly: Truth, k: int) -> float:
    """Count the anomalies among the k highest scores; equal scores at the border share the places left."""
    border = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, tied = scores > border, scores == border
    n_places = k - np.count_nonzero(above)
    return float((np.sum(is_anomaly & above) + n_places * np.mean(is_anomaly[tied])) / k)


def _confusion(scores: Scores, is_anomaly: Truth, threshold: float) -> Confusion:
    alarm = scores > threshold
    return Confusion(
        threshold=float(threshold),
        true_alarms=int(np.sum(alarm & is_anomaly)),
        false_alarms=int(np.sum(alarm & ~is_anomaly)),
        missed=int(np.sum(~alarm & is_anomaly)),
        passed=int(np.sum(~alarm & ~is_anomaly)),
    )


def _auc_interval(auc: float, n_anomaly: int, n_normal: int, z: float) -> tuple[float, float]:
    """Eq. (1)."""

    def excess(a: float) -> float:
        spread = 1.0 + ((n_anomaly + n_normal) / 2.0 - 1.0) * ((1.0 - a) / (2.0 - a) + a / (1.0 + a))
        return (auc - a) ** 2 - z**2 * a * (1.0 - a) / (n_anomaly * n_normal) * spread

    aside = 1e-9  # at 0 and 1, where the spread is 0, the estimate is a root of its own
    low = brentq(excess, 0.0, auc - aside) if auc > 2 * aside else 0.0
    high = brentq(excess, auc + aside, 1.0) if auc < 1.0 - 2 * aside else 1.0
    return float(low), float(high)


def _average_precision_interval(average_precision: float, n_anomaly: int, z: float) -> tuple[float, float]:
    """Eq. (2); half an anomaly stands in for what is missing to 0 or 1."""
    inside = float(np.clip(average_precision, 0.5 / n_anomaly, 1.0 - 0.5 / n_anomaly))
    reach = z / np.sqrt(n_anomaly * inside * (1.0 - inside))
    low, high = expit(logit(inside) - reach), expit(logit(inside) + reach)
    return float(min(low, average_precision)), float(max(high, average_precision))
