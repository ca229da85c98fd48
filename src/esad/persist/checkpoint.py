"""Checkpoints: the whole state of a training, so that it can go on after a kill as if nothing had happened."""

import logging
import os
import time
from pathlib import Path

import torch

from esad.core.text import one_line
from esad.errors import InputError, ModelFileError, OutputError
from esad.persist import bundle
from esad.train.callbacks import Callback, StopTraining
from esad.train.loop import LoopState

KIND = "esad-checkpoint"
logger = logging.getLogger("esad")


class Checkpoint(Callback):
    """A callback that writes the training's state every few seconds and resumes from it.

    Nothing is removed at the end: the caller does so with `remove`, once the model is safe.

    Parameters
    ----------
    path : path-like
        The checkpoint file; written whole or not at all.
    every_seconds : float, default 20
        Time between two writes.
    resume : bool, default False
        Continue from the file if it exists. A checkpoint of other data, labels or parameters is an error.
    """

    def __init__(self, path: str | os.PathLike[str], *, every_seconds: float = 20.0, resume: bool = False) -> None:
        self.path = Path(path)
        self.every_seconds = every_seconds
        self.resume = resume
        self.resumed_step = 0
        self._written_at = time.monotonic()

    def on_start(self, state: LoopState) -> None:
        """Load an earlier state if asked to; of several processes the first reads it for all."""
        if self.resume and state.processes.broadcast_first(self.path.exists()):
            self._load(state)

    def on_step(self, state: LoopState) -> None:
        """Write when it is time; all processes have the same state, one writes it."""
        if not state.processes.is_first or time.monotonic() - self._written_at < self.every_seconds:
            return
        try:
            self.write(state)
        except OutputError as error:  # a full disk must not cost the training
            logger.warning("no checkpoint: %s", error)
            self._written_at = time.monotonic()

    def write(self, state: LoopState) -> None:
        """Write the state now."""
        arrays = {name: value.cpu().numpy() for name, value in state.state_dict().items()}
        manifest = {"kind": KIND, "identity": state.identity, "phase": state.phase, "step": state.step}
        bundle.write(self.path, manifest, arrays)
        self._written_at = time.monotonic()

    def remove(self) -> None:
        """Delete the file, if it is there."""
        self.path.unlink(missing_ok=True)

    def _load(self, state: LoopState) -> None:
        manifest, arrays = state.processes.read_by_first(lambda: bundle.read(self.path))
        if manifest.get("kind") != KIND:
            raise ModelFileError(f"{str(self.path)!r} is not a checkpoint of esad.")
        if manifest.get("identity") != state.identity:
            raise InputError(
                f"The checkpoint {str(self.path)!r} belongs to other data, labels or parameters. "
                "Give the same ones as before, or start anew without resuming."
            )
        phase = manifest.get("phase")
        if not isinstance(phase, int) or not 0 <= phase < state.n_phases:
            raise ModelFileError(f"The checkpoint {str(self.path)!r} is damaged: there is no phase {phase!r}.")
        if state.phase < phase:
            raise StopTraining  # done before the interruption; the later phase's state holds what came of it
        if state.phase > phase:
            return
        try:
            state.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
        except (ValueError, IndexError, RuntimeError) as error:
            raise ModelFileError(f"The checkpoint {str(self.path)!r} is damaged: {one_line(error)}") from error
        self.resumed_step = state.step
