"""What becomes of the old model's threshold and p-values in a new one: set again in the same way, or else said."""

import numpy as np

from esad.errors import InputError
from esad.review.judged import Scored

__all__ = ["carry_threshold", "what_is_lost"]


def carry_threshold(old: Scored, new: Scored) -> str:
    """Set the new threshold the way the old one was set; what there is to say about it.

    A rule that was applied to the training rows, or to the rows that p-values are calibrated on, is applied again.
    Where that cannot be, the new threshold raises as many alarms among the rows under review as the old one does.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> forests = [IsolationForest(random_state=seed).fit(X) for seed in (0, 1)]
    >>> _ = forests[0].fit_threshold(false_alarm_rate=0.05)
    >>> carry_threshold(*(Scored.of(forest, X) for forest in forests))
    'The threshold is set as before: at most 5 % false alarms.'
    """
    applied, detector = old.detector.applied_, new.detector
    if applied is None:
        return _as_many(old, new, "The file of the old model does not say how its threshold was set")
    if applied.value != old.detector.threshold_:
        return _as_many(old, new, "The old threshold was set by hand")
    rule = applied.rule
    if applied.basis == "training" and rule.rule in ("auto", "contamination"):
        return ""  # a parameter of the method: the training has done it
    if applied.basis == "given" or (applied.basis == "calibration" and detector.calibration_ is None):
        return _as_many(old, new, "The old threshold was set on rows that are not here")
    try:
        if applied.basis == "calibration":
            detector.calibrate(alpha=rule.level, pollution_ratio=_pollution(old))
        else:
            rate = rule.level if rule.rule == "false_alarm" else None
            detector.fit_threshold(false_alarm_rate=rate, from_labels=rule.rule == "labels")
    except InputError as error:
        return _as_many(old, new, f"The threshold cannot be set as before ({str(error).rstrip('.')})")
    return f"The threshold is set as before: {applied}."


def what_is_lost(old: Scored, new: Scored) -> str:
    """What the old model can do and the new one cannot."""
    if old.detector.calibration_ is None or new.detector.calibration_ is not None:
        return ""
    return (
        "The new model has no p-values: those of the old one rest on rows that are not here. "
        "Run esad calibrate on it once it is kept."
    )


def _pollution(scored: Scored) -> float:
    calibration = scored.detector.calibration_
    return 0.0 if calibration is None else calibration.pollution_ratio


def _as_many(old: Scored, new: Scored, reason: str) -> str:
    """As many alarms among these rows as before, or a few less where scores are equal."""
    n_alarms = int(old.is_alarm.sum())
    falling = np.sort(new.scores)[::-1]
    above = falling[n_alarms - 1] if n_alarms else np.inf
    below = falling[n_alarms] if n_alarms < len(falling) else -np.inf
    ends = [value for value in (above, below) if np.isfinite(value)]
    threshold = float(np.mean(ends)) if len(ends) == 2 else np.nextafter(ends[0], -np.inf if n_alarms else np.inf)
    new.detector.offset_ = -float(threshold)
    return f"{reason}: the new one raises as many alarms among these rows."
