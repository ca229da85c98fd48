"""From rows to scores, and from scores to decisions: thresholds, p-values, drift.

`esad.detectors.base` states the directions of scores.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MethodType
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from esad import labels
from esad.core.arrays import Labels, Rows, Scores
from esad.errors import InputError, ModelFileError, TrainingError
from esad.preprocess.inputs import Inputs
from esad.score.conformal import Calibration
from esad.score.drift import LEVEL, MIN_DISTANCE, Drift, DriftMonitor
from esad.score.threshold import FittedThreshold, Forecast, Threshold
from esad.table.profile import Profile


@dataclass(frozen=True)
class TrainingScores:
    """Scores of the training rows.

    Attributes
    ----------
    total : ndarray, (n,)
        As `anomaly_score` gives them.
    held_out : ndarray, (n,)
        The score by the member that has not seen the row. Where all members have seen it: NaN for an unlabelled row,
        `total` for a labelled one.
    unseen_by : ndarray of int, (n,), or None
        The member that has not seen the row, -1 where all have; None when every row was seen by all, or by none.
    unseen : ndarray of bool, (n,), or None
        Where `held_out` is by a model that has not seen the row; None: as `unseen_by` says.
    by_member : ndarray, (members, n), or None
        By each member alone; None where there are no members.
    """

    total: Scores
    held_out: Scores
    unseen_by: NDArray[np.int64] | None = None
    unseen: NDArray[np.bool_] | None = None
    by_member: Scores | None = None

    def __post_init__(self) -> None:
        if n_wrong := _n_not_finite(self.total):
            raise TrainingError(
                f"Training diverged: the scores of {n_wrong} of {len(self.total)} training rows are not finite "
                "numbers. Change arguments that are far from their defaults, or scale them down."
            )

    def is_unseen(self) -> NDArray[np.bool_]:
        """Where `held_out` is by a model that has not seen the row, (n,)."""
        if self.unseen is None:
            return np.zeros(len(self.total), dtype=bool) if self.unseen_by is None else self.unseen_by >= 0
        return self.unseen


class NoProbabilityError(InputError, AttributeError):
    """There is no `predict_proba` yet; scikit-learn looks for it with `hasattr`."""


class _OnceCalibrated(property):
    """A method that a detector has only after a calibration with anomalies, so that `hasattr` is right about it."""

    def __init__(self, method: Callable[..., Scores]) -> None:
        super().__init__(method)

    def __get__(  # type: ignore[override]  # of the class it is the method, where a property is itself
        self, detector: Any, owner: type | None = None, /
    ) -> Callable[..., Scores]:
        method = cast(Callable[..., Scores], self.fget)
        if detector is None:
            return method
        check_is_fitted(detector)
        if detector.calibration_ is None or detector.calibration_.sigmoid is None:
            raise NoProbabilityError(
                "Probabilities need a calibration with anomalies, and this detector has none. Call calibrate(X, y) "
                "with rows that training has not seen, of which some are labelled -1."
            )
        return MethodType(method, detector)


class Decider:
    """A detector as far as it scores rows and decides about them.

    Attributes
    ----------
    training_scores_, training_labels_, training_unseen_by_, training_unseen_, training_totals_ : ndarray
        What `TrainingScores` has of the training rows; a detector read from a file has none.
    calibration_ : Calibration or None
    applied_ : FittedThreshold or None
        How the threshold was set and what it is expected to do; None where an older file does not say.
    profile_ : Profile or None
    """

    inputs_: Inputs
    offset_: float
    training_scores_: Scores
    training_labels_: Labels
    training_unseen_by_: NDArray[np.int64] | None
    training_unseen_: NDArray[np.bool_]
    training_totals_: Scores
    calibration_: Calibration | None
    applied_: FittedThreshold | None
    profile_: Profile | None

    @abstractmethod
    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        """Terms that add up to the anomaly score, each (n,)."""

    def anomaly_score(self, X: Any) -> Scores:
        """One number per row, higher = more anomalous."""
        return self.score_rows(self.rows_of(X))

    def score_terms(self, X: Any) -> dict[str, Scores]:
        """The named terms that add up to `anomaly_score`."""
        return self._contributions(self.rows_of(X))

    def score_samples(self, X: Any) -> Scores:
        """scikit-learn's direction: the negative of `anomaly_score`."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> Scores:
        """`score_samples(X) - offset_`: negative for alarms."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """-1 for an alarm, +1 otherwise."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    @property
    def threshold_(self) -> float:
        """A row is an alarm when its anomaly score is greater than this."""
        check_is_fitted(self)
        return -float(self.offset_)

    @property
    def forecast_(self) -> Forecast | None:
        """What the threshold is expected to do on new rows; None where it was set by hand or an older file is silent.

        Examples
        --------
        >>> import numpy as np
        >>> from esad import BaggedTrees
        >>> rng = np.random.default_rng(0)
        >>> X = np.r_[rng.normal(size=(300, 4)), rng.normal(4, 1, size=(20, 4))]
        >>> trees = BaggedTrees(random_state=0).fit(X, np.r_[np.zeros(310), -np.ones(10)])  # half of the odd are known
        >>> print(trees.forecast_)
        at most 3.5 % of normal rows are false alarms (95 %: up to 6.3 %); 100 % of anomalies like the known ones are \
found (95 %: 69 % to 100 %)
        """
        check_is_fitted(self)
        return None if self.applied_ is None or self.applied_.value != self.threshold_ else self.applied_.forecast

    def rows_of(self, X: Any) -> Rows:
        """Rows or pictures, preprocessed as in training."""
        check_is_fitted(self)
        return self.inputs_.transform(X)

    def score_rows(self, rows: Rows) -> Scores:
        """`anomaly_score` of rows that are preprocessed."""
        total: Scores = np.sum(list(self._contributions(rows).values()), axis=0, dtype=np.float64)
        if n_wrong := _n_not_finite(total):  # a training that left such weights would not have ended
            raise ModelFileError(
                f"The model's scores of {n_wrong} of {len(total)} rows are not finite numbers: its weights have been "
                "changed or are damaged. Fit it again."
            )
        return total

    def member_scores(self, rows: Rows) -> Scores:
        """Scores by each member that may leave rows out of its training, (members, n)."""
        return self._score_members(rows)[1]

    def _score_members(self, rows: Rows) -> tuple[Scores, Scores]:
        """The scores, (n,), and those by each member, (members, n)."""
        scores = self.score_rows(rows)
        return scores, scores[None]

    # ------------------------------------------------------------------ threshold

    def fit_threshold(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        contamination: float | None = None,
        false_alarm_rate: float | None = None,
        from_labels: bool = False,
    ) -> Self:
        """Set the threshold anew by exactly one rule.

        Parameters
        ----------
        X, y
            Rows that training has not seen, as in `fit`. None: the training rows, each scored by the members that did
            not see it; a detector read from a file no longer has those scores.
        contamination : float, optional
            Flag this share of the rows.
        false_alarm_rate : float, optional
            Flag at most this share of unlabelled and normal rows.
        from_labels : bool
            The best F1 on the labelled rows.
        """
        rules = {
            Threshold("contamination", contamination) if contamination is not None else None,
            Threshold("false_alarm", false_alarm_rate) if false_alarm_rate is not None else None,
            Threshold("labels") if from_labels else None,
        } - {None}
        if len(rules) != 1:
            raise InputError(
                "`fit_threshold` needs exactly one of contamination=, false_alarm_rate=, from_labels=True. "
                f"Got {len(rules)}."
            )
        (rule,) = rules
        assert rule is not None
        if X is None:
            return self.set_threshold(rule)
        scores = self.anomaly_score(X)
        self._take_threshold(rule.apply(scores, labels.check(y, len(scores), warn=False)))
        return self

    def set_threshold(self, rule: Threshold) -> Self:
        """Set the threshold by a rule on the training rows, as `fit_threshold` does without `X`.

        Examples
        --------
        >>> import numpy as np
        >>> from esad import IsolationForest, Threshold
        >>> forest = IsolationForest(random_state=0).fit(np.random.default_rng(0).normal(size=(200, 3)))
        >>> str(forest.set_threshold(Threshold("false_alarm", 0.05)).applied_)
        'at most 5 % false alarms'
        """
        if not isinstance(rule, Threshold):
            raise InputError(f"`rule` must be a Threshold, such as Threshold('false_alarm', 0.05). Got {rule!r}.")
        self._check_training_scores()
        self._take_threshold(self._fit_to_training(rule))
        return self

    def _check_training_scores(self) -> None:
        """Refuse what rests on the scores of the training rows where they are gone."""
        check_is_fitted(self)
        if not hasattr(self, "training_scores_"):
            raise InputError(
                "A detector that was read from a file or solved anew has no training scores. Give `X`, rows kept apart."
            )

    def _fit_to_training(self, rule: Threshold) -> FittedThreshold:
        """The threshold that a rule sets on the training rows, each scored by the member that has not seen it."""
        return rule.apply_to_training(
            self.training_totals_, self.training_scores_, self.training_labels_, self.training_unseen_
        )

    def _forecast(self, value: float) -> Forecast:
        """What a threshold does to training rows that some member has not seen."""
        return Forecast.of(value, self.training_scores_, self.training_labels_, self.training_unseen_)

    def _take_threshold(self, applied: FittedThreshold) -> None:
        self.offset_, self.applied_ = -applied.value, applied

    # ------------------------------------------------------------------ p-values

    def calibrate(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        alpha: float | None = None,
        pollution_ratio: float = 0.0,
        anomaly_ratio: float | None = None,
    ) -> Self:
        """Calibrate `p_value` on presumed normal rows and, given `alpha`, set the threshold to that false-alarm rate.

        With anomalies among the rows, `predict_proba` is there, too.

        Parameters
        ----------
        X, y
            Rows that training has not seen, known or presumed to be normal. Those labelled -1 in `y` are left out of
            the p-values; `predict_proba` needs some.
            None: the rows that the detector is calibrated on already. Where it is not, the training rows, each
            compared by the member that has not seen it (cross-conformal).
        alpha : float, optional
            A row is an alarm from now on when its p-value is at most this: the share of false alarms among new normal
            rows, on average over calibration sets. None: the threshold stays.
        pollution_ratio : float, default 0
            Cut this share of the highest calibration scores off: the share of rows that you are sure are hidden
            anomalies. Without it they only make p-values larger, as long as they tend to score higher than normal rows.
            Cutting without `X` ends `predict_proba`, which was learned from the rows that are cut off, too.
        anomaly_ratio : float, optional
            For `predict_proba`: how frequent anomalies are among the rows to come; as among these by default. It needs
            labelled anomalies among `X`.

        Examples
        --------
        >>> import numpy as np
        >>> from esad import IsolationForest
        >>> rng = np.random.default_rng(0)
        >>> forest = IsolationForest(random_state=0).fit(rng.normal(size=(200, 3)))
        >>> forest.calibrate(rng.normal(size=(199, 3)), alpha=0.01).p_value([[9, 9, 9]])
        array([0.005])
        """
        check_is_fitted(self)
        known = self.calibration_
        if X is not None:
            scores = self.anomaly_score(X)
            is_anomaly = labels.check(y, len(scores), warn=False) == labels.ANOMALY
            calibration = Calibration.of_given(
                scores, is_anomaly, pollution_ratio=pollution_ratio, anomaly_ratio=anomaly_ratio
            )
        elif anomaly_ratio is not None:
            raise InputError("`anomaly_ratio` needs labelled anomalies to learn from. Give `X` and `y`.")
        elif known is None:
            calibration = self._cross_calibration(pollution_ratio)
        elif pollution_ratio == known.pollution_ratio:  # these scores are cut off already
            calibration = known
        elif known.pollution_ratio == 0:
            calibration = Calibration.of(known.parts, known.kind, pollution_ratio=pollution_ratio)
        else:
            raise InputError(
                "The highest scores were cut off before and are gone. Give `X` to calibrate anew, or "
                f"pollution_ratio={known.pollution_ratio} to keep the rows that are left."
            )
        return self.set_calibration(calibration, alpha=alpha)

    def set_calibration(self, calibration: Calibration, *, alpha: float | None = None) -> Self:
        """Take a calibration made of this detector's scores; `alpha` as in `calibrate`."""
        if alpha is not None:
            value = calibration.threshold(alpha)
            n_cut_off = calibration.n_cut_off  # alarms for sure: nobody knows that none of them is normal
            n_alarms = n_cut_off + sum(int((part > value).sum()) for part in calibration.parts)
            forecast = Forecast(calibration.n_rows + n_cut_off, n_alarms)
            if hasattr(self, "training_scores_"):
                known = self._forecast(value)
                forecast = replace(forecast, n_anomalies=known.n_anomalies, n_found=known.n_found)
            self._take_threshold(
                FittedThreshold(Threshold("false_alarm", alpha), "calibration", value, forecast=forecast)
            )
        self.calibration_ = calibration
        return self

    def _cross_calibration(self, pollution_ratio: float) -> Calibration:
        """Calibrate on the training rows that some member has not seen, each by that member."""
        self._check_training_scores()
        unseen_by = self.training_unseen_by_
        if unseen_by is None:
            raise InputError(
                f"This {type(self).__name__} has seen all of its training rows. Give `X`, normal rows kept apart, or "
                "fit with calibration_ratio=."
            )
        unlabelled = self.training_labels_ == labels.UNLABELLED
        members = range(int(unseen_by.max()) + 1)
        parts = [self.training_scores_[unlabelled & (unseen_by == member)] for member in members]
        return Calibration.of(parts, "cross", pollution_ratio=pollution_ratio)

    def p_value(self, X: Any) -> Scores:
        """How likely a normal row is to score so high: small for anomalies, above 0 and at most 1.

        Needs a calibration: `fit(..., calibration_ratio=)` or `calibrate`. Of new rows that are exchangeable with the
        calibration rows, a share of at most alpha has a p-value of at most alpha.
        """
        check_is_fitted(self)
        if self.calibration_ is None:
            raise InputError(
                "p-values need a calibration, and this detector has none. Fit with calibration_ratio=, or call "
                "calibrate(X) with normal rows that training has not seen."
            )
        p_values = self.score_with_p_values(X)[1]
        assert p_values is not None
        return p_values

    def score_with_p_values(self, X: Any) -> tuple[Scores, Scores | None]:
        """`anomaly_score` and, where there is a calibration, `p_value` of the same rows, in one pass."""
        rows, calibration = self.rows_of(X), self.calibration_
        if calibration is None:
            return self.score_rows(rows), None
        scores, by_member = self._score_members(rows) if calibration.is_cross else (self.score_rows(rows), None)
        return scores, calibration.p_values(scores if by_member is None else by_member)

    @_OnceCalibrated
    def predict_proba(self, X: Any) -> Scores:
        """How probable it is that a row is an anomaly, and that it is normal, (n, 2): in the order of -1, +1.

        Available after `calibrate` got labelled rows of both kinds. It is Platt's scaling: a logistic curve over
        how surprising a score is among the normal rows, learned from these rows, so it holds where anomalies are as
        frequent as there, or as `anomaly_ratio` says.

        Examples
        --------
        >>> import numpy as np
        >>> from esad import IsolationForest
        >>> rng = np.random.default_rng(0)
        >>> forest = IsolationForest(random_state=0).fit(rng.normal(size=(200, 3)))
        >>> apart = np.r_[rng.normal(size=(190, 3)), rng.normal(4, 1, size=(10, 3))]
        >>> forest.calibrate(apart, [0] * 190 + [-1] * 10).predict_proba([[0, 0, 0], [5, 5, 5]]).round(2)
        array([[0. , 1. ],
               [0.9, 0.1]])
        """
        assert self.calibration_ is not None  # `_OnceCalibrated` has looked
        anomalous = self.calibration_.probabilities(self.anomaly_score(X))
        return np.stack([anomalous, 1 - anomalous], axis=1)

    # ------------------------------------------------------------------ drift

    def drift(self, X: Any, *, level: float = LEVEL, min_distance: float = MIN_DISTANCE) -> Drift:
        """Whether new rows look like the rows that were trained on, column by column and by their scores.

        Parameters
        ----------
        X
            20 rows or more, as in `anomaly_score`. Labelled anomalies of the training are not what they are held
            against.
        level : float, default 0.05
            How likely rows that are like the training rows may be to raise any alarm.
        min_distance : float, default 0.05
            Differences smaller than this never count, however significant many rows make them.

        Examples
        --------
        >>> import numpy as np
        >>> from esad import IsolationForest
        >>> rng = np.random.default_rng(1)
        >>> forest = IsolationForest(random_state=0).fit(rng.normal(size=(500, 3)))
        >>> forest.drift(rng.normal(size=(500, 3))).drifted
        False
        >>> [shift.column for shift in forest.drift(rng.normal([0, 1, 0], 1, size=(500, 3))).found]
        ['x1']
        """
        monitor = self.drift_monitor()
        if monitor is None:
            raise InputError("The model file is older than drift and has no summary of its training rows. Fit again.")
        monitor.add(X, self.anomaly_score(X))
        return monitor.report(level=level, min_distance=min_distance)

    def drift_monitor(self) -> DriftMonitor | None:
        """For `drift` over many batches; None for models of older files."""
        check_is_fitted(self)
        if self.profile_ is None:
            return None
        calibration = self.calibration_
        held_out = calibration is not None and calibration.kind == "held out" and not calibration.pollution_ratio
        scores = calibration.parts[0] if calibration is not None and held_out else None
        return DriftMonitor(self.profile_, self.inputs_, held_out=scores)


def _n_not_finite(scores: Scores) -> int:
    return int(np.count_nonzero(~np.isfinite(scores)))
