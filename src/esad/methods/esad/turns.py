r"""A second bound on the mutual information of Eq. (3), for pictures: the code must tell how a picture was turned.

The paper bounds I(X, Z) from below by how well x is rebuilt from z. A change t of the picture that is drawn at random
and can be told from the code of the changed picture bounds it too:

    I(X, Z) >= I(T, Z) >= H(T) + E log q(t | z)                                                            Eq. (10)

    L_turn = - 1/n sum_i log q(t_i | z_i)  +  1/m sum_j c_j                                                Eq. (11)
    c_j    = - log q(t_j | z_j)                    for a labelled normal picture
    c_j    = - 1/K sum_k log q(k | z_j)            for a labelled anomaly, whose code is to tell nothing

    I(X, Z) >= log N - L_contrast,    L_contrast = - mean log exp(s_ii'/tau) / sum_k exp(s_ik/tau)           Eq. (13)

T is a quarter turn, and for grey pictures a shift besides. Where Eq. (13) counts too, two pictures made of each of N (a
picture in each of its turns) are to have codes more alike (s: cosine of their projections) than those of the 2 N - 2
others of the batch, turned copies of the same picture among them. Every picture is seen in all its turns, each of them
cut out and brightened at random. What q was never taught to tell, it tells badly, and its code is unlike those it
knows. Of a picture in all turns r, with logits l and pooled codes p, the score takes

    turn    = - 1/R sum_r l_r(p_r)             the logit of the right turn
    length  = - ||p_0||                        the entropy side: codes of what is known are long
    nearest = 1 - 1/R sum_r s_r                s_r: mean cosine to the 2nd to 6th nearest known code            Eq. (12)

each as a z-score over the presumed normal training pictures. The cosine of Eq. (12) is the mean over the deepest three
levels of the encoder. The nearest code is left out because a training picture's is its own.

This bound is ours, not the paper's; docs/method.md derives it and says what it brings.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.core.arrays import Rows
from esad.core.random import MemberRandom
from esad.networks.conv import ConvEncoder
from esad.networks.layers import unfold_members
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, Objective, RowPool, Scorer, mean_over_rows
from esad.train.runtime import without_autocast
from esad.train.transforms import LIGHT, change_light, cut_out, move, quarter_turns

if TYPE_CHECKING:
    from esad.methods.esad.loss import LossSettings

N_PLACES = 3  # shifted to one side, not at all, to the other
N_LEVELS = 3  # of the encoder, from the deepest, whose codes are compared
N_NEAREST = 5
BLOCK = 256  # pictures per pass
N_PROJECTED, TEMPERATURE = 128, 0.5  # of Eq. (13), after SimCLR (Chen et al. 2020)
TERMS = ("turn", "length", "nearest")
LOOKED_AT, THUMBNAIL, MIN_TOLD = 1000, 8, 0.45  # pictures, their sides in pixels, share of turns told; 0.25 by chance


class Turns(nn.Module):
    """An encoder of its own, the heads that tell turns and shifts from its code, and the codes of known pictures.

    Parameters
    ----------
    spec : NetworkSpec
        The shape of the encoder.
    settings : LossSettings
        `places`, `crop`, `flip`, `turns`, `contrast`, `nearest_alone` and `n_codes` are what counts here.

    Attributes
    ----------
    known : Tensor, (members, turns, n_codes, features)
        Codes of training pictures, each of length 1; zeros where there were fewer pictures.
    centre, spread : Tensor, (terms, members)
        Of `TERMS` over the presumed normal training pictures.
    """

    known: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__()
        self.settings, self.n_members = settings, spec.n_members
        self.turns = quarter_turns(spec.in_shape)
        self.encoder: ConvEncoder = spec.encoder()  # type: ignore[assignment]  # turns need that kind, see `Recipe`
        self.sizes = [len(self.turns), *([N_PLACES] * 2 if settings.places else [])]
        self.weight = nn.Parameter(torch.zeros(spec.n_members, spec.latent, sum(self.sizes)))
        self.bias = nn.Parameter(torch.zeros(spec.n_members, sum(self.sizes)))
        if settings.contrast:
            self.projection = nn.ParameterList(
                torch.zeros(spec.n_members, spec.latent, width) for width in (spec.latent, N_PROJECTED)
            )
        widths = (*spec.hidden, spec.latent)[-N_LEVELS:]
        self.register_buffer("known", torch.zeros(spec.n_members, len(self.turns), settings.n_codes, sum(widths)))
        self.register_buffer("centre", torch.zeros(len(TERMS), spec.n_members))
        self.register_buffer("spread", torch.ones(len(TERMS), spec.n_members))

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights."""
        self.encoder.reset(random)
        for weight in (self.weight, *(self.projection if self.settings.contrast else ())):
            weight.data.copy_(random.normal(weight[0].numel()).view_as(weight) / weight.shape[1] ** 0.5)
        self.bias.data.zero_()

    def inherit(self, previous: Objective) -> None:
        """Take over the trained weights and fix them."""
        if isinstance(previous, TurnsObjective):
            self.load_state_dict(previous.turns.state_dict())
        self.requires_grad_(False)

    # ------------------------------------------------------------------ training

    def loss_terms(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (11), and Eq. (13) where it counts, each (members,)."""
        drawn = [self._views(batch.rows, batch.random) for _ in range(2 if self.settings.contrast else 1)]
        views = torch.cat([seen for seen, _ in drawn], dim=1)
        changes = [torch.cat(change, dim=1) for change in zip(*(changed for _, changed in drawn), strict=True)]
        code = self._pool_levels(views)[-1]
        logits = self._logits(code)
        right, uniform = logits.new_zeros(logits.shape[:2]), logits.new_zeros(logits.shape[:2])
        for part, change in zip(torch.split(logits, self.sizes, dim=2), changes, strict=True):
            surprise = -F.log_softmax(part, dim=2)
            right = right + surprise.gather(2, change[..., None])[..., 0]
            uniform = uniform + surprise.mean(2)

        def mean(of_normal: Tensor, of_anomaly: Tensor) -> Tensor:
            """Return the means over all copies of unlabelled and of labelled pictures, added up, (members,)."""
            shape = (len(drawn), -1, len(self.turns))
            of_normal, of_anomaly = (torch.unflatten(one, 1, shape).mean((1, 3)) for one in (of_normal, of_anomaly))
            unlabelled, labelled = batch.split(of_normal)
            labelled = torch.where(batch.y < 0, batch.split(of_anomaly)[1], labelled)
            return mean_over_rows(unlabelled) + mean_over_rows(labelled)

        terms = {"turn": mean(right, uniform)}
        if self.settings.contrast:
            contrast = self._contrast(code)
            terms["contrast"] = self.settings.contrast * mean(contrast, torch.zeros_like(contrast))
        return terms

    def _contrast(self, code: Tensor) -> Tensor:
        """Eq. (13) of two pictures made of each, one half of the codes for each, (members, batch)."""
        with without_autocast(code.device):
            hidden, projection = self.projection
            projected = F.normalize(F.relu(code @ hidden) @ projection, dim=2)
            alike = projected @ projected.transpose(1, 2) / TEMPERATURE
            n_seen = alike.shape[1]
            itself = torch.eye(n_seen, dtype=torch.bool, device=alike.device)
            other = alike.roll(n_seen // 2, dims=2).diagonal(dim1=1, dim2=2)
            return alike.masked_fill(itself, -math.inf).logsumexp(2) - other

    def _views(self, x: Tensor, random: MemberRandom) -> tuple[Tensor, list[Tensor]]:
        """Return pictures in all turns, each changed at random, and the changes: (members, batch * turns, ...)."""
        batch, n_turns = x.shape[1], len(self.turns)

        def draw() -> Tensor:
            return random.uniform(batch, n_turns).flatten(1)

        views = x[:, :, None].expand(-1, -1, n_turns, -1, -1, -1).flatten(1, 2)
        changes = [torch.arange(n_turns, device=x.device).repeat(x.shape[0], batch)]
        mirror = (draw() < 0.5) if self.settings.flip else None
        if self.settings.places:
            places = [(draw() * N_PLACES).long().clamp(max=N_PLACES - 1) for _ in range(2)]
            down, right = ((place - 1) * self.settings.places for place in places)
            views, changes = move(views, down, right, mirror), changes + places
        elif mirror is not None:
            nothing = torch.zeros_like(changes[0])
            views = move(views, nothing, nothing, mirror)
        by_turn = torch.unflatten(views, 1, (batch, n_turns)).unbind(2)
        turned = [torch.rot90(view, turn, dims=(-2, -1)) for view, turn in zip(by_turn, self.turns, strict=True)]
        views = torch.stack(turned, dim=2).flatten(1, 2)
        return change_light(cut_out(views, self.settings.crop, draw), LIGHT, draw), changes

    def _pool_levels(self, x: Tensor) -> list[Tensor]:
        """Means over the places of the deepest levels of the encoder, each (members, batch, channels)."""
        levels = self.encoder.levels_of(2 * x - 1)[-N_LEVELS:]
        pooled = [unfold_members(level, self.n_members).mean((-2, -1)) for level in levels]
        return [level.to(self.weight.dtype) for level in pooled]

    def _logits(self, code: Tensor) -> Tensor:
        """The logits of all heads, (members, batch, turns + places)."""
        with without_autocast(code.device):
            logits: Tensor = torch.baddbmm(self.bias[:, None], code, self.weight)
            return logits

    # ------------------------------------------------------------------ known codes

    def _features(self, pooled: list[Tensor]) -> Tensor:
        """Return the features that are compared by cosine, scaled to length 1, (members, batch, features)."""
        return torch.cat([F.normalize(level, dim=2) for level in pooled], dim=2) / math.sqrt(len(pooled))

    @torch.no_grad()
    def keep_codes(self, data: RowPool) -> None:
        """Keep codes of the pictures that each member was trained on, evenly spaced if there are many."""
        rows = data.unlabelled if data.n_unlabelled else data.labelled[:, data.n_anomalies :]
        rows = rows[:, :: max(1, -(-rows.shape[1] // self.settings.n_codes))]
        self.known.zero_()
        for first in range(0, rows.shape[1], BLOCK):
            pictures = data.x[rows[:, first : first + BLOCK]]
            for number, turn in enumerate(self.turns):
                codes = self._features(self._pool_levels(torch.rot90(pictures, turn, dims=(-2, -1))))
                self.known[:, number, first : first + codes.shape[1]] = codes

    # ------------------------------------------------------------------ score

    def raw_terms(self, x: Tensor) -> dict[str, Tensor]:
        """Eq. (12) of pictures (batch, C, H, W), each (members, batch)."""
        pictures = x.expand(self.n_members, *x.shape)
        logits, distances, lengths = [], [], []
        for number, turn in enumerate(self.turns):
            pooled = self._pool_levels(torch.rot90(pictures, turn, dims=(-2, -1)) if turn else pictures)
            logits.append(self._logits(pooled[-1])[..., number])
            with without_autocast(x.device):
                distances.append(self._measure_nearest(self._features(pooled), self.known[:, number]))
            if turn == 0:
                lengths.append(torch.linalg.vector_norm(pooled[-1], dim=2))
        logit, distance = (torch.stack(values).mean(0) for values in (logits, distances))
        return {"turn": -logit, "length": -lengths[0], "nearest": distance}

    def _measure_nearest(self, own: Tensor, known: Tensor) -> Tensor:
        """1 minus the mean cosine to the 2nd to 6th nearest of the known codes, (members, batch).

        Codes a and b are nearly alike: a . (a - b) has many more digits than 1 - a . b, where a has length 1.
        """
        nearest = (own @ known.transpose(1, 2)).topk(N_NEAREST + 1, dim=2).indices[..., 1:]
        member = torch.arange(len(known), device=known.device)[:, None, None]
        found = known[member, nearest]  # (members, batch, nearest, features)
        return (own[:, :, None] * (own[:, :, None] - found)).sum(3).mean(2)

    def calibrate(self, terms: dict[str, Tensor]) -> None:
        """Mean and spread of the terms over presumed normal pictures."""
        raw = torch.stack([terms[name].double() for name in TERMS])  # (terms, members, n)
        self.centre.copy_(raw.mean(2))
        self.spread.copy_(raw.std(2, correction=0).clamp(min=1e-4))

    def contributions(self, terms: dict[str, Tensor]) -> dict[str, Tensor]:
        """The z-scores, each (members, batch)."""
        found = {}
        for row, name in enumerate(TERMS):
            if name == "nearest" or not self.settings.nearest_alone:
                z_scores = (terms[name].double() - self.centre[row, :, None]) / self.spread[row, :, None]
                found[name] = self.settings.turns * z_scores
        return found


class TurnsObjective(Objective):
    """The training of `Turns`, before that of the paper's networks, which takes them over."""

    recordable = True

    def __init__(self, spec: NetworkSpec, settings: LossSettings) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.turns = Turns(spec, settings)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eqs. (11) and (13)."""
        return self.turns.loss_terms(batch)

    def finish(self, data: RowPool) -> None:
        """Keep the codes of known pictures."""
        self.turns.keep_codes(data)

    def scorer(self) -> Scorer:
        """Eq. (12)."""
        return self.turns.raw_terms


def have_upper_side(pictures: Rows) -> bool:
    """Whether a linear model can tell turns from thumbnails of some of the pictures.

    Tissue, sand and stars have no upper side; photographs, letters and X-rays have.

    Parameters
    ----------
    pictures : ndarray, (n, C, H, W)
        The presumed normal ones.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sand = rng.normal(size=(200, 1, 16, 16)).astype(np.float32)
    >>> have_upper_side(sand), have_upper_side(sand + np.linspace(0, 3, 16, dtype=np.float32)[:, None])
    (False, True)
    """
    from sklearn.linear_model import RidgeClassifier

    turns = quarter_turns(pictures.shape)
    which = np.random.default_rng(0).permutation(len(pictures))[:LOOKED_AT]
    if len(which) < 4 * len(turns):
        return False
    thumbnails = F.adaptive_avg_pool2d(torch.from_numpy(pictures[np.sort(which)]), THUMBNAIL)
    x = torch.stack([torch.rot90(thumbnails, turn, dims=(-2, -1)) for turn in turns]).flatten(2).numpy()
    half = x.shape[1] // 2
    told = np.tile(np.arange(len(turns))[:, None], (1, half))
    model = RidgeClassifier(alpha=1.0).fit(x[:, :half].reshape(-1, x.shape[2]), told.ravel())
    right: float = model.score(x[:, half : 2 * half].reshape(-1, x.shape[2]), told.ravel())
    chance = 1 / len(turns)
    return (right - chance) / (1 - chance) >= (MIN_TOLD - 0.25) / 0.75
