r"""DPA (Tuluptceva et al. 2020), deep perceptual autoencoder: what VGG19 sees rebuilt badly is anomalous.

    x^      = Dec(Enc(x))                                                                               Eq. (1)
    d(x, y) = ||f(x) - f(y)||_1 / ||f(x)||_1                                                            Eq. (2)
    L       = 1/n sum_i d(x_i, x^_i)                                                                    Eq. (3)

    S(x)    = d(x, x^)                                                                                  Eq. (4)

Pictures of more than 32 pixels a side are learned from coarse to fine. When a level is new, it is faded in:

    x_a     = a x + (1 - a) up(down(x))                                                                 Eq. (5)
    Enc, Dec, L:  a times the new way and 1 - a times that of the stage before, on down(x_a)            Eq. (6)

=============  ==============================================================================================
i = 1 .. n     unlabelled and normal pictures; known anomalies are left out
f              what a layer of a fixed VGG19 gives, every channel with mean 0 and deviation 1 on the pictures;
               "r12", "r22", "r32", "r42" for 8, 16, 32 and 64 pixels a side
a              grows from 0 to 1 during the stage; then a stage without fading follows
down, up       mean over 2 x 2 pixels, and every pixel doubled
=============  ==============================================================================================

The sources standardise f by statistics of ImageNet and divide by the variance. They choose learning rate, layer and
widths by labelled anomalies; nothing is chosen here.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.core.arguments import Rule, is_auto, is_truth, parameter, with_parameters
from esad.core.arrays import Labels, Rows
from esad.detectors.deep import Phase
from esad.detectors.standard import PerceptualDetector, layer_for
from esad.networks.layers import crop, fold_members, pad_to_multiple, unfold_members
from esad.networks.residual import ResidualDecoder, ResidualEncoder
from esad.networks.spec import NetworkSpec
from esad.networks.vgg import PerceptualDistance
from esad.train.objective import Batch, Objective, RowPool, Scorer, hold_out_anomalies

__all__ = ["DPA"]

COARSEST = 8  # pixels a side of the first stage
AUTO_GROW = 32  # pixels a side above which pictures are learned from coarse to fine


@with_parameters
class DPA(PerceptualDetector):
    """Perceptual reconstruction error of a residual autoencoder, grown from coarse to fine; for pictures.

    Parameters
    ----------
    grow : bool or "auto"
        Whether to learn from coarse to fine. Auto: pictures of more than 32 pixels a side.
    network : {"auto", "residual18"}
    hidden, latent : sequence of int and int, or "auto"
        Channels of the entry and of each level that halves the picture, and the size of the code. Auto: 32 each.
    lr : float or "auto"
        Of Adam. Auto: 2e-3.
    schedule : {"cosine", "constant"}
        Of the learning rate.
    n_epochs : int or "auto"
        Half of them for the last stage, where there are several. Auto: 150, less on large data.
    ... : those of `PerceptualDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> pictures[:, :2] += 200                                    # normal: bright at the top
    >>> turned = np.rot90(pictures[:4], axes=(1, 2))
    >>> detector = DPA(features="random", layer="r11", hidden=(4, 4), n_epochs=20, random_state=0).fit(pictures)
    >>> bool(detector.anomaly_score(turned).min() > detector.anomaly_score(pictures).max())
    True
    """

    summary = "DPA: a residual autoencoder and its error in the eyes of VGG19 (Tuluptceva et al. 2020)"
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"images": ("residual18",)}
    learning_rates: ClassVar[dict[str, float]] = {"images": 2e-3}

    grow: bool | str = parameter(default="auto", allowed=Rule("True, False or 'auto'", is_truth, ("auto",)))
    schedule: str = "cosine"
    weight_decay: float = 0.0

    def _objective(self, spec: NetworkSpec) -> Objective:
        return DPAObjective(spec, self.layer_)

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        """From coarse to fine: a stage at the coarsest size, then for each size one that fades in, and one after it."""
        seen = hold_out_anomalies(y)
        spec = self._make_network(rows.shape[1:], device)
        settings = self._settings(seen, device, n_epochs=self.n_epochs)
        grows = max(spec.in_shape[1:]) > AUTO_GROW if is_auto(self.grow) else self.grow
        specs = _make_growing_networks(spec) if grows else [spec]
        n_before = 2 * len(specs) - 2  # stages before the last
        early = replace(settings, n_steps=math.ceil(settings.n_steps / 2 / max(1, n_before)))
        last = replace(settings, n_steps=settings.n_steps - settings.n_steps // 2) if n_before else settings
        phases: list[Phase] = []
        for own in specs:
            layer = self.layer_ if own is spec else min(self.layer_, layer_for(own.in_shape))
            if phases:
                faded: Objective = FadingObjective(own, layer, phases[-1].objective, early.n_steps)
                phases.append(Phase(faded, early, seen))
            phases.append(Phase(DPAObjective(own, layer, spec), last if own is spec else early, seen))
        return self._fill_vgg(phases)


def _make_growing_networks(spec: NetworkSpec) -> list[NetworkSpec]:
    """Networks for ever finer pictures, the last of which is the whole; each has one level more than the one before."""
    channels, height, width = spec.in_shape
    n_levels = len(spec.hidden) - 1
    padded = [-(-side // 2**n_levels) * 2**n_levels for side in (height, width)]
    coarser = [
        replace(spec, in_shape=(channels, *(side // 2**left for side in padded)), hidden=spec.hidden[left:])
        for left in range(1, n_levels)
        if max(padded) // 2**left >= COARSEST
    ]
    return [*reversed(coarser), spec]


class DPAObjective(Objective):
    """An autoencoder of pictures at one size, by default their own; scores are Eq. (4)."""

    encoder: ResidualEncoder
    decoder: ResidualDecoder

    def __init__(self, spec: NetworkSpec, layer: str, whole: NetworkSpec | None = None) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.left = 0 if whole is None else len(whole.hidden) - len(spec.hidden)  # how often pictures are halved
        self.multiple = 1 if whole is None or not self.left else 2 ** (len(whole.hidden) - 1)
        self.encoder, self.decoder = spec.encoder(), spec.decoder()  # type: ignore[assignment]
        self.distance = PerceptualDistance(layer)

    def inherit(self, previous: Objective) -> None:
        """Take over a network of the same size; what faded in has done so."""
        assert isinstance(previous, DPAObjective)
        self.encoder.load_state_dict(previous.encoder.state_dict())
        self.decoder.load_state_dict(previous.decoder.state_dict())

    def prepare(self, data: RowPool) -> None:
        """Learn the usual features of the pictures at this size."""
        x = data.x[torch.unique(data.unlabelled)] if data.n_unlabelled else data.x
        self.distance.standardise(self._shrink(x[None])[0])

    def forward(self, x: Tensor) -> Tensor:
        """Eq. (1), of pictures (members, batch, ...) within [0, 1]."""
        return (self.decoder(self.encoder(2 * x - 1)) + 1) / 2

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (3), (members,)."""
        x = self._shrink(batch.unlabelled)
        return {"perception": self.distance(x, self(x)).mean(1)}

    def scorer(self) -> Scorer:
        """A function giving Eq. (4), (members, batch)."""
        rebuild = self.rebuilder()
        return lambda x: {"perception": self.distance(x.expand(self.n_members, *x.shape), rebuild(x))}

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving x^, (members, batch, *features)."""
        return lambda x: self(x.expand(self.n_members, *x.shape))

    def _shrink(self, x: Tensor) -> Tensor:
        """Shrink pictures (members, batch, ...) to the size of this stage."""
        if not self.left:
            return x
        small = F.avg_pool2d(pad_to_multiple(fold_members(x), self.multiple), 2**self.left)
        return unfold_members(small, len(x))


class FadingObjective(DPAObjective):
    """An autoencoder with one level more than the one before, which is faded in, Eqs. (5) and (6)."""

    step: Tensor

    def __init__(self, spec: NetworkSpec, layer: str, coarser: Objective, n_steps: int) -> None:
        super().__init__(spec, layer)
        assert isinstance(coarser, DPAObjective)
        self.left, self.multiple = coarser.left - 1, coarser.multiple
        self.n_steps = n_steps
        self.old_entry, self.old_exit = copy.deepcopy(coarser.encoder.entry), copy.deepcopy(coarser.decoder.exit)
        self.old_distance = coarser.distance
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def inherit(self, previous: Objective) -> None:
        """Take over the levels of the coarser network, its entry and its exit."""
        assert isinstance(previous, DPAObjective)
        encoder, decoder = previous.encoder, previous.decoder
        taken = [
            (nn.Sequential(*list(self.encoder.levels)[1:]), encoder.levels),
            (self.encoder.last, encoder.last),
            (self.decoder.first, decoder.first),
            (nn.Sequential(*list(self.decoder.levels)[:-1]), decoder.levels),
            (self.old_entry, encoder.entry),
            (self.old_exit, decoder.exit),
        ]
        for own, theirs in taken:
            own.load_state_dict(theirs.state_dict())

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (6), (members,)."""
        share = ((self.step + 1) / self.n_steps).to(batch.unlabelled.dtype)
        self.step += 1
        x = self._shrink(batch.unlabelled)
        height, width = x.shape[-2:]
        coarse = F.interpolate(_halve(x), scale_factor=2)
        x = share * x + (1 - share) * unfold_members(crop(coarse, height, width), len(x))  # Eq. (5)
        rebuilt = self.fade_in(x, share)
        fine = self.distance(x, rebuilt).mean(1)
        small, small_rebuilt = (unfold_members(_halve(some), len(x)) for some in (x, rebuilt))
        return {"perception": share * fine + (1 - share) * self.old_distance(small, small_rebuilt).mean(1)}

    def fade_in(self, x: Tensor, share: Tensor) -> Tensor:
        """Eq. (1) of pictures (members, batch, ...) with so large a share of the new level."""
        down, up = self.encoder.levels, self.decoder.levels
        h = self.encoder.fold(2 * x - 1)
        h = share * down[0](self.encoder.entry(h)) + (1 - share) * self.old_entry(F.avg_pool2d(h, 2))
        h = up[:-1](self.decoder.start(self.encoder.finish(down[1:](h))))
        h = share * self.decoder.exit(up[-1](h)) + (1 - share) * F.interpolate(self.old_exit(h), scale_factor=2)
        return (self.decoder.unfold_pictures(h) + 1) / 2


def _halve(x: Tensor) -> Tensor:
    """Pictures (members, batch, ...) at half their size, (batch, members * channels, ...)."""
    return F.avg_pool2d(pad_to_multiple(fold_members(x), 2), 2)
