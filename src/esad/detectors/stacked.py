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

from esad.core.arrays import Labels, Rows
from esad.core.random import seed_from
from esad.datasets.scenario import Scenario
from esad.detectors.base import Detector
from esad.detectors.deep import DeepDetector
from esad.train.callbacks import Callback
from esad.train.loop import Phase, train_phases
from esad.train.objective import Objective, RowPool


@dataclass(frozen=True)
class _OneFit:
    """One of the fits that share the training."""

    detector: DeepDetector
    rows: Rows
    y: Labels
    unseen_by: NDArray[np.int64]
    phases: list[Phase]

    @property
    def n_members(self) -> int:
        return self.phases[-1].objective.n_members

    def data_of(self, phase: int) -> RowPool:
        """Its rows as its members see them in a phase."""
        y = torch.from_numpy(self.phases[phase].labels_seen(self.y))
        unseen_by = torch.from_numpy(self.unseen_by)
        return RowPool.from_shared_rows(torch.from_numpy(self.rows), y, n_members=self.n_members, unseen_by=unseen_by)


def can_stack(detectors: Sequence[Detector], drawn: Sequence[Scenario]) -> bool:
    """Whether fits can share a training: deep methods on tables, whose splits have equally many rows of each label."""
    if any(not isinstance(detector, DeepDetector) or detector.early_stopping for detector in detectors):
        return False
    counts = {(np.shape(one.X_train), *np.bincount(one.y_train + 1, minlength=3).tolist()) for one in drawn}
    return len(counts) == 1 and len(np.shape(drawn[0].X_train)) == 2


def fit_stack(
    detectors: Sequence[DeepDetector], drawn: Sequence[Scenario], *, callbacks: Sequence[Callback] = ()
) -> bool:
    """Fit each detector on its own scenario in one training; False, and nothing fitted, if their widths differ.

    Loss curves are means over the stack. No threshold is set.
    """
    parts = [_make_part(detector, one) for detector, one in zip(detectors, drawn, strict=True)]
    if len({part.rows.shape for part in parts}) > 1:  # a column may be constant in one split alone
        return False
    whole = parts[0].detector._repeat_members(parts[0].n_members * len(parts))
    phases = whole._phases(parts[0].rows, parts[0].y, torch.device("cpu"))
    for number, phase in enumerate(phases):
        _fill_buffers(phase.objective, [part.phases[number].objective for part in parts])
    seeds = [part.detector.seed_ for part in parts]
    curves = train_phases(
        phases,
        lambda number: _join_rows([part.data_of(number) for part in parts]),
        seed=seeds,
        callbacks=callbacks,
    )
    for number, part in enumerate(parts):
        part.detector.objective_ = _take_weights(phases[-1].objective, part.phases[-1].objective, number).eval()
        part.detector.loss_curves_ = {name: curve.numpy() for name, curve in curves.items()}
        part.detector._training_scores(part.rows, part.y, part.unseen_by, drawn=np.ones(len(part.y), dtype=bool))
        part.detector.offset_, part.detector.applied_ = 0.0, None
    return True


def _make_part(detector: DeepDetector, drawn: Scenario) -> _OneFit:
    data, y = detector._read(drawn.X_train, drawn.y_train)
    rows = detector._learn_inputs(data, y)
    detector.seed_ = seed_from(detector.random_state)
    return _OneFit(detector, rows, y, detector._draw_unseen_by(y), detector._phases(rows, y, torch.device("cpu")))


def _join_rows(parts: Sequence[RowPool]) -> RowPool:
    """The rows of all parts, of which a member draws only those of its own part."""
    first = [number * len(part.x) for number, part in enumerate(parts)]
    return RowPool(
        x=torch.cat([part.x for part in parts]),
        unlabelled=torch.cat([part.unlabelled + start for part, start in zip(parts, first, strict=True)]),
        labelled=torch.cat([part.labelled + start for part, start in zip(parts, first, strict=True)]),
        y=torch.cat([part.y for part in parts]),
        n_anomalies=parts[0].n_anomalies,
    )


def _fill_buffers(whole: Objective, parts: Sequence[Objective]) -> None:
    """Give the whole stack what the parts know of their rows before the training."""
    own = [dict(part.named_buffers()) for part in parts]
    for name, buffer in whole.named_buffers():
        for axis in _member_axis(buffer, own[0][name]):
            buffer.copy_(torch.cat([buffers[name] for buffers in own], dim=axis))


def _take_weights(whole: Objective, own: Objective, number: int) -> Objective:
    """The objective of one part with the weights that its members have in the whole stack."""
    wanted = own.state_dict()
    own.load_state_dict({name: _slice(value, wanted[name], number) for name, value in whole.state_dict().items()})
    return own


def _slice(value: Tensor, like: Tensor, number: int) -> Tensor:
    """What one part has of a tensor of the whole stack: its stretch of the axis that counts members."""
    for axis in _member_axis(value, like):
        return value.narrow(axis, number * like.shape[axis], like.shape[axis])
    return value


def _member_axis(value: Tensor, like: Tensor) -> list[int]:
    """The axis that counts members, if there is one."""
    return [axis for axis, (n_all, n_own) in enumerate(zip(value.shape, like.shape, strict=True)) if n_all != n_own]
