"""Which scored rows are alarms: by the model's threshold, by p-value, or by the false-discovery rate of the file."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arguments import check_share
from esad.errors import InputError
from esad.io.checks import Remark

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.score.conformal import Calibration
    from esad.score.threshold import Forecast

__all__ = ["AlarmRule"]


@dataclass(frozen=True)
class AlarmRule:
    """What makes a row an alarm.

    Attributes
    ----------
    threshold : float
    calibration : Calibration or None
    last_rank : int or None
        The largest p-value of an alarm, as `Calibration.ranks` counts; None: by the threshold.
    alpha, fdr : float or None
        What was asked for.
    forecast : Forecast or None
        What the threshold is expected to do; None for other rules and where the model does not say.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(400, 3))
    >>> forest = IsolationForest(random_state=0).fit(X, calibration_ratio=0.5)
    >>> rule = AlarmRule.of(forest, alpha=0.05)
    >>> scores = forest.anomaly_score(X)
    >>> bool(rule.flags(scores, rule.p_values(forest, X, scores)).mean() < 0.1), rule.describe(3)
    (True, 'with a p-value of at most 0.05')
    """

    threshold: float
    calibration: "Calibration | None"
    last_rank: int | None = None
    alpha: float | None = None
    fdr: float | None = None
    forecast: "Forecast | None" = None

    @classmethod
    def of(cls, detector: "Detector", *, alpha: float | None = None, fdr: float | None = None) -> "AlarmRule":
        """The rule asked for, checked against the model; one with `fdr` is not complete before `for_file`."""
        if alpha is not None and fdr is not None:
            raise InputError("Give `alpha` or `fdr`, not both.")
        calibration, last_rank = detector.calibration_, None
        for name, share in (("`alpha`", alpha), ("`fdr`", fdr)):
            if share is None:
                continue
            check_share(name, share)
            if calibration is None:
                raise InputError(
                    f"{name} needs p-values, and the model has no calibration. Train it with `calibration_ratio`, or "
                    "give it normal rows with: esad calibrate"
                )
            calibration.check_level(share, name=name)
            last_rank = calibration.last_rank(alpha) if alpha is not None else None
        forecast = detector.forecast_ if alpha is None and fdr is None else None
        return cls(detector.threshold_, calibration, last_rank, alpha, fdr, forecast)

    def for_file(self, p_values: Iterable[NDArray[np.float64]]) -> "AlarmRule":
        """The rule for the rows of a file, by all their p-values, where a false-discovery rate was asked for."""
        assert self.calibration is not None and self.fdr is not None
        n_by_rank = np.zeros(self.calibration.n_rows + 2, dtype=np.int64)
        for some in p_values:
            n_by_rank += np.bincount(self.ranks(some), minlength=len(n_by_rank))
        return replace(self, last_rank=self.calibration.last_discovery(n_by_rank, self.fdr))

    def p_values(self, detector: "Detector", X: Any, scores: NDArray[np.float64]) -> NDArray[np.float64] | None:
        """p-values of scored rows; None without a calibration."""
        if self.calibration is None:
            return None
        return detector.p_value(X) if self.calibration.is_cross else self.calibration.p_values(scores)

    def flags(self, scores: NDArray[np.float64], p_values: NDArray[np.float64] | None) -> NDArray[np.bool_]:
        """Which rows are alarms."""
        if self.last_rank is None or p_values is None:
            return scores > self.threshold
        return np.asarray(self.ranks(p_values) <= self.last_rank)

    def ranks(self, p_values: NDArray[np.float64]) -> NDArray[np.int64]:
        """p-values as counts of calibration rows."""
        assert self.calibration is not None
        return np.rint(p_values * (self.calibration.n_rows + 1)).astype(np.int64)

    # ------------------------------------------------------------------ in words

    def describe(self, n_flagged: int) -> str:
        """The rule in words, to follow "12 flagged"."""
        if self.last_rank is None:
            return f"above the threshold {self.threshold:.6g}"
        if self.alpha is not None:
            return f"with a p-value of at most {self.alpha:g}"
        assert self.calibration is not None
        told = f"at a false-discovery rate of {100 * (self.fdr or 0):.1f} %"
        largest = self.last_rank / (self.calibration.n_rows + 1)
        return f"{told}: p-values up to {largest:.3g}" if n_flagged else told

    def limits(self, n_flagged: int, n_rows: int) -> Iterator[Remark]:
        """What weakens a false-discovery rate: members in place of held-out rows, or too few of these."""
        if self.fdr is None or self.calibration is None:
            return
        n_calibration = self.calibration.n_rows
        if self.calibration.pollution_ratio:
            yield Remark(
                "warning", "the highest calibration scores were cut off: the false-discovery rate may be much exceeded."
            )
        if self.calibration.is_cross:
            yield Remark(
                "note", "the p-values of this model are cross-conformal: it keeps to the false-discovery rate about."
            )
        n_together = math.ceil(n_rows / (self.fdr * (n_calibration + 1)) - 1e-9)
        if not n_flagged and n_together > 1:
            needed = math.ceil(n_rows / self.fdr - 1e-9) - 1
            yield Remark(
                "note",
                f"with {n_calibration:,} calibration rows, {n_together:,} of {n_rows:,} rows must stand "
                f"out together before any is flagged at this rate; with {needed:,}, a single one can.",
            )

    def to_json(self) -> dict[str, Any]:
        """What was asked for and what came of it."""
        found: dict[str, Any] = {"threshold": self.threshold, "alpha": self.alpha, "fdr": self.fdr}
        if self.calibration is not None:
            found["calibration"] = {"kind": self.calibration.kind, "n_rows": self.calibration.n_rows}
            if self.last_rank is not None:
                found["largest_p_value"] = self.last_rank / (self.calibration.n_rows + 1)
        return found if self.forecast is None else found | {"forecast": self.forecast.to_json()}
