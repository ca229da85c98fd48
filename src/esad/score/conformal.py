r"""Conformal p-values: how many presumed normal rows, not seen in training, score at least as high.

    p(x) = (1 + #{i : s_i >= s(x)}) / (n + 1)                                    Eq. (1)
    p(x) = (1 + sum_k #{i in part k : s_k(x_i) >= s_k(x)}) / (n + 1)              Eq. (2)

=========  =======================================================================
s(x)       anomaly score of a new row
s_i        scores of the n calibration rows, which training has not seen
s_k        score by member k, which has not seen part k of the training rows
=========  =======================================================================

    P(anomaly | x) = 1 / (1 + exp(-(a sqrt(v(x)) + b)))                           Eq. (3)

Eq. (1) is split conformal: of new normal rows, exchangeable with the calibration rows, a share of at most alpha has
p <= alpha, on average over calibration sets. Eq. (2) is cross-conformal: no row is lost for training, and what is
proven is a share of about 2 alpha at most. Eq. (3) is Platt's scaling of how surprising a score is among the
calibration rows (v of `Surprisal`; its root grows as the scores would if they were normally distributed), learned from
these and from labelled anomalies that training has not seen either. Its probabilities are right if anomalies are as
frequent among new rows as in that sample. If another share is given, b is moved by the difference of the log odds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad.core.arguments import check_share
from esad.core.arrays import Arrays, Scores
from esad.errors import InputError, ModelFileError
from esad.score.surprisal import Surprisal
from esad.score.threshold import ROUNDING, Threshold, n_rows_needed

CalibrationKind = Literal["held out", "given", "cross"]

_PARTS: Final = ("kind", "sizes", "pollution_ratio")  # of a file; "sigmoid" where there is one


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of presumed normal rows that training has not seen.

    Attributes
    ----------
    parts : tuple of ndarray
        Sorted scores: one part or, for "cross", one for each member that left rows out.
    kind : {"held out", "given", "cross"}
        Rows that `fit` held out, rows given later, or training rows by the members that have not seen them.
    pollution_ratio : float
        The share of highest scores that was cut off.
    sigmoid : tuple of float or None
        a and b of Eq. (3), where labelled anomalies were given.

    Examples
    --------
    >>> calibration = Calibration.of([[1.0, 2.0, 3.0, 4.0]], "given")
    >>> calibration.p_values([0.0, 2.5, 9.0])
    array([1. , 0.6, 0.2])
    """

    parts: tuple[Scores, ...]
    kind: CalibrationKind
    pollution_ratio: float = 0.0
    sigmoid: tuple[float, float] | None = None

    @classmethod
    def of(cls, parts: Sequence[ArrayLike], kind: CalibrationKind, *, pollution_ratio: float = 0.0) -> Self:
        """Keep the scores, less the highest share `pollution_ratio` of each part."""
        if not isinstance(pollution_ratio, int | float | np.number) or not 0 <= pollution_ratio < 1:
            raise InputError(f"`pollution_ratio` must be 0 or more and below 1. Got {pollution_ratio!r}.")
        kept = []
        for part in parts:
            scores = np.asarray(part, dtype=np.float64)
            kept.append(np.sort(scores)[: len(scores) - math.floor(pollution_ratio * len(scores) + ROUNDING)])
        if not sum(map(len, kept)):
            raise InputError("Calibration needs one row at least. Got none that is presumed normal.")
        return cls(tuple(kept), kind, float(pollution_ratio))

    @classmethod
    def of_given(
        cls,
        scores: Scores,
        is_anomaly: NDArray[np.bool_],
        *,
        pollution_ratio: float = 0.0,
        anomaly_ratio: float | None = None,
    ) -> Self:
        """Keep the scores of rows given later; from those of labelled anomalies, Eq. (3) is learned."""
        calibration = cls.of([scores[~is_anomaly]], "given", pollution_ratio=pollution_ratio)
        if is_anomaly.any():
            return calibration.with_anomalies(scores[is_anomaly], anomaly_ratio=anomaly_ratio)
        if anomaly_ratio is not None:
            raise InputError("`anomaly_ratio` needs labelled anomalies to learn from. Got none in `y`.")
        return calibration

    def with_anomalies(self, scores: ArrayLike, *, anomaly_ratio: float | None = None) -> Self:
        """A copy with Eq. (3), which is learned from the scores of labelled anomalies and of the calibration rows.

        Parameters
        ----------
        scores : array-like of shape (n,)
            Of one anomaly or more that training has not seen.
        anomaly_ratio : float, optional
            How frequent anomalies are among the rows to come; as in this sample by default.

        Examples
        --------
        >>> calibration = Calibration.of([np.arange(99.0)], "given").with_anomalies([95.0, 120.0, 150.0])
        >>> calibration.probabilities([10.0, 96.0, 130.0]).round(2)
        array([0.01, 0.06, 0.79])
        """
        from scipy.special import logit
        from sklearn.linear_model import LogisticRegression

        normal = np.concatenate(self.parts)
        place = self._places(np.concatenate([normal, np.asarray(scores, dtype=np.float64)]))
        n_normal, n_anomaly = len(normal), len(place) - len(normal)
        # Platt's targets: never quite sure, so that classes that do not overlap have an answer too
        target = np.repeat([1 / (n_normal + 2), (n_anomaly + 1) / (n_anomaly + 2)], [n_normal, n_anomaly])
        weights = np.concatenate([target, 1 - target])
        twice, answers = np.tile(place, 2)[:, None], np.repeat([1, 0], len(place))
        fitted = LogisticRegression(C=1e9).fit(twice, answers, sample_weight=weights)
        shift = 0.0
        if anomaly_ratio is not None:
            shift = logit(check_share("`anomaly_ratio`", anomaly_ratio)) - logit(n_anomaly / len(place))
        return replace(self, sigmoid=(max(float(fitted.coef_[0, 0]), 0.0), float(fitted.intercept_[0] + shift)))

    def probabilities(self, scores: ArrayLike) -> Scores:
        """Eq. (3); needs `sigmoid`."""
        from scipy.special import expit

        assert self.sigmoid is not None
        slope, intercept = self.sigmoid
        return np.asarray(expit(slope * self._places(scores) + intercept))

    def _places(self, scores: ArrayLike) -> Scores:
        """sqrt(v) of Eq. (3)."""
        return np.sqrt(Surprisal.of(np.concatenate(self.parts))(scores))

    def __str__(self) -> str:
        words = {"held out": "held out of the training", "given": "given later", "cross": "of the training, by member"}
        rows = "1 row" if self.n_rows == 1 else f"{self.n_rows:,} rows"
        return f"{rows} {words[self.kind]}: p-values from {1 / (self.n_rows + 1):.3g}"

    @property
    def n_rows(self) -> int:
        """How many rows were kept."""
        return sum(map(len, self.parts))

    @property
    def n_cut_off(self) -> int:
        """About how many rows were cut off for `pollution_ratio`."""
        return round(self.n_rows / (1 - self.pollution_ratio)) - self.n_rows

    @property
    def is_cross(self) -> bool:
        """Whether rows are compared member by member."""
        return self.kind == "cross"

    def ranks(self, scores: ArrayLike) -> NDArray[np.int64]:
        """The p-values times n + 1: whole numbers from 1 to n + 1.

        Parameters
        ----------
        scores : array-like of shape (n,), or (members, n) for "cross"
            Scores of new rows.
        """
        given = np.atleast_2d(np.asarray(scores, dtype=np.float64))
        ranks = np.ones(given.shape[1], dtype=np.int64)
        if len(given) < len(self.parts):
            raise InputError(f"The calibration is of {len(self.parts)} members. Got scores by {len(given)}.")
        for part, own in zip(self.parts, given, strict=False):  # members beyond the parts have seen every row
            ranks += len(part) - np.searchsorted(part, own, side="left")
        return ranks

    def p_values(self, scores: ArrayLike) -> Scores:
        """Eq. (1) or, for "cross", Eq. (2)."""
        return self.ranks(scores) / (self.n_rows + 1)

    def check_level(self, share: float, *, name: str = "`alpha`") -> float:
        """Refuse a level that no p-value can reach, and say how many rows it takes."""
        level = check_share(name, share)
        if (self.n_rows + 1) * level + ROUNDING < 1:
            raise InputError(
                f"{name} of {level:g} needs at least {n_rows_needed(level):,} calibration rows. "
                f"Got {self.n_rows:,}. Take a larger one or calibrate with more rows."
            )
        return level

    def threshold(self, alpha: float) -> float:
        """The score above which p <= alpha; for "cross" only about so: one number cannot compare member by member."""
        self.check_level(alpha)
        return Threshold("false_alarm", float(alpha)).fit(np.concatenate(self.parts))

    def last_rank(self, alpha: float) -> int:
        """The largest of `ranks` whose p-value is at most `alpha`."""
        return math.floor((self.n_rows + 1) * self.check_level(alpha) + ROUNDING)

    def last_discovery(self, n_by_rank: NDArray[np.int64], rate: float) -> int:
        """Benjamini and Hochberg's cut, from counts of p-values alone: the largest rank to flag, 0 for none.

        Parameters
        ----------
        n_by_rank : ndarray of shape (n_rows + 2,)
            How many rows of the batch have each rank; nothing has rank 0.
        rate : float
            False-discovery rate to keep to.
        """
        self.check_level(rate, name="A false-discovery rate")
        n_found, ranks = n_by_rank.cumsum(), np.arange(len(n_by_rank))
        passes = ranks * n_found[-1] <= rate * (self.n_rows + 1) * n_found * (1 + ROUNDING)
        return int(ranks[passes & (n_by_rank > 0)].max(initial=0))

    # ------------------------------------------------------------------ files

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and plain values for the model file."""
        sizes = [len(part) for part in self.parts]
        plain: dict[str, Any] = {"kind": self.kind, "sizes": sizes, "pollution_ratio": self.pollution_ratio}
        if self.sigmoid is not None:
            plain["sigmoid"] = list(self.sigmoid)
        return {"scores": np.concatenate(self.parts)}, plain

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Any) -> Self:
        """Rebuild from `state`, checking everything."""
        _expect(isinstance(plain, dict) and {*plain, "sigmoid"} == {*_PARTS, "sigmoid"}, "its parts")
        kind, sizes, ratio = plain["kind"], plain["sizes"], plain["pollution_ratio"]
        _expect(kind in get_args(CalibrationKind), "its kind")
        _expect(isinstance(ratio, int | float) and not isinstance(ratio, bool) and 0 <= ratio < 1, "its pollution")
        _expect(isinstance(sizes, list) and all(type(size) is int and size >= 0 for size in sizes), "its sizes")
        _expect(len(sizes) >= 1 and (kind == "cross" or len(sizes) == 1), "its sizes")
        scores = arrays.get("scores")
        _expect(scores is not None and set(arrays) == {"scores"}, "its arrays")
        assert scores is not None
        _expect(scores.dtype == np.float64 and scores.shape == (sum(sizes),) and len(scores) > 0, "its scores")
        _expect(bool(np.isfinite(scores).all()), "scores that are not finite")
        parts = np.split(scores, np.cumsum(sizes)[:-1])
        _expect(all(bool((np.diff(part) >= 0).all()) for part in parts), "scores out of order")
        sigmoid = plain.get("sigmoid")
        if sigmoid is not None:
            sound = isinstance(sigmoid, list) and len(sigmoid) == 2 and all(type(value) is float for value in sigmoid)
            _expect(sound and math.isfinite(sum(sigmoid)) and sigmoid[0] >= 0, "its scale of probabilities")
        return cls(tuple(parts), kind, float(ratio), None if sigmoid is None else (sigmoid[0], sigmoid[1]))


def discoveries(p_values: ArrayLike, rate: float) -> NDArray[np.bool_]:
    """Which rows of a batch to flag so that the expected share of false alarms among them is at most `rate`.

    Benjamini and Hochberg's procedure, which holds for split-conformal p-values of independent rows (Bates et al.
    2023).

    Parameters
    ----------
    p_values : array-like of shape (n_rows,)
        From `Detector.p_value`, of the whole batch.
    rate : float
        False-discovery rate, between 0 and 1.

    Returns
    -------
    ndarray of bool, shape (n_rows,)

    Examples
    --------
    >>> discoveries([0.01, 0.9, 0.02, 0.5], 0.1)
    array([ True, False,  True, False])
    """
    from scipy.stats import false_discovery_control

    check_share("`rate`", rate)
    given = np.asarray(p_values, dtype=np.float64)
    if given.ndim != 1 or not given.size or not ((given > 0) & (given <= 1)).all():
        raise InputError("`p_values` must be one number per row, above 0 and at most 1, for one row or more.")
    return np.asarray(false_discovery_control(given) <= rate * (1 + ROUNDING))


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ModelFileError(f"the calibration is damaged: {what}")
