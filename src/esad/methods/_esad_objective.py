"""ESAD's networks, losses and score, Eq. by Eq.; `esad.methods.esad` states the equations."""

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn

from esad.networks.mlp import FrozenMLP, StackedMLP
from esad.networks.spec import NetworkSpec
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

__all__ = ["ESADObjective", "LossSettings"]

TINY = 1e-12  # keeps square roots and logarithms away from zero


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
    """

    lambda_norm: float = 1.0
    lambda_assist: float = 1.0
    second_encoder: bool = True
    phi: str = "both"
    noise: float = 0.1
    input_noise: tuple[float, ...] = (0.0,)
    labelled_noise_ratio: float = 1.0
    augment: int = 0
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


class ESADObjective(Objective):
    """Encoder-decoder-encoder with the loss of Eq. (8) and the score of Eq. (9)."""

    centre: Tensor
    spread: Tensor

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.settings = settings
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
        reconstruction = self.decoder(code)
        second_code = code if self.encoder_2 is None else self.encoder_2(reconstruction)
        return code, reconstruction, second_code

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eqs. (5) to (8); a part without rows drops out."""
        settings, batch = self.settings, self._augmented(batch)
        n, m = batch.unlabelled.shape[1], batch.labelled.shape[1]
        rows = torch.cat([batch.unlabelled, batch.labelled], dim=1)
        code, reconstruction, second_code = self(self._disturb(rows, n, batch.random))

        rebuilt_u, rebuilt_l = torch.split(reconstruction, [n, m], dim=1)
        norm_u, norm_l = torch.split(self._norm(second_code), [n, m], dim=1)
        error_u = self._squared(rebuilt_u - batch.unlabelled)
        error_l = self._squared(rebuilt_l - self._target(batch))
        norm_l = self._labelled_norm(norm_l, batch.y)
        terms = {
            "reconstruction": settings.error_scale * (_mean(error_u) + _mean(error_l)),  # Eq. (5)
            "norm": settings.lambda_norm * (_mean(norm_u) + _mean(norm_l)),  # Eq. (6)
        }
        if self.encoder_2 is not None and settings.lambda_assist:
            terms["assist"] = settings.lambda_assist * _mean(self._squared(second_code - code))  # Eq. (7)
        return terms

    def scorer(self) -> Scorer:
        """A function giving ||x^ - x||^2 and ||z^||, each (members, batch)."""
        networks = [network.frozen() for network in self.networks if isinstance(network, StackedMLP)]
        return partial(self._terms_of_rows, networks) if networks else self._terms_of_pictures

    def calibrate(self, terms: dict[str, Tensor]) -> None:
        """Centre and spread of each term's logarithm over presumed normal rows, per member."""
        logs = torch.stack([self._log(name, terms[name]) for name in ("reconstruction", "norm")])  # (2, members, n)
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
        weights = {"reconstruction": 1.0, "norm": settings.norm_weight}
        scaled = {}
        for row, (name, weight) in enumerate(weights.items()):
            z_scores = (self._log(name, terms[name]) - self.centre[row, :, None]) / self.spread[row, :, None]
            scaled[name] = weight * z_scores
        return scaled

    def _log(self, name: str, term: Tensor) -> Tensor:
        offset = self.settings.norm_offset if name == "norm" else 0.0
        return (term.double() + offset).clamp(min=TINY).log()  # (members, batch)

    def _terms_of_rows(self, networks: list[FrozenMLP], x: Tensor) -> dict[str, Tensor]:
        h = x.t()[None]  # (1, features, batch)
        code = networks[0](h)
        reconstruction = networks[1](code)
        second_code = networks[2](reconstruction) if self.encoder_2 is not None else code
        error = reconstruction.sub_(h).square_().sum(1)
        squared = second_code.square_().sum(1)
        if self.settings.reduction == "mean":
            error, squared = error / h.shape[1], squared / second_code.shape[1]
        return {"reconstruction": error, "norm": squared.sqrt()}

    def _terms_of_pictures(self, x: Tensor) -> dict[str, Tensor]:
        """With restoration, the mean over the rotations."""
        restore = self.settings.restore
        pictures = x.expand(self.n_members, *x.shape)
        seen = to_grey(pictures) if restore in ("grey", "both") else pictures
        turns = quarter_turns(x.shape) if restore in ("rotate", "both") else (0,)
        errors, norms = [], []
        for turn in turns:
            _, reconstruction, second_code = self(torch.rot90(seen, turn, dims=(-2, -1)))
            errors.append(self._squared(reconstruction - pictures))
            norms.append(self._norm(second_code))
        return {"reconstruction": torch.stack(errors).mean(0), "norm": torch.stack(norms).mean(0)}

    def _disturb(self, x: Tensor, n_unlabelled: int, random: MemberRandom) -> Tensor:
        """What Enc1 sees while training: restoration takes colour or orientation away, noise is added."""
        restore = self.settings.restore
        if restore in ("grey", "both"):
            x = to_grey(x)
        if restore in ("rotate", "both"):
            x = rotate(x, random_turns(x, random, identity=True))
        if not any(self.settings.input_noise):
            return x
        noise = random.normal(*x.shape[1:])
        noise[:, n_unlabelled:] *= self.settings.labelled_noise_ratio
        sigma = torch.tensor(self.settings.input_noise, dtype=x.dtype, device=x.device)
        return torch.addcmul(x, sigma.view(-1, *[1] * (x.dim() - 1)), noise)

    def _augmented(self, batch: Batch) -> Batch:
        """The batch with the pictures of labelled anomalies shifted and mirrored."""
        if not self.settings.augment or batch.labelled.shape[1] == 0:
            return batch
        moved = shift_and_flip(batch.labelled, self.settings.augment, batch.random)
        is_anomaly = (batch.y < 0).view(*batch.y.shape, 1, 1, 1)
        return replace(batch, labelled=torch.where(is_anomaly, moved, batch.labelled))

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
        pool = batch.unlabelled if batch.unlabelled.shape[1] else batch.labelled
        picked = batch.random.integers(pool.shape[1], batch.labelled.shape[1])
        return pool[torch.arange(self.n_members, device=pool.device)[:, None], picked]

    def _squared(self, x: Tensor) -> Tensor:
        """Squared norm of every row, (members, batch)."""
        flat = x.flatten(2).square()
        return flat.sum(2) if self.settings.reduction == "sum" else flat.mean(2)

    def _norm(self, x: Tensor) -> Tensor:
        return (self._squared(x) + TINY).sqrt()

    def _labelled_norm(self, norm: Tensor, y: Tensor) -> Tensor:
        """||z^||^y of Eq. (6): the norm of a labelled normal row, its inverse for an anomaly."""
        inverse = self.settings.gain / (norm + self.settings.offset)
        return torch.where(y < 0, inverse, norm)


def _mean(values: Tensor) -> Tensor:
    """Mean over the batch, (members,); zero for an empty batch."""
    return values.sum(1) / max(1, values.shape[1])
