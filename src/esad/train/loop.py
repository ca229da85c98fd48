"""The only training loop: draws batches, steps, clips, schedules, reports, checkpoints and resumes.

Every method trains through `train`. The data stays on the device; unlabelled and labelled rows are drawn apart,
because the losses average them apart.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from esad.errors import InputError, TrainingError
from esad.random import MemberRandom
from esad.train.callbacks import Callback, StopTraining
from esad.train.objective import Batch, Objective, TrainingData
from esad.train.runtime import autocast

__all__ = ["OPTIMIZERS", "SCHEDULES", "LoopState", "Settings", "clip_per_member", "train"]

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("cosine", "halving", "constant")
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
    beta_2: float = 0.999  # of Adam

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
        data: TrainingData,
        settings: Settings,
        random: MemberRandom,
        *,
        identity: str = "",
        phase: int = 0,
        n_phases: int = 1,
    ) -> None:
        self.objective = objective
        self.data = data
        self.settings = settings
        self.random = random
        self.identity = identity  # names data, labels and parameters; a checkpoint must match
        self.phase, self.n_phases = phase, n_phases  # of a training in several parts
        self.parameters = list(objective.parameters())
        self.optimizer = _make_optimizer(self.parameters, settings)
        self.step = 0
        self.losses: dict[str, Tensor] = {}  # name -> (n_steps,), mean over members
        self.kept: dict[str, Tensor] = {}  # what callbacks need to go on after an interruption
        self.order = torch.empty((data.n_members, 0), dtype=torch.int64, device=data.x.device)

    @property
    def n_steps(self) -> int:
        """How many steps the whole training has."""
        return self.settings.n_steps

    def latest_losses(self) -> dict[str, float]:
        """The terms of the last step, mean over members."""
        return {name: float(curve[self.step - 1]) for name, curve in self.losses.items()} if self.step else {}

    def curves(self) -> dict[str, Tensor]:
        """The terms of all steps so far, mean over members."""
        return {name: curve[: self.step].cpu() for name, curve in self.losses.items()}

    def state_dict(self) -> dict[str, Tensor]:
        """All that is needed to go on as if never interrupted, as plain tensors."""
        state = {f"objective.{name}": value for name, value in self.objective.state_dict().items()}
        for index, parameter in enumerate(self.parameters):
            moments = self.optimizer.state.get(parameter, {})
            state |= {f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in moments.items()}
        state |= {f"losses.{name}": curve for name, curve in self.losses.items()}
        state |= {f"kept.{name}": value for name, value in self.kept.items()}
        state |= {"order": self.order, "random": self.random.state(), "step": torch.tensor(self.step)}
        return {name: value.detach().clone() for name, value in state.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state_dict` gave."""
        parts: dict[str, dict[str, Tensor]] = {"objective": {}, "optimizer": {}, "losses": {}, "kept": {}}
        for name, value in state.items():
            group, _, rest = name.partition(".")
            if group in parts:
                parts[group][rest] = value.to(self.data.x.device)
        self.objective.load_state_dict(parts["objective"])
        self.losses, self.kept = parts["losses"], parts["kept"]
        for name, value in parts["optimizer"].items():
            index, _, moment = name.partition(".")
            # fused optimisers keep their step counter beside the weights
            self.optimizer.state[self.parameters[int(index)]][moment] = value
        self.order = state["order"].to(self.data.x.device)
        self.random.set_state(state["random"])
        self.step = int(state["step"])


def train(
    objective: Objective,
    data: TrainingData,
    settings: Settings,
    *,
    random: MemberRandom,
    callbacks: Sequence[Callback] = (),
    identity: str = "",
    phase: int = 0,
    n_phases: int = 1,
) -> dict[str, Tensor]:
    """Train all members at once and return the loss curves, {term: (steps,)}.

    The objective is left in evaluation mode with the last (or, with early stopping, the best) weights.
    """
    if settings.optimizer not in OPTIMIZERS:
        raise InputError(f"`optimizer` must be one of {', '.join(OPTIMIZERS)}. Got {settings.optimizer!r}.")
    objective.train()
    objective.prepare(data)
    state = LoopState(objective, data, settings, random, identity=identity, phase=phase, n_phases=n_phases)
    try:
        for callback in callbacks:
            callback.on_start(state)
        while state.step < settings.n_steps:
            _step(state)
            for callback in callbacks:
                callback.on_step(state)
    except StopTraining:
        pass
    _check_finite(state)
    for callback in callbacks:
        callback.on_end(state)
    objective.eval()
    objective.finish(data)
    return state.curves()


def _step(state: LoopState) -> None:
    settings = state.settings
    batch = _draw(state)
    for group in state.optimizer.param_groups:
        group["lr"] = settings.lr_at(state.step)
    state.optimizer.zero_grad(set_to_none=True)
    with autocast(settings.precision, batch.unlabelled.device):
        terms = state.objective.loss(batch)
    stacked = torch.stack(list(terms.values()))  # (terms, members)
    # members do not share weights, so the gradient of the sum is every member's own gradient
    stacked.sum().backward()  # type: ignore[no-untyped-call]
    if settings.clip is not None:
        clip_per_member(state.parameters, state.objective.n_members, settings.clip)
    state.optimizer.step()
    if not state.losses:
        state.losses = {name: torch.zeros(settings.n_steps, device=stacked.device) for name in terms}
    for name, value in zip(terms, stacked.detach().mean(1), strict=True):
        state.losses[name][state.step] = value
    state.step += 1
    if state.step % CHECK_EVERY == 0:
        _check_finite(state)


def clip_per_member(parameters: Sequence[Tensor], n_members: int, limit: float) -> None:
    """Scale each member's gradient to at most `limit` in norm, over all its parameters together."""
    gradients = [torch.unflatten(p.grad, 0, (n_members, -1)) for p in parameters if p.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(g, dim=tuple(range(1, g.dim()))) for g in gradients])
    factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)  # (members,)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.dim() - 1)))


def _draw(state: LoopState) -> Batch:
    data, settings = state.data, state.settings
    n = min(settings.batch_size, data.n_unlabelled)
    while state.order.shape[1] < n:  # a new epoch: what is left of the old one comes first
        state.order = torch.cat([state.order, state.random.permutation(data.n_unlabelled)], dim=1)
    picked, state.order = state.order[:, :n], state.order[:, n:]
    labelled = _draw_labelled(data, settings, state.random)
    return Batch(
        unlabelled=data.x[data.unlabelled.gather(1, picked)],
        labelled=data.x[data.labelled.gather(1, labelled)],
        y=data.y.gather(1, labelled),
        random=state.random,
    )


def _draw_labelled(data: TrainingData, settings: Settings, random: MemberRandom) -> Tensor:
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


def _make_optimizer(parameters: Sequence[Tensor], settings: Settings) -> torch.optim.Optimizer:
    fused = parameters[0].device.type in ("cpu", "cuda")
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay, "fused": fused}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, **common)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, betas=(0.9, settings.beta_2), **common)


def _check_finite(state: LoopState) -> None:
    if not all(math.isfinite(value) for value in state.latest_losses().values()):
        raise TrainingError(
            f"Training diverged at step {state.step} of {state.n_steps}: the loss is not a number. "
            "Lower `lr`, or set `clip` (gradient norm) to 1.0."
        )
