"""Callbacks: what can watch, stop, save and resume the loop."""

from __future__ import annotations

import signal
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from esad.errors import InputError
from esad.train.runtime import autocast

if TYPE_CHECKING:
    from esad.persist.checkpoint import Checkpoint
    from esad.train.loop import LoopState

__all__ = [
    "Callback",
    "EarlyStopping",
    "GracefulStop",
    "StopTraining",
    "WarmStart",
    "member_scores_so_far",
    "scores_so_far",
]

BLOCK_ROWS = 1024  # rows per forward pass


class StopTraining(Exception):  # noqa: N818  a signal, not an error
    """Raised by a callback to end training after the current step."""


class Callback(Protocol):
    """Called by the loop. A class that inherits from it says what it wants to; the rest does nothing."""

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


class EarlyStopping(Callback):
    """Watch the average precision of held-out labels; keep the best weights and stop when they stay best.

    Parameters
    ----------
    x : Tensor, (n, *features)
        Rows that the loop does not draw.
    y : Tensor, (n,)
        Their labels; the anomalies are ranked against all others.
    n_checks : int, default 20
        Looks over the whole training.
    patience : int, default 6
        Looks without a gain before training stops.
    """

    def __init__(self, x: Tensor, y: Tensor, *, n_checks: int = 20, patience: int = 6) -> None:
        self.x, self.y = x, y
        self.n_checks, self.patience = n_checks, patience

    def on_step(self, state: LoopState) -> None:
        """Look at the held-out rows every now and then."""
        if state.step % max(1, state.n_steps // self.n_checks) and state.step < state.n_steps:
            return
        precision = self._precision(state)
        best = float(state.callback_state.get("best_precision", torch.tensor(-1.0)))
        if precision > best:
            weights = {f"best.{name}": value.detach().clone() for name, value in state.objective.state_dict().items()}
            state.callback_state = {
                "best_precision": torch.tensor(precision, dtype=torch.float64),
                "n_since_best": torch.tensor(0),
            } | weights
            return
        state.callback_state["n_since_best"] = state.callback_state["n_since_best"] + 1
        if int(state.callback_state["n_since_best"]) >= self.patience:
            raise StopTraining

    def on_end(self, state: LoopState) -> None:
        """Put the best weights back."""
        best = {
            name.removeprefix("best."): value
            for name, value in state.callback_state.items()
            if name.startswith("best.")
        }
        if best:
            state.objective.load_state_dict(best)

    def _precision(self, state: LoopState) -> float:
        is_anomaly = self.y < 0
        scores = scores_so_far(state, self.x, ~is_anomaly)
        return float(average_precision_score(is_anomaly.cpu().numpy(), scores.cpu().numpy()))


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
        """From here on a step may be under way."""
        self._training = True

    def on_step(self, state: LoopState) -> None:
        """Stop between two steps; of several processes the first does, which ends the others too."""
        if self._asked is not None and state.processes.is_first:
            self._training = False
            if self._checkpoint is not None:
                self._checkpoint.write(state)
            raise self._asked

    def on_end(self, state: LoopState) -> None:
        """No step is under way any more."""
        self._training = False
        if self._asked is not None:
            raise self._asked


def scores_so_far(state: LoopState, x: Tensor, is_reference: Tensor) -> Tensor:
    """Anomaly scores (n,) of rows (n, *features) by the weights of this moment, scaled by the reference rows."""
    return member_scores_so_far(state, x, is_reference).mean(0)


@torch.no_grad()
def member_scores_so_far(state: LoopState, x: Tensor, is_reference: Tensor) -> Tensor:
    """The same by each member, (members, n)."""
    objective = state.objective.eval()
    scorer = objective.scorer()
    with autocast(state.settings.precision, x.device):
        parts = [scorer(block) for block in torch.split(x, BLOCK_ROWS)]
    terms = {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}
    objective.calibrate({name: term[:, is_reference] for name, term in terms.items()})
    scores = torch.stack(list(objective.contributions(terms).values())).sum(0)
    objective.train()
    if not scores.isfinite().all():
        raise state.diverged()
    return scores
