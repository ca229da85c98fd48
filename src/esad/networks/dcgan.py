"""DCGAN's networks (Radford et al. 2016): strided convolutions down to a code, and transposed ones up to a picture.

Every level halves or doubles the picture. Batch norm follows every convolution but the first one down and the last one
up; critics of a Wasserstein distance do without. Dense layers are convolutions that see a whole map; where there are
none, the deepest map is the code. Weights begin as N(0, 0.02^2). Pictures are padded to a multiple of 2^levels and
cropped back.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

from torch import Tensor, nn

from esad.networks.layers import PictureNetwork, StackedConv, fold_members, map_size

DEVIATION = 0.02
KERNEL = 4  # even: all weights touch equally many pixels


class DCGANEncoder(PictureNetwork):
    """(members, batch, channels, H, W) -> (members, batch, code); with one number a discriminator.

    Parameters
    ----------
    in_shape : (int, int, int)
        Channels, height, width.
    widths : sequence of int
        Channels of the levels.
    dense : sequence of int
        Widths of the dense layers, the last of which is plain and gives the code.
    n_members : int
    kernel : int, default 4
    slope : float, default 0.2
        Of the leaky ReLU.
    norm : bool, default True
        Whether there is batch norm.
    """

    deviation: ClassVar[float] = DEVIATION

    def __init__(
        self,
        in_shape: tuple[int, int, int],
        widths: Sequence[int],
        dense: Sequence[int] = (),
        *,
        n_members: int,
        kernel: int = KERNEL,
        slope: float = 0.2,
        norm: bool = True,
    ) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=len(widths))
        block = partial(StackedConv, n_members=n_members, slope=slope)
        self.levels = nn.Sequential(
            *(
                block(n_in, n_out, kernel=kernel, resize="halve", norm=norm and index > 0)
                for index, (n_in, n_out) in enumerate(pairwise([in_shape[0], *widths]))
            )
        )
        kernels = [map_size(in_shape, len(widths)), *[(1, 1)] * len(dense)]
        self.dense = nn.Sequential(
            *(
                block(n_in, n_out, kernel=kernels[index], resize="gather", norm=norm, plain=index == len(dense) - 1)
                for index, (n_in, n_out) in enumerate(pairwise([widths[-1], *dense]))
            )
        )

    def features_and_code(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the input and the output of the last layer, each (members, batch, numbers)."""
        features = self.dense[:-1](self.levels(self.fold(x)))
        code = self.dense[-1:](features)
        return self.unfold(features).flatten(2), self.unfold(code).flatten(2)

    def forward(self, x: Tensor) -> Tensor:
        """The code of every picture."""
        return self.features_and_code(x)[1]


class DCGANDecoder(PictureNetwork):
    """(members, batch, code) -> (members, batch, channels, H, W), the mirror of `DCGANEncoder`, with ReLU.

    Its last layer is plain: a sigmoid or a hyperbolic tangent makes pixels of it.
    """

    deviation: ClassVar[float] = DEVIATION

    def __init__(
        self,
        in_shape: tuple[int, int, int],
        widths: Sequence[int],
        dense: Sequence[int] = (),
        *,
        n_members: int,
        kernel: int = KERNEL,
    ) -> None:
        super().__init__(in_shape, n_members=n_members, n_halvings=len(widths))
        size = map_size(in_shape, len(widths))
        self.code_shape = (dense[-1], 1, 1) if dense else (widths[-1], *size)
        block = partial(StackedConv, n_members=n_members)
        kernels = [*[(1, 1)] * (len(dense) - 1), size]
        self.dense = nn.Sequential(
            *(
                block(n_in, n_out, kernel=kernels[index], resize="spread")
                for index, (n_in, n_out) in enumerate(pairwise([*reversed(dense), widths[-1]]))
            )
        )
        self.levels = nn.Sequential(
            *(
                block(n_in, n_out, kernel=kernel, resize="double", plain=index == len(widths) - 1)
                for index, (n_in, n_out) in enumerate(pairwise([*reversed(widths), in_shape[0]]))
            )
        )

    def forward(self, code: Tensor) -> Tensor:
        """The picture of every code."""
        h = self.levels(self.dense(fold_members(code.reshape(*code.shape[:2], *self.code_shape))))
        return self.unfold_pictures(h)
