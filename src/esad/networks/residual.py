"""Residual networks: DPA's and PIAD's autoencoders without batch norm, which can grow; and wide ones, WRN-10-4.

A block is two 3x3 convolutions with leaky ReLU in front of each, beside a shortcut. Encoder: an entry from the picture,
then levels that halve it by mean pooling, then one layer that sees the whole map. The decoder is its mirror, with
doubled pixels. Pictures are padded to a multiple of 2^levels and cropped back.

Wide networks (Zagoruyko & Komodakis 2016) have one block per level: a 3x3 convolution, then blocks of two 3x3
convolutions beside a shortcut, batch norm and ReLU in front of each; all blocks but the first halve the picture. The
code is the mean over what pixels are left.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.networks.layers import PictureNetwork, StackedConv, StackedNorm, fold_members, map_size

SLOPE = 0.2
MAP_SIDE = 4  # of the deepest map in the papers


def n_levels_for(shape: tuple[int, ...]) -> int:
    """How often pictures (..., height, width) are halved until they have four pixels a side.

    Examples
    --------
    >>> n_levels_for((28, 28)), n_levels_for((32, 32)), n_levels_for((64, 64))
    (3, 3, 4)
    """
    return max(0, (-(-max(shape[-2:]) // MAP_SIDE) - 1).bit_length())


class ResidualEncoder(PictureNetwork):
    """(members, batch, channels, H, W) -> (members, batch, code); `widths` of the entry and of each level."""

    def __init__(
        self, in_shape: tuple[int, int, int], widths: Sequence[int], n_codes: int, *, n_members: int, n_blocks: int
    ) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=len(widths) - 1)
        self.entry = nn.Sequential(
            _make_convolution(in_shape[0], widths[0], 3, n_members),
            *(_ResidualBlock(widths[0], widths[0], n_members) for _ in range(n_blocks if n_blocks > 1 else 0)),
        )
        self.levels = nn.Sequential(*(_make_level(*pair, n_members, n_blocks, "halve") for pair in pairwise(widths)))
        self.last = nn.Conv2d(
            widths[-1] * n_members, n_codes * n_members, map_size(in_shape, len(widths) - 1), groups=n_members
        )

    def forward(self, x: Tensor) -> Tensor:
        """The code of every picture."""
        return self.finish(self.levels(self.entry(self.fold(x))))

    def finish(self, h: Tensor) -> Tensor:
        """The code from what the deepest level gave."""
        return self.unfold(self.last(F.leaky_relu(h, SLOPE))).flatten(2)


class ResidualDecoder(PictureNetwork):
    """(members, batch, code) -> (members, batch, channels, H, W), the mirror of `ResidualEncoder`."""

    def __init__(
        self, in_shape: tuple[int, int, int], widths: Sequence[int], n_codes: int, *, n_members: int, n_blocks: int
    ) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=len(widths) - 1)
        size = map_size(in_shape, len(widths) - 1)
        self.first = nn.ConvTranspose2d(n_codes * n_members, widths[-1] * n_members, size, groups=n_members)
        pairs = pairwise(widths[::-1])
        self.levels = nn.Sequential(*(_make_level(*pair, n_members, n_blocks, "double") for pair in pairs))
        self.exit = nn.Sequential(nn.LeakyReLU(SLOPE), _make_convolution(widths[0], in_shape[0], 3, n_members))

    def start(self, code: Tensor) -> Tensor:
        """The deepest map, of codes (members, batch, code)."""
        start: Tensor = self.first(fold_members(code[..., None, None]))
        return start

    def forward(self, code: Tensor) -> Tensor:
        """The rebuilt pictures."""
        return self.unfold_pictures(self.exit(self.levels(self.start(code))))


class _ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut, at the same size, half of it or twice of it."""

    def __init__(self, n_in: int, n_out: int, n_members: int, resize: str = "same") -> None:
        super().__init__()
        self.resize = resize
        self.first = _make_convolution(n_in, n_out, 3, n_members)
        self.second = _make_convolution(n_out, n_out, 3, n_members)
        self.shortcut = nn.Identity() if n_in == n_out else _make_convolution(n_in, n_out, 1, n_members)

    def forward(self, x: Tensor) -> Tensor:
        h = self._resize(F.leaky_relu(x, SLOPE))
        out: Tensor = self.shortcut(self._resize(x)) + self.second(F.leaky_relu(self.first(h), SLOPE))
        return out

    def _resize(self, x: Tensor) -> Tensor:
        if self.resize == "same":
            return x
        return F.avg_pool2d(x, 2) if self.resize == "halve" else F.interpolate(x, scale_factor=2)


def _make_level(n_in: int, n_out: int, n_members: int, n_blocks: int, resize: str) -> nn.Sequential:
    others = (_ResidualBlock(n_out, n_out, n_members) for _ in range(n_blocks - 1))
    return nn.Sequential(_ResidualBlock(n_in, n_out, n_members, resize), *others)


def _make_convolution(n_in: int, n_out: int, kernel: int, n_members: int) -> nn.Conv2d:
    return nn.Conv2d(n_in * n_members, n_out * n_members, kernel, padding=kernel // 2, groups=n_members)


# ---------------------------------------------------------------------- wide ones


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
