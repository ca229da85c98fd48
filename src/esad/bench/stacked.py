"""Seeds side by side: several fits of one method, each on a split of its own, as members of one training.

Small networks are too small to keep a processor busy, so ten seeds in one stack cost far less than ten trainings. A
member draws from its own stream and its own rows, so it becomes the network that it would have become alone, up to the
rounding of a larger matrix product.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esad.data.scenario import Scenario
from esad.deep import DeepDetector
from esad.detector import Detector
from esad.hybrid import HybridDetector
from esad.preprocess.inputs import Rows, reference_rows
from esad.random import seed_from
from esad.score.splits import held_out_parts
from esad.train.objective import HELD_OUT, Objective, TrainingData
from esad.train.phases import Phase, train_phases
from esad.train.runtime import in_parallel

__all__ = ["can_stack", "scores_of_stack"]

BLOCK_ROWS = 512


@dataclass(frozen=True)
class _Part:
    """One seed's share of the stack."""

    detector: DeepDetector
    rows: Rows
    y: NDArray[np.int8]
    phases: list[Phase]


def can_stack(detectors: Sequence[Detector], drawn: Sequence[Scenario]) -> bool:
    """Whether fits can share a training: deep methods on tables, whose splits have equally many rows of each label."""
    for detector in detectors:
        if not isinstance(detector, DeepDetector) or isinstance(detector, HybridDetector):
            return False
        if detector.early_stopping or isinstance(getattr(detector, "input_noise", 0.0), list | tuple):
            return False
    counts = {(one.X_train.shape, *np.bincount(one.y_train + 1, minlength=3).tolist()) for one in drawn}
    return len(counts) == 1 and drawn[0].X_train.ndim == 2


def scores_of_stack(
    detectors: Sequence[DeepDetector], drawn: Sequence[Scenario]
) -> tuple[list[NDArray[np.float64]], dict[str, NDArray[np.float64]]] | None:
    """Scores of each scenario's test rows by its own detector, and the loss curves; None if their widths differ."""
    parts = [_part(detector, one) for detector, one in zip(detectors, drawn, strict=True)]
    if len({part.rows.shape for part in parts}) > 1:  # a column may be constant in one split alone
        return None
    n_each = parts[0].phases[0].objective.n_members
    whole = parts[0].detector.set_params(n_members=n_each * len(parts))
    phases = whole._phases(parts[0].rows, parts[0].y, torch.device("cpu"))
    x = torch.from_numpy(np.concatenate([part.rows for part in parts]))
    labels = [_labels(part, n_each, number=k, n_parts=len(parts)) for k, part in enumerate(parts)]

    def data_of(number: int) -> TrainingData:
        seen = [_as_seen(y, part, number, k) for k, (y, part) in enumerate(zip(labels, parts, strict=True))]
        return TrainingData.apart(x, torch.from_numpy(np.concatenate(seen)))

    seeds = [seed_from(part.detector.random_state) for part in parts]
    curves = train_phases(phases, data_of, seed=seeds)
    objective = phases[-1].objective
    _calibrate(objective, parts, n_each)
    tested = [part.detector._rows(one.X_test) for part, one in zip(parts, drawn, strict=True)]
    by_member = torch.stack(list(objective.contributions(_terms(objective, tested, n_each)).values())).sum(0)
    scores = by_member.view(len(parts), n_each, -1).mean(1).double().numpy()
    return list(scores), {name: curve.double().numpy() for name, curve in curves.items()}


def _part(detector: DeepDetector, drawn: Scenario) -> _Part:
    rows, y = detector._prepare(drawn.X_train, drawn.y_train)
    detector.offset_ = 0.0  # rows of a fitted detector can be transformed; no threshold is asked for
    return _Part(detector, rows, y, detector._phases(rows, y, torch.device("cpu")))


def _labels(part: _Part, n_each: int, *, number: int, n_parts: int) -> NDArray[np.int8]:
    """Labels of all rows of the stack as the members of one part see them, (members, rows of all parts)."""
    n = len(part.y)
    unseen_by = held_out_parts(part.y, seed_from(part.detector.random_state)) if part.detector._holds_out() else None
    labels = np.full((n_each, n * n_parts), HELD_OUT, dtype=np.int8)
    for member in range(n_each):
        own = part.y.copy()
        if unseen_by is not None and unseen_by.max() >= 0:
            own[unseen_by == member % (unseen_by.max() + 1)] = HELD_OUT
        labels[member, number * n : (number + 1) * n] = own
    return labels


def _as_seen(labels: NDArray[np.int8], part: _Part, phase: int, number: int) -> NDArray[np.int8]:
    """The same as a phase sees them."""
    view = part.phases[phase].y
    if view is None:
        return labels
    n = len(part.y)
    seen = labels.copy()
    own = seen[:, number * n : (number + 1) * n]
    own[:] = np.where(own == HELD_OUT, own, view)
    return seen


def _calibrate(objective: Objective, parts: Sequence[_Part], n_each: int) -> None:
    reference = [part.rows[reference_rows(part.y)] for part in parts]
    objective.calibrate(_terms(objective, reference, n_each))


def _terms(objective: Objective, rows: Sequence[Rows], n_each: int) -> dict[str, Tensor]:
    """Raw terms (members of all parts, n): every part's rows by its own members."""
    scorer = objective.scorer()
    n = len(rows[0])
    out: dict[str, Tensor] = {}

    def run(first: int) -> None:
        number, start = divmod(first, -(-n // BLOCK_ROWS))
        here = slice(start * BLOCK_ROWS, min((start + 1) * BLOCK_ROWS, n))
        own = slice(number * n_each, (number + 1) * n_each)
        with torch.inference_mode():
            found = scorer(torch.from_numpy(rows[number][here]))
        for name, term in found.items():
            out.setdefault(name, term.new_empty(n_each * len(rows), n))[own, here] = term[own]

    in_parallel(run, range(len(rows) * -(-n // BLOCK_ROWS)))
    return out
