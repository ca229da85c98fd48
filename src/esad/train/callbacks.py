"""Callbacks: what can watch the loop, show how far it is (`verbose=1`), begin it with other weights, and end it.

None of this needs torch: the command line draws bars before it loads it.
"""

from __future__ import annotations

import importlib
import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, Self

from esad.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress
    from torch import Tensor

    from esad.persist.checkpoint import Checkpoint
    from esad.train.loop import LoopState

logger = logging.getLogger("esad")

_SECONDS_BETWEEN = 0.2  # two drawings of a notebook's bar


class StopTraining(Exception):  # noqa: N818  a signal, not an error
    """Raised by a callback to end training after the current step."""


class Callback(Protocol):
    """Called by the loop at the start, after each step and at the end; a subclass overrides what it needs."""

    def on_start(self, state: LoopState) -> None:
        """Before the first step; may load an earlier state into `state`."""
        return

    def on_step(self, state: LoopState) -> None:
        """After each step."""
        return

    def on_end(self, state: LoopState) -> None:
        """After the last step; may put better weights back."""
        return


class WarmStart(Callback):
    """Begin the last phase with the weights of an earlier training, and make it shorter; phases before it are left out.

    Parameters
    ----------
    weights : dict of str to Tensor
        The state of the earlier objective. Where it does not fit, since a column or a category is new, the training
        ends with an `InputError`.
    length : float, default 0.5
        Share of the steps that are still made.
    """

    def __init__(self, weights: dict[str, Tensor], *, length: float = 0.5) -> None:
        self.length = length
        self._weights = {name: value.detach().clone() for name, value in weights.items()}

    def on_start(self, state: LoopState) -> None:
        """Take the weights over; a phase that only prepares for them is left out."""
        if state.phase < state.n_phases - 1:
            raise StopTraining
        own = state.objective.state_dict()
        if own.keys() != self._weights.keys() or any(own[name].shape != self._weights[name].shape for name in own):
            raise InputError("The weights of the earlier training do not fit this one. Train from the beginning.")
        state.objective.load_state_dict(self._weights)
        state.settings = replace(state.settings, n_steps=max(1, round(self.length * state.settings.n_steps)))


class GracefulStop(Callback):
    """A callback that lets the current step end after Ctrl-C and writes a checkpoint, if there is one, before it stops.

    In the middle of a step some weights are new and some old, a state that nobody could resume from. A second Ctrl-C
    stops at once. One that comes while a large package is being imported may get lost in it: it counts at the next
    step, or at the end of the block.
    """

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self._checkpoint = checkpoint
        self._training = False
        self._asked: KeyboardInterrupt | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            handler = None if number is None else signal.getsignal(number)
            if number is not None and callable(handler):
                self._before[number] = handler
                signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if kind is None and self._asked is not None:
            raise self._asked

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        try:
            self._before[number](number, frame)
        except KeyboardInterrupt as interrupt:
            is_first, self._asked = self._asked is None, interrupt
            if not self._training or not is_first:
                raise

    def on_start(self, state: LoopState) -> None:
        """Note that steps run from now on."""
        self._training = True

    def on_step(self, state: LoopState) -> None:
        """Stop between two steps; of several processes the first does, which ends the others too."""
        if self._asked is not None and state.processes.is_first:
            self._training = False
            if self._checkpoint is not None:
                self._checkpoint.write(state)
            raise self._asked

    def on_end(self, state: LoopState) -> None:
        """Note that no step runs any more."""
        self._training = False
        if self._asked is not None:
            raise self._asked


# ---------------------------------------------------------------------- how far it is


@contextmanager
def show_progress(description: str) -> Iterator[list[Callback]]:
    """Callbacks that show the progress of a training inside the block."""
    from rich.console import Console
    from rich.progress import Progress

    from esad.core import processes

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


class LogProgress(Callback):
    """Log the loss, and how long the rest will take, ten times over the training."""

    def on_start(self, state: LoopState) -> None:
        """Log the number of steps."""
        self._began, self._first_step = time.monotonic(), state.step
        logger.info(
            "training %d member(s) for %d steps%s", state.objective.n_members, state.n_steps, _name_phase(state)
        )

    def on_step(self, state: LoopState) -> None:
        """Log the loss and the time left after every tenth of the steps."""
        if state.step % max(1, state.n_steps // 10) == 0:
            terms = ", ".join(f"{name} {value:.4g}" for name, value in state.latest_losses().items())
            pace = (time.monotonic() - self._began) / (state.step - self._first_step)
            left = pace * (state.n_steps - state.step)
            logger.info("step %d of %d, %.0f s left: %s", state.step, state.n_steps, left, terms)


class TrainingBar(Callback):
    """A callback that moves a bar of rich's; it goes away with its block."""

    def __init__(self, progress: Progress, description: str) -> None:
        self._progress = progress
        self._description = description
        self._task = progress.add_task(description, total=None)

    def on_start(self, state: LoopState) -> None:
        """Set the bar's length, and its position where a training is resumed."""
        description = self._description + _name_phase(state)
        self._progress.reset(self._task, description=description, total=state.n_steps, completed=state.step)
        self._progress.update(self._task, total=state.n_steps)  # from here on time counts

    def on_step(self, state: LoopState) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=state.step)


class _NotebookBar(Callback):
    """A progress bar in a cell of a notebook, where rich's own would need a package of widgets."""

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
        notebook = importlib.import_module("IPython.display")  # installed wherever a notebook runs
        words = f"{self._description}{_name_phase(state)}: step {state.step:,} of {state.n_steps:,}"
        bar = notebook.HTML(f'<progress value="{state.step}" max="{state.n_steps}"></progress> {words}')
        if self._handle is None:
            self._handle = notebook.display(bar, display_id=True)
        else:
            self._handle.update(bar)
        self._drawn = time.monotonic()
