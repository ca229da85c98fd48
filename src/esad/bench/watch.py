"""What watches a training in an experiment: the test AUC on the way, and a deadline that leaves a checkpoint."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from esad.datasets.scenario import Scenario
from esad.detectors.deep import DeepDetector
from esad.persist.checkpoint import Checkpoint
from esad.preprocess.inputs import Rows, reference_rows
from esad.score.metrics import evaluate
from esad.train.callbacks import scores_so_far
from esad.train.loop import LoopState

__all__ = ["Deadline", "OutOfTime", "TestCurve", "fit_watched"]

N_LOOKS = 5  # at the test rows, the last one after the training
N_SEEN = 2500  # test rows that a look is at, evenly over all
N_REFERENCE = 1000  # training rows that scale the scores of a look
CHECKPOINT_SECONDS = 300.0


class OutOfTime(Exception):  # noqa: N818  a signal, not an error
    """The deadline came before the end of a training; the checkpoint holds how far it got."""


def fit_watched(
    detector: DeepDetector, rows: Scenario, *, checkpoint: Path | None = None, deadline: float | None = None
) -> dict[str, list[float]]:
    """Fit, and give the test AUC at equal distances on the way, without the end: `{"test_auc": [...]}`.

    The test rows are only looked at: nothing is chosen by them, and nothing that is random in a training moves. Tables
    are not looked at, their trainings are short.
    """
    curve = TestCurve(detector, rows)
    callbacks: list[Any] = [curve] if rows.X_train.ndim > 2 else []
    if checkpoint is not None:
        saved = Checkpoint(checkpoint, every_seconds=CHECKPOINT_SECONDS, resume=True)
        callbacks += [saved, Deadline(saved, deadline)]
    detector.fit(rows.X_train, rows.y_train, callbacks=callbacks)
    if checkpoint is not None:
        saved.remove()
    return {"test_auc": curve.aucs} if curve.aucs else {}


class TestCurve:
    """A callback that notes the AUC of the test rows."""

    __test__ = False  # nothing for pytest

    def __init__(self, detector: DeepDetector, rows: Scenario) -> None:
        self._detector, self._rows = detector, rows
        self._seen = np.unique(np.linspace(0, len(rows.truth_test) - 1, N_SEEN).astype(int))
        self.aucs: list[float] = []

    def on_start(self, state: LoopState) -> None:
        """Bring test rows and some training rows to the device, once the last phase begins."""
        if state.phase < state.n_phases - 1:
            return
        device, dtype = state.data.x.device, state.data.x.dtype
        test = torch.from_numpy(self._transformed()).to(device, dtype)
        chosen = np.flatnonzero(reference_rows(self._rows.y_train))[:N_REFERENCE]
        reference = state.data.x[torch.from_numpy(chosen).to(device)]
        self._x = torch.cat([reference, test])
        self._is_reference = torch.arange(len(self._x), device=device) < len(reference)

    def on_step(self, state: LoopState) -> None:
        """Look every now and then."""
        every = max(1, state.n_steps // N_LOOKS)
        if state.phase < state.n_phases - 1 or state.step % every or state.step > (N_LOOKS - 1) * every:
            return
        scores = scores_so_far(state, self._x, self._is_reference)[~self._is_reference].cpu().numpy()
        auc = evaluate(scores, self._rows.truth_test[self._seen], ks=(), n_bootstrap=0).auc
        before = state.kept.get("test_auc", torch.empty(0, dtype=torch.float64))  # comes back with a checkpoint
        state.kept["test_auc"] = torch.cat([before.cpu(), torch.tensor([auc], dtype=torch.float64)])

    def on_end(self, state: LoopState) -> None:
        """Give the curve away."""
        self.aucs = state.kept["test_auc"].tolist() if "test_auc" in state.kept else []

    def _transformed(self) -> Rows:
        seen = self._rows.X_test[self._seen]
        return self._detector.inputs_.transform(seen, estimator=type(self._detector).__name__)


class Deadline:
    """A callback that writes the checkpoint and ends the training when its time has come."""

    def __init__(self, checkpoint: Checkpoint, deadline: float | None) -> None:
        self._checkpoint, self._deadline = checkpoint, deadline

    def on_start(self, state: LoopState) -> None:
        """Nothing to prepare."""

    def on_step(self, state: LoopState) -> None:
        """Look at the clock."""
        if self._deadline is not None and time.monotonic() > self._deadline and state.step < state.n_steps:
            self._checkpoint.write(state)
            raise OutOfTime

    def on_end(self, state: LoopState) -> None:
        """Nothing to add."""
