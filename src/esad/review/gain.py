"""How much better the next ten labels are expected to make the model, estimated in the background."""

import threading
import warnings
from collections.abc import Callable
from typing import Final

from esad import labels
from esad.advice.crossfit import MAX_ROWS
from esad.advice.curve import MIN_ANOMALIES, SHARES, Gain, learning_curve
from esad.core.arrays import Labels
from esad.detectors.base import Detector
from esad.review.refit import TrainingStopped, TrainingWatch
from esad.review.training import RefitData

N_NEXT: Final = 10
JOIN_SECONDS: Final = 5.0
# Splits, each trained on with a third, two thirds and all of its labels. Those of a table train side by side; pictures
# one after the other, a minute each on one core.
N_REPEATS: Final = {"table": 6, "images": 3}
MAX_TRAINED: Final = {"table": MAX_ROWS, "images": 300}  # rows of each training
EVERY: Final = {"table": 5, "images": 10}  # labels after which the estimate is made anew


class GainEstimator:
    """The expected gain of the next ten labels, one estimate at a time: each trains anew many times."""

    def __init__(self) -> None:
        self.gain: Gain | None = None
        self.progress: float | None = None  # of pictures, which take long
        self._n_labels: int | None = None  # that the last estimate was made with
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()

    @property
    def is_busy(self) -> bool:
        """Whether an estimate is being made."""
        return self._thread is not None and self._thread.is_alive()

    def update(self, detector: Detector, y: Labels, collect: Callable[[], RefitData]) -> bool:
        """Start an estimate if there are enough labels `y` and enough new ones; return whether one was started.

        `collect` gives the rows with these labels. It is called only then: it may copy many pictures.
        """
        counts = labels.counts(y)
        n_labels = counts.n_anomaly + counts.n_normal
        with self._lock:
            due = self._n_labels is None or abs(n_labels - self._n_labels) >= EVERY[detector.inputs_.kind]
            if counts.n_anomaly < MIN_ANOMALIES or not due or not counts.n_unlabelled or self.is_busy:
                return False
            self._n_labels, self._stop, self.progress = n_labels, threading.Event(), None
            arguments = (detector, collect(), self._stop)
            self._thread = threading.Thread(target=self._run, args=arguments, name="gain", daemon=True)
            self._thread.start()
            return True

    def cancel(self) -> None:
        """Stop the running estimate, because a refit needs the processor. The next one may start at once."""
        with self._lock:
            self._stop.set()
            if self.is_busy:
                self._n_labels = None

    def close(self) -> None:
        """End an estimate that is being made, and wait for that."""
        self.cancel()
        if self._thread is not None:
            self._thread.join(JOIN_SECONDS)

    def _run(self, detector: Detector, data: RefitData, stop: threading.Event) -> None:
        kind = detector.inputs_.kind
        n_trainings = N_REPEATS[kind] * len(SHARES)
        n_begun, last = 0, 1.0

        def tell(share: float) -> None:
            nonlocal n_begun, last
            n_begun, last = n_begun + (share < last), share
            if kind == "images":
                self.progress = min(1.0, (n_begun - 1 + share) / n_trainings)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.gain = learning_curve(
                    detector,
                    data.X,
                    data.y,
                    n_next=N_NEXT,
                    n_repeats=N_REPEATS[kind],
                    max_rows=MAX_TRAINED[kind],
                    callbacks=[TrainingWatch(tell, is_stopped=stop.is_set)],
                ).gain
        except TrainingStopped:
            pass
        except Exception:  # a failed estimate must not stop the page
            self.gain = None
