"""Terms that a view adds to the paper's loss and score, and the one that pictures have: decoys.

A decoy is an unlabelled picture turned by 90, 180 or 270 degrees that counts as a known anomaly in L_norm, and only
there. The norm of a picture is then held against that of its turned copies; docs/decisions/0008-decoys.md says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from esad.core.random import MemberRandom
from esad.train.objective import Batch, Objective, mean_over_rows
from esad.train.transforms import quarter_turns, random_turns, rotate

if TYPE_CHECKING:
    from esad.methods.esad.loss import ESADObjective

__all__ = ["Decoys", "Drawn", "ExtraTerm", "Step"]


@dataclass(frozen=True)
class Drawn:
    """Rows that a step sees besides, (members, k, *features), and what kind each of them is, (members, k)."""

    rows: Tensor
    kinds: Tensor


@dataclass(frozen=True)
class Step:
    """What an extra term has to do with in one step.

    Attributes
    ----------
    batch : Batch
        The rows, augmented.
    drawn : Drawn
        What the term drew besides.
    code, norm : Tensor, (members, k, ...) and (members, k)
        z and ||z^|| of the rows drawn besides.
    normal_norm : Tensor, (members, n)
        ||z^|| of the unlabelled rows.
    """

    batch: Batch
    drawn: Drawn
    code: Tensor
    norm: Tensor
    normal_norm: Tensor


class ExtraTerm(nn.Module):
    """A term beside the paper's; one that says nothing else changes nothing."""

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights, if it has any."""

    def inherit(self, previous: Objective) -> None:
        """Take over what a training before this one has learned."""

    def draw(self, batch: Batch) -> Drawn:
        """Rows that pass the networks besides those of the batch."""
        none = batch.unlabelled[:, :0]
        return Drawn(none, none.new_empty(none.shape[:2]))

    def loss(self, objective: ESADObjective, step: Step) -> dict[str, Tensor]:
        """Weighted terms of the loss, (members,); those named like one of the paper's are added to it."""
        return {}

    def score(self, objective: ESADObjective, x: Tensor) -> dict[str, Tensor]:
        """Raw terms of rows (batch, *features), each (members, batch)."""
        return {}

    def calibrate(self, objective: ESADObjective, terms: dict[str, Tensor]) -> None:
        """Learn the scales of its own terms from presumed normal rows."""

    def contributions(self, objective: ESADObjective, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """What its own terms add to the score, each (members, batch)."""
        return {}

    def shift_norm(self, log: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """The logarithm of ||z^||, (members, batch), as the scaled score takes it."""
        return log

    def weigh_norm(self, weight: Tensor) -> Tensor:
        """The weight of the norm in the scaled score, (members,)."""
        return weight


class Decoys(ExtraTerm):
    """Turned pictures that L_norm takes for known anomalies.

    Parameters
    ----------
    ratio : float
        Share of the unlabelled pictures of a step that are seen once more.
    alone : bool
        There are no other known anomalies: the norm weighs as much as decoys are told from normal pictures.
    n_members : int

    Attributes
    ----------
    told_apart : Tensor, (members, turns)
        How well pictures turned 0, 90, 180, 270 degrees are told from normal ones; the first is never used.
    """

    N_TURNS = 4  # of a picture, by 90 degrees
    MIN_TOLD_APART, RATE = 0.1, 0.01  # smallest weight of a decoy, and how quickly it follows what is seen
    told_apart: Tensor

    def __init__(self, ratio: float, *, alone: bool, n_members: int) -> None:
        super().__init__()
        self.ratio, self.alone = ratio, alone
        self.register_buffer("told_apart", torch.ones(n_members, self.N_TURNS))

    def draw(self, batch: Batch) -> Drawn:
        """Some of the unlabelled pictures, turned, and by how many quarter turns."""
        pictures = batch.unlabelled[:, : round(self.ratio * batch.unlabelled.shape[1])]
        if pictures.shape[1] == 0:
            return super().draw(batch)
        turns = random_turns(pictures, batch.random, identity=False)
        return Drawn(rotate(pictures, turns), turns)

    def loss(self, objective: ESADObjective, step: Step) -> dict[str, Tensor]:
        """What decoys add to L_norm: their inverse norm, each turn weighted by how well it is told apart."""
        if step.norm.shape[1] == 0:
            return {}
        self._follow(step)
        weighted = objective.inverse(step.norm) * self.told_apart.gather(1, step.drawn.kinds)
        return {"norm": objective.settings.lambda_norm * mean_over_rows(weighted)}

    @torch.no_grad()
    def _follow(self, step: Step) -> None:
        """Turns that leave pictures as normal as they were must not count as anomalies.

        A decoy is told apart if its norm is above the median of the unlabelled pictures: half of them by chance.
        """
        all_rows = step.batch.processes.rows_of_all
        norm, normal_norm, turns = (all_rows(rows) for rows in (step.norm, step.normal_norm, step.drawn.kinds))
        by_turn = (turns[..., None] == torch.arange(self.N_TURNS, device=turns.device)).to(norm.dtype)
        caught = (norm > normal_norm.median(1, keepdim=True).values).to(norm.dtype)  # (members, decoys)
        count = by_turn.sum(1)
        share = (caught[..., None] * by_turn).sum(1) / count.clamp(min=1)
        found = (2 * share - 1).clamp(min=self.MIN_TOLD_APART)
        self.told_apart.copy_(torch.where(count > 0, self.told_apart.lerp(found, self.RATE), self.told_apart))

    def score(self, objective: ESADObjective, x: Tensor) -> dict[str, Tensor]:
        """Mean logarithm of the norm over the turned pictures, each turn weighted by how well it is told apart."""
        upright = next(iter(objective.view.forms(x)))
        logs = []
        for turn in quarter_turns(upright.shape)[1:]:
            norm = objective.norm(objective(torch.rot90(upright, turn, dims=(-2, -1)))[2])
            logs.append(self.told_apart[:, turn, None] * objective.log_norm(norm))
        return {"turned": torch.stack(logs).mean(0)}

    def shift_norm(self, log: Tensor, terms: dict[str, Tensor]) -> Tensor:
        """The norm of a picture, held against that of its turned copies."""
        return log - terms["turned"].double()

    def weigh_norm(self, weight: Tensor) -> Tensor:
        """Less where nothing but badly told decoys has taught it."""
        return weight * self.told_apart[:, 1:].mean(1) if self.alone else weight
