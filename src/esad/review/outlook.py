"""What the next labels are expected to bring, found in the background and shown when it is known."""

import threading
import warnings
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad import labels
from esad.advice.curve import MIN_ANOMALIES, Gain, learning_curve
from esad.detector import Detector
from esad.review.watch import Watch

__all__ = ["Outlook"]

N_NEXT: Final = 10
EVERY: Final = 5  # labels after which the estimate is made anew
JOIN_SECONDS: Final = 5.0


class Outlook:
    """The expected gain of the next ten labels. It trains anew many times, so for tables only, one at a time."""

    def __init__(self) -> None:
        self.gain: Gain | None = None
        self._n_labels = -EVERY  # that the last estimate was made with
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()

    @property
    def is_busy(self) -> bool:
        """Whether an estimate is being made."""
        return self._thread is not None and self._thread.is_alive()

    def consider(self, detector: Detector, X: Any, y: NDArray[np.int8]) -> bool:
        """Make an estimate if there are labels enough, and enough new ones; whether one was begun."""
        counts = labels.counts(y)
        n_labels = counts.n_anomaly + counts.n_normal
        with self._lock:
            due = counts.n_anomaly >= MIN_ANOMALIES and abs(n_labels - self._n_labels) >= EVERY
            if detector.inputs_.kind != "table" or not due or not counts.n_unlabelled or self.is_busy:
                return False
            self._n_labels = n_labels
            self._thread = threading.Thread(target=self._run, args=(detector, X, y.copy()), name="gain", daemon=True)
            self._thread.start()
            return True

    def close(self) -> None:
        """End an estimate that is being made."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _run(self, detector: Detector, X: Any, y: NDArray[np.int8]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                watch = Watch(is_stopped=self._stop.is_set)
                self.gain = learning_curve(detector, X, y, n_next=N_NEXT, callbacks=[watch]).gain
        except Exception:  # no estimate is better than a page that stops
            self.gain = None
