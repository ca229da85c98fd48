"""The paper's convolutional encoder and decoder, for grey or colour pictures of any size.

Encoder (supplement, table "Model Structure"): two 3x3 convolutions per level, max-pooling between the levels,
five levels of 64, 128, 256, 512, 512 channels, so the code is (512, H/16, W/16). Decoder: four times upsampling
and two convolutions of 256, 128, 64, 64 channels, then one plain convolution to the picture. Convolutions are
padded, without bias, with batch norm and ReLU. Pictures are padded to a multiple of 16 and cropped back.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.networks.layers import PictureNetwork, StackedConv, fold_members, map_size


class ConvEncoder(PictureNetwork):
    """(members, batch, channels, H, W) -> (members, batch, code); one level per width."""

    def __init__(self, in_shape: tuple[int, int, int], widths: Sequence[int], *, n_members: int) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=len(widths) - 1)
        self.levels = nn.ModuleList(
            nn.Sequential(StackedConv(n_in, n_out, n_members=n_members), StackedConv(n_out, n_out, n_members=n_members))
            for n_in, n_out in pairwise([in_shape[0], *widths])
        )

    def levels_of(self, x: Tensor) -> list[Tensor]:
        """Return the output of every level, (batch, members * width, height, width), from the first to the deepest."""
        h = self.fold(x)
        found: list[Tensor] = []
        for level in self.levels:
            h = level(F.max_pool2d(h, 2) if found else h)
            found.append(h)
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Flattened code of every picture."""
        return self.unfold(self.levels_of(x)[-1]).flatten(2)


class ConvDecoder(PictureNetwork):
    """(members, batch, code) -> (members, batch, channels, H, W), the mirror of `ConvEncoder`."""

    def __init__(
        self, in_shape: tuple[int, int, int], widths: Sequence[int], *, n_members: int, skips: Sequence[int] = ()
    ) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=len(widths) - 1)
        self.code_shape = (widths[-1], *map_size(in_shape, len(widths) - 1))
        # the paper's 512 -> 256, 128, 64, 64: the encoder's widths backwards, less its two deepest, the first doubled
        up = [*reversed(widths[:-2]), widths[0]]
        self.levels = nn.ModuleList(
            nn.Sequential(
                StackedConv(n_in + n_skipped, n_out, n_members=n_members),
                StackedConv(n_out, n_out, n_members=n_members),
            )
            for (n_in, n_out), n_skipped in zip(pairwise([widths[-1], *up]), skips or [0] * len(up), strict=True)
        )
        self.last = StackedConv(up[-1], in_shape[0], n_members=n_members, plain=True)

    def forward(self, z: Tensor) -> Tensor:
        """The reconstructed pictures."""
        h = fold_members(z.view(*z.shape[:2], *self.code_shape))
        for level in self.levels:
            h = level(F.interpolate(h, scale_factor=2))
        return self.unfold_pictures(self.last(h))


class SkipDecoder(ConvDecoder):
    """The outputs of all `ConvEncoder` levels -> (members, batch, channels, H, W); each level also sees its twin's."""

    def __init__(self, in_shape: tuple[int, int, int], widths: Sequence[int], *, n_members: int) -> None:
        super().__init__(in_shape, widths, n_members=n_members, skips=tuple(reversed(widths[:-1])))

    def forward(self, levels: list[Tensor]) -> Tensor:  # type: ignore[override]
        """The restored pictures, from `ConvEncoder.levels_of`."""
        *skipped, h = levels
        for level, twin in zip(self.levels, reversed(skipped), strict=True):
            both = (torch.unflatten(x, 1, (self.n_members, -1)) for x in (F.interpolate(h, scale_factor=2), twin))
            h = level(torch.cat(list(both), dim=2).flatten(1, 2))
        return self.unfold_pictures(self.last(h))
