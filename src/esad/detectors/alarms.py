"""Which scored rows are alarms: by the model's threshold, or by how small their p-values are."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detectors.base import Detector
    from esad.score.conformal import Calibration

__all__ = ["AlarmRule"]


@dataclass(frozen=True)
class AlarmRule:
    """What makes a row an alarm; `last_rank` counts calibration rows, as `Calibration.ranks` does."""

    threshold: float
    calibration: "Calibration | None"
    last_rank: int | None = None  # None: by the threshold

    def p_values(self, detector: "Detector", X: Any, scores: "NDArray[np.float64]") -> "NDArray[np.float64] | None":
        """p-values of scored rows; None without a calibration."""
        if self.calibration is None:
            return None
        return detector.p_value(X) if self.calibration.is_cross else self.calibration.p_values(scores)

    def flags(self, scores: "NDArray[np.float64]", p_values: "NDArray[np.float64] | None") -> "NDArray[np.bool_]":
        """Which rows are alarms."""
        import numpy as np

        if self.last_rank is None or p_values is None:
            return scores > self.threshold
        return np.asarray(self.ranks(p_values) <= self.last_rank)

    def ranks(self, p_values: "NDArray[np.float64]") -> "NDArray[np.int64]":
        """p-values as counts of calibration rows."""
        import numpy as np

        assert self.calibration is not None
        return np.rint(p_values * (self.calibration.n_rows + 1)).astype(np.int64)
