"""Wide residual networks (Zagoruyko & Komodakis 2016) of one block per level: WRN-10-4 with the published widths.

A 3x3 convolution, then blocks of two 3x3 convolutions beside a shortcut, batch norm and ReLU in front of each; all
blocks but the first halve the picture. The code is the mean over what pixels are left.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from esad.networks.layers import PictureNetwork, StackedConv, StackedNorm

__all__ = ["WideEncoder"]


class WideEncoder(PictureNetwork):
    """(members, batch, channels, H, W) -> (members, batch, the last width)."""

    def __init__(self, in_shape: tuple[int, int, int], widths: Sequence[int], *, n_members: int) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=0)
        self.first = StackedConv(in_shape[0], widths[0], n_members=n_members, plain=True)
        self.blocks = nn.Sequential(
            *(
                _WideBlock(n_in, n_out, n_members=n_members, halves=level > 0)
                for level, (n_in, n_out) in enumerate(pairwise(widths))
            )
        )
        self.norm = StackedNorm(widths[-1], n_members=n_members)

    def forward(self, x: Tensor) -> Tensor:
        """The code of every picture."""
        return self.unfold(self.norm(self.blocks(self.first(self.fold(x))))).mean((3, 4))


class _WideBlock(nn.Module):
    """Two convolutions beside a shortcut, which is a 1x1 convolution where the width changes."""

    def __init__(self, n_in: int, n_out: int, *, n_members: int, halves: bool) -> None:
        super().__init__()
        resize = "halve" if halves else "same"
        self.norm = StackedNorm(n_in, n_members=n_members)
        self.first = StackedConv(n_in, n_out, n_members=n_members, resize=resize)
        self.second = StackedConv(n_out, n_out, n_members=n_members, plain=True)
        self.shortcut: nn.Module | None = None
        if halves or n_in != n_out:
            self.shortcut = StackedConv(n_in, n_out, n_members=n_members, kernel=1, plain=True, resize=resize)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        out: Tensor = self.second(self.first(h)) + (x if self.shortcut is None else self.shortcut(h))
        return out
