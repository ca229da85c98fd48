"""Deep SAD's LeNet-type networks: 5x5 convolutions, batch norm, leaky ReLU, max-pooling, then one or two linear layers.

Deep SAD uses convolutions of 8 and 4 channels with a code of 32 on MNIST, 16 and 32 with a hidden layer of 128 and
a code of 64 on Fashion-MNIST, and 32, 64, 128 with a code of 128 on CIFAR-10. Nothing has a bias and batch norm has
no affine part, which Deep SVDD's theory asks for. The decoder mirrors the encoder with upsampling.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.networks.layers import PictureNetwork, StackedConv, fold_members, map_size
from esad.networks.mlp import StackedMLP

SLOPE, EPS, KERNEL = 0.01, 1e-4, 5


def _make_level(n_in: int, n_out: int, n_members: int) -> StackedConv:
    return StackedConv(n_in, n_out, n_members=n_members, kernel=KERNEL, slope=SLOPE, affine=False, eps=EPS)


class LeNetEncoder(PictureNetwork):
    """(members, batch, channels, H, W) -> (members, batch, code)."""

    def __init__(
        self, in_shape: tuple[int, int, int], widths: Sequence[int], linear: Sequence[int], *, n_members: int
    ) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=len(widths))
        self.levels = nn.ModuleList(_make_level(a, b, n_members) for a, b in pairwise([in_shape[0], *widths]))
        n_flat = widths[-1] * math.prod(map_size(in_shape, len(widths)))
        self.linear = StackedMLP([n_flat, *linear], n_members=n_members, slope=SLOPE, eps=EPS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The code of every picture."""
        h = self.fold(x)
        for level in self.levels:
            h = F.max_pool2d(level(h), 2)
        return self.linear(self.unfold(h).flatten(2))


class LeNetDecoder(PictureNetwork):
    """(members, batch, code) -> (members, batch, channels, H, W)."""

    def __init__(
        self,
        in_shape: tuple[int, int, int],
        widths: Sequence[int],
        linear: Sequence[int],
        *,
        n_members: int,
        sigmoid: bool = False,
    ) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=len(widths))
        self.sigmoid = sigmoid
        self.code_shape = (widths[-1], *map_size(in_shape, len(widths)))
        sizes = [*reversed(linear), math.prod(self.code_shape)]
        self.linear = StackedMLP(sizes, n_members=n_members, slope=SLOPE, eps=EPS, bias=False)
        up = list(reversed(widths))
        self.levels = nn.ModuleList(_make_level(a, b, n_members) for a, b in pairwise([*up, up[-1]]))
        self.last = StackedConv(up[-1], in_shape[0], n_members=n_members, kernel=KERNEL, plain=True)

    def forward(self, z: Tensor) -> Tensor:
        """The reconstructed pictures."""
        h = self.linear(z)
        h = fold_members(h.reshape(*h.shape[:2], *self.code_shape))
        for level in self.levels:
            h = level(F.interpolate(h, scale_factor=2))
        pictures = self.unfold_pictures(self.last(h))
        return pictures.sigmoid() if self.sigmoid else pictures
