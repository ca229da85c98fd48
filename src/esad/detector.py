"""The scikit-learn face shared by every method: fit, score, decide, save.

Directions, defined here once: `anomaly_score` is higher for the more anomalous; `score_samples` is its negative;
`decision_function = score_samples - offset_`; `predict` gives -1 for an alarm and +1 otherwise. A row is an alarm
when its anomaly score is greater than `threshold_ = -offset_`.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from esad import labels
from esad.data.frame import Table
from esad.errors import InputError, LabelError
from esad.explain.attribution import Attribution
from esad.explain.cases import Cases
from esad.explain.occlusion import occluded, patches
from esad.explain.reasons import HeatMaps, Reasons
from esad.persist import bundle
from esad.preprocess.inputs import Inputs, Rows, read, reference_rows
from esad.preprocess.profile import Profile, profiled_rows
from esad.random import seed_from
from esad.score.conformal import Calibration
from esad.score.drift import LEVEL, MIN_DISTANCE, Drift, DriftMonitor
from esad.score.splits import calibration_rows
from esad.score.threshold import Threshold
from esad.train.callbacks import Callback

__all__ = ["Detector", "TrainingScores"]

Scores = NDArray[np.float64]
State = tuple[dict[str, NDArray[Any]], dict[str, Any]]


@dataclass(frozen=True)
class TrainingScores:
    """Scores of the training rows.

    Attributes
    ----------
    total : ndarray, (n,)
        As `anomaly_score` gives them.
    held_out : ndarray, (n,)
        Unlabelled rows by the member that has not seen them, NaN where all members have; labelled rows by all.
    unseen_by : ndarray of int, (n,), or None
        The member that has not seen the row, -1 where all have; None when every row was seen by all.
    """

    total: Scores
    held_out: Scores
    unseen_by: NDArray[np.int64] | None = None


class Detector(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of all methods. A method says how to fit rows, how to score them and what its state is."""

    summary: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("table", "images")
    labels_used: ClassVar[tuple[str, ...]] = ("anomaly", "unlabelled", "normal")
    labels_needed: ClassVar[tuple[str, ...]] = ()

    contamination: float | str
    random_state: int | np.random.RandomState | None
    calibration_: Calibration | None
    profile_: Profile | None

    @abstractmethod
    def _fit_rows(self, rows: Rows, y: NDArray[np.int8], callbacks: Sequence[Callback]) -> TrainingScores:
        """Train on preprocessed rows and labels -1, 0, +1, and score those rows."""

    @abstractmethod
    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        """Terms that add up to the anomaly score, each (n,)."""

    @abstractmethod
    def _state(self) -> State:
        """What the method learned, as arrays and plain values."""

    @abstractmethod
    def _restore(self, arrays: dict[str, NDArray[Any]], plain: Any) -> None:
        """Undo `_state`, checking everything."""

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        calibration_ratio: float | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Learn from rows or pictures and a few labels.

        Parameters
        ----------
        X : array, pandas, polars or arrow table, or pictures
            (n, columns), or (n, H, W), (n, H, W, C), (n, C, H, W).
        y : array-like of -1, 0, +1, optional
            -1 anomaly, 0 unlabelled, +1 normal; missing values are unlabelled. None: nothing is labelled.
        calibration_ratio : float, optional
            Hold this share of the unlabelled rows (without any: of the known normal ones) out of the training, to
            calibrate `p_value` with.
        callbacks : sequence of Callback
            Watch, checkpoint or stop the training.

        Returns
        -------
        self
        """
        data, checked = self._read(X, y)
        held_out = None
        if calibration_ratio is not None:
            chosen = calibration_rows(checked, calibration_ratio, seed_from(self.random_state))
            held_out, data, checked = _taken(data, chosen), _taken(data, ~chosen), checked[~chosen]
        rows = self._learn_inputs(data, checked)
        threshold = self._threshold_rule()
        scores = self._fit_rows(rows, checked, callbacks)
        self.training_scores_, self.training_labels_ = scores.held_out, checked
        self.training_unseen_by_ = scores.unseen_by
        if threshold.rule == "contamination":  # a share of these very rows, as scikit-learn means it
            self.offset_ = -threshold.fit(scores.total, checked)
        else:
            self._apply_to_training(threshold)
        if held_out is not None:
            held_out_scores = self._total(self.inputs_.rows_of(held_out, estimator=type(self).__name__))
            self.calibration_ = Calibration.of([held_out_scores], "held out")
        return self

    def _prepare(self, X: Any, y: ArrayLike | None) -> tuple[Rows, NDArray[np.int8]]:
        """Check what was given, learn the preprocessing, and give the rows and labels that a method trains on."""
        data, checked = self._read(X, y)
        return self._learn_inputs(data, checked), checked

    def _read(self, X: Any, y: ArrayLike | None) -> tuple[Table | NDArray[Any], NDArray[np.int8]]:
        """Check what was given and forget an earlier fit."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)  # a fit that fails must not leave half of an old one
        data = read(X)
        n_rows = data.n_rows if isinstance(data, Table) else len(data)
        kind = "table" if isinstance(data, Table) else "images"
        if kind not in self.takes:
            words = {"table": "tables", "images": "pictures"}
            taken = " and ".join(words[taken] for taken in self.takes)
            raise InputError(f"{type(self).__name__} takes {taken}. Got {words[kind]}.")
        if n_rows < 2:
            raise InputError(f"{type(self).__name__} cannot learn from {n_rows} sample: give two rows or more.")
        self._threshold_rule()  # refuses a wrong one before anything takes long
        return data, labels.check(y, n_rows)

    def _learn_inputs(self, data: Table | NDArray[Any], checked: NDArray[np.int8]) -> Rows:
        """Learn the preprocessing from the rows to train on, and give them preprocessed."""
        self._check_needed(checked)
        self.inputs_, rows = Inputs.fit(data, checked, scaling=self._scaling())
        self._describe_features()
        self._warn_of_ids()
        self.label_counts_ = labels.counts(checked)
        self.fingerprint_ = _fingerprint(rows, checked)
        self.cases_ = Cases.of(rows, checked)
        self.notes_: dict[str, Any] = {}
        self.calibration_ = None
        profiled = _taken(data, profiled_rows(reference_rows(checked)))
        self.profile_ = Profile.fit(self.inputs_.described(profiled, estimator=type(self).__name__))
        return rows

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "offset_")

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
        if X is not None:
            scores = self.anomaly_score(X)
            self.offset_ = -rule.fit(scores, labels.check(y, len(scores), warn=False))
        elif hasattr(self, "training_scores_"):
            self._apply_to_training(rule)
        else:
            check_is_fitted(self)
            raise InputError("A detector read from a file has no training scores. Give `X`, rows kept apart.")
        return self

    def _apply_to_training(self, rule: Threshold) -> None:
        """Set the threshold on scores by members that have not seen the row; labelled rows count for "labels" only."""
        scores, y = self.training_scores_, self.training_labels_
        known = np.isfinite(scores)
        unseen = known & (y == labels.UNLABELLED)
        if rule.rule != "labels" and unseen.any():
            known = unseen
        self.offset_ = -rule.fit(scores[known], y[known])

    def calibrate(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        alpha: float | None = None,
        pollution_ratio: float = 0.0,
    ) -> Self:
        """Calibrate `p_value` on presumed normal rows and, given `alpha`, set the threshold to that false-alarm rate.

        Parameters
        ----------
        X, y
            Rows that training has not seen, known or presumed to be normal; those labelled -1 in `y` are left out.
            None: the rows that `fit` held out or, where it held out none, the training rows, each compared with the
            member that has not seen it (cross-conformal).
        alpha : float, optional
            A row is an alarm from now on when its p-value is at most this: the share of false alarms among new normal
            rows, on average over calibration sets. None: the threshold stays.
        pollution_ratio : float, default 0
            Cut this share of the highest calibration scores off: the share of rows that you are sure are hidden
            anomalies. Without it they only make p-values larger, as long as they tend to score higher than normal rows.

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
        if X is not None:
            scores = self.anomaly_score(X)
            presumed = labels.check(y, len(scores), warn=False) != labels.ANOMALY
            calibration = Calibration.of([scores[presumed]], "given", pollution_ratio=pollution_ratio)
        elif self.calibration_ is None:
            calibration = self._cross_calibration(pollution_ratio)
        elif pollution_ratio == self.calibration_.pollution_ratio or self.calibration_.pollution_ratio == 0:
            known = self.calibration_
            calibration = Calibration.of(known.parts, known.kind, pollution_ratio=pollution_ratio)
        else:
            raise InputError("The highest scores were cut off before and are gone. Give `X` to calibrate anew.")
        return self.set_calibration(calibration, alpha=alpha)

    def set_calibration(self, calibration: Calibration, *, alpha: float | None = None) -> Self:
        """Take a calibration made of this detector's scores; `alpha` as in `calibrate`."""
        if alpha is not None:
            self.offset_ = -calibration.threshold(alpha)
        self.calibration_ = calibration
        return self

    def _cross_calibration(self, pollution_ratio: float) -> Calibration:
        """Calibrate on the training rows that some member has not seen, each by that member."""
        if not hasattr(self, "training_scores_"):
            raise InputError("A detector read from a file has no training scores. Give `X`, normal rows kept apart.")
        unseen_by = self.training_unseen_by_
        if unseen_by is None:
            raise InputError(
                f"This {type(self).__name__} has seen all of its training rows. Give `X`, normal rows kept apart, or "
                "fit with calibration_ratio=."
            )
        members = range(int(unseen_by.max()) + 1)
        parts = [self.training_scores_[unseen_by == member] for member in members]
        return Calibration.of(parts, "cross", pollution_ratio=pollution_ratio)

    def fit_predict(self, X: Any, y: ArrayLike | None = None, **kwargs: Any) -> NDArray[np.int64]:
        """`fit(X, y)`, then `predict(X)`."""
        return self.fit(X, y, **kwargs).predict(X)

    # ------------------------------------------------------------------ score

    def anomaly_score(self, X: Any) -> Scores:
        """One number per row, higher = more anomalous."""
        return self._total(self._rows(X))

    def score_terms(self, X: Any) -> dict[str, Scores]:
        """The named terms that add up to `anomaly_score`."""
        return self._contributions(self._rows(X))

    def p_value(self, X: Any) -> Scores:
        """How likely a normal row is to score so high: small for anomalies, above 0 and at most 1.

        Needs a calibration: `fit(..., calibration_ratio=)` or `calibrate`. Of new rows that are exchangeable with the
        calibration rows, a share of at most alpha has a p-value of at most alpha.
        """
        rows = self._rows(X)
        calibration = self._calibration()
        return calibration.p_values(self._member_scores(rows) if calibration.is_cross else self._total(rows))

    def _calibration(self) -> Calibration:
        if self.calibration_ is None:
            raise InputError(
                "p-values need a calibration, and this detector has none. Fit with calibration_ratio=, or call "
                "calibrate(X) with normal rows that training has not seen."
            )
        return self.calibration_

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
        return DriftMonitor(self.profile_, self.inputs_, held_out=scores, estimator=type(self).__name__)

    def score_samples(self, X: Any) -> Scores:
        """scikit-learn's direction: the negative of `anomaly_score`."""
        return -self.anomaly_score(X)

    def decision_function(self, X: Any) -> Scores:
        """`score_samples(X) - offset_`: negative for alarms."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Any) -> NDArray[np.int64]:
        """-1 for an alarm, +1 otherwise."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def explain(self, X: Any, *, cases: tuple[Any, ArrayLike] | None = None, n_cases: int = 3) -> Reasons | HeatMaps:
        """Which columns or pixels make the score of each row, and what was expected in their place.

        Meant for the rows one looks at: it costs hundreds of times as much as scoring.

        Parameters
        ----------
        X : as in `anomaly_score`
        cases : (X, y), optional
            Labelled rows to be held against, -1 and +1. By default those of training; a model file has them only if
            it was saved with `with_cases=True`.
        n_cases : int
            How many of the nearest labelled cases are named.

        Returns
        -------
        Reasons or HeatMaps
            `Reasons` for a table, `HeatMaps` for pictures.
        """
        rows = self._rows(X)
        known = getattr(self, "cases_", None)
        if cases is not None:
            labelled = self._rows(cases[0])
            known = Cases.of(labelled, labels.check(cases[1], len(labelled), warn=False))
        expected = self._expected(rows)
        found = self._attribute(rows, expected)
        terms = self._contributions(rows)
        answers: dict[str, Any] = {
            "score": np.sum(list(terms.values()), axis=0),
            "terms": terms,
            "base": found.base,
            "cases": known.nearest(rows, n_cases) if known is not None and len(known) and n_cases else (),
        }
        if self.inputs_.schema is None:
            maps = {name: value.reshape(len(rows), *rows.shape[2:]) for name, value in found.shares.items()}
            return HeatMaps(shares=maps, pictures=rows, expected=expected, **answers)
        return Reasons(
            shares=found.shares,
            columns=self.inputs_.schema.names,
            observed=np.stack(self.inputs_.observed(X), axis=1),
            expected=np.stack(self.inputs_.cells(expected), axis=1),
            **answers,
        )

    def _expected(self, rows: Rows) -> Rows:
        """What the model expects in place of the rows; the typical row where it cannot tell."""
        return np.broadcast_to(self.inputs_.typical, rows.shape)

    def _attribute(self, rows: Rows, expected: Rows) -> Attribution:
        """Shares of columns (n, columns) or pixels (n, height x width) in the terms of the score."""
        if rows.ndim == 2:
            return occluded(self._contributions, rows, expected, self.inputs_.columns)
        patch = patches(self.inputs_.shape).ravel()
        found = occluded(self._contributions, rows, expected, np.tile(patch, rows.shape[1]))
        by_pixel = {name: (share / np.bincount(patch))[:, patch] for name, share in found.shares.items()}
        return Attribution(by_pixel, found.base)

    @property
    def threshold_(self) -> float:
        """A row is an alarm when its anomaly score is greater than this."""
        check_is_fitted(self)
        return -float(self.offset_)

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str], *, with_cases: bool = False) -> None:
        """Write the fitted detector to one `.esad` file: safetensors + JSON, never pickle.

        Parameters
        ----------
        path : str or path-like
        with_cases : bool
            Also write the labelled training rows, so that `explain` can name the nearest of them later on. Whoever
            has the file can then read those rows.
        """
        check_is_fitted(self)
        input_arrays, input_plain = self.inputs_.state()
        model_arrays, model_plain = self._state()
        manifest = {
            "method": type(self).__module__.rpartition(".")[2],
            "parameters": self._plain_parameters(),
            "inputs": input_plain,
            "model": model_plain,
            "threshold": self.threshold_,
            "label_counts": asdict(self.label_counts_),
            "data_fingerprint": self.fingerprint_,
            "notes": self.notes_,
        }
        arrays = {f"inputs.{name}": value for name, value in input_arrays.items()}
        arrays |= {f"model.{name}": value for name, value in model_arrays.items()}
        if self.calibration_ is not None:
            own_arrays, manifest["calibration"] = self.calibration_.state()
            arrays |= {f"calibration.{name}": value for name, value in own_arrays.items()}
        if self.profile_ is not None:
            own_arrays, manifest["profile"] = self.profile_.state()
            arrays |= {f"profile.{name}": value for name, value in own_arrays.items()}
        if with_cases and len(getattr(self, "cases_", ())):
            arrays |= {f"cases.{name}": value for name, value in self.cases_.state().items()}
        bundle.write(path, manifest, arrays)

    # ------------------------------------------------------------------ inside

    def _rows(self, X: Any) -> Rows:
        check_is_fitted(self)
        return self.inputs_.transform(X, estimator=type(self).__name__)

    def _total(self, rows: Rows) -> Scores:
        total: Scores = np.sum(list(self._contributions(rows).values()), axis=0, dtype=np.float64)
        return total

    def _member_scores(self, rows: Rows) -> Scores:
        """Scores by each member that may leave rows out of its training, (members, n)."""
        return self._total(rows)[None]

    def _scaling(self) -> str:
        return "standard"

    def _threshold_rule(self) -> Threshold:
        if isinstance(self.contamination, str):
            if self.contamination != "auto":
                raise InputError(f"`contamination` must be 'auto' or a share up to 0.5. Got {self.contamination!r}.")
            return Threshold("auto")
        if not isinstance(self.contamination, int | float | np.number) or not 0 < self.contamination <= 0.5:
            raise InputError(f"`contamination` must be 'auto' or a share up to 0.5. Got {self.contamination!r}.")
        return Threshold("contamination", self.contamination)

    def _check_needed(self, y: NDArray[np.int8]) -> None:
        """Refuse to train without the kinds of rows that the method cannot do without."""
        meant = {"anomaly": labels.ANOMALY, "unlabelled": labels.UNLABELLED, "normal": labels.NORMAL}
        for kind in self.labels_needed:
            if not (y == meant[kind]).any():
                named = {"anomaly": "labelled anomalies (-1)", "normal": "labelled normal rows (+1)"}
                raise LabelError(
                    f"{type(self).__name__} learns from {named.get(kind, 'unlabelled rows (0)')} and needs one at "
                    "least. Got none. Other methods can do without: see `esad methods`."
                )

    def _describe_features(self) -> None:
        """scikit-learn's attributes about the columns; pictures have none."""
        schema = self.inputs_.schema
        if schema is not None:
            self.n_features_in_ = len(schema.columns)
            if schema.named:
                self.feature_names_in_ = np.asarray(schema.names, dtype=object)

    def _warn_of_ids(self) -> None:
        schema = self.inputs_.schema
        ids = [column.name for column in schema.columns if column.proposes_id] if schema is not None else []
        if ids:
            warnings.warn(
                f"Column {ids[0]!r} holds other text in every row, as an id does. Drop it: nothing true is learned.",
                UserWarning,
                stacklevel=4,
            )

    def _plain_parameters(self) -> dict[str, Any]:
        parameters = self.get_params(deep=False)
        if isinstance(self.random_state, np.random.RandomState | np.random.Generator):
            parameters["random_state"] = None  # a live generator cannot be saved; the fitted model does not need it
        return {name: _plain(value) for name, value in parameters.items()}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(self.labels_needed)
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _taken(data: Table | NDArray[Any], chosen: NDArray[Any]) -> Table | NDArray[Any]:
    """The rows marked or numbered."""
    return data.take(chosen) if isinstance(data, Table) else data[chosen]


def _fingerprint(rows: Rows, y: NDArray[np.int8]) -> str:
    """Short hash of the preprocessed training data and labels."""
    digest = hashlib.sha256(repr(rows.shape).encode())
    digest.update(np.ascontiguousarray(rows).data)
    digest.update(np.ascontiguousarray(y).data)
    return digest.hexdigest()[:16]


def _plain(value: Any) -> Any:
    """A constructor argument as JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    return value
