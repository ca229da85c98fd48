"""How far a training is, for `verbose=1`: a bar on a terminal or in a notebook, else lines; always in the log."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

    from esad.train.callbacks import Callback
    from esad.train.loop import LoopState

__all__ = ["LogProgress", "TrainingBar", "show_progress"]

logger = logging.getLogger("esad")

_SECONDS_BETWEEN = 0.2  # two drawings of a notebook's bar


@contextmanager
def show_progress(verbose: int, description: str) -> Iterator[list[Callback]]:
    """Callbacks that show the progress of a training inside the block; none with `verbose=0`."""
    if not verbose:
        yield []
        return
    from rich.console import Console
    from rich.progress import Progress

    from esad.core import processes  # only here: the command line draws bars before it loads torch

    console = Console(stderr=True)
    if not processes.current().is_first:
        yield [LogProgress()]
    elif console.is_jupyter:
        yield [LogProgress(), _NotebookBar(description)]
    elif console.is_terminal:
        with Progress(console=console) as progress:
            yield [LogProgress(), TrainingBar(progress, description)]
    else:
        with _log_to_stderr():
            yield [LogProgress()]


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Send the log to stderr, unless logging is set up already."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        yield
        return
    handler, level = logging.StreamHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _name_phase(state: LoopState) -> str:
    """The phase in words, where there are several."""
    return f", part {state.phase + 1} of {state.n_phases}" if state.n_phases > 1 else ""


class LogProgress:
    """Log the loss, and how long the rest will take, ten times over the training."""

    def on_start(self, state: LoopState) -> None:
        """Say how long the way is."""
        self._began, self._first_step = time.monotonic(), state.step
        logger.info(
            "training %d member(s) for %d steps%s", state.objective.n_members, state.n_steps, _name_phase(state)
        )

    def on_step(self, state: LoopState) -> None:
        """Log every tenth part of the way."""
        if state.step % max(1, state.n_steps // 10) == 0:
            terms = ", ".join(f"{name} {value:.4g}" for name, value in state.latest_losses().items())
            pace = (time.monotonic() - self._began) / (state.step - self._first_step)
            left = pace * (state.n_steps - state.step)
            logger.info("step %d of %d, %.0f s left: %s", state.step, state.n_steps, left, terms)

    def on_end(self, state: LoopState) -> None:
        """Nothing to add."""


class TrainingBar:
    """A callback of the training loop that moves a bar of rich's."""

    def __init__(self, progress: Progress, description: str) -> None:
        self._progress = progress
        self._description = description
        self._task = progress.add_task(description, total=None)

    def on_start(self, state: LoopState) -> None:
        """Learn how long the way is, and where a resumed training starts."""
        description = self._description + _name_phase(state)
        self._progress.reset(self._task, description=description, total=state.n_steps, completed=state.step)
        self._progress.update(self._task, total=state.n_steps)  # from here on time counts

    def on_step(self, state: LoopState) -> None:
        """Move."""
        self._progress.update(self._task, completed=state.step)

    def on_end(self, state: LoopState) -> None:
        """Nothing: the bar goes away with its block."""


class _NotebookBar:
    """The same in a cell of a notebook; rich's own needs a package of widgets there."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._drawn = 0.0
        self._handle: Any = None

    def on_start(self, state: LoopState) -> None:
        self._draw(state)

    def on_step(self, state: LoopState) -> None:
        if time.monotonic() - self._drawn > _SECONDS_BETWEEN:
            self._draw(state)

    def on_end(self, state: LoopState) -> None:
        self._draw(state)

    def _draw(self, state: LoopState) -> None:
        notebook = importlib.import_module("IPython.display")  # there in every notebook, and only needed in one
        words = f"{self._description}{_name_phase(state)}: step {state.step:,} of {state.n_steps:,}"
        bar = notebook.HTML(f'<progress value="{state.step}" max="{state.n_steps}"></progress> {words}')
        if self._handle is None:
            self._handle = notebook.display(bar, display_id=True)
        else:
            self._handle.update(bar)
        self._drawn = time.monotonic()
