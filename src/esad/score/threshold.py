"""Where an alarm begins: four rules that turn training scores into one threshold, and how one came about."""

import math
import sys
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels
from esad.errors import InputError, LabelError

__all__ = ["ONE_SIGMA_BELOW", "Applied", "Basis", "Threshold", "ThresholdRule", "among_known"]

ThresholdRule = Literal["auto", "contamination", "false_alarm", "labels"]
Basis = Literal["training", "calibration", "given"]
Scores = NDArray[np.float64]

_MAX_LEVEL: Final = {"contamination": 0.5, "false_alarm": 1.0}  # the rules that need a level
_N_SIGMAS: Final = 3.0
_MIN_ANOMALIES: Final = 3  # labelled ones that can contradict "auto": a single one may be a slip
_MAX_FLAGGED: Final = 0.2  # of the other rows, when labels lower the threshold of "auto"
ONE_SIGMA_BELOW: Final = 0.15865525393145707  # share of a Gaussian more than one standard deviation under its median
_SIGMA_PER_MEAN_DEVIATION: Final = math.sqrt(math.pi / 2.0)  # of a Gaussian
_LARGEST: Final = sys.float_info.max


@dataclass(frozen=True)
class Threshold:
    """A rule for the threshold; a row is an alarm when its score is greater than the fitted value.

    Parameters
    ----------
    rule : {"auto", "contamination", "false_alarm", "labels"}
        - "auto": median plus three robust standard deviations of the unlabelled scores. The deviation is measured
          below the median only (median minus 15.87th percentile), where hidden anomalies cannot stretch it. Where
          labels contradict it, three or more labelled anomalies of which it would flag fewer than half, they lower it:
          to the best F1 of the labelled anomalies against all other rows, though a fifth of those is flagged at most.
          A detector lowers it below the highest score of its training rows.
        - "contamination": the share `level` of all rows given is flagged.
        - "false_alarm": at most the share `level` of further normal rows is flagged, on average over samples:
          the score of rank ceil((n + 1)(1 - level)) among the n unlabelled and normal rows. Anomalies hidden among
          the unlabelled rows only lower the rate of false alarms.
        - "labels": the best F1 of the labelled anomalies against the labelled normals or, where there are none,
          against the unlabelled rows. Among equally good thresholds, the middle of the widest gap.
    level : float, optional
        Needed by "contamination" (above 0, at most 0.5) and "false_alarm" (between 0 and 1), and by no other rule.

    Examples
    --------
    >>> scores, y = [0.1, 0.2, 0.3, 0.4, 5.0], [0, 0, 0, 0, -1]
    >>> Threshold("contamination", 0.2).fit(scores, y) > 0.4
    True
    >>> round(Threshold("labels").fit(scores, y), 6)
    2.7
    """

    rule: ThresholdRule = "auto"
    level: float | None = None

    def __post_init__(self) -> None:
        """Refuse rules and levels that do not exist."""
        if self.rule not in get_args(ThresholdRule):
            raise InputError(f"`rule` must be one of {', '.join(get_args(ThresholdRule))}. Got {self.rule!r}.")
        if self.rule not in _MAX_LEVEL:
            if self.level is not None:
                raise InputError(f"The rule {self.rule!r} takes no level. Got {self.level!r}. Leave it out.")
            return
        largest = _MAX_LEVEL[self.rule]
        closed = self.rule == "contamination"
        allowed = f"above 0 and {'at most' if closed else 'below'} {largest:g}"
        if self.level is None or not (0 < self.level < largest or (closed and self.level == largest)):
            raise InputError(f"`level` of the rule {self.rule!r} must be {allowed}. Got {self.level!r}.")

    def fit(self, scores: ArrayLike, y: ArrayLike | None = None) -> float:
        """Find the threshold on training scores.

        Parameters
        ----------
        scores : array-like of shape (n_rows,)
            Anomaly scores, higher = more anomalous.
        y : array-like of shape (n_rows,), optional
            Labels -1, 0, +1; `None` means that no row is labelled.

        Returns
        -------
        float
            Always finite. Compare with scores of double precision: ``scores > value``.
        """
        return self.apply(scores, y).value

    def apply(self, scores: ArrayLike, y: ArrayLike | None = None, *, basis: Basis = "given") -> "Applied":
        """Find the threshold as `fit` does, and say how it came about.

        Examples
        --------
        >>> str(Threshold("contamination", 0.2).apply([0.1, 0.2, 0.3, 0.4, 5.0]))
        '20 % of the rows flagged'
        """
        checked, y_checked = _check(scores, y)
        lowered_from = None
        if self.rule == "contamination":  # scikit-learn's cut, which sees scores with the sign turned
            value = -_quantile(-checked, self.level or 0.0)
        elif self.rule == "false_alarm":
            value = _false_alarm(checked[y_checked != labels.ANOMALY], self.level or 0.0)
        elif self.rule == "labels":
            value = _from_labels(checked, y_checked)
        else:
            usual = _finite(_robust(_reference(checked, y_checked)))
            value = _lowered(usual, checked, y_checked)
            lowered_from = usual if value < usual else None
        return Applied(self, basis, _finite(value), lowered_from)


@dataclass(frozen=True)
class Applied:
    """A rule, the rows it was applied to, and the threshold that came out.

    Attributes
    ----------
    rule : Threshold
    basis : {"training", "calibration", "given"}
        The training rows, those that p-values are calibrated on, or rows given later.
    value : float
        A detector with another threshold than this had it set by hand.
    lowered_from : float or None
        "auto" only: what it would have been, had labels not lowered it. Model files do not have it.

    Examples
    --------
    >>> applied = Applied(Threshold("false_alarm", 0.01), "training", 2.5)
    >>> str(applied), Applied.from_json(applied.to_json()) == applied
    ('at most 1 % false alarms', True)
    """

    rule: Threshold
    basis: Basis
    value: float
    lowered_from: float | None = field(default=None, compare=False)

    def __str__(self) -> str:
        share = f"{100 * (self.rule.level or 0.0):.3g} %"
        return {
            "auto": "three deviations above the median, lower where labels contradict it",
            "contamination": f"{share} of the rows flagged",
            "false_alarm": f"at most {share} false alarms",
            "labels": "where the labels are parted best",
        }[self.rule.rule]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        level = None if self.rule.level is None else float(self.rule.level)
        return {"rule": self.rule.rule, "level": level, "basis": self.basis, "value": float(self.value)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """Undo `to_json`, checking everything."""
        value, basis = plain["value"], plain["basis"]
        if basis not in get_args(Basis) or not isinstance(value, float | int) or not math.isfinite(value):
            raise InputError("how its threshold was set is damaged")
        return cls(Threshold(plain["rule"], plain["level"]), basis, float(value))


def _finite(value: float) -> float:
    return min(max(value, -_LARGEST), _LARGEST)


def _check(scores: ArrayLike, y: ArrayLike | None) -> tuple[Scores, NDArray[np.int8]]:
    """Bring scores and labels into one form."""
    checked = np.asarray(scores, dtype=np.float64)
    if checked.ndim != 1 or checked.size == 0:
        raise InputError(f"`scores` must be one number per row, for one row or more. Got shape {checked.shape}.")
    if not np.isfinite(checked).all():
        raise InputError(f"`scores` must be finite. Got {int((~np.isfinite(checked)).sum())} that are not.")
    y_checked = np.zeros(len(checked), dtype=np.int8) if y is None else np.asarray(y)
    if y_checked.shape != checked.shape:
        raise LabelError(f"`y` must hold one label per score. Got {len(y_checked)} for {len(checked)} scores.")
    return checked, y_checked


def _reference(scores: Scores, y: NDArray[np.int8]) -> Scores:
    """Take the unlabelled rows, else the normal ones, else all."""
    for label in (labels.UNLABELLED, labels.NORMAL):
        chosen: Scores = scores[y == label]
        if chosen.size:
            return chosen
    return scores


def _quantile(scores: Scores, share: float) -> float:
    """Interpolate between order statistics as numpy does, but without overflow."""
    position = (len(scores) - 1) * share
    below = int(position)
    above = min(below + 1, len(scores) - 1)
    ordered = np.partition(scores, (below, above))
    return _between(float(ordered[below]), float(ordered[above]), position - below)


def _between(low: float, high: float, share: float) -> float:
    """Go the given share of the way from low to high; halves, since the difference of two huge numbers overflows."""
    return min(max(2.0 * (low / 2.0 + (high / 2.0 - low / 2.0) * share), low), high)


def _false_alarm(scores: Scores, level: float) -> float:
    """Take the conformal rank: a further row of the same kind is above it with a chance of at most `level`."""
    n_rows = len(scores)
    n_above = math.floor((n_rows + 1) * level + 1e-9)  # the small term undoes rounding, as in 10 * 0.1
    if n_above == 0:
        n_needed = math.ceil(1 / level - 1e-9) - 1
        raise InputError(
            f"A false-alarm rate of {level:g} needs at least {n_needed} unlabelled or normal rows. "
            f"Got {n_rows}. Allow more false alarms or give more rows."
        )
    rank = max(n_rows + 1 - n_above, 1)
    return float(np.partition(scores, rank - 1)[rank - 1])


def _robust(scores: Scores) -> float:
    """Put the threshold three standard deviations above the median, measured below it."""
    median = _quantile(scores, 0.5)
    half_sigma = median / 2.0 - _quantile(scores, ONE_SIGMA_BELOW) / 2.0
    if half_sigma <= 0:  # a third of the scores are equal: measure on both sides rather than flag all above the median
        half_deviation = float(np.sum(np.abs(scores / 2.0 - median / 2.0) / len(scores)))
        half_sigma = _SIGMA_PER_MEAN_DEVIATION * half_deviation
    return median + _N_SIGMAS * 2.0 * half_sigma


def _lowered(usual: float, scores: Scores, y: NDArray[np.int8]) -> float:
    """The usual threshold, or a lower one where it would miss most of the labelled anomalies."""
    is_anomaly = y == labels.ANOMALY
    anomalies, others = scores[is_anomaly], scores[~is_anomaly]
    contradicted = len(anomalies) >= _MIN_ANOMALIES and 2 * np.count_nonzero(anomalies > usual) < len(anomalies)
    if not contradicted or not len(others):
        return usual
    return min(usual, max(_best_f1(scores, is_anomaly), _quantile(others, 1.0 - _MAX_FLAGGED)))


def among_known(value: float, scores: Scores, y: NDArray[np.int8]) -> float:
    """A threshold that the highest score is above, and the median of the unlabelled ones is not, come what may.

    Where the value has to give way it is midway to the next score; where the median is the highest, none is above.

    Examples
    --------
    >>> scores, y = np.array([1.0, 1.0, 1.0, 3.0, 2.0]), np.zeros(5, dtype=np.int8)
    >>> among_known(9.0, scores, y), among_known(0.999, scores, y), among_known(-1.0, -scores, y)
    (2.5, 1.5, -1.0)
    """
    usual = _quantile(_reference(scores, y), 0.5)
    value = min(value, _below_highest(scores))
    if value >= usual:
        return value
    higher = scores[scores > usual]
    return _between(usual, float(higher.min()), 0.5) if higher.size else usual


def _below_highest(scores: Scores) -> float:
    """Midway from the highest score to the next; infinite where no score is higher than others."""
    highest = float(scores.max())
    others = scores[scores < highest]
    if not others.size:
        return math.inf
    second = float(others.max())
    middle = _between(second, highest, 0.5)
    return middle if middle < highest else second


def _from_labels(scores: Scores, y: NDArray[np.int8]) -> float:
    """The best F1 of the labelled anomalies against the known normal rows, else the unlabelled ones."""
    is_anomaly = y == labels.ANOMALY
    is_rest = y == (labels.NORMAL if (y == labels.NORMAL).any() else labels.UNLABELLED)
    n_anomaly, n_rest = int(is_anomaly.sum()), int(is_rest.sum())
    if not n_anomaly or not n_rest:
        raise LabelError(
            'The rule "labels" needs at least one labelled anomaly (-1) and one normal (+1) or unlabelled (0) row. '
            f'Got {n_anomaly} labelled anomalies and {n_rest} other rows. Use the rule "auto".'
        )
    used = is_anomaly | is_rest
    return _best_f1(scores[used], is_anomaly[used])


def _best_f1(scores: Scores, is_anomaly: NDArray[np.bool_]) -> float:
    """Go through every cut between two different scores and keep the best."""
    values, first = np.unique(scores, return_inverse=True)
    n_hits = np.bincount(first, weights=is_anomaly)[::-1].cumsum()[::-1]  # flagged when cutting below value i
    n_flagged = np.bincount(first)[::-1].cumsum()[::-1]
    f1 = 2.0 * n_hits / (n_flagged + n_hits[0])
    half_gaps = np.diff(values / 2.0, prepend=-np.inf)
    half_gaps[0] = -1.0  # the cut below everything has no gap: it wins only when no other is as good
    best = np.flatnonzero(f1 == f1.max())
    cut = int(best[np.argmax(half_gaps[best])])
    if cut == 0:
        return math.nextafter(float(values[0]), -math.inf)
    low, high = float(values[cut - 1]), float(values[cut])
    middle = _between(low, high, 0.5)
    return middle if middle < high else low
