"""Trainings in the background: how far they are, and their end when nobody needs them any more."""

from collections.abc import Callable

from esad.train.loop import LoopState

__all__ = ["Stopped", "Watch"]


class Stopped(Exception):  # noqa: N818  somebody asked for it
    """A training was stopped from outside."""


class Watch:
    """A callback that tells how far the training is, over all its phases, and ends it when asked to."""

    def __init__(
        self, tell: Callable[[float], None] = lambda share: None, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._tell, self._is_stopped = tell, is_stopped

    def on_start(self, state: LoopState) -> None:
        """Nothing yet."""

    def on_step(self, state: LoopState) -> None:
        """Say how far it is, or end it."""
        if self._is_stopped():
            raise Stopped
        self._tell((state.phase + state.step / state.n_steps) / state.n_phases)

    def on_end(self, state: LoopState) -> None:
        """Nothing to add."""
