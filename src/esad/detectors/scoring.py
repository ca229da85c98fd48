"""Scores and what follows from them alone; the directions are stated in `esad.detectors.base`."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from esad.errors import ModelFileError, TrainingError
from esad.preprocess.inputs import Inputs, Rows

__all__ = ["Scores", "Scoring", "TrainingScores"]

Scores = NDArray[np.float64]


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

    def __post_init__(self) -> None:
        if n_wrong := _n_not_finite(self.total):
            raise TrainingError(
                f"Training diverged: the scores of {n_wrong} of {len(self.total)} training rows are not finite "
                "numbers. Change arguments that are far from their defaults, or scale them down."
            )


class Scoring:
    """A detector as far as it scores: terms that add up, and a threshold."""

    inputs_: Inputs
    offset_: float

    @abstractmethod
    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        """Terms that add up to the anomaly score, each (n,)."""

    def anomaly_score(self, X: Any) -> Scores:
        """One number per row, higher = more anomalous."""
        return self._total(self._rows(X))

    def score_terms(self, X: Any) -> dict[str, Scores]:
        """The named terms that add up to `anomaly_score`."""
        return self._contributions(self._rows(X))

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

    def _rows(self, X: Any) -> Rows:
        check_is_fitted(self)
        return self.inputs_.transform(X, estimator=type(self).__name__)

    def _total(self, rows: Rows) -> Scores:
        total: Scores = np.sum(list(self._contributions(rows).values()), axis=0, dtype=np.float64)
        if n_wrong := _n_not_finite(total):  # a training that left such weights would not have ended
            raise ModelFileError(
                f"The model's scores of {n_wrong} of {len(total)} rows are not finite numbers: its weights have been "
                "changed or are damaged. Fit it again."
            )
        return total

    def _member_scores(self, rows: Rows) -> Scores:
        """Scores by each member that may leave rows out of its training, (members, n)."""
        return self._total(rows)[None]


def _n_not_finite(scores: Scores) -> int:
    return int(np.count_nonzero(~np.isfinite(scores)))
