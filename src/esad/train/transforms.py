"""Random changes of pictures, per member: turns, shifts, mirrors, grey, cut-outs, light."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from esad.core.random import MemberRandom

LEAST_AREA = {"grey": 0.75, "colour": 0.54}  # of a picture that is cut out
LIGHT = 0.4  # how much brighter or darker pictures get


def quarter_turns(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of quarter turns that keep the shape (..., H, W): all for squares, else half turns."""
    return (0, 1, 2, 3) if shape[-1] == shape[-2] else (0, 2)


def random_turns(x: Tensor, random: MemberRandom, *, identity: bool) -> Tensor:
    """A quarter-turn number for every picture, (members, batch); without `identity` never 0."""
    turns = quarter_turns(x.shape)
    n_left_out = 0 if identity else 1
    return (random.integers(len(turns) - n_left_out, x.shape[1]) + n_left_out) * turns[1]


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Turn every picture of (members, batch, C, H, W) by its own number of quarter turns (members, batch)."""
    height, width = x.shape[-2:]
    pixels = torch.arange(height * width, device=x.device).view(height, width)
    known = quarter_turns(x.shape)
    sources = torch.stack([torch.rot90(pixels, turn).flatten() for turn in known])  # where each pixel comes from
    source = sources[turns // known[1]]  # (members, batch, pixels)
    return x.flatten(3).gather(3, source[:, :, None].expand(-1, -1, x.shape[2], -1)).view_as(x)


def shift_and_flip(x: Tensor, reach: int, random: MemberRandom, *, flip: bool = True) -> Tensor:
    """Shift each picture of (members, batch, C, H, W) by up to `reach` pixels, repeating the border; mirror half."""
    batch = x.shape[1]
    down, right = (random.integers(2 * reach + 1, batch) - reach for _ in range(2))  # (members, batch)
    return move(x, down, right, random.integers(2, batch).bool() if flip else None)


def move(x: Tensor, down: Tensor, right: Tensor, mirror: Tensor | None = None) -> Tensor:
    """Shift each picture of (members, batch, C, H, W) by its own pixels (members, batch), repeating the border.

    Those for which `mirror` (members, batch) is true are mirrored left to right.
    """
    channels, height, width = x.shape[2:]
    rows = torch.arange(height, device=x.device) - down[..., None]  # (members, batch, H): where each row comes from
    columns = torch.arange(width, device=x.device) - right[..., None]
    if mirror is not None:
        columns = torch.where(mirror[..., None], columns.flip(-1), columns)
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    x = x.gather(3, rows[:, :, None, :, None].expand(-1, -1, channels, -1, width))
    return x.gather(4, columns[:, :, None, None, :].expand(-1, -1, channels, height, -1))


def cut_out(x: Tensor, least_area: float, draw: Callable[[], Tensor]) -> Tensor:
    """A part of each picture of (members, batch, C, H, W), at least so much of its area, at the picture's own size.

    `draw` gives uniform numbers in [0, 1), (members, batch).
    """
    area = least_area + (1 - least_area) * draw()
    aspect = torch.exp((2 * draw() - 1) * math.log(4 / 3))
    width, height = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    none = torch.zeros_like(area)
    across = torch.stack([width, none, (2 * draw() - 1) * (1 - width)], dim=-1)
    along = torch.stack([none, height, (2 * draw() - 1) * (1 - height)], dim=-1)
    where = torch.stack([across, along], dim=-2).flatten(0, 1)  # (members * batch, 2, 3)
    flat = x.flatten(0, 1)
    grid = F.affine_grid(where, list(flat.shape), align_corners=False)
    return F.grid_sample(flat, grid, padding_mode="reflection", align_corners=False).view_as(x)


def change_light(x: Tensor, strength: float, draw: Callable[[], Tensor]) -> Tensor:
    """Change light and colours of four in five pictures in [0, 1], each by up to a share; make one colour in five grey.

    `draw` gives uniform numbers in [0, 1), (members, batch).
    """

    def of_picture(values: Tensor) -> Tensor:
        return values[..., None, None, None]

    changed = of_picture(draw()) < 0.8

    def factor() -> Tensor:
        return 1 + changed * of_picture(2 * draw() - 1) * strength

    x = x * factor()
    mean = x.mean((2, 3, 4), keepdim=True)
    x = torch.lerp(mean, x, factor())
    if x.shape[2] > 1:
        grey = x.mean(2, keepdim=True)
        x = torch.lerp(grey.expand_as(x), x, factor())
        x = torch.where(of_picture(draw()) < 0.2, grey, x)
    return x.clamp(0, 1)


def augment_pictures(x: Tensor, random: MemberRandom) -> Tensor:
    """Pictures (members, batch, C, H, W) cut out and brightened at random, colour ones mirrored too."""
    if not x.shape[1]:
        return x
    is_colour = x.shape[2] == 3

    def draw() -> Tensor:
        return random.uniform(x.shape[1])

    x = shift_and_flip(x, 0, random) if is_colour else x
    return change_light(cut_out(x, LEAST_AREA["colour" if is_colour else "grey"], draw), LIGHT, draw)


def to_grey(x: Tensor) -> Tensor:
    """The mean of the channels in every channel."""
    return x.mean(dim=-3, keepdim=True).expand_as(x)
