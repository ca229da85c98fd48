"""ESAD's networks, loss and score: Eqs. (4) to (9) of `esad.methods.esad.method`, in their order.

What the networks see of a row, columns, columns in bins or pictures, is a view (`esad.methods.esad.views`). The view of
pictures may have decoys and turns, which have a say in the loss and the score.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.esad.views import make_view
from esad.networks.layers import Network, unfold_members
from esad.networks.spec import NetworkSpec
from esad.score.threshold import ONE_SIGMA_BELOW
from esad.train.objective import Batch, Objective, Scorer, mean_over_rows
from esad.train.transforms import quarter_turns

TINY = 1e-12  # keeps square roots and logarithms away from zero
NEAR_ZERO = 0.3  # of a sum of z-scores

WORDS: dict[str, tuple[str, ...]] = {
    "phi": ("both", "noise", "permute", "rotate", "normal", "none"),
    "restore": ("none", "grey", "rotate", "both"),
    "reduction": ("sum", "mean"),
    "combine": ("scaled", "sum"),
}


@dataclass(frozen=True)
class LossSettings:
    """The switches of the losses and the score; the paper's values are the defaults."""

    # the loss, Eqs. (5) to (8)
    lambda_norm: float = 1.0
    lambda_assist: float = 1.0
    second_encoder: bool = True  # without, the norm is taken of z and L_ass drops out: the paper's ablation
    phi: str = "both"  # what labelled anomalies must be reconstructed to
    noise: float = 0.1  # standard deviation of phi's noise
    reduction: str = "mean"  # squared norms as sums over features (the equations) or means (stable at large rates)
    error_scale: float = 1.0  # factor of L_rec, so that large pictures do not drown the other terms
    gain: float = 1.0  # a labelled anomaly's norm term is gain / (||z^|| + offset)
    offset: float = 0.0
    input_noise: tuple[float, ...] = (0.0,)  # standard deviation on Enc1's input while training, one per member
    labelled_noise_ratio: float = 1.0  # share of that noise which labelled rows get

    # the score, Eq. (9)
    combine: str = "sum"  # as printed, or "scaled": both terms as z-scores of their logarithms
    norm_weight: float = 1.0  # of the norm in the scaled score; those below are for it too
    robust: bool = False  # centre and spread by median and lower quantile, which hidden anomalies cannot stretch
    norm_offset: float = 0.0  # added to ||z^|| before the logarithm
    min_spread: float = 1e-3  # smallest spread that a logarithm is divided by

    # tables
    column_weights: float = 0.0  # power of the importance that columns are weighed by, 0 for equal weights
    bins: tuple[int, ...] = ()  # quantile bins that a member sees a column in, 0 for the column; empty if all see that

    # pictures
    augment: int = 0  # pixels by which those of labelled anomalies are shifted, and mirrored; 0 for not at all
    shift: int = 0  # pixels by which unlabelled ones are shifted
    flip: bool = False  # whether half of them are mirrored
    restore: str = "none"  # what is taken from a picture before Enc1 sees it; the target stays whole
    skips: bool = False  # the decoder also sees what each level of Enc1 gave; for the network "conv"
    signed: bool = False  # networks see pixels in [-1, 1], and rebuild those, instead of [0, 1]
    decoys: float = 0.0  # share of the unlabelled ones of a batch seen once more, turned, as if known anomalies
    decoys_alone: bool = False  # no anomaly is known: the norm is weighed by how well decoys are told apart

    # turned pictures (`turns.py`)
    turns: float = 0.0  # weight in the score of what is told from them; 0 switches them off
    contrast: float = 0.0  # weight of Eq. (13) while turns are learned to be told
    places: int = 0  # pixels by which pictures are shifted, to be told like the turns
    crop: float = 1.0  # they are cut out at random, with at least this share of their area
    nearest_alone: bool = False  # of Eq. (12), only the nearest known codes count
    n_codes: int = 0  # codes of training pictures that are kept

    def __post_init__(self) -> None:
        for name, words in WORDS.items():
            if getattr(self, name) not in words:
                raise InputError(f"The loss's {name!r} must be one of {', '.join(words)}. Got {getattr(self, name)!r}.")
        if self.decoys and self.restore in ("rotate", "both"):
            raise InputError("`decoys` and a `restore` that turns pictures exclude each other. Choose one of them.")


class ESADObjective(Objective):
    """Encoder-decoder-encoder with the loss of Eq. (8) and the score of Eq. (9), on rows as their view shows them.

    Parameters
    ----------
    spec : NetworkSpec
        The networks, for rows as they come.
    settings : LossSettings
    """

    recordable = True
    centre: Tensor
    spread: Tensor

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.settings = settings
        self.near_zero = NEAR_ZERO if settings.combine == "scaled" else 0.0
        view = make_view(spec, settings)
        self.encoder_1 = view.network.encoder()
        self.decoder = view.network.decoder(skips=settings.skips)
        self.encoder_2 = view.network.encoder() if settings.second_encoder else None
        self.view = view
        # scales of the two score terms, per member: row 0 reconstruction, row 1 norm
        self.register_buffer("centre", torch.zeros(2, spec.n_members))
        self.register_buffer("spread", torch.ones(2, spec.n_members))

    @property
    def networks(self) -> list[Network]:
        """The networks in the order data passes them."""
        return [n for n in (self.encoder_1, self.decoder, self.encoder_2) if n is not None]

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights of all networks."""
        for network in self.networks:
            network.reset(random)
        self.view.adjust(self.encoder_1, self.encoder_2)

    def inherit(self, previous: Objective) -> None:
        """Take over the networks that tell turns, which were trained before."""
        if self.view.turns is not None:
            self.view.turns.inherit(previous)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. (4): z = Enc1(x), x^ = Dec(z), z^ = Enc2(x^), all (members, batch, ...)."""
        if self.settings.skips:
            levels = self.encoder_1.levels_of(x)  # type: ignore[operator]
            code, seen = unfold_members(levels[-1], self.n_members).flatten(2), levels
        else:
            code = seen = self.encoder_1(x)
        reconstruction = self.view.trim(self.decoder(seen))
        second_code = code if self.encoder_2 is None else self.encoder_2(reconstruction)
        return code, reconstruction, second_code

    # ------------------------------------------------------------------ loss

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eqs. (5) to (8); a part without rows drops out."""
        settings, view = self.settings, self.view
        batch = view.augment(batch)
        parts = [batch.unlabelled, batch.labelled]
        if view.decoys is not None:
            decoys, turns = view.decoys.draw(batch)
            parts.append(decoys)
        sizes = [part.shape[1] for part in parts]
        rows = view.show(torch.cat(parts, dim=1))
        code, reconstruction, second_code = self(view.disturb(rows, sizes[0], batch.random))

        rebuilt_u, rebuilt_l, *_ = torch.split(reconstruction, sizes, dim=1)
        norm_u, norm_l, *norm_decoys = torch.split(self.norm(second_code), sizes, dim=1)
        error_u = self.error(rebuilt_u - rows[:, : sizes[0]])
        error_l = self.error(rebuilt_l - view.show(self._target(batch)))
        norm_l = torch.where(batch.y < 0, self.inverse_norm(norm_l), norm_l)  # ||z^||^y
        terms = {
            "reconstruction": settings.error_scale * (mean_over_rows(error_u) + mean_over_rows(error_l)),  # Eq. (5)
            "norm": settings.lambda_norm * (mean_over_rows(norm_u) + mean_over_rows(norm_l)),  # Eq. (6)
        }
        if view.decoys is not None and sizes[2]:
            weights = view.decoys.weigh(turns, norm_decoys[0], norm_u, batch.processes)
            inverse = self.inverse_norm(norm_decoys[0]) * weights
            terms["norm"] = terms["norm"] + settings.lambda_norm * mean_over_rows(inverse)
        if self.encoder_2 is not None and settings.lambda_assist:
            terms["assist"] = settings.lambda_assist * mean_over_rows(self.squared_norm(second_code - code))  # Eq. (7)
        return terms  # Eq. (8) is their sum

    def _target(self, batch: Batch) -> Tensor:
        """Phi of Eq. (5): a labelled normal row itself, phi of a labelled anomaly."""
        x = batch.labelled
        if self.settings.phi == "none" or x.shape[1] == 0:
            return x
        is_anomaly = (batch.y < 0).view(*batch.y.shape, *[1] * (x.dim() - 2))
        return torch.where(is_anomaly, self._phi(batch), x)

    def _phi(self, batch: Batch) -> Tensor:
        phi, noise, x, random = self.settings.phi, self.settings.noise, batch.labelled, batch.random
        if phi == "normal":
            return self._normal_rows(batch)
        if phi in ("permute", "rotate", "both"):
            x = self.view.rearrange(x, random)
        return x + noise * random.normal(*x.shape[1:]) if noise and phi in ("noise", "both") else x

    def _normal_rows(self, batch: Batch) -> Tensor:
        """One presumed normal row for every labelled row: unlabelled ones, or the labelled rows if there are none."""
        pool = batch.processes.gather_rows(batch.unlabelled if batch.unlabelled.shape[1] else batch.labelled)
        picked = batch.random.integers(pool.shape[1], batch.labelled.shape[1])
        return pool[torch.arange(self.n_members, device=pool.device)[:, None], picked]

    def inverse_norm(self, norm: Tensor) -> Tensor:
        """Return what a known anomaly adds to L_norm: 1 / ||z^|| in the paper."""
        return self.settings.gain / (norm + self.settings.offset)

    def error(self, difference: Tensor) -> Tensor:
        """||x^ - x||^2 of every row, (members, batch)."""
        return self._row_error(difference.flatten(2).square().sum(2))

    def _row_error(self, total: Tensor) -> Tensor:
        """||x^ - x||^2 of every row from the sum over what the networks see, (members, batch)."""
        error = total if self.settings.reduction == "sum" else total / self.view.n_columns
        return error if self.view.ratio is None else error / self.view.ratio[:, None]

    def squared_norm(self, x: Tensor) -> Tensor:
        """Squared norm of every code, (members, batch)."""
        flat = x.flatten(2).square()
        return flat.sum(2) if self.settings.reduction == "sum" else flat.mean(2)

    def norm(self, x: Tensor) -> Tensor:
        """Norm of every code, (members, batch)."""
        return (self.squared_norm(x) + TINY).sqrt()

    # ------------------------------------------------------------------ score

    def scorer(self) -> Scorer:
        """A function giving ||x^ - x||^2 and ||z^||, each (members, batch), and what decoys and turns add."""
        sums = self.view.sums(self.networks)
        return self._terms if sums is None else lambda x: self._terms_of_sums(*sums(x))

    def _terms(self, x: Tensor) -> dict[str, Tensor]:
        shown = self.view.show(x.expand(self.n_members, *x.shape))
        pairs = [(self.error(rebuilt - shown), self.norm(code)) for rebuilt, code in self._passes(x)]
        errors, norms = zip(*pairs, strict=True)
        terms = {"reconstruction": torch.stack(errors).mean(0), "norm": torch.stack(norms).mean(0)}
        if self.view.decoys is not None:
            terms["turned"] = self._turned_norms(x, self.view.decoys.told_apart)
        return terms if self.view.turns is None else terms | self.view.turns.raw_terms(x)

    def _turned_norms(self, x: Tensor, weights: Tensor) -> Tensor:
        """Mean logarithm of ||z^|| over the turned copies of pictures, each turn with its weight, (members, batch)."""
        upright = next(iter(self.view.forms(x)))
        logs = []
        for turn in quarter_turns(upright.shape)[1:]:
            _, _, second_code = self(torch.rot90(upright, turn, dims=(-2, -1)))
            logs.append(weights[:, turn, None] * self.log_norm(self.norm(second_code)))
        return torch.stack(logs).mean(0)

    def _terms_of_sums(self, error: Tensor, code: Tensor) -> dict[str, Tensor]:
        """The terms from squared errors and squared codes, each (members, batch)."""
        n_codes = 1 if self.settings.reduction == "sum" else self.view.network.n_codes
        return {"reconstruction": self._row_error(error), "norm": (code / n_codes).sqrt_()}

    def _passes(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """x^ and z^ of rows (batch, *features), in every form that they are scored in, (members, batch, ...)."""
        for form in self.view.forms(x):
            _, reconstruction, second_code = self(form)
            yield reconstruction, second_code

    def calibrate(self, terms: dict[str, Tensor]) -> None:
        """Centre and spread of each term's logarithm over presumed normal rows, per member."""
        logs = torch.stack([self.log(name, terms) for name in ("reconstruction", "norm")])  # (2, members, n)
        centre, spread = self.scale_of(logs)
        self.centre.copy_(centre)
        self.spread.copy_(spread)
        if self.view.turns is not None:
            self.view.turns.calibrate(terms)

    def scale_of(self, logs: Tensor) -> tuple[Tensor, Tensor]:
        """Centre and spread of terms (n terms, members, n) over presumed normal rows, each (n terms, members)."""
        if self.settings.robust:
            ordered = logs.sort(2).values
            last = logs.shape[2] - 1
            centre, below = (ordered[:, :, round(share * last)] for share in (0.5, ONE_SIGMA_BELOW))
            spread = torch.maximum(centre - below, 0.25 * logs.std(2, correction=0))
        else:
            centre, spread = logs.mean(2), logs.std(2, correction=0)
        return centre, spread.clamp(min=self.settings.min_spread)

    def contributions(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """Eq. (9), or the scaled terms, and what turns add, (members, batch)."""
        settings, view = self.settings, self.view
        if settings.combine == "sum":
            found = {
                "reconstruction": terms["reconstruction"].double(),
                "norm": settings.lambda_norm * terms["norm"].double(),
            }
        else:
            norm_weight = settings.norm_weight * torch.ones_like(self.centre[0], dtype=torch.float64)
            if view.decoys is not None and settings.decoys_alone:  # lower if taught only by decoys told badly
                norm_weight = norm_weight * view.decoys.told_apart[:, 1:].mean(1)
            weights = {"reconstruction": torch.ones_like(norm_weight), "norm": norm_weight}
            found = {}
            for row, (name, weight) in enumerate(weights.items()):
                z_scores = (self.log(name, terms) - self.centre[row, :, None]) / self.spread[row, :, None]
                found[name] = weight[:, None] * z_scores
        return found if view.turns is None else found | view.turns.contributions(terms)

    def log(self, name: str, terms: dict[str, Tensor]) -> Tensor:
        """Return the logarithm of a term, (members, batch); with decoys, a norm's relative to the turned copies'."""
        if name != "norm":
            return terms[name].double().clamp(min=TINY).log()
        log = self.log_norm(terms[name])
        return log if self.view.decoys is None else log - terms["turned"].double()

    def log_norm(self, norm: Tensor) -> Tensor:
        """Logarithm of a norm as the scaled score takes it, (members, batch)."""
        return (norm.double() + self.settings.norm_offset).clamp(min=TINY).log()

    # ------------------------------------------------------------------ explanations

    def codes(self, x: Tensor) -> dict[str, Tensor]:
        """Both codes of Eq. (4)."""
        code, _, second_code = self(self.view.show(x.expand(self.n_members, *x.shape)))
        return {"z": code, "z^": second_code}

    def summands(self) -> Scorer:
        """||x^ - x||^2 feature by feature, (members, batch, *features)."""

        def errors(x: Tensor) -> dict[str, Tensor]:
            rows = self.view.show(x.expand(self.n_members, *x.shape))
            scale = 1 if self.settings.reduction == "sum" else x[0].numel()
            squares = torch.stack([(rebuilt - rows).square() for rebuilt, _ in self._passes(x)]).mean(0)
            return {"reconstruction": self.view.by_column(squares) / scale}

        return errors

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving x^, the mean over the forms that rows are scored in, (members, batch, *features)."""
        return lambda x: self.view.columns(torch.stack([rebuilt for rebuilt, _ in self._passes(x)]).mean(0))
