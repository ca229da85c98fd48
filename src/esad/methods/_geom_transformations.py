"""The geometric transformations that GEOM tells apart: mirrored or not, shifted or not, turned or not."""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from esad.train.transforms import quarter_turns

__all__ = ["KINDS", "Transformation", "pixel_maps", "transformations_of"]

KINDS = ("all", "mirrors", "turns")


@dataclass(frozen=True)
class Transformation:
    """A picture mirrored left to right, then shifted, then turned.

    Attributes
    ----------
    mirrored : bool
    down, right : int
        Pixels; what comes in at the border is the picture's reflection.
    turns : int
        Quarter turns.
    """

    mirrored: bool = False
    down: int = 0
    right: int = 0
    turns: int = 0

    def __call__(self, x: Tensor) -> Tensor:
        """The pictures (..., height, width), transformed."""
        x = x.flip(-1) if self.mirrored else x
        x = _shifted(_shifted(x, self.down, dim=-2), self.right, dim=-1)
        return torch.rot90(x, self.turns, dims=(-2, -1)) if self.turns else x


def transformations_of(kind: str, shape: tuple[int, ...]) -> tuple[Transformation, ...]:
    """The transformations of pictures (..., height, width), the identity first.

    "turns": quarter turns, or half turns where pictures are not square. "mirrors": those, mirrored or not. "all":
    those, shifted by a quarter of the height and of the width or not.

    Examples
    --------
    >>> [len(transformations_of(kind, (28, 28))) for kind in ("turns", "mirrors", "all")]
    [4, 8, 72]
    """
    down, right = (
        (0, -reach, reach) if kind == "all" else (0,) for reach in (max(1, side // 4) for side in shape[-2:])
    )
    mirrored = (False,) if kind == "turns" else (False, True)
    return tuple(Transformation(*choice) for choice in product(mirrored, down, right, quarter_turns(shape)))


def pixel_maps(chosen: tuple[Transformation, ...], shape: tuple[int, ...]) -> Tensor:
    """Which pixel each transformation puts where, (transformations, height * width), for `gather`."""
    height, width = shape[-2:]
    pixels = torch.arange(height * width).view(height, width)
    return torch.stack([transformation(pixels).flatten() for transformation in chosen])


def _shifted(x: Tensor, pixels: int, *, dim: int) -> Tensor:
    """Moved along one axis, by no more pixels than it has."""
    if not pixels:
        return x
    last = x.shape[dim] - 1
    source = torch.arange(last + 1, device=x.device) - pixels
    source = torch.where(source < 0, -1 - source, torch.where(source > last, 2 * last + 1 - source, source))
    return x.index_select(dim, source)
