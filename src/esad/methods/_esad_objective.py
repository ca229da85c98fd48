"""ESAD's networks, losses and score, Eq. by Eq.; `esad.methods.esad` states the equations."""

import math
from collections.abc import Callable, Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn

from esad.core.processes import ALONE, Processes
from esad.core.random import MemberRandom
from esad.methods._esad_settings import LossSettings
from esad.networks.mlp import FrozenMLP
from esad.networks.spec import NetworkSpec
from esad.score.threshold import ONE_SIGMA_BELOW
from esad.train.objective import Batch, Objective, Scorer
from esad.train.transforms import add_noise, permute_features

__all__ = ["ESADObjective", "sums_of_squares"]

TINY = 1e-12  # keeps square roots and logarithms away from zero
NEAR_ZERO = 0.3  # of a sum of z-scores


class ESADObjective(Objective):
    """Encoder-decoder-encoder with the loss of Eq. (8) and the score of Eq. (9), on tables.

    `_esad_bins` and `_esad_pictures` say what is otherwise for columns in bins and for pictures.
    """

    recordable: ClassVar[bool] = True
    centre: Tensor
    spread: Tensor

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
        decoys, kinds = self._decoys(batch)
        sizes = [batch.unlabelled.shape[1], batch.labelled.shape[1], decoys.shape[1]]
        rows = self._view(torch.cat([batch.unlabelled, batch.labelled, decoys], dim=1))
        code, reconstruction, second_code = self(self._disturb(rows, sizes[0], batch.random))

        rebuilt_u, rebuilt_l, _ = torch.split(reconstruction, sizes, dim=1)
        norm_u, norm_l, norm_d = torch.split(self._norm(second_code), sizes, dim=1)
        error_u = self._error(rebuilt_u - rows[:, : sizes[0]])
        error_l = self._error(rebuilt_l - self._view(self._target(batch)))
        norm_l = self._labelled_norm(norm_l, batch.y)
        norm_d = self._decoy_norm(norm_d, norm_u, kinds, batch.processes)
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
        networks: list[FrozenMLP] = [network.frozen() for network in self.networks]  # type: ignore[operator]
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
        """A function giving x^, the mean over the forms that rows are scored in, (members, batch, *features)."""
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
        norm_weight = self._norm_weight()
        weights = {"reconstruction": torch.ones_like(norm_weight), "norm": norm_weight}
        scaled = {}
        for row, (name, weight) in enumerate(weights.items()):
            z_scores = (self._log(name, terms) - self.centre[row, :, None]) / self.spread[row, :, None]
            scaled[name] = weight[:, None] * z_scores
        return scaled

    def _log(self, name: str, terms: dict[str, Tensor]) -> Tensor:
        """Logarithm of a term, (members, batch)."""
        offset = self.settings.norm_offset if name == "norm" else 0.0
        return (terms[name].double() + offset).clamp(min=TINY).log()

    def _norm_weight(self) -> Tensor:
        """Weight of the norm in the scaled score, (members,)."""
        return self.settings.norm_weight * torch.ones_like(self.centre[0], dtype=torch.float64)

    # ------------------------------------------------------------------ hooks for bins: here, columns as they are

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

    # ------------------------------------------------------------------ hooks for pictures: here, there are none

    def _augmented(self, batch: Batch) -> Batch:
        """The batch, changed at random without changing what it means."""
        return batch

    def _decoys(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Rows that are seen once more as if they were known anomalies, and the kind of each, (members, decoys)."""
        none = batch.unlabelled[:, :0]
        return none, none.new_empty(none.shape[:2])

    def _decoy_norm(self, norm: Tensor, normal_norm: Tensor, kinds: Tensor, processes: Processes = ALONE) -> Tensor:
        """What decoys add to the norm term, given their norms and those of the unlabelled rows, (members, decoys)."""
        return norm

    def _hidden(self, x: Tensor, random: MemberRandom) -> Tensor:
        """Rows (members, batch, *features) without what is to be restored."""
        return x

    def _rearranged(self, x: Tensor, random: MemberRandom) -> Tensor:
        """The part of phi that is not noise."""
        return permute_features(x, random)

    def _passes(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """x^ and z^ of rows (batch, *features), in every form that they are scored in, (members, batch, ...)."""
        _, reconstruction, second_code = self(self._whole(x))
        yield reconstruction, second_code

    # ------------------------------------------------------------------

    def _whole(self, x: Tensor) -> Tensor:
        """Rows (batch, *features) as they are to be rebuilt, (members, batch, *features)."""
        return self._view(x.expand(self.n_members, *x.shape))

    def _disturb(self, x: Tensor, n_unlabelled: int, random: MemberRandom) -> Tensor:
        """What Enc1 sees while training: without what is to be restored, and with noise."""
        x, levels = self._hidden(x, random), self.settings.input_noise
        if not any(levels):
            return x
        noise = random.normal(*x.shape[1:])
        if self.settings.labelled_noise_ratio != 1:
            noise[:, n_unlabelled:] *= self.settings.labelled_noise_ratio
        # filled on the device: a step that a GPU replays cannot copy numbers from the host
        sigma = torch.stack([x.new_full([1] * (x.dim() - 1), level) for level in levels])
        return torch.addcmul(x, self._scaled(sigma), noise)

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
            x = self._rearranged(x, random)
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
