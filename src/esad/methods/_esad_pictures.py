"""What ESAD does with pictures besides: it moves them, hides what is to be restored, and turns some into decoys.

A decoy is an unlabelled picture turned by 90, 180 or 270 degrees that counts as a known anomaly in L_norm, and only
there. The norm of a picture is then held against that of its turned copies; docs/decisions/0008-decoys.md says why.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from esad.core.processes import ALONE, Processes
from esad.core.random import MemberRandom
from esad.methods._esad_objective import ESADObjective
from esad.methods._esad_settings import LossSettings
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, Scorer
from esad.train.transforms import quarter_turns, random_turns, rotate, shift_and_flip, to_grey

__all__ = ["PictureESADObjective"]

N_TURNS = 4  # of a picture, by 90 degrees
MIN_TOLD_APART, TOLD_APART_RATE = 0.1, 0.01  # smallest weight of a decoy, and how quickly it follows what is seen


class PictureESADObjective(ESADObjective):
    """ESAD on pictures, (members, batch, C, H, W) while training."""

    told_apart: Tensor

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__(spec, settings)
        self.hides_colour = settings.restore in ("grey", "both")
        self.hides_turn = settings.restore in ("rotate", "both")
        if settings.decoys:
            # how well pictures turned 0, 90, 180, 270 degrees are told from normal ones; the first is never used
            self.register_buffer("told_apart", torch.ones(spec.n_members, N_TURNS))

    def scorer(self) -> Scorer:
        """A function giving ||x^ - x||^2 and ||z^||, each (members, batch).

        With restoration, the mean over the rotations; with decoys, also what the norm says of the turned picture.
        """
        return self._terms

    def _terms(self, x: Tensor) -> dict[str, Tensor]:
        pairs = [(self._error(rebuilt - x), self._norm(code)) for rebuilt, code in self._passes(x)]
        errors, norms = zip(*pairs, strict=True)
        terms = {"reconstruction": torch.stack(errors).mean(0), "norm": torch.stack(norms).mean(0)}
        return terms | ({"turned": self._turned(self._upright(x))} if self.settings.decoys else {})

    def _passes(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        upright = self._upright(x)
        for turn in quarter_turns(x.shape) if self.hides_turn else (0,):
            _, reconstruction, second_code = self(torch.rot90(upright, turn, dims=(-2, -1)) if turn else upright)
            yield reconstruction, second_code

    def _upright(self, x: Tensor) -> Tensor:
        """Pictures (batch, C, H, W) as the first encoder gets them, but never turned, (members, batch, C, H, W)."""
        pictures = self._whole(x)
        return to_grey(pictures) if self.hides_colour else pictures

    def _hidden(self, x: Tensor, random: MemberRandom) -> Tensor:
        if self.hides_colour:
            x = to_grey(x)
        return rotate(x, random_turns(x, random, identity=True)) if self.hides_turn else x

    def _rearranged(self, x: Tensor, random: MemberRandom) -> Tensor:
        return rotate(x, random_turns(x, random, identity=False))

    def _augmented(self, batch: Batch) -> Batch:
        """The batch with its pictures shifted and mirrored: those of labelled anomalies farther than the others."""
        settings, random = self.settings, batch.random
        if settings.shift or settings.flip:
            moved = shift_and_flip(batch.unlabelled, settings.shift, random, flip=settings.flip)
            batch = replace(batch, unlabelled=moved)
        if settings.augment and batch.labelled.shape[1]:
            moved = shift_and_flip(batch.labelled, settings.augment, random)
            is_anomaly = (batch.y < 0).view(*batch.y.shape, 1, 1, 1)
            batch = replace(batch, labelled=torch.where(is_anomaly, moved, batch.labelled))
        return batch

    # ------------------------------------------------------------------ decoys

    def _decoys(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Some of the unlabelled pictures, turned, and by how many quarter turns, (members, decoys)."""
        pictures = batch.unlabelled[:, : round(self.settings.decoys * batch.unlabelled.shape[1])]
        if pictures.shape[1] == 0:
            return super()._decoys(batch)
        turns = random_turns(pictures, batch.random, identity=False)
        return rotate(pictures, turns), turns

    def _decoy_norm(self, norm: Tensor, normal_norm: Tensor, kinds: Tensor, processes: Processes = ALONE) -> Tensor:
        """The inverse norm, weighted: a turn that leaves pictures as normal as they were must not count as one.

        A decoy is told apart if its norm is above the median of the unlabelled pictures: half of them by chance.
        """
        if norm.shape[1] == 0:
            return norm
        with torch.no_grad():
            of_decoys, of_normal, turns = (processes.rows_of_all(rows) for rows in (norm, normal_norm, kinds))
            by_turn = (turns[..., None] == torch.arange(N_TURNS, device=turns.device)).to(norm.dtype)
            caught = (of_decoys > of_normal.median(1, keepdim=True).values).to(norm.dtype)  # (members, decoys)
            count = by_turn.sum(1)
            share = (caught[..., None] * by_turn).sum(1) / count.clamp(min=1)
            found = (2 * share - 1).clamp(min=MIN_TOLD_APART)
            self.told_apart.copy_(torch.where(count > 0, self.told_apart.lerp(found, TOLD_APART_RATE), self.told_apart))
        return self._inverse(norm) * self.told_apart.gather(1, kinds)

    def _turned(self, pictures: Tensor) -> Tensor:
        """Mean logarithm of the norm over the turned pictures, each turn weighted by how well it is told apart."""
        logs = []
        for turn in quarter_turns(pictures.shape)[1:]:
            norm = self._norm(self(torch.rot90(pictures, turn, dims=(-2, -1)))[2])
            logs.append(self.told_apart[:, turn, None] * self._log("norm", {"norm": norm}))
        return torch.stack(logs).mean(0)

    def _log(self, name: str, terms: dict[str, Tensor]) -> Tensor:
        """Logarithm of a term, (members, batch); with decoys, the norm against that of the turned picture."""
        log = super()._log(name, terms)
        return log - terms["turned"].double() if name == "norm" and "turned" in terms else log

    def _norm_weight(self) -> Tensor:
        weight = super()._norm_weight()
        alone = self.settings.decoys and self.settings.decoys_alone
        return weight * self.told_apart[:, 1:].mean(1) if alone else weight
