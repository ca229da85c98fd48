"""Where an alarm begins: four rules that turn training scores into a threshold, and a forecast of what it will do.

The automatic rule takes four steps; the functions at the end of this file stand in the same order.

1. `_set_by_unlabelled`: three standard deviations above the median of the unlabelled scores, and higher where that
   would flag more than a tenth of them.
2. `_set_by_anomalies`: three labelled anomalies or more that the model has not seen, or else ten that it has, set the
   threshold instead, by Eqs. (1) and (2). Three to nine that it has seen only lower it, if most would be missed.
3. `_find_gap`: if labels did not decide, but three or more stand high above nearly all other rows, the threshold lies
   in the gap below them. Some unlabelled rows must stand there too: labels learned by heart would stand there alone.
4. `_keep_in_bounds`: if there is no such gap, one training row at least is an alarm, and not more than half of them.

Steps 3 and 4 need the rows of a training, with their scores by the whole model: `Threshold.apply_to_training`.

    r(t)  = share of labelled anomalies that score above t      Q(t) = share of all rows that do
    pi    = min over t of Q(t) / (r(t) - one standard error),   1 / 5 at most, (m + 1) / n at least          Eq. (1)
    t*    = argmax 2 min(pi r(t), Q(t)) / (pi + Q(t))   with   Q(t) - min(pi r(t), Q(t)) <= 1 / 10             Eq. (2)

Alarms hold all hits, so the share of anomalies pi cannot be larger than Q(t) / r(t) at any t (Blanchard, Lee and Scott
2010); the value to be as large as it can is F1 with pi for the anomalies that nobody has labelled. m of the n rows are
labelled anomalies. Where only some of the unlabelled rows have scores, each counts for as many as it stands for.
docs/decisions/0033-threshold.md has what was measured.
"""

import math
import sys
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels
from esad.core.arrays import Labels, Scores
from esad.core.text import count_text
from esad.errors import InputError, LabelError

ThresholdRule = Literal["auto", "contamination", "false_alarm", "labels"]
Basis = Literal["training", "calibration", "given"]
ChosenBy = Literal["unlabelled", "unseen anomalies", "seen anomalies", "missed anomalies"]

_MAX_LEVEL: Final = {"contamination": 0.5, "false_alarm": 1.0}  # the rules that need a level
_N_SIGMAS: Final = 3.0
_MIN_ANOMALIES: Final = 3  # labelled ones that have a say in "auto": a single one may be a slip
_MIN_SEEN: Final = 10  # of those that were trained on, to set it: fewer are learned by heart and score above all others
_PLACE_IN_GAP: Final = {"unseen anomalies": 0.5, "seen anomalies": 0.25}  # how far up; those seen score too high
_MAX_USUAL: Final = 0.1  # share of the rows that is flagged without labels that speak for more
_FEW_LEFT_OUT: Final = 50  # unlabelled rows, too few to say by themselves what share of all scores above a threshold
_MAX_FALSE: Final = 0.1  # share of the rows that may be false alarms for all we know, when labels speak
_MAX_ANOMALIES: Final = 0.2  # share of the rows that are believed to be anomalies; and flagged, when labels are missed
_FEW_ROWS: Final = 6  # of those that a forecast counts alarms among: with fewer half of all rows may be alarms
_FEW_LABELS: Final = 10  # labelled anomalies from which on a share of them says something
ONE_SIGMA_BELOW: Final = 0.15865525393145707  # share of a Gaussian more than one standard deviation under its median
_SIGMA_PER_MEAN_DEVIATION: Final = math.sqrt(math.pi / 2.0)  # of a Gaussian
ROUNDING: Final = 1e-9  # undone where shares become numbers of rows, as in 10 * 0.1
_LARGEST: Final = sys.float_info.max


@dataclass(frozen=True)
class Threshold:
    """A rule for the threshold; a row is an alarm when its score is greater than the fitted value.

    Parameters
    ----------
    rule : {"auto", "contamination", "false_alarm", "labels"}
        - "auto": the median plus three standard deviations of the unlabelled scores, though at most a tenth of them is
          flagged. With three or more labelled anomalies that the model has not seen, or ten that it has, the best
          estimated F1 over all rows, hidden anomalies included. If three to nine that were trained on would mostly be
          missed, the best F1 of these against all other rows, though a fifth of those is flagged at most.
        - "contamination": the share `level` of all rows given is flagged; fewer, or none, where the scores around the
          threshold are equal.
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

    def apply(
        self,
        scores: ArrayLike,
        y: ArrayLike | None = None,
        *,
        basis: Basis = "given",
        unseen: NDArray[np.bool_] | None = None,
        n_unlabelled: int | None = None,
    ) -> "FittedThreshold":
        """Find the threshold as `fit` does, and say how it came about.

        `unseen`, (n_rows,), says which scores are by a model that was not trained on the row; None: all. `n_unlabelled`
        says how many unlabelled rows there are, where those given are some of them.

        Examples
        --------
        >>> str(Threshold("contamination", 0.2).apply([0.1, 0.2, 0.3, 0.4, 5.0]))
        '20 % of the rows flagged'
        """
        checked, y_checked = _check_scores(scores, y)
        unseen = np.ones(len(checked), dtype=bool) if unseen is None else unseen
        chosen_by, usual = None, None
        if self.rule == "contamination":  # scikit-learn's cut, which sees scores with the sign turned
            value = -_quantile(-checked, self.level or 0.0)
        elif self.rule == "false_alarm":
            value = _set_by_false_alarms(checked[y_checked != labels.ANOMALY], self.level or 0.0)
        elif self.rule == "labels":
            value = _set_by_labels(checked, y_checked)
        else:
            usual = _clip(_set_by_unlabelled(checked[labels.reference_rows(y_checked)]))
            value, chosen_by = _set_by_anomalies(usual, checked, y_checked, unseen, n_unlabelled)
        return FittedThreshold(
            self, basis, _clip(value), chosen_by, usual, Forecast.of(value, checked, y_checked, unseen)
        )

    def apply_to_training(
        self, total: Scores, held_out: Scores, y: Labels, unseen: NDArray[np.bool_]
    ) -> "FittedThreshold":
        """Find the threshold on training rows by the scores that `esad.detectors.decisions.TrainingScores` has of them.

        `total` are those by the whole model, `held_out` those by the member that has not seen a row, where `unseen`
        says that there is one. Where unlabelled rows have such a score, labelled ones count only for the rules that ask
        for them, and unlabelled ones without it not at all.
        """
        known, is_unlabelled, n_unlabelled = np.isfinite(held_out), y == labels.UNLABELLED, None
        if (known & is_unlabelled).any():
            n_unlabelled = int(is_unlabelled.sum())
            asked = {"labels": known, "auto": is_unlabelled | (y == labels.ANOMALY)}
            known &= asked.get(self.rule, is_unlabelled)
        found = self.apply(held_out[known], y[known], basis="training", unseen=unseen[known], n_unlabelled=n_unlabelled)
        value, chosen_by = found.value, found.chosen_by
        if self.rule == "auto":
            left_out = held_out[unseen & is_unlabelled]
            gap = _find_gap(total, y, len(left_out)) if chosen_by == "unlabelled" else None
            if gap is not None:
                value, chosen_by = gap, "seen anomalies"
            else:
                value = _keep_in_bounds(value, total, y, left_out, is_usual=chosen_by == "unlabelled")
        return replace(found, value=value, chosen_by=chosen_by, forecast=Forecast.of(value, held_out, y, unseen))


@dataclass(frozen=True)
class Forecast:
    """What a threshold will probably do on new rows, estimated from rows that the model was not trained on.

    Attributes
    ----------
    n_rows, n_alarms : int
        Unlabelled rows (without any: known normal ones), and how many of them score above the threshold. Some of the
        unlabelled rows may be hidden anomalies, which score above it more often. So the share among normal rows is
        lower, if anything.
    n_anomalies, n_found : int
        Labelled anomalies that were not trained on, and how many of them score above it.
    is_hopeful : bool
        Whether the unlabelled rows were trained on, which makes their scores lower than those of new rows.

    Examples
    --------
    >>> print(Forecast(n_rows=1000, n_alarms=30, n_anomalies=20, n_found=16))
    at most 3 % of normal rows are false alarms (95 %: up to 4.3 %); 80 % of anomalies like the known ones are found \
(95 %: 56 % to 94 %)
    >>> print(Forecast(n_rows=2, n_alarms=0))
    2 rows not trained on: too few to say how many false alarms there will be; how many anomalies are found is not known
    >>> print(Forecast(n_rows=50, n_alarms=5))
    at most 10 % of normal rows are false alarms (95 %: up to 22 %); how many anomalies are found is not known
    """

    n_rows: int
    n_alarms: int
    n_anomalies: int = 0
    n_found: int = 0
    is_hopeful: bool = False

    def __post_init__(self) -> None:
        counts = (self.n_rows, self.n_alarms, self.n_anomalies, self.n_found)
        plain = all(type(count) is int for count in counts) and type(self.is_hopeful) is bool
        if not (plain and 0 <= self.n_alarms <= self.n_rows and 0 <= self.n_found <= self.n_anomalies):
            raise InputError("what its threshold is expected to do is damaged")

    @classmethod
    def of(cls, value: float, scores: Scores, y: Labels, unseen: NDArray[np.bool_]) -> "Forecast":
        """Count what is above the threshold."""
        fresh = unseen & np.isfinite(scores)
        unlabelled = np.isfinite(scores) & (y == labels.UNLABELLED)
        for rows in (fresh & unlabelled, unlabelled, fresh & (y == labels.NORMAL)):
            if rows.any():
                break
        anomalies = scores[fresh & (y == labels.ANOMALY)]
        return cls(
            n_rows=int(rows.sum()),
            n_alarms=int((scores[rows] > value).sum()),
            n_anomalies=len(anomalies),
            n_found=int((anomalies > value).sum()),
            is_hopeful=not bool((rows & unseen).any()),
        )

    def to_json(self) -> dict[str, Any]:
        """The counts, the intervals and the sentence as plain values."""
        intervals = {"alarm_interval": self.alarm_interval, "recall_interval": self.recall_interval}
        return asdict(self) | intervals | {"text": str(self)}

    @property
    def alarm_interval(self) -> tuple[float, float]:
        """95 % confidence interval for the share of alarms among rows like the unlabelled ones."""
        return _binomial_interval(self.n_alarms, self.n_rows)

    @property
    def recall_interval(self) -> tuple[float, float] | None:
        """95 % confidence interval for the share of anomalies found; None without labelled anomalies to count."""
        return _binomial_interval(self.n_found, self.n_anomalies) if self.n_anomalies else None

    def __str__(self) -> str:
        if not self.n_rows:
            return "not known: no rows were held out"
        share, most = _percent(self.n_alarms / self.n_rows), _percent(self.alarm_interval[1])
        told = f"at most {share} of normal rows are false alarms (95 %: up to {most})"
        if self.is_hopeful:
            told = f"{share} of the unlabelled training rows are alarms, and more of new ones may be"
        elif self.n_rows < _FEW_ROWS:
            told = (
                f"{count_text(self.n_rows, 'row')} not trained on: too few to say how many false alarms there will be"
            )
        if self.recall_interval is None:
            return f"{told}; how many anomalies are found is not known"
        low, high = (_percent(limit) for limit in self.recall_interval)
        told += f"; {_percent(self.n_found / self.n_anomalies)} of anomalies like the known ones are found"
        few = f", by {self.n_anomalies} of them: uncertain" if self.n_anomalies < _FEW_LABELS else ""
        return f"{told} (95 %: {low} to {high}){few}"


def _percent(share: float) -> str:
    """A share for people, with two digits where it is small."""
    return f"{100 * share:.2g} %" if share < 0.0995 else f"{100 * share:.0f} %"


def _binomial_interval(n_some: int, n_all: int) -> tuple[float, float]:
    """Clopper and Pearson's interval for a share."""
    if not n_all:
        return 0.0, 1.0
    from scipy.stats import binomtest  # only here: it takes a while to import

    found = binomtest(n_some, n_all).proportion_ci()
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class FittedThreshold:
    """A threshold together with the rule and the rows that it comes from, and a forecast of what it will do.

    Attributes
    ----------
    rule : Threshold
    basis : {"training", "calibration", "given"}
        The training rows, those that p-values are calibrated on, or rows given later.
    value : float
        If the threshold of the detector is another one, it was set by hand.
    chosen_by : {"unlabelled", "unseen anomalies", "seen anomalies", "missed anomalies"} or None
        "auto" only: which rows decided. Missed anomalies are labelled ones that the usual rule would not flag.
    usual : float or None
        "auto" only: the threshold by the unlabelled rows alone. It is not kept in model files.
    forecast : Forecast or None
        None where an older file does not say.

    Examples
    --------
    >>> applied = FittedThreshold(Threshold("false_alarm", 0.01), "training", 2.5)
    >>> str(applied), FittedThreshold.from_json(applied.to_json()) == applied
    ('at most 1 % false alarms', True)
    """

    rule: Threshold
    basis: Basis
    value: float
    chosen_by: ChosenBy | None = None
    usual: float | None = field(default=None, compare=False)
    forecast: Forecast | None = None

    def __str__(self) -> str:
        share = f"{100 * (self.rule.level or 0.0):.3g} %"
        if self.rule.rule == "auto" and self.chosen_by is not None:
            if self.chosen_by == "unlabelled" and self.forecast is not None and not self.forecast.is_hopeful:
                return _UNSEEN_TEXT
            return _CHOSEN_BY_TEXTS[self.chosen_by]
        return {
            "auto": "three deviations above the median, lower where labels contradict it",
            "contamination": f"{share} of the rows flagged",
            "false_alarm": f"at most {share} false alarms",
            "labels": "where the labels are parted best",
        }[self.rule.rule]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        level = None if self.rule.level is None else float(self.rule.level)
        plain: dict[str, Any] = {
            "rule": self.rule.rule,
            "level": level,
            "basis": self.basis,
            "value": float(self.value),
        }
        if self.chosen_by is not None:
            plain["chosen_by"] = self.chosen_by
        return plain if self.forecast is None else plain | {"forecast": asdict(self.forecast)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """Undo `to_json`, checking everything."""
        value, basis, chosen_by = plain["value"], plain["basis"], plain.get("chosen_by")
        known = basis in get_args(Basis) and (chosen_by is None or chosen_by in get_args(ChosenBy))
        if not known or not isinstance(value, float | int) or not math.isfinite(value):
            raise InputError("how its threshold was set is damaged")
        forecast = None
        if "forecast" in plain:
            if set(plain["forecast"]) != {one.name for one in fields(Forecast)}:
                raise InputError("what its threshold is expected to do is damaged")
            forecast = Forecast(**plain["forecast"])
        return cls(Threshold(plain["rule"], plain["level"]), basis, float(value), chosen_by, forecast=forecast)


_UNSEEN_TEXT: Final = (
    "three deviations above the median of unlabelled rows not trained on, about a tenth of these flagged at most"
)
_CHOSEN_BY_TEXTS: Final[dict[ChosenBy, str]] = {
    "unlabelled": "three deviations above the median of unlabelled rows, about a tenth of them flagged at most",
    "unseen anomalies": "the best balance of hits and alarms by labelled anomalies that were not trained on",
    "seen anomalies": "the best balance of hits and alarms by labelled anomalies, though these were trained on",
    "missed anomalies": "lowered to labelled anomalies that would have been missed",
}


# ---------------------------------------------------------------------- the rules that are asked for


def _set_by_false_alarms(scores: Scores, level: float) -> float:
    """Take the conformal rank: a further row of the same kind is above it with a chance of at most `level`."""
    n_rows = len(scores)
    n_above = math.floor((n_rows + 1) * level + ROUNDING)
    if n_above == 0:
        raise InputError(
            f"A false-alarm rate of {level:g} needs at least {n_rows_needed(level)} unlabelled or normal rows. "
            f"Got {n_rows}. Allow more false alarms or give more rows."
        )
    rank = max(n_rows + 1 - n_above, 1)
    return float(np.partition(scores, rank - 1)[rank - 1])


def n_rows_needed(share: float) -> int:
    """How many rows it takes for a further one of the same kind to be above all with a chance of at most `share`.

    Examples
    --------
    >>> n_rows_needed(0.01), n_rows_needed(0.1)
    (99, 9)
    """
    return math.ceil(1 / share - ROUNDING) - 1


def _set_by_labels(scores: Scores, y: Labels) -> float:
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
    return _find_best_f1(scores[used], is_anomaly[used])


def _find_best_f1(scores: Scores, is_anomaly: NDArray[np.bool_]) -> float:
    """Go through every cut between two different scores and keep the best."""
    values, n_hits, n_flagged = _count_by_cut(scores, is_anomaly)
    f1 = 2.0 * n_hits / (n_flagged + n_hits[0])
    half_gaps = np.diff(values / 2.0, prepend=-np.inf)
    half_gaps[0] = -1.0  # the cut below everything has no gap: it wins only when no other is as good
    best = np.flatnonzero(f1 == f1.max())
    return _cut_below(values, int(best[np.argmax(half_gaps[best])]))


# ---------------------------------------------------------------------- what the rules share


def _check_scores(scores: ArrayLike, y: ArrayLike | None) -> tuple[Scores, Labels]:
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


def _clip(value: float) -> float:
    return min(max(value, -_LARGEST), _LARGEST)


def _count_by_cut(scores: Scores, is_anomaly: NDArray[np.bool_]) -> tuple[Scores, Scores, NDArray[np.int64]]:
    """The different scores, and how many anomalies and how many rows are flagged by a cut below each."""
    values, place = np.unique(scores, return_inverse=True)
    n_hits = np.bincount(place, weights=is_anomaly)[::-1].cumsum()[::-1]
    n_flagged = np.bincount(place)[::-1].cumsum()[::-1]
    return values, n_hits, n_flagged


def _cut_below(values: Scores, cut: int, share: float = 0.5) -> float:
    """A threshold that flags the value number `cut` and all above it: so far up the gap under it."""
    if cut == 0:
        return math.nextafter(float(values[0]), -math.inf)
    low, high = float(values[cut - 1]), float(values[cut])
    value = _between(low, high, share)
    return value if value < high else low


# ---------------------------------------------------------------------- the automatic rule, step by step


def _set_by_unlabelled(scores: Scores) -> float:
    """Step 1: the deviation is measured below the median, where hidden anomalies cannot stretch it."""
    median = _quantile(scores, 0.5)
    half_sigma = median / 2.0 - _quantile(scores, ONE_SIGMA_BELOW) / 2.0
    if half_sigma <= 0:  # a third of the scores are equal: measure on both sides rather than flag all above the median
        half_deviation = float(np.sum(np.abs(scores / 2.0 - median / 2.0) / len(scores)))
        half_sigma = _SIGMA_PER_MEAN_DEVIATION * half_deviation
    value, top_tenth = median + _N_SIGMAS * 2.0 * half_sigma, _quantile(scores, 1.0 - _MAX_USUAL)
    return top_tenth if value < top_tenth < scores.max() else value


def _set_by_anomalies(
    usual: float, scores: Scores, y: Labels, unseen: NDArray[np.bool_], n_unlabelled: int | None
) -> tuple[float, ChosenBy]:
    """Step 2: the usual threshold, or another one if the labelled anomalies call for it; and which rows decided."""
    is_anomaly = y == labels.ANOMALY
    n_anomalies, n_unseen = int(is_anomaly.sum()), int((is_anomaly & unseen).sum())
    if n_anomalies == len(y):
        return usual, "unlabelled"
    if n_unseen >= _MIN_ANOMALIES or n_anomalies >= _MIN_SEEN:
        others = labels.reference_rows(y)
        chosen_by: ChosenBy = "unseen anomalies" if n_unseen >= _MIN_ANOMALIES else "seen anomalies"
        used = others | (is_anomaly & unseen if chosen_by == "unseen anomalies" else is_anomaly)
        weight = (n_unlabelled or others.sum()) / others.sum()
        value = _find_best_balance(scores[used], is_anomaly[used], weight, _PLACE_IN_GAP[chosen_by])
        return (usual, "unlabelled") if value is None else (value, chosen_by)
    if n_anomalies >= _MIN_ANOMALIES and 2 * (scores[is_anomaly] > usual).sum() < n_anomalies:
        lowered = max(_find_best_f1(scores, is_anomaly), _quantile(scores[~is_anomaly], 1.0 - _MAX_ANOMALIES))
        if lowered < usual:
            return lowered, "missed anomalies"
    return usual, "unlabelled"


def _find_best_balance(scores: Scores, is_anomaly: NDArray[np.bool_], weight: float, share: float) -> float | None:
    """Eqs. (1) and (2), each other row counted `weight` times; None where no cut with few enough alarms finds any."""
    values, n_hits, n_flagged = _count_by_cut(scores, is_anomaly)
    n_anomalies = int(is_anomaly.sum())
    n_rows = n_anomalies + weight * (len(scores) - n_anomalies)
    flagged, recall = (n_hits + weight * (n_flagged - n_hits)) / n_rows, n_hits / n_anomalies
    error = np.sqrt((recall * (1.0 - recall) + 0.25 / n_anomalies) / n_anomalies)
    surely = recall - error  # share that is found, as far as the labels bear it out
    bounds = flagged[surely > 0] / surely[surely > 0]
    anomalies = max(min(float(bounds.min(initial=math.inf)), _MAX_ANOMALIES), (n_anomalies + 1) / n_rows)
    hits = np.minimum(anomalies * recall, flagged)
    balance = np.where(flagged - hits <= _MAX_FALSE, 2.0 * hits / (anomalies + flagged), 0.0)
    return _cut_below(values, int(np.argmax(balance)), share) if balance.max() > 0 else None


def _find_gap(scores: Scores, y: Labels, n_left_out: int) -> float | None:
    """Step 3: a quarter of the way up the widest gap below labelled anomalies, if it is wider than all scores below it.

    Above it are some other rows too, a fifth of them at most: labels learned by heart would be there alone. None
    without such a gap, and where no unlabelled row was left out by a member, or a quarter of them was: these set the
    threshold well enough.

    Examples
    --------
    >>> scores, y = np.append(np.arange(60.0), [900, 910, 920, 930]), np.array([0] * 61 + [-1] * 3)
    >>> _find_gap(scores, y, n_left_out=6), _find_gap(scores, y, n_left_out=30), _find_gap(scores[1:60], y[1:60], 6)
    (269.25, None, None)
    """
    is_anomaly = y == labels.ANOMALY
    n_unlabelled = np.count_nonzero(y == labels.UNLABELLED)
    if np.count_nonzero(is_anomaly) < _MIN_ANOMALIES or not 0 < 4 * n_left_out < n_unlabelled:
        return None
    others, least = np.sort(scores[~is_anomaly]), float(scores[is_anomaly].min())
    n_above = np.arange(len(others) - 1, 0, -1)  # of the others, for a cut above each of them but the last
    half_gaps = np.minimum(others[1:], least) / 2.0 - others[:-1] / 2.0
    half_ranges = others[:-1] / 2.0 - others[0] / 2.0
    found = np.flatnonzero((half_gaps > half_ranges) & (n_above <= _MAX_ANOMALIES * len(others)))
    if not found.size:
        return None
    place = found[np.argmax(half_gaps[found])]
    return _between(float(others[place]), min(float(others[place + 1]), least), _PLACE_IN_GAP["seen anomalies"])


def _keep_in_bounds(value: float, scores: Scores, y: Labels, left_out: Scores, *, is_usual: bool) -> float:
    """Step 4, in the order of the code; `left_out` are the scores of unlabelled rows by members that left them out.

    - Below the highest score, midway to the next. But where no anomaly is known, not so low that more than a tenth of
      `left_out` is above: a few wide rows are learned by heart, and new ones score like those that were left out.
    - Not below the median of the unlabelled rows, else midway to the next score above it.
    - Where few left-out rows have set it (`is_usual`: by step 1), not so low that more than a tenth of all unlabelled
      rows is above, or more than those with the highest score, if these are more than a tenth.

    Examples
    --------
    >>> scores, y, none = np.array([1.0, 1.0, 1.0, 3.0, 2.0]), np.zeros(5, dtype=np.int8), np.empty(0)
    >>> [_keep_in_bounds(value, scores, y, none, is_usual=False) for value in (9.0, 0.999)]
    [2.5, 1.5]
    >>> _keep_in_bounds(-1.0, -scores, y, none, is_usual=False)  # no score is above the median
    -1.0
    >>> _keep_in_bounds(9.0, scores, y, scores + 5.0, is_usual=False)
    7.6
    >>> _keep_in_bounds(12.0, np.arange(20.0), np.zeros(20, dtype=np.int8), np.arange(2.0), is_usual=True)
    17.5
    """
    reference = scores[labels.reference_rows(y)]
    median, highest = _quantile(reference, 0.5), float(scores.max())
    lower = scores[scores < highest]
    most = _cut_below(np.array([lower.max(), highest]), 1) if lower.size else math.inf
    if left_out.size and not (y == labels.ANOMALY).any():
        most = max(most, _quantile(left_out, 1.0 - _MAX_USUAL))
    value = min(value, most)
    if value < median:
        higher = scores[scores > median]
        value = _between(median, float(higher.min()), 0.5) if higher.size else median
    if is_usual and 0 < left_out.size < _FEW_LEFT_OUT:
        ordered = np.sort(reference)
        n_most = max(1, int(_MAX_USUAL * len(ordered) + ROUNDING))
        cut = min(len(ordered) - n_most, int(np.searchsorted(ordered, ordered[-1])))
        value = max(value, _cut_below(ordered, cut)) if cut else value  # else all are equal
    return value
