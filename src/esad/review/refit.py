"""Fit again with the labels so far: in the background, from the old weights, and then held against the old model."""

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from esad import labels
from esad.advice.crossfit import Part, auc, folds, held_out_scores, thinned
from esad.core.random import seed_from
from esad.detectors.base import Detector
from esad.detectors.deep import DeepDetector
from esad.errors import InputError
from esad.review.carried import carry_threshold, what_is_lost
from esad.review.judged import Scored
from esad.review.watch import Stopped, Watch
from esad.table.table import take_rows
from esad.train.callbacks import Callback, WarmStart

__all__ = ["Comparison", "Refit", "compared", "cross_validated", "refitted"]

N_FOLDS: Final = 5
N_SHOWN: Final = 10
SCORING_SHARE: Final = 0.1  # of the bar, for scoring after the training
TOP_RATIO: Final = 0.1  # rows that may be named as risen or fallen were or are among so many
MAX_ROWS: Final = {"table": 5000, "images": 1000}  # of the cross-validation

Labels = NDArray[np.int8]


def refitted(
    old: Detector,
    X: Any,
    y: Labels,
    *,
    warm: bool,
    tell: Callable[[float], None] = lambda share: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[Detector, bool]:
    """A copy of a detector fitted to the labels of now, and whether it began with the old weights.

    It is calibrated the way the old one was, unless that took rows which are not here.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> new, warm = refitted(IsolationForest(random_state=0).fit(X), X, np.zeros(60, np.int8), warm=True)
    >>> warm
    False
    """
    calibration = old.calibration_
    ratio = None
    if calibration is not None and calibration.kind == "held out":
        n_held_out = calibration.n_rows / (1 - calibration.pollution_ratio)
        ratio = min(0.5, n_held_out / max(1, int((y == labels.UNLABELLED).sum())))
    watch = Watch(tell, is_stopped=is_stopped)
    new: Detector = clone(old)
    begins_warm = warm and isinstance(old, DeepDetector)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about labels that are few: that is what the page is for
        if isinstance(old, DeepDetector) and begins_warm:
            try:
                new.fit(X, y, calibration_ratio=ratio, callbacks=[WarmStart(old.objective_.state_dict()), watch])
            except InputError:  # a new category: the weights do not fit
                begins_warm = False
        if not begins_warm:
            new.fit(X, y, calibration_ratio=ratio, callbacks=[watch])
    if calibration is not None and calibration.kind != "given":
        new.calibrate(pollution_ratio=calibration.pollution_ratio)
    new.notes_ = dict(old.notes_)
    return new, begins_warm


@dataclass(frozen=True)
class Comparison:
    """What a new model changes.

    Attributes
    ----------
    old, new : Scored
    y : ndarray of int8, (n,)
        Labels the new one was trained with.
    warm : bool
        Whether it began with the old weights.
    remarks : tuple of str
        What became of the threshold and the p-values, where that needs saying.
    validated : dict or None
        What `cross_validated` found, None while it is not known.
    reason : str
        Why there is no cross-validation, where there is none.
    """

    old: Scored
    new: Scored
    y: Labels
    warm: bool
    remarks: tuple[str, ...] = ()
    validated: dict[str, Any] | None = None
    reason: str = ""


def compared(old: Scored, new: Scored, y: Labels) -> dict[str, Any]:
    """Old and new ranking: alarms, the tops of both, the rows that rose and fell most, where the labels went.

    A row rises by the logarithm of its ranks' ratio: from 100 to 10 is as much as from 10 to 1.
    """
    n_rows = len(y)
    gain = np.log(old.ranks / new.ranks)  # above 0: it rose
    n_top = max(N_SHOWN, round(TOP_RATIO * n_rows))
    rose = [int(row) for row in np.argsort(-gain, kind="stable") if new.ranks[row] <= n_top and gain[row] > 0]
    fell = [int(row) for row in np.argsort(gain, kind="stable") if old.ranks[row] <= n_top and gain[row] < 0]
    both = old.is_alarm & new.is_alarm

    def median_rank(scored: Scored, label: int) -> float | None:
        mine = y == label
        return float(np.median(scored.ranks[mine])) if mine.any() else None

    return {
        "alarms": {"old": int(old.is_alarm.sum()), "new": int(new.is_alarm.sum()), "both": int(both.sum())},
        "correlation": _correlation(old.ranks, new.ranks),
        "top": {"old": old.order[:N_SHOWN].tolist(), "new": new.order[:N_SHOWN].tolist()},
        "rose": rose[:N_SHOWN],
        "fell": fell[:N_SHOWN],
        "median_rank": {
            word: {"old": median_rank(old, label), "new": median_rank(new, label)}
            for word, label in (("anomaly", labels.ANOMALY), ("normal", labels.NORMAL))
        },
    }


def _correlation(a: NDArray[Any], b: NDArray[Any]) -> float:
    """Of two rankings, Spearman's; 1 for a single row."""
    return float(np.corrcoef(a, b)[0, 1]) if len(a) > 1 else 1.0


def cross_validated(
    detector: Detector, X: Any, then: Labels, now: Labels, *, callbacks: Sequence[Callback] = ()
) -> dict[str, Any]:
    """How well labels predict labels that training has not seen: those of the old model against those of now.

    The rows are dealt into folds. Two detectors per fold are trained on the other folds, one with the labels of then
    and one with those of now, and rank the fold: its labelled anomalies against all its other rows, and against its
    known normal rows where there are any. The same folds for both.

    Raises
    ------
    InputError
        Fewer than two labelled anomalies.
    """
    n_anomaly = int((now == labels.ANOMALY).sum())
    if n_anomaly < 2:
        raise InputError("Cross-validation needs two labelled anomalies: one to learn from, one to find.")
    rng = np.random.default_rng(seed_from(detector.random_state))
    rows = thinned(now, rng=rng, max_rows=MAX_ROWS[detector.inputs_.kind])
    own, then, now = take_rows(X, rows), then[rows], now[rows]
    parts = list(folds(now, min(N_FOLDS, n_anomaly), rng=rng))
    found: dict[str, Any] = {"n_folds": len(parts)}
    for name, seen in (("then", then), ("now", now)):
        seen_parts = [Part(part.train, seen[part.train], part.test) for part in parts]
        scores = held_out_scores(detector, own, seen_parts, seed=0, callbacks=callbacks)
        found[name] = _measured(scores, [now[part.test] for part in parts])
    return found


def _measured(scores: Sequence[NDArray[np.float64]], truth: Sequence[Labels]) -> dict[str, float | None]:
    """Mean AUC over the folds, against all other rows and against known normal rows."""
    against_all = [auc(one, y == labels.ANOMALY) for one, y in zip(scores, truth, strict=True)]
    against_normal = [
        auc(one[y != 0], y[y != 0] == labels.ANOMALY)
        for one, y in zip(scores, truth, strict=True)
        if (y == labels.NORMAL).any()
    ]
    return {
        "auc": float(np.mean(against_all)),
        "auc_normal": float(np.mean(against_normal)) if against_normal else None,
    }


@dataclass
class Refit:
    """One refit in the background: "training", then "ready" with a comparison, or "failed", or "stopped"."""

    old: Scored
    X: Any
    then: Labels
    y: Labels
    warm: bool
    number: int = 1
    status: str = "training"
    progress: float = 0.0
    message: str = ""
    comparison: Comparison | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> "Refit":
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="refit", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ask the training to end without a model."""
        self._stop.set()

    def join(self, timeout: float) -> None:
        """Wait for the end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            new, was_warm = refitted(
                self.old.detector, self.X, self.y, warm=self.warm, tell=self._tell, is_stopped=self._stop.is_set
            )
            scored = Scored.of(new, self.X)
            remarks = (carry_threshold(self.old, scored), what_is_lost(self.old, scored))
        except Stopped:
            self.status = "stopped"
            return
        except Exception as error:
            self.status, self.message = "failed", " ".join(str(error).split()) or type(error).__name__
            return
        self.comparison = Comparison(self.old, scored, self.y, was_warm, tuple(filter(None, remarks)))
        self.progress, self.status = 1.0, "ready"
        self._validate()

    def _tell(self, share: float) -> None:
        self.progress = (1 - SCORING_SHARE) * share

    def _validate(self) -> None:
        assert self.comparison is not None
        found, reason = None, ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = cross_validated(
                    self.comparison.new.detector,
                    self.X,
                    self.then,
                    self.y,
                    callbacks=[Watch(is_stopped=self._stop.is_set)],
                )
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
        self.comparison = replace(self.comparison, validated=found, reason=reason)
