"""Trainings in several phases: each objective may take over what the one before it has learned."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esad.core.processes import ALONE, Processes
from esad.core.random import MemberRandom, member_seeds
from esad.train.callbacks import Callback
from esad.train.loop import Settings, train
from esad.train.objective import HELD_OUT, Objective, TrainingData
from esad.train.runtime import threads_for

__all__ = ["Phase", "place", "train_phases"]


@dataclass(frozen=True)
class Phase:
    """One run of the loop.

    Attributes
    ----------
    objective : Objective
        What is trained; it may `inherit` from the objective of the phase before.
    settings : Settings
        How it is trained.
    y : ndarray of int8, (n,), optional
        The labels as this phase sees them, the user's by default. `all_unlabelled` and `presumed_normal` give others.
    """

    objective: Objective
    settings: Settings
    y: NDArray[np.int8] | None = None

    def seen(self, y: NDArray[np.int8]) -> NDArray[np.int8]:
        """The labels (..., n) as this phase sees them; what is held out stays so."""
        return y if self.y is None else np.where(y == HELD_OUT, y, self.y)


def train_phases(
    phases: Sequence[Phase],
    data_of: Callable[[int], TrainingData],
    *,
    seed: int | Sequence[int],
    callbacks: Sequence[Callback] = (),
    last_callbacks: Sequence[Callback] = (),
    identity: str = "",
    processes: Processes = ALONE,
) -> dict[str, Tensor]:
    """Train one phase after the other; the last phase's objective is the model, and its loss curves are returned.

    Parameters
    ----------
    phases : sequence of Phase
        In order.
    data_of : callable
        Gives the rows that phase 0, 1, ... trains on; they say on which device and in which precision.
    seed : int or sequence of int
        Every member and phase draws from a stream of its own. With several seeds, each has an equal share of the
        members, which draw as they would alone.
    callbacks, last_callbacks : sequence of Callback
        For every phase, and first of all for the last one.
    identity : str
        Names the whole training, for checkpoints.
    processes : Processes
        Those that train together.
    """
    previous: Objective | None = None
    curves: dict[str, Tensor] = {}
    for number, phase in enumerate(phases):
        data = data_of(number)
        device, dtype = data.x.device, data.x.dtype
        objective = place(phase.objective, device, dtype)
        given = [seed] if isinstance(seed, int) else list(seed)
        n_each = objective.n_members // len(given)
        seeds = [own for one in given for own in member_seeds(one, n_each, phase=number)]
        random = MemberRandom(seeds, device=device, dtype=dtype)
        objective.reset(random)
        if previous is not None:
            objective.inherit(previous)
        is_last = number == len(phases) - 1
        with _threads(phase, pictures=data.x.dim() > 2):
            curves = train(
                objective,
                data,
                phase.settings,
                random=random,
                callbacks=[*(last_callbacks if is_last else ()), *callbacks],
                identity=identity,
                phase=number,
                n_phases=len(phases),
                processes=processes,
            )
        previous = objective
    return curves


def place(objective: Objective, device: torch.device, dtype: torch.dtype) -> Objective:
    """Move an objective; convolutions are quicker with the channels innermost."""
    moved: Objective = objective.to(device, dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved


def _threads(phase: Phase, *, pictures: bool) -> contextlib.AbstractContextManager[None]:
    n_rows = phase.settings.batch_size + phase.settings.labelled_batch_size
    n_weights = sum(parameter.numel() for parameter in phase.objective.parameters())
    return contextlib.nullcontext() if pictures else threads_for(n_rows * n_weights)
