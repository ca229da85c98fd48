"""The only training loop: draws batches, steps, clips, schedules, reports, checkpoints and resumes.

Every method trains through `train`, in one phase or several, where an objective may take over what the one before it
has learned. The data stays on the device; unlabelled and labelled rows are drawn apart, because the losses average them
apart. A batch may be taken in equal parts, by several processes or one after the other: all random numbers are drawn
for the whole batch, so that the parts together are what one process would see at once.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esad.core.arrays import Labels
from esad.core.processes import ALONE, BatchShare, Processes
from esad.core.random import MemberRandom, member_seeds
from esad.errors import InputError, TrainingError
from esad.train.callbacks import Callback, StopTraining
from esad.train.graphs import N_WARM_UP, Recording, use_own_stream
from esad.train.objective import HELD_OUT, Batch, Move, Objective, RowPool
from esad.train.runtime import autocast, compile_network, limit_threads, place_objective
from esad.train.sharing import even_batches, make_replica, share_norm

OPTIMIZERS = ("adam", "adamw", "sgd", "rmsprop")
SCHEDULES = ("cosine", "halving", "constant")
logger = logging.getLogger("esad")
CHECK_EVERY = 50  # steps between looks at the loss for NaN: each look waits for the device


@dataclass(frozen=True)
class Settings:
    """How to train: everything the loop needs beside the objective and the data."""

    n_steps: int
    batch_size: int
    labelled_batch_size: int
    optimizer: str = "adam"
    lr: float = 5e-3
    schedule: str = "cosine"
    warmup_ratio: float = 0.05
    halve_every: int = 0  # steps, for the "halving" schedule
    weight_decay: float = 0.0
    clip: float | None = 10.0
    precision: str = "auto"
    min_anomaly_ratio: float = 0.5  # of the labelled draws
    beta_1: float = 0.9  # of Adam
    beta_2: float = 0.999  # of Adam; the same of RMSProp
    momentum: float = 0.0  # of SGD, after Nesterov
    compiled: bool = False  # fuse the forward and backward pass; worth its half minute on a GPU in long trainings
    accumulate: int = 1  # parts that a batch is taken in, one after the other

    def lr_at(self, step: int) -> float:
        """Learning rate of step 0, 1, ...

        Examples
        --------
        >>> settings = Settings(n_steps=100, batch_size=32, labelled_batch_size=8, lr=0.1, schedule="halving",
        ...                     halve_every=25, warmup_ratio=0)
        >>> [settings.lr_at(step) for step in (0, 24, 25, 99)]
        [0.1, 0.1, 0.05, 0.0125]
        """
        n_warmup = int(self.warmup_ratio * self.n_steps)
        if step < n_warmup:
            return self.lr * (step + 1) / n_warmup
        if self.schedule == "cosine":
            done = (step - n_warmup) / max(1, self.n_steps - n_warmup)
            return self.lr * 0.5 * (1 + math.cos(math.pi * done))
        if self.schedule == "halving":
            return float(self.lr * 0.5 ** (step // max(1, self.halve_every)))
        return self.lr


class LoopState:
    """Everything that changes while training; saved and loaded whole by a checkpoint."""

    def __init__(
        self,
        objective: Objective,
        data: RowPool,
        settings: Settings,
        random: MemberRandom,
        *,
        identity: str = "",
        phase: int = 0,
        n_phases: int = 1,
        processes: Processes = ALONE,
    ) -> None:
        self.objective = objective
        self.data = data
        self.processes = processes
        self.n_parts = processes.size * settings.accumulate
        self.settings = settings if self.n_parts == 1 else even_batches(settings, data, self.n_parts)
        self.random = random
        self.identity = identity  # names data, labels and parameters; a checkpoint must match
        self.phase, self.n_phases = phase, n_phases  # of a training in several parts
        self.parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
        self.optimizer = _make_optimizer(_group_parameters(self.parameters, objective.moves()), settings)
        self.replica = None if processes.is_alone or len(objective.moves()) > 1 else make_replica(objective)
        self.step = 0
        self.losses: dict[str, Tensor] = {}  # name -> (n_steps,), mean over members
        self.callback_state: dict[str, Tensor] = {}  # what callbacks need to go on after an interruption
        self.order = torch.empty((data.n_members, 0), dtype=torch.int64, device=data.x.device)

    @property
    def n_steps(self) -> int:
        """How many steps the whole training has."""
        return self.settings.n_steps

    def make_divergence_error(self) -> TrainingError:
        """Make the error for a loss or score that is not a number."""
        return TrainingError(
            f"Training diverged at step {self.step} of {self.n_steps}: the loss is not a number. "
            "Lower `lr`, or set `clip` (gradient norm) to 1.0."
        )

    def latest_losses(self) -> dict[str, float]:
        """The terms of the last step, mean over members."""
        return {name: float(curve[self.step - 1]) for name, curve in self.losses.items()} if self.step else {}

    def curves(self) -> dict[str, Tensor]:
        """The terms of all steps so far, mean over members."""
        return {name: curve[: self.step].cpu() for name, curve in self.losses.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """Return as plain tensors all that a training needs to continue after an interruption."""
        state = {f"objective.{name}": value for name, value in self.objective.state_dict().items()}
        for index, parameter in enumerate(self.parameters):
            moments = self.optimizer.state.get(parameter, {})
            state |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in moments.items()}
        state |= {f"losses.{name}": curve for name, curve in self.losses.items()}
        state |= {f"kept.{name}": value for name, value in self.callback_state.items()}
        state |= {"order": self.order, "random": self.random.state(), "step": torch.tensor(self.step)}
        if self.data.refill is not None:
            state["refills"] = torch.tensor(self.data.refill.n_done)
        return {name: value.detach().clone() for name, value in state.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state_dict` gave; a `ValueError` where this training cannot."""
        self._check(state)
        parts: dict[str, dict[str, Tensor]] = {"objective": {}, "optimizer": {}, "losses": {}, "kept": {}}
        for name, value in state.items():
            group, _, rest = name.partition(".")
            if group in parts:
                parts[group][rest] = value.to(self.data.x.device)
        self.objective.load_state_dict(parts["objective"])
        self.losses, self.callback_state = parts["losses"], parts["kept"]
        for name, value in parts["optimizer"].items():
            index, _, moment = name.partition(".")
            parameter = self.parameters[int(index)]
            if value.shape == parameter.shape:  # laid out in memory as the weights are, which fused optimisers need
                value = torch.empty_like(parameter).copy_(value)
            self.optimizer.state[parameter][moment] = value
        self.order = state["order"].to(self.data.x.device)
        self.random.set_state(state["random"])
        self.step = int(state["step"])
        if self.data.refill is not None:
            self.data.refill.restore(int(state["refills"]))

    def _check(self, state: dict[str, Tensor]) -> None:
        """Refuse a state that does not fit this training."""
        moments: dict[int, set[str]] = {}
        wrong = [name for name, own in self.state_dict().items() if name not in state or state[name].dtype != own.dtype]
        for name, value in state.items():
            group, _, rest = name.partition(".")
            if group == "losses":
                fits = value.shape == (self.n_steps,)
            elif group == "optimizer":
                index, _, moment = rest.partition(".")
                moments.setdefault(int(index), set()).add(moment)
                fits = value.shape in ((), self.parameters[int(index)].shape) and value.is_floating_point()
            elif name == "order":
                fits = value.dim() == 2 and len(value) == self.data.n_members
                fits = fits and bool(((value >= 0) & (value < self.data.n_unlabelled)).all())
            else:
                fits = name != "step" or 0 <= int(value) <= self.n_steps
            wrong += [] if fits else [name]
        if wrong or len({frozenset(names) for names in moments.values()}) > 1:
            raise ValueError(f"of another training are {', '.join(wrong) or 'the moments of the optimiser'}")


def train(
    objective: Objective,
    data: RowPool,
    settings: Settings,
    *,
    random: MemberRandom,
    callbacks: Sequence[Callback] = (),
    identity: str = "",
    phase: int = 0,
    n_phases: int = 1,
    processes: Processes = ALONE,
) -> dict[str, Tensor]:
    """Train all members at once and return the loss curves, {term: (steps,)}.

    The objective is left in evaluation mode with the last (or, with early stopping, the best) weights. With several
    processes each takes its part of every batch, and all of them end with the same weights.
    """
    if settings.optimizer not in OPTIMIZERS:
        raise InputError(f"`optimizer` must be one of {', '.join(OPTIMIZERS)}. Got {settings.optimizer!r}.")
    objective.train()
    objective.prepare(data)
    on_gpu = data.x.is_cuda  # the replica over processes too belongs to the stream that it is used on
    with (
        use_own_stream(data.x.device) if on_gpu else contextlib.nullcontext(),
        compile_network(objective) if settings.compiled else contextlib.nullcontext(),
        contextlib.nullcontext() if processes.is_alone else share_norm(objective, processes),
    ):
        state = LoopState(
            objective, data, settings, random, identity=identity, phase=phase, n_phases=n_phases, processes=processes
        )
        _run(state, callbacks)
    objective.eval()
    objective.finish(data)
    return state.curves()


def _run(state: LoopState, callbacks: Sequence[Callback]) -> None:
    recording: Recording | None = None
    can_record = state.data.x.is_cuda and state.objective.recordable and state.n_parts == 1
    can_record = can_record and state.data.refill is None  # a recorded step knows its rows ahead
    try:
        for callback in callbacks:
            callback.on_start(state)
        last_eager = state.step + N_WARM_UP if can_record else state.n_steps
        while state.step < state.n_steps:
            if state.step < last_eager:
                _step(state)
            else:
                recording = recording or Recording(state, partial(_update, state), partial(_draw_ahead, state))
                recording.replay()
            if state.step % CHECK_EVERY == 0:
                _check_finite(state)
            for callback in callbacks:
                callback.on_step(state)
    except StopTraining:
        pass
    _check_finite(state)
    for callback in callbacks:
        callback.on_end(state)


def _step(state: LoopState) -> None:
    n = min(state.settings.batch_size, state.data.n_unlabelled)
    _draw_ahead(state, 1)
    picked, state.order = state.order[:, :n], state.order[:, n:]
    for group in state.optimizer.param_groups:
        lr = state.settings.lr_at(state.step) * group["ratio"]
        group["lr"] = group["lr"].fill_(lr) if isinstance(group["lr"], Tensor) else lr
    terms = _update(state, picked)
    if not state.losses:
        state.losses = {name: torch.zeros(state.n_steps, device=term.device) for name, term in terms.items()}
    for name, curve in state.losses.items():
        curve[state.step] = terms[name] if name in terms else curve[state.step - 1]
    state.step += 1


def _draw_ahead(state: LoopState, n_steps: int) -> None:
    """Draw the rows of the next steps ahead; what is left of an epoch comes before a new one."""
    n = n_steps * min(state.settings.batch_size, state.data.n_unlabelled)
    while state.order.shape[1] < n:
        if state.data.refill is not None and state.step:
            state.data.refill()
        state.order = torch.cat([state.order, state.random.permutation(state.data.n_unlabelled)], dim=1)


def _update(state: LoopState, unlabelled: Tensor) -> dict[str, Tensor]:
    """Make all moves of a step on these unlabelled rows; the terms' means over members."""
    labelled = _draw_labelled(state.data, state.settings, state.random)
    terms: dict[str, Tensor] = {}
    for move in state.objective.moves():
        if state.step % move.every == 0:
            with _move_only(move, state.parameters):
                terms |= _make_move(state, move, unlabelled, labelled)
    state.objective.after_step()
    return terms


@contextlib.contextmanager
def _move_only(move: Move, parameters: Sequence[Tensor]) -> Iterator[None]:
    """Freeze the parameters of all networks that the move does not name."""
    own = {id(parameter) for network in move.networks for parameter in network.parameters()}
    fixed = [parameter for parameter in parameters if own and id(parameter) not in own]
    for parameter in fixed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in fixed:
            parameter.requires_grad_(True)


def _make_move(state: LoopState, move: Move, unlabelled: Tensor, labelled: Tensor) -> dict[str, Tensor]:
    """Forward pass, backward pass and optimiser step of one move; the terms' means over members."""
    settings = state.settings
    state.optimizer.zero_grad(set_to_none=True)  # what has no gradient is left as it is
    stream = state.random.state() if settings.accumulate > 1 else None
    parts = []
    for number in range(settings.accumulate):
        if stream is not None:  # every part of the batch sees its own rows of the same draws
            state.random.set_state(stream)
        part = BatchShare(state.processes.rank + number * state.processes.size, state.n_parts)
        is_last = number == settings.accumulate - 1
        with contextlib.nullcontext() if is_last or state.replica is None else state.replica.no_sync():
            parts.append(_backward(state, move, part, unlabelled, labelled))
    if state.replica is None and not state.processes.is_alone:
        for parameter in state.parameters:
            if parameter.grad is not None:
                parameter.grad.copy_(state.processes.mean(parameter.grad))
    if settings.clip is not None:
        clip_per_member(state.parameters, state.objective.n_members, settings.clip)
    state.optimizer.step()
    names = list(parts[0])
    values = [torch.stack(list(terms.values())) for terms in parts]  # of (terms,)
    whole = values[0] if len(values) == 1 else torch.stack(values).mean(0)
    return dict(zip(names, state.processes.mean(whole), strict=True))


def _backward(
    state: LoopState, move: Move, part: BatchShare, unlabelled: Tensor, labelled: Tensor
) -> dict[str, Tensor]:
    """Add the gradients of a part of the batch to those that are there; the terms' means over members."""
    data, settings = state.data, state.settings
    unlabelled, labelled = part.of(unlabelled), part.of(labelled)
    batch = Batch(
        unlabelled=data.x[data.unlabelled.gather(1, unlabelled)],
        labelled=data.x[data.labelled.gather(1, labelled)],
        y=data.y.gather(1, labelled),
        random=state.random.for_part(part),
        processes=state.processes,
    )
    with autocast(settings.precision, data.x.device):
        terms = (state.replica or move.loss)(batch)
    stacked = torch.stack(list(terms.values()))  # (terms, members)
    # members do not share weights, so the gradient of the sum is every member's own gradient
    total = stacked.sum()
    (total if settings.accumulate == 1 else total / settings.accumulate).backward()  # type: ignore[no-untyped-call]
    return dict(zip(terms, stacked.detach().mean(1), strict=True))


def clip_per_member(parameters: Sequence[Tensor], n_members: int, limit: float) -> None:
    """Scale each member's gradient to at most `limit` in norm, over all its parameters together."""
    gradients = [torch.unflatten(p.grad, 0, (n_members, -1)) for p in parameters if p.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(g, dim=tuple(range(1, g.dim()))) for g in gradients])
    factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)  # (members,)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.dim() - 1)))


def _draw_labelled(data: RowPool, settings: Settings, random: MemberRandom) -> Tensor:
    """Positions among the labelled rows, (members, size), drawn with replacement.

    Anomalies get their own share of the draws, but at least `min_anomaly_ratio`: a thousand known normal rows must
    not crowd out five known anomalies.
    """
    size, n_labelled, n_anomalies = settings.labelled_batch_size, data.n_labelled, data.n_anomalies
    if n_labelled == 0:
        return torch.empty((data.n_members, 0), dtype=torch.int64, device=data.x.device)
    share = n_anomalies / n_labelled
    if share in (0, 1) or share >= settings.min_anomaly_ratio:
        return random.integers(n_labelled, size)
    k = math.ceil(settings.min_anomaly_ratio * size)
    normal = n_anomalies + random.integers(n_labelled - n_anomalies, size - k)
    return torch.cat([random.integers(n_anomalies, k), normal], dim=1)


def _group_parameters(parameters: Sequence[Tensor], moves: Sequence[Move]) -> list[dict[str, Any]]:
    """Parameters by their `ratio` to the learning rate, as an optimiser takes them."""
    ratios = {id(own): move.lr_ratio for move in moves for net in move.networks for own in net.parameters()}
    groups: dict[float, list[Tensor]] = {}
    for parameter in parameters:
        groups.setdefault(ratios.get(id(parameter), 1.0), []).append(parameter)
    return [{"params": group, "ratio": ratio} for ratio, group in groups.items()]


def _make_optimizer(groups: list[dict[str, Any]], settings: Settings) -> torch.optim.Optimizer:
    device = groups[0]["params"][0].device
    on_gpu = device.type == "cuda"
    for group in groups:  # on a GPU a number that may be read by a recorded step
        group["lr"] = torch.tensor(settings.lr, device=device) if on_gpu else settings.lr
    common: dict[str, Any] = {"weight_decay": settings.weight_decay, "fused": device.type in ("cpu", "cuda")}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=settings.momentum > 0, **common)
    if settings.optimizer == "rmsprop":
        del common["fused"]  # there is no such kernel
        return torch.optim.RMSprop(groups, alpha=settings.beta_2, capturable=on_gpu, **common)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, betas=(settings.beta_1, settings.beta_2), capturable=on_gpu, **common)


def _check_finite(state: LoopState) -> None:
    if not all(math.isfinite(value) for value in state.latest_losses().values()):
        raise state.make_divergence_error()


# ---------------------------------------------------------------------- several trainings in a row


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
        The labels as this phase sees them, the user's by default. `unlabel_all` and `hold_out_anomalies` give others.
    """

    objective: Objective
    settings: Settings
    y: Labels | None = None

    def labels_seen(self, y: Labels) -> Labels:
        """The labels (..., n) as this phase sees them; what is held out stays so."""
        return y if self.y is None else np.where(y == HELD_OUT, y, self.y)


def train_phases(
    phases: Sequence[Phase],
    data_of: Callable[[int], RowPool],
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
        objective = place_objective(phase.objective, device, dtype)
        given = [seed] if isinstance(seed, int) else list(seed)
        n_each = objective.n_members // len(given)
        seeds = [own for one in given for own in member_seeds(one, n_each, phase=number)]
        random = MemberRandom(seeds, device=device, dtype=dtype)
        objective.reset(random)
        if previous is not None:
            objective.inherit(previous)
        is_last = number == len(phases) - 1
        with _limit_threads(phase, pictures=data.x.dim() > 2):
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
    if previous is not None:
        previous.keep_for_scoring()
    return curves


def _limit_threads(phase: Phase, *, pictures: bool) -> contextlib.AbstractContextManager[None]:
    n_rows = phase.settings.batch_size + phase.settings.labelled_batch_size
    n_weights = sum(parameter.numel() for parameter in phase.objective.parameters())
    return contextlib.nullcontext() if pictures else limit_threads(n_rows * n_weights)
