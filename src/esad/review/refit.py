"""Refit: train again with the labels so far, compare with the old model, and keep the new one or go back.

A refit runs in the background and begins with the old weights where it can. Its threshold and p-values are set the way
those of the old model were; what cannot be carried over is said.
"""

import shutil
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from esad import labels
from esad.advice.crossfit import Fold, make_folds, score_held_out, thin_rows
from esad.core.arrays import Labels
from esad.core.atomic import atomic_path
from esad.core.random import seed_from
from esad.detectors.base import Detector
from esad.detectors.deep import DeepDetector
from esad.errors import InputError
from esad.review.ranking import Ranking
from esad.review.training import RefitData
from esad.score.metrics import compute_auc
from esad.table.table import take_rows
from esad.train.callbacks import Callback, WarmStart
from esad.train.loop import LoopState

N_FOLDS: Final = 5
N_SHOWN: Final = 10
SCORING_SHARE: Final = 0.1  # of the bar, for scoring after the training
TOP_RATIO: Final = 0.1  # a row that is named as risen or fallen is or was among so many highest
MAX_ROWS: Final = {"table": 5000, "images": 1000}  # of the cross-validation


class TrainingStopped(Exception):  # noqa: N818  somebody asked for it
    """A training was stopped from outside."""


class TrainingWatch(Callback):
    """Tells how far the training is, over all its phases, and ends it when asked to."""

    def __init__(
        self, tell: Callable[[float], None] = lambda share: None, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._tell, self._is_stopped = tell, is_stopped

    def on_step(self, state: LoopState) -> None:
        """Report the progress, or end the training."""
        if self._is_stopped():
            raise TrainingStopped
        self._tell((state.phase + state.step / state.n_steps) / state.n_phases)


def refit_detector(
    old: Detector, X: Any, y: Labels, *, warm: bool, watch: TrainingWatch | None = None
) -> tuple[Detector, bool]:
    """Fit a copy of a detector to the current labels; also return whether it started from the old weights.

    It is calibrated the way the old one was, unless that took rows which are not here.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> new, warm = refit_detector(IsolationForest(random_state=0).fit(X), X, np.zeros(60, np.int8), warm=True)
    >>> warm
    False
    """
    calibration = old.calibration_
    ratio = None
    if calibration is not None and calibration.kind == "held out":
        n_held_out = calibration.n_rows + calibration.n_cut_off
        ratio = min(0.5, n_held_out / max(1, int((y == labels.UNLABELLED).sum())))
    watch = watch or TrainingWatch()
    new: Detector = clone(old)
    # a model that knew no anomaly has not learned which columns matter
    knows_anomalies = old.label_counts_.n_anomaly > 0 or not (y == labels.ANOMALY).any()
    begins_warm = warm and isinstance(old, DeepDetector) and knows_anomalies
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings that labels are few: the page is there to add some
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


def compare_rankings(old: Ranking, new: Ranking, y: Labels) -> dict[str, Any]:
    """Old and new ranking: alarms, the tops of both, the rows that rose and fell most, where the labels went.

    A row rises by the logarithm of its ranks' ratio: from 100 to 10 is as much as from 10 to 1.
    """
    n_rows = len(y)
    gain = np.log(old.ranks / new.ranks)  # above 0: it rose
    n_top = max(N_SHOWN, round(TOP_RATIO * n_rows))
    rose = [int(row) for row in np.argsort(-gain, kind="stable") if new.ranks[row] <= n_top and gain[row] > 0]
    fell = [int(row) for row in np.argsort(gain, kind="stable") if old.ranks[row] <= n_top and gain[row] < 0]
    both = old.is_alarm & new.is_alarm

    def median_rank(ranking: Ranking, label: int) -> float | None:
        mine = y == label
        return float(np.median(ranking.ranks[mine])) if mine.any() else None

    def count_moved(label: int, towards: int) -> dict[str, int]:
        """Count the rows with a label, and those of them whose rank moved in the right direction or stayed."""
        mine = y == label
        return {"right": int((towards * gain[mine] >= 0).sum()), "n": int(mine.sum())}

    return {
        "moved": {"anomaly": count_moved(labels.ANOMALY, 1), "normal": count_moved(labels.NORMAL, -1)},
        "alarms": {"old": int(old.is_alarm.sum()), "new": int(new.is_alarm.sum()), "both": int(both.sum())},
        "correlation": float(np.corrcoef(old.ranks, new.ranks)[0, 1]) if n_rows > 1 else 1.0,  # Spearman's
        "top": {"old": old.order[:N_SHOWN].tolist(), "new": new.order[:N_SHOWN].tolist()},
        "rose": rose[:N_SHOWN],
        "fell": fell[:N_SHOWN],
        "median_rank": {
            word: {"old": median_rank(old, label), "new": median_rank(new, label)}
            for word, label in (("anomaly", labels.ANOMALY), ("normal", labels.NORMAL))
        },
    }


def cross_validate(detector: Detector, data: RefitData, *, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Compare by cross-validation how well the old labels and the current ones predict held-out labels.

    The rows are dealt into folds. Two detectors per fold are trained on the other folds, one with the labels of then
    and without the rows added since, one with everything there is now, and rank the fold: its labelled anomalies
    against all its other rows, and against its known normal rows where there are any. The same folds for both.

    Raises
    ------
    InputError
        Fewer than two labelled anomalies.
    """
    n_anomaly = int((data.y == labels.ANOMALY).sum())
    if n_anomaly < 2:
        raise InputError("Cross-validation needs two labelled anomalies: one to learn from, one to find.")
    rng = np.random.default_rng(seed_from(detector.random_state))
    rows = thin_rows(data.y, rng=rng, max_rows=MAX_ROWS[detector.inputs_.kind])
    X, now = take_rows(data.X, rows), data.y[rows]
    seen = {"then": (data.y_before[rows], ~data.is_added[rows]), "now": (now, np.ones(len(rows), dtype=bool))}
    parts = list(make_folds(now, min(N_FOLDS, n_anomaly), rng=rng))
    found: dict[str, Any] = {"n_folds": len(parts)}
    for name, (y, is_there) in seen.items():
        trained = [part.train[is_there[part.train]] for part in parts]
        seen_parts = [Fold(train, y[train], part.test) for train, part in zip(trained, parts, strict=True)]
        scores = score_held_out(detector, X, seen_parts, seed=0, callbacks=callbacks)
        found[name] = _measure(scores, [now[part.test] for part in parts])
    return found


def _measure(scores: Sequence[NDArray[np.float64]], truth: Sequence[Labels]) -> dict[str, float | None]:
    """Mean AUC over the folds, against all other rows and against known normal rows."""
    against_all = [compute_auc(one, y == labels.ANOMALY) for one, y in zip(scores, truth, strict=True)]
    against_normal = [
        compute_auc(one[y != 0], y[y != 0] == labels.ANOMALY)
        for one, y in zip(scores, truth, strict=True)
        if (y == labels.NORMAL).any()
    ]
    auc_normal = float(np.mean(against_normal)) if against_normal else None
    return {"auc": float(np.mean(against_all)), "auc_normal": auc_normal}


class Refit:
    """One refit in the background: "training", then "ready" with a new model, or "failed", or "stopped".

    Parameters
    ----------
    old : Ranking
        What the model in use says of the rows under review.
    X, y
        These rows, and their labels.
    data : RefitData
        What is learned from.
    warm : bool
        Whether to begin with the old weights.
    number : int
        Tells the refits of a review apart.

    Attributes
    ----------
    new : Ranking or None
        What the new model says, once it is ready.
    began_warm : bool
        Whether it began with the old weights.
    remarks : list of str
        What became of the threshold and the p-values, where that needs saying.
    validated : dict or None
        What `cross_validate` found, None while it is not known.
    reason : str
        Why there is no cross-validation, where there is none.
    message : str
        Why the refit failed.
    """

    def __init__(self, old: Ranking, X: Any, y: Labels, data: RefitData, *, warm: bool, number: int = 1) -> None:
        self.old, self.X, self.y, self.data, self.warm, self.number = old, X, y, data, warm, number
        self.status, self.progress, self.message = "training", 0.0, ""
        self.new: Ranking | None = None
        self.began_warm = False
        self.remarks: list[str] = []
        self.validated: dict[str, Any] | None = None
        self.reason = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="refit", daemon=True)
        self._thread.start()

    def stop(self, *, wait: float = 0.0) -> None:
        """Ask the training to end without a model, and wait so many seconds for that."""
        self._stop.set()
        self._thread.join(wait)

    def _run(self) -> None:
        watch = TrainingWatch(self._tell, is_stopped=self._stop.is_set)
        try:
            detector, self.began_warm = refit_detector(
                self.old.detector, self.data.X, self.data.y, warm=self.warm, watch=watch
            )
            new = Ranking.of(detector, self.X)
            self.remarks = [*filter(None, (carry_threshold(self.old, new), describe_loss(self.old, new)))]
        except TrainingStopped:
            self.status = "stopped"
            return
        except Exception as error:
            self.status, self.message = "failed", _describe_error(error)
            return
        self.new, self.progress, self.status = new, 1.0, "ready"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                watch = TrainingWatch(is_stopped=self._stop.is_set)
                self.validated = cross_validate(detector, self.data, callbacks=[watch])
        except Exception as error:
            self.reason = _describe_error(error)

    def _tell(self, share: float) -> None:
        self.progress = (1 - SCORING_SHARE) * share


def _describe_error(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# ---------------------------------------------------------------------- threshold and p-values


def carry_threshold(old: Ranking, new: Ranking) -> str:
    """Set the new threshold by the rule of the old one, and return a remark about it.

    A rule that was applied to the training rows, or to the rows that p-values are calibrated on, is applied again.
    Where that cannot be, the new threshold raises as many alarms among the rows under review as the old one does.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> forests = [IsolationForest(random_state=seed).fit(X) for seed in (0, 1)]
    >>> _ = forests[0].fit_threshold(false_alarm_rate=0.05)
    >>> carry_threshold(*(Ranking.of(forest, X) for forest in forests))
    'The threshold is set as before: at most 5 % false alarms.'
    """
    applied, detector = old.detector.applied_, new.detector
    if applied is None:
        return _keep_n_alarms(old, new, "The file of the old model does not say how its threshold was set")
    if applied.value != old.detector.threshold_:
        return _keep_n_alarms(old, new, "The old threshold was set by hand")
    rule = applied.rule
    if applied.basis == "training" and rule.rule in ("auto", "contamination"):
        return ""  # a parameter of the method: the training has done it
    if applied.basis == "given" or (applied.basis == "calibration" and detector.calibration_ is None):
        return _keep_n_alarms(old, new, "The old threshold was set on rows that are not here")
    calibration = old.detector.calibration_
    try:
        if applied.basis == "calibration":
            detector.calibrate(alpha=rule.level, pollution_ratio=calibration.pollution_ratio if calibration else 0.0)
        else:
            detector.set_threshold(rule)
    except InputError as error:
        return _keep_n_alarms(old, new, f"The threshold cannot be set as before ({str(error).rstrip('.')})")
    return f"The threshold is set as before: {applied}."


def describe_loss(old: Ranking, new: Ranking) -> str:
    """Return a sentence on what the old model could do and the new one cannot."""
    if old.detector.calibration_ is None or new.detector.calibration_ is not None:
        return ""
    return (
        "The new model has no p-values: those of the old one rest on rows that are not here. "
        "Run esad calibrate on it once it is kept."
    )


def _keep_n_alarms(old: Ranking, new: Ranking, reason: str) -> str:
    """Set the threshold so that these rows give as many alarms as before, or a few less where scores are equal."""
    n_alarms = int(old.is_alarm.sum())
    falling = np.sort(new.scores)[::-1]
    above = falling[n_alarms - 1] if n_alarms else np.inf
    below = falling[n_alarms] if n_alarms < len(falling) else -np.inf
    ends = [value for value in (above, below) if np.isfinite(value)]
    threshold = float(np.mean(ends)) if len(ends) == 2 else np.nextafter(ends[0], -np.inf if n_alarms else np.inf)
    new.detector.offset_ = -float(threshold)
    return f"{reason}: the new one raises as many alarms among these rows."


# ---------------------------------------------------------------------- model files


def path_beside(model: Path, word: str) -> Path:
    """Return the path of another version of a model file.

    Examples
    --------
    >>> path_beside(Path("parts.esad"), "previous").name
    'parts.previous.esad'
    """
    return model.with_name(f"{model.stem}.{word}{model.suffix}")


def has_previous(model: Path) -> bool:
    """Whether there is a previous model to go back to."""
    return path_beside(model, "previous").exists()


def replace_model(model: Path, detector: Detector, *, with_cases: bool) -> None:
    """Replace the model file and keep the old one as the previous one; on a full disk, neither changes."""
    with atomic_path(model) as new:
        detector.save(new, with_cases=with_cases)
        if model.exists():
            _copy(model, path_beside(model, "previous"))


def restore_previous(model: Path) -> None:
    """Restore the previous model file; the replaced one is kept as rolled back."""
    previous = path_beside(model, "previous")
    _copy(model, path_beside(model, "rolled-back"))
    _copy(previous, model)
    previous.unlink()


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
