"""Building blocks shared by the picture networks, stacked over members through grouped convolution.

Inside a network pictures are (batch, members * channels, height, width); with one member that is an ordinary
convolution.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.core.processes import Processes
from esad.core.random import MemberRandom
from esad.networks.mlp import StackedMLP
from esad.networks.norm import SharedNorm, batch_norm_over_processes


class PictureNetwork(nn.Module):
    """A network of convolutions, which begin as N(0, deviation^2), or as N(0, 2 / fan in) where there is none."""

    deviation: ClassVar[float | None] = None
    __call__: Callable[..., Tensor]

    def __init__(self, in_shape: tuple[int, int, int], *, n_members: int, n_halvings: int) -> None:
        super().__init__()
        self.n_members, self.multiple = n_members, 2**n_halvings
        self.height, self.width = in_shape[1:]

    def fold(self, pictures: Tensor) -> Tensor:
        """(members, batch, channels, H, W) -> (batch, members * channels, H, W), padded so that they can be halved."""
        return pad_to_multiple(fold_members(pictures), self.multiple)

    def unfold(self, h: Tensor) -> Tensor:
        """(batch, members * channels, H, W) -> (members, batch, channels, H, W)."""
        return unfold_members(h, self.n_members)

    def unfold_pictures(self, h: Tensor) -> Tensor:
        """Unfold decoded pictures, and crop them to their own size."""
        return self.unfold(crop(h, self.height, self.width))

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights."""
        draw_weights(self, random, deviation=self.deviation)


Network = StackedMLP | PictureNetwork


def draw_weights(network: nn.Module, random: MemberRandom, *, deviation: float | None = None) -> None:
    """Draw the weights of all layers, one after the other and member by member; biases of convolutions begin at 0.

    Convolutions are from N(0, deviation^2), by default N(0, 2 / fan in), which suits ReLU.
    """
    for module in network.modules():
        if isinstance(module, StackedMLP):
            module.reset(random)
        elif isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            scale = (2 / module.weight[0].numel()) ** 0.5 if deviation is None else deviation
            drawn = random.normal(module.weight.numel() // random.n_members) * scale
            module.weight.data.copy_(drawn.view(module.weight.shape))
            if module.bias is not None:
                module.bias.data.zero_()


class StackedConv(SharedNorm, nn.Module):
    """Convolution, then optionally batch norm and an activation, per member.

    Parameters
    ----------
    n_in, n_out : int
        Channels.
    n_members : int
    kernel : int or (int, int), default 3
    slope : float, default 0.0
        Of the leaky ReLU for negative values.
    affine, eps : bool and float
        Of batch norm.
    plain : bool, default False
        Neither batch norm nor activation.
    norm : bool, default True
        Whether there is batch norm.
    resize : {"same", "halve", "double", "gather", "spread"}
        What becomes of height and width: from the kernel's size to 1 x 1 is "gather", the other way round "spread".
        Those that resize have a bias where they have no batch norm.
    """

    def __init__(
        self,
        n_in: int,
        n_out: int,
        *,
        n_members: int,
        kernel: int | tuple[int, int] = 3,
        slope: float = 0.0,
        affine: bool = True,
        eps: float = 1e-5,
        plain: bool = False,
        norm: bool = True,
        resize: str = "same",
    ) -> None:
        super().__init__()
        self.slope, self.plain = slope, plain
        has_norm = norm and not plain
        bias = resize != "same" and not has_norm
        self.convolution = _make_convolution(n_in, n_out, kernel, resize, n_members=n_members, bias=bias)
        self.norm = nn.BatchNorm2d(n_out * n_members, eps=eps, affine=affine) if has_norm else None

    def forward(self, x: Tensor) -> Tensor:
        """(batch, members * n_in, H, W) -> (batch, members * n_out, H', W')."""
        x = self.convolution(x)
        if self.plain:
            return x
        return F.leaky_relu_(x if self.norm is None else _normalise(x, self.norm, self.processes), self.slope)


class StackedNorm(SharedNorm, nn.Module):
    """Batch norm and ReLU, per member, in front of a convolution."""

    def __init__(self, n_channels: int, *, n_members: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(n_channels * n_members)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, members * channels, H, W), of the same shape."""
        return F.relu_(_normalise(x, self.norm, self.processes))


def _normalise(x: Tensor, norm: nn.BatchNorm2d, processes: Processes) -> Tensor:
    """Batch norm; in training by the statistics of the whole batch."""
    if norm.training and x[:, 0].numel() * processes.size == 1:  # one value has no variance
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
    if norm.training and not processes.is_alone:
        return batch_norm_over_processes(norm, x, processes)
    normal: Tensor = norm(x)
    return normal


def _make_convolution(
    n_in: int, n_out: int, kernel: int | tuple[int, int], resize: str, *, n_members: int, bias: bool
) -> nn.Conv2d | nn.ConvTranspose2d:
    kind = nn.ConvTranspose2d if resize in ("double", "spread") else nn.Conv2d
    strides: dict[str, Any] = {}
    if isinstance(kernel, int) and resize not in ("gather", "spread"):
        strides = {"stride": 1 if resize == "same" else 2, "padding": (kernel - 1) // 2}
        strides |= {"output_padding": kernel % 2} if resize == "double" else {}
    return kind(n_in * n_members, n_out * n_members, kernel, groups=n_members, bias=bias, **strides)


class DenseLayers(PictureNetwork):
    """(members, batch, in) -> (members, batch, out), without batch norm, so that rows are judged apart."""

    def __init__(self, sizes: Sequence[int], *, n_members: int, slope: float = 0.0) -> None:
        super().__init__((sizes[0], 1, 1), n_members=n_members, n_halvings=0)
        block = partial(StackedConv, n_members=n_members, kernel=1, resize="gather", norm=False, slope=slope)
        last = len(sizes) - 2
        self.layers = nn.Sequential(
            *(block(*pair, plain=number == last) for number, pair in enumerate(pairwise(sizes)))
        )

    def forward(self, x: Tensor) -> Tensor:
        """The numbers of the last layer, which has no activation."""
        return self.unfold(self.layers(self.fold(x[..., None, None]))).flatten(2)


def map_size(in_shape: tuple[int, ...], n_levels: int) -> tuple[int, int]:
    """Height and width of pictures (..., height, width), padded, that were halved so many times.

    Examples
    --------
    >>> map_size((1, 28, 28), 3)
    (4, 4)
    """
    return -(-in_shape[-2] // 2**n_levels), -(-in_shape[-1] // 2**n_levels)


def fold_members(x: Tensor) -> Tensor:
    """(members, batch, channels, H, W) -> (batch, members * channels, H, W)."""
    members, batch, channels, height, width = x.shape
    folded = x.transpose(0, 1).reshape(batch, members * channels, height, width)
    return folded.contiguous(memory_format=torch.channels_last)


def unfold_members(x: Tensor, n_members: int) -> Tensor:
    """(batch, members * channels, H, W) -> (members, batch, channels, H, W)."""
    return torch.unflatten(x, 1, (n_members, -1)).transpose(0, 1)


def pad_to_multiple(x: Tensor, multiple: int) -> Tensor:
    """Add zeros until height and width are multiples; the picture stays in the middle."""
    height, width = x.shape[-2:]
    down, right = -height % multiple, -width % multiple
    if not (down or right):
        return x
    return F.pad(x, (right // 2, right - right // 2, down // 2, down - down // 2))


def crop(x: Tensor, height: int, width: int) -> Tensor:
    """Undo `pad_to_multiple`."""
    top, left = (x.shape[-2] - height) // 2, (x.shape[-1] - width) // 2
    return x[..., top : top + height, left : left + width]


def inference(network: Network) -> Callable[[Tensor], Tensor]:
    """A function (members or 1, batch, *features) -> (members, batch, *out); the network must be in evaluation mode.

    One leading row means that all members see the same rows. Batch norm of perceptrons is folded into the weights.
    """
    if isinstance(network, StackedMLP):
        frozen = network.freeze()
        return lambda x: frozen(x.transpose(1, 2)).transpose(1, 2)
    return lambda x: network(x.expand(network.n_members, *x.shape[1:]))
