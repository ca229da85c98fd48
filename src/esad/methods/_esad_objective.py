"""ESAD's networks, losses and score, Eq. by Eq.; `esad.methods.esad` states the equations."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from esad.networks.mlp import FrozenMLP, StackedMLP
from esad.networks.spec import NetworkSpec
from esad.processes import ALONE, Processes
from esad.random import MemberRandom
from esad.score.threshold import ONE_SIGMA_BELOW
from esad.train.objective import Batch, Objective, Scorer
from esad.train.transforms import (
    add_noise,
    permute_features,
    quarter_turns,
    random_turns,
    rotate,
    shift_and_flip,
    to_grey,
)

__all__ = ["ESADObjective", "LossSettings", "sums_of_squares"]

TINY = 1e-12  # keeps square roots and logarithms away from zero
NEAR_ZERO = 0.3  # of a sum of z-scores
N_TURNS = 4  # of a picture, by 90 degrees
MIN_TOLD_APART, TOLD_APART_RATE = 0.1, 0.01  # smallest weight of a decoy, and how quickly it follows what is seen


@dataclass(frozen=True)
class LossSettings:
    """The switches of the losses and the score; the paper's values are the defaults.

    Attributes
    ----------
    lambda_norm, lambda_assist : float
        Weights of L_norm and L_ass.
    second_encoder : bool
        Off: the norm is taken of z and L_ass drops out (the paper's ablation).
    phi : {"both", "noise", "permute", "rotate", "normal", "none"}
        What labelled anomalies must be reconstructed to.
    noise : float
        Standard deviation of phi's Gaussian noise.
    input_noise : tuple of float
        Standard deviation of the noise added to Enc1's input while training, one per member.
    labelled_noise_ratio : float
        Share of that noise which labelled rows get.
    augment : int
        Pixels by which pictures of labelled anomalies are shifted at random, and mirrored; 0 for not at all.
    shift, flip : int and bool
        Pixels by which unlabelled pictures are shifted at random, and whether half of them are mirrored.
    decoys : float
        Share of the unlabelled pictures of a batch that are seen once more, turned, as if they were known anomalies.
    decoys_alone : bool
        There are no others: the norm's weight in the scaled score is how well decoys are told from normal pictures.
    restore : {"none", "grey", "rotate", "both"}
        What is taken from a picture before Enc1 sees it; the target stays whole.
    reduction : {"sum", "mean"}
        Squared norms as sums over features (the equations) or means (stable at large learning rates).
    error_scale : float
        Factor of L_rec, so that large pictures do not drown the other terms.
    gain, offset : float
        A labelled anomaly's norm term is gain / (||z^|| + offset); 1 and 0 in the paper.
    combine : {"sum", "scaled"}
        Eq. (9) as printed, or both terms as z-scores of their logarithms.
    norm_weight : float
        Weight of the norm term in the scaled score.
    robust : bool
        Scaled score: centre and spread by median and lower quantile, which hidden anomalies cannot stretch, instead
        of mean and standard deviation.
    norm_offset, min_spread : float
        Scaled score: added to ||z^|| before the logarithm; smallest spread a logarithm is divided by.
    bins : tuple of int
        Quantile bins that a column is seen in, one number per member, 0 for the column itself; empty if all see that.
        See `_esad_bins`.
    """

    lambda_norm: float = 1.0
    lambda_assist: float = 1.0
    second_encoder: bool = True
    phi: str = "both"
    noise: float = 0.1
    input_noise: tuple[float, ...] = (0.0,)
    labelled_noise_ratio: float = 1.0
    augment: int = 0
    shift: int = 0
    flip: bool = False
    decoys: float = 0.0
    decoys_alone: bool = False
    restore: str = "none"
    reduction: str = "mean"
    error_scale: float = 1.0
    gain: float = 1.0
    offset: float = 0.0
    combine: str = "sum"
    norm_weight: float = 1.0
    robust: bool = False
    norm_offset: float = 0.0
    min_spread: float = 1e-3
    bins: tuple[int, ...] = ()


class ESADObjective(Objective):
    """Encoder-decoder-encoder with the loss of Eq. (8) and the score of Eq. (9)."""

    recordable: ClassVar[bool] = True
    centre: Tensor
    spread: Tensor
    told_apart: Tensor

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.n_columns = math.prod(spec.in_shape)
        self.settings = settings
        self.near_zero = NEAR_ZERO if settings.combine == "scaled" else 0.0
        self.encoder_1 = spec.encoder()
        self.decoder = spec.decoder()
        self.encoder_2 = spec.encoder() if settings.second_encoder else None
        # scales of the two score terms, per member: row 0 reconstruction, row 1 norm
        self.register_buffer("centre", torch.zeros(2, spec.n_members))
        self.register_buffer("spread", torch.ones(2, spec.n_members))
        if settings.decoys:
            # how well pictures turned 0, 90, 180, 270 degrees are told from normal ones; the first is never used
            self.register_buffer("told_apart", torch.ones(spec.n_members, N_TURNS))

    @property
    def networks(self) -> list[nn.Module]:
        """The networks in the order data passes them."""
        return [n for n in (self.encoder_1, self.decoder, self.encoder_2) if n is not None]

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights of all networks."""
        for network in self.networks:
            network.reset(random)  # type: ignore[operator]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. (4): z = Enc1(x), x^ = Dec(z), z^ = Enc2(x^), all (members, batch, ...)."""
        code = self.encoder_1(x)
        reconstruction = self._rebuilt(code)
        second_code = code if self.encoder_2 is None else self.encoder_2(reconstruction)
        return code, reconstruction, second_code

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eqs. (5) to (8); a part without rows drops out."""
        settings, batch = self.settings, self._augmented(batch)
        decoys, turns = self._decoys(batch)
        sizes = [batch.unlabelled.shape[1], batch.labelled.shape[1], decoys.shape[1]]
        rows = self._view(torch.cat([batch.unlabelled, batch.labelled, decoys], dim=1))
        code, reconstruction, second_code = self(self._disturb(rows, sizes[0], batch.random))

        rebuilt_u, rebuilt_l, _ = torch.split(reconstruction, sizes, dim=1)
        norm_u, norm_l, norm_d = torch.split(self._norm(second_code), sizes, dim=1)
        error_u = self._error(rebuilt_u - rows[:, : sizes[0]])
        error_l = self._error(rebuilt_l - self._view(self._target(batch)))
        norm_l = self._labelled_norm(norm_l, batch.y)
        norm_d = self._decoy_norm(norm_d, norm_u, turns, batch.processes)
        terms = {
            "reconstruction": settings.error_scale * (_mean(error_u) + _mean(error_l)),  # Eq. (5)
            "norm": settings.lambda_norm * (_mean(norm_u) + _mean(norm_l) + _mean(norm_d)),  # Eq. (6)
        }
        if self.encoder_2 is not None and settings.lambda_assist:
            terms["assist"] = settings.lambda_assist * _mean(self._squared(second_code - code))  # Eq. (7)
        return terms

    def codes(self, x: Tensor) -> dict[str, Tensor]:
        """Both codes of Eq. (4)."""
        code, _, second_code = self(self._whole(x))
        return {"z": code, "z^": second_code}

    def scorer(self) -> Scorer:
        """A function giving ||x^ - x||^2 and ||z^||, each (members, batch)."""
        networks = [network.frozen() for network in self.networks if isinstance(network, StackedMLP)]
        if not networks:
            return self._terms_of_pictures
        sums = self._sums_of_rows(networks)

        def terms(x: Tensor) -> dict[str, Tensor]:
            error, code = sums(x)
            n_codes = 1 if self.settings.reduction == "sum" else networks[0].n_out
            return {"reconstruction": self._per_column(error), "norm": (code / n_codes).sqrt_()}

        return terms

    def summands(self) -> Scorer:
        """||x^ - x||^2 feature by feature, (members, batch, *features)."""

        def errors(x: Tensor) -> dict[str, Tensor]:
            rows, scale = self._whole(x), 1 if self.settings.reduction == "sum" else x[0].numel()
            squares = torch.stack([(rebuilt - rows).square() for rebuilt, _ in self._passes(x)]).mean(0)
            return {"reconstruction": self._by_column(squares) / scale}

        return errors

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving x^, with restoration the mean over the rotations, (members, batch, *features)."""
        return lambda x: self._columns(torch.stack([rebuilt for rebuilt, _ in self._passes(x)]).mean(0))

    def calibrate(self, terms: dict[str, Tensor]) -> None:
        """Centre and spread of each term's logarithm over presumed normal rows, per member."""
        logs = torch.stack([self._log(name, terms) for name in ("reconstruction", "norm")])  # (2, members, n)
        if self.settings.robust:
            ordered = logs.sort(2).values
            last = logs.shape[2] - 1
            centre, below = (ordered[:, :, round(share * last)] for share in (0.5, ONE_SIGMA_BELOW))
            spread = torch.maximum(centre - below, 0.25 * logs.std(2, correction=0))
        else:
            centre, spread = logs.mean(2), logs.std(2, correction=0)
        self.centre.copy_(centre)
        self.spread.copy_(spread.clamp(min=self.settings.min_spread))

    def contributions(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Eq. (9), or the scaled terms, (members, batch)."""
        settings = self.settings
        if settings.combine == "sum":
            return {
                "reconstruction": terms["reconstruction"].double(),
                "norm": settings.lambda_norm * terms["norm"].double(),
            }
        norm_weight = settings.norm_weight * torch.ones_like(self.centre[0], dtype=torch.float64)  # (members,)
        if settings.decoys and settings.decoys_alone:
            norm_weight = norm_weight * self.told_apart[:, 1:].mean(1)
        weights = {"reconstruction": torch.ones_like(norm_weight), "norm": norm_weight}
        scaled = {}
        for row, (name, weight) in enumerate(weights.items()):
            z_scores = (self._log(name, terms) - self.centre[row, :, None]) / self.spread[row, :, None]
            scaled[name] = weight[:, None] * z_scores
        return scaled

    def _log(self, name: str, terms: dict[str, Tensor]) -> Tensor:
        """Logarithm of a term, (members, batch); with decoys, the norm against that of the turned picture."""
        offset = self.settings.norm_offset if name == "norm" else 0.0
        log = (terms[name].double() + offset).clamp(min=TINY).log()
        return log - terms["turned"].double() if name == "norm" and "turned" in terms else log

    # ------------------------------------------------------------------ what members see of a row: here, all as it is

    def _view(self, x: Tensor) -> Tensor:
        """Rows (members, batch, *features) as the networks get them."""
        return x

    def _sums_of_rows(self, networks: list[FrozenMLP]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """For scoring tables: squared errors and squared codes of rows (batch, columns), summed, (members, batch)."""
        return lambda x: sums_of_squares(networks, x.t()[None])

    def _rebuilt(self, code: Tensor) -> Tensor:
        rebuilt: Tensor = self.decoder(code)
        return rebuilt

    def _columns(self, rebuilt: Tensor) -> Tensor:
        """What is rebuilt, as columns."""
        return rebuilt

    def _by_column(self, errors: Tensor) -> Tensor:
        """Squared errors of features, summed up by column."""
        return errors

    def _per_column(self, totals: Tensor) -> Tensor:
        """||x^ - x||^2 of every row from the sum over its features, (members, batch)."""
        return totals if self.settings.reduction == "sum" else totals / self.n_columns

    def _scaled(self, sigma: Tensor) -> Tensor:
        """The noise on the features from that on a column, (members, 1, ...)."""
        return sigma

    # ------------------------------------------------------------------

    def _terms_of_pictures(self, x: Tensor) -> dict[str, Tensor]:
        """With restoration, the mean over the rotations; with decoys, also what the norm says of the turned picture."""
        pairs = [(self._error(rebuilt - x), self._norm(code)) for rebuilt, code in self._passes(x)]
        errors, norms = zip(*pairs, strict=True)
        terms = {"reconstruction": torch.stack(errors).mean(0), "norm": torch.stack(norms).mean(0)}
        return terms | ({"turned": self._turned(self._seen(x))} if self.settings.decoys else {})

    def _turned(self, pictures: Tensor) -> Tensor:
        """Mean logarithm of the norm over the turned pictures, each turn weighted by how well it is told apart."""
        turns = quarter_turns(pictures.shape)[1:]
        logs = []
        for turn in turns:
            norm = self._norm(self(torch.rot90(pictures, turn, dims=(-2, -1)))[2])
            logs.append(self.told_apart[:, turn, None] * self._log("norm", {"norm": norm}))
        return torch.stack(logs).mean(0)

    def _passes(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """x^ and z^ of rows (batch, *features) for every rotation that restoration asks for, (members, batch, ...)."""
        seen = self._seen(x)
        for turn in quarter_turns(x.shape) if self.settings.restore in ("rotate", "both") else (0,):
            _, reconstruction, second_code = self(torch.rot90(seen, turn, dims=(-2, -1)) if turn else seen)
            yield reconstruction, second_code

    def _seen(self, x: Tensor) -> Tensor:
        """Rows (batch, *features) as the first encoder gets them, orientation apart, (members, batch, *features)."""
        rows = self._whole(x)
        return to_grey(rows) if self.settings.restore in ("grey", "both") else rows

    def _whole(self, x: Tensor) -> Tensor:
        """Rows (batch, *features) as they are to be rebuilt, (members, batch, *features)."""
        return self._view(x.expand(self.n_members, *x.shape))

    def _disturb(self, x: Tensor, n_unlabelled: int, random: MemberRandom) -> Tensor:
        """What Enc1 sees while training: restoration takes colour or orientation away, noise is added."""
        restore = self.settings.restore
        if restore in ("grey", "both"):
            x = to_grey(x)
        if restore in ("rotate", "both"):
            x = rotate(x, random_turns(x, random, identity=True))
        levels = self.settings.input_noise
        if not any(levels):
            return x
        noise = random.normal(*x.shape[1:])
        if self.settings.labelled_noise_ratio != 1:
            noise[:, n_unlabelled:] *= self.settings.labelled_noise_ratio
        sigma = torch.stack([x.new_full([1] * (x.dim() - 1), level) for level in levels])
        return torch.addcmul(x, self._scaled(sigma), noise)

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

    def _decoys(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Some of the unlabelled pictures, turned, and by how many quarter turns, (members, decoys)."""
        pictures = batch.unlabelled[:, : round(self.settings.decoys * batch.unlabelled.shape[1])]
        if pictures.shape[1] == 0:
            return pictures, pictures.new_empty(pictures.shape[:2])
        turns = random_turns(pictures, batch.random, identity=False)
        return rotate(pictures, turns), turns

    def _decoy_norm(self, norm: Tensor, normal_norm: Tensor, turns: Tensor, processes: Processes = ALONE) -> Tensor:
        """The inverse norm, weighted: a turn that leaves pictures as normal as they were must not count as one.

        A decoy is told apart if its norm is above the median of the unlabelled pictures: half of them by chance.
        """
        if norm.shape[1] == 0:
            return norm
        with torch.no_grad():
            of_decoys, of_normal, all_turns = (processes.rows_of_all(rows) for rows in (norm, normal_norm, turns))
            by_turn = (all_turns[..., None] == torch.arange(N_TURNS, device=turns.device)).to(norm.dtype)
            caught = (of_decoys > of_normal.median(1, keepdim=True).values).to(norm.dtype)  # (members, decoys)
            count = by_turn.sum(1)
            share = (caught[..., None] * by_turn).sum(1) / count.clamp(min=1)
            found = (2 * share - 1).clamp(min=MIN_TOLD_APART)
            self.told_apart.copy_(torch.where(count > 0, self.told_apart.lerp(found, TOLD_APART_RATE), self.told_apart))
        return self._inverse(norm) * self.told_apart.gather(1, turns)

    def _target(self, batch: Batch) -> Tensor:
        """Phi: a labelled normal row itself, phi of a labelled anomaly."""
        x = batch.labelled
        if self.settings.phi == "none" or x.shape[1] == 0:
            return x
        changed = self._phi(batch)
        is_anomaly = (batch.y < 0).view(*batch.y.shape, *[1] * (x.dim() - 2))
        return torch.where(is_anomaly, changed, x)

    def _phi(self, batch: Batch) -> Tensor:
        phi, x, random = self.settings.phi, batch.labelled, batch.random
        if phi == "normal":
            return self._normal_rows(batch)
        if phi in ("permute", "rotate", "both"):
            pictures = x.dim() == 5
            x = rotate(x, random_turns(x, random, identity=False)) if pictures else permute_features(x, random)
        return add_noise(x, self.settings.noise, random) if phi in ("noise", "both") else x

    def _normal_rows(self, batch: Batch) -> Tensor:
        """One presumed normal row for every labelled row: unlabelled ones, or the labelled rows if there are none."""
        pool = batch.processes.rows_of_all(batch.unlabelled if batch.unlabelled.shape[1] else batch.labelled)
        picked = batch.random.integers(pool.shape[1], batch.labelled.shape[1])
        return pool[torch.arange(self.n_members, device=pool.device)[:, None], picked]

    def _error(self, difference: Tensor) -> Tensor:
        """||x^ - x||^2 of every row, (members, batch)."""
        return self._per_column(difference.flatten(2).square().sum(2))

    def _squared(self, x: Tensor) -> Tensor:
        """Squared norm of every row, (members, batch)."""
        flat = x.flatten(2).square()
        return flat.sum(2) if self.settings.reduction == "sum" else flat.mean(2)

    def _norm(self, x: Tensor) -> Tensor:
        return (self._squared(x) + TINY).sqrt()

    def _labelled_norm(self, norm: Tensor, y: Tensor) -> Tensor:
        """||z^||^y of Eq. (6): the norm of a labelled normal row, its inverse for an anomaly."""
        return torch.where(y < 0, self._inverse(norm), norm)

    def _inverse(self, norm: Tensor) -> Tensor:
        return self.settings.gain / (norm + self.settings.offset)


def sums_of_squares(networks: list[FrozenMLP], h: Tensor) -> tuple[Tensor, Tensor]:
    """||x^ - x||^2 and ||z^||^2 of rows (1 or members, features, batch), each (members, batch)."""
    code = networks[0](h)
    reconstruction = networks[1](code)
    second_code = networks[2](reconstruction) if len(networks) > 2 else code
    if networks[1].sigmoid:  # whose slope is taken from what it gave
        reconstruction = reconstruction.clone()
    return reconstruction.sub_(h).square_().sum(1), second_code.square_().sum(1)


def _mean(values: Tensor) -> Tensor:
    """Mean over the batch, (members,); zero for an empty batch."""
    return values.sum(1) / max(1, values.shape[1])
