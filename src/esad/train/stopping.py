"""When to stop: by rows held out of the training, or by repeated splits of the rows before the real training.

For splits, a pilot trains one member each. Every now and then each member ranks the labelled anomalies that it does not
see against the other rows that it does not see. The step whose mean AUC is furthest ahead of the last step's is chosen,
if

    mean difference > 2 s sqrt(1 / R + q)

with s the standard deviation of the differences over R splits and q = held-out share / training share (Nadeau and
Bengio's correction for splits that share rows). Otherwise, and with too few labelled anomalies, training goes to its
end: the length of the recipe needs no label. The real training sees all labels and stops at that step.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from esad.core import processes
from esad.core.arrays import Floats, Labels
from esad.score.splits import LabelAwareSplit, corrected_error
from esad.train.callbacks import Callback, StopTraining
from esad.train.loop import Phase, train_phases
from esad.train.objective import HELD_OUT, RowPool
from esad.train.runtime import autocast

if TYPE_CHECKING:
    from esad.train.loop import LoopState

logger = logging.getLogger("esad")
N_SPLITS: Final = 5
TEST_SIZE: Final = 0.25
N_CHECKS: Final = 12  # looks over the whole pilot
MIN_ANOMALIES: Final = 5
N_ERRORS: Final = 2.0
HELD_OUT_RATIO: Final = 0.25  # without splits
MIN_HELD_OUT_ANOMALIES: Final = 2
BLOCK_ROWS: Final = 1024  # rows per forward pass


def stop_by_held_out(x: Tensor, y: Labels, *, seed: int) -> tuple[Labels, list[EarlyStopping]]:
    """Hold out a quarter of the rows: the labels with these marked, and a callback that stops the training by them."""
    if np.count_nonzero(y < 0) < 2 * MIN_HELD_OUT_ANOMALIES:
        warnings.warn(
            f"early_stopping needs at least {2 * MIN_HELD_OUT_ANOMALIES} labelled anomalies and is left out.",
            UserWarning,
            stacklevel=4,
        )
        return y, []
    rng = np.random.default_rng(seed)
    held = np.zeros(len(y), dtype=bool)
    for label in (-1, 0, 1):
        rows = rng.permutation(np.flatnonzero(y == label))
        n_held = round(HELD_OUT_RATIO * len(rows))
        held[rows[: max(n_held, MIN_HELD_OUT_ANOMALIES) if label < 0 else n_held]] = True
    kept = np.where(held, np.int8(HELD_OUT), y)
    watched = torch.from_numpy(held).to(x.device)
    return kept, [EarlyStopping(x[watched], torch.from_numpy(y[held]).to(x.device))]


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
        """Check the held-out rows at regular steps."""
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


def stop_by_splits(phases: Sequence[Phase], x: Tensor, y: Labels, *, seed: int) -> list[Callback]:
    """Train a pilot with one member per split, and give the callback that ends the real training in time."""
    seen = split_labels(y, seed=seed)

    def data_of(number: int) -> RowPool:
        return RowPool.from_own_rows(x, torch.from_numpy(phases[number].labels_seen(seen)).to(x.device))

    watch = WatchSplits(x, y, seen)
    train_phases(phases, data_of, seed=seed, last_callbacks=[watch], processes=processes.current())
    step = choose_step(watch.steps, np.array(watch.aucs))
    logger.info("early stopping by splits: %s", "at the end" if step is None else f"after step {step}")
    return [] if step is None else [StopAt(step)]


def split_labels(y: Labels, *, seed: int) -> Labels:
    """Labels as each member of the pilot sees them, (splits, n): a quarter of each kind is held out.

    Examples
    --------
    >>> y = np.array([-1] * 8 + [0] * 40, dtype=np.int8)
    >>> [(int((seen == -1).sum()), int((seen == HELD_OUT).sum())) for seen in split_labels(y, seed=0)][:2]
    [(6, 12), (6, 12)]
    """
    seen = np.tile(y, (N_SPLITS, 1))
    splitter = LabelAwareSplit(N_SPLITS, test_size=TEST_SIZE, random_state=seed)
    for member, (_, test) in enumerate(splitter.split(y, y)):
        seen[member, test] = HELD_OUT
    return seen


class WatchSplits(Callback):
    """A callback that ranks each member's held-out rows every now and then.

    Parameters
    ----------
    x : Tensor, (n, *features)
        All rows.
    y : ndarray, (n,)
        Their labels.
    seen : ndarray, (members, n)
        Labels as the members see them, from `split_labels`.
    """

    def __init__(self, x: Tensor, y: Labels, seen: Labels) -> None:
        self.x, self.y, self.seen = x, y, seen
        self.steps: list[int] = []
        self.aucs: list[list[float]] = []

    def on_step(self, state: LoopState) -> None:
        """Rank the held-out rows at regular steps and at the end."""
        if state.step % max(1, state.n_steps // N_CHECKS) and state.step < state.n_steps:
            return
        reference = torch.from_numpy(self.y >= 0).to(self.x.device)
        scores = member_scores_so_far(state, self.x, reference).double().cpu().numpy()
        held = self.seen == HELD_OUT
        self.steps.append(state.step)
        self.aucs.append(
            [float(roc_auc_score(self.y[rows] < 0, own[rows])) for own, rows in zip(scores, held, strict=True)]
        )


def choose_step(steps: list[int], aucs: Floats) -> int | None:
    """Choose the step to stop at by the AUC of every check and split, (checks, splits); None for the last step.

    Examples
    --------
    >>> choose_step([10, 20, 30], np.array([[0.7, 0.8], [0.9, 0.91], [0.6, 0.62]]))
    20
    >>> choose_step([10, 20, 30], np.array([[0.6, 0.5], [0.9, 0.5], [0.6, 0.62]])) is None
    True
    """
    ahead = aucs - aucs[-1]
    errors = np.array([corrected_error(row, test_size=TEST_SIZE) for row in ahead])
    means = ahead.mean(axis=1)
    clear = means > N_ERRORS * errors
    if not clear.any():
        return None
    return steps[int(np.argmax(np.where(clear, means, -np.inf)))]


class StopAt(Callback):
    """A callback that ends training after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, state: LoopState) -> None:
        """End it."""
        if state.step >= self.step:
            raise StopTraining


# ---------------------------------------------------------------------- looks on the way


def scores_so_far(state: LoopState, x: Tensor, is_reference: Tensor) -> Tensor:
    """Anomaly scores (n,) of rows (n, *features) by the weights of this moment, scaled by the reference rows."""
    return member_scores_so_far(state, x, is_reference).mean(0)


@torch.no_grad()
def member_scores_so_far(state: LoopState, x: Tensor, is_reference: Tensor) -> Tensor:
    """Return the current scores by each member, (members, n)."""
    objective = state.objective.eval()
    scorer = objective.scorer()
    with autocast(state.settings.precision, x.device):
        parts = [scorer(block) for block in torch.split(x, BLOCK_ROWS)]
    terms = {name: torch.cat([part[name] for part in parts], dim=1) for name in parts[0]}
    objective.calibrate({name: term[:, is_reference] for name, term in terms.items()})
    scores = torch.stack(list(objective.contributions(terms).values())).sum(0)
    objective.train()
    if not scores.isfinite().all():
        raise state.make_divergence_error()
    return scores
