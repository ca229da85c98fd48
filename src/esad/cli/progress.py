"""Progress on stderr, on a terminal only, and the way out of a training that is interrupted."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.progress import Progress

    from esad.persist.checkpoint import Checkpoint
    from esad.train.loop import LoopState

__all__ = ["GracefulStop", "TrainingBar", "bar", "time_left"]


@contextmanager
def bar(*, rows: bool = False, bursts: bool = False, shown: bool = True) -> Iterator["Progress"]:
    """A progress bar that leaves no trace; nothing at all when stderr is not a terminal.

    With `bursts`, the time left is reckoned from the whole run: what is done comes in lots, minutes apart. A task then
    has the fields `before`, what was done before the run, and `limit`, seconds that it may take or None.
    """
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class TimeLeft(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            left = time_left(
                task.elapsed or 0.0,
                n_done=task.completed - task.fields["before"],
                n_left=task.remaining or 0.0,
                limit=task.fields["limit"],
            )
            return Text("-:--:--" if left is None else str(timedelta(seconds=round(left))), style="progress.remaining")

    parts: list[Any] = [progress.TextColumn("{task.description}"), progress.BarColumn()]
    if rows:
        parts.append(progress.TextColumn("{task.completed:,} rows"))
    else:
        parts.append(progress.TaskProgressColumn())
    parts += [progress.TimeElapsedColumn(), TimeLeft() if bursts else progress.TimeRemainingColumn()]
    made = progress.Progress(*parts, console=Console(stderr=True), transient=True)
    with made if shown and sys.stderr.isatty() else nullcontext():  # one that is never started draws nothing
        yield made


def time_left(elapsed: float, *, n_done: float, n_left: float, limit: float | None) -> float | None:
    """Seconds left at the pace so far, at most what a limit leaves; None while there is nothing to go by.

    Examples
    --------
    >>> time_left(60.0, n_done=10, n_left=30, limit=None)
    180.0
    >>> time_left(60.0, n_done=10, n_left=30, limit=90.0)
    30.0
    """
    pace = [elapsed * n_left / n_done] if n_done > 0 else []
    return min([*pace, *([] if limit is None else [max(limit - elapsed, 0.0)])], default=None)


class TrainingBar:
    """A callback of the training loop that moves a bar."""

    def __init__(self, progress: "Progress", description: str) -> None:
        self._progress = progress
        self._description = description
        self._task = progress.add_task(description, total=None)

    def on_start(self, state: "LoopState") -> None:
        """Learn how long the way is, and where a resumed training starts."""
        part = f", part {state.phase + 1} of {state.n_phases}" if state.n_phases > 1 else ""
        self._progress.update(
            self._task, description=self._description + part, total=state.n_steps, completed=state.step
        )

    def on_step(self, state: "LoopState") -> None:
        """Move."""
        self._progress.update(self._task, completed=state.step)

    def on_end(self, state: "LoopState") -> None:
        """Nothing: the bar goes away with its block."""


class GracefulStop:
    """A callback that lets the current step end after Ctrl-C and writes a checkpoint, if there is one, before it stops.

    In the middle of a step some weights are new and some old, a state that nobody could resume from. A second Ctrl-C
    stops at once. One that comes while a large package is being imported may get lost in it: it counts at the next
    step, or at the end of the block.
    """

    def __init__(self, checkpoint: "Checkpoint | None" = None) -> None:
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

    def on_start(self, state: "LoopState") -> None:
        """From here on a step may be under way."""
        self._training = True

    def on_step(self, state: "LoopState") -> None:
        """Stop between two steps; of several processes the first does, which ends the others too."""
        if self._asked is not None and state.processes.is_first:
            self._training = False
            if self._checkpoint is not None:
                self._checkpoint.write(state)
            raise self._asked

    def on_end(self, state: "LoopState") -> None:
        """No step is under way any more."""
        self._training = False
        if self._asked is not None:
            raise self._asked
