"""Random changes of rows and pictures, per member: noise, permutation, rotation, grey."""

import torch
from torch import Tensor

from esad.core.random import MemberRandom

__all__ = ["add_noise", "permute_features", "quarter_turns", "random_turns", "rotate", "shift_and_flip", "to_grey"]


def add_noise(x: Tensor, sigma: float, random: MemberRandom) -> Tensor:
    """x + sigma N(0, 1)."""
    return x + sigma * random.normal(*x.shape[1:]) if sigma else x


def permute_features(x: Tensor, random: MemberRandom) -> Tensor:
    """Shuffle the features of every row by a permutation of its own; x is (members, batch, features)."""
    return x.gather(2, random.uniform(*x.shape[1:]).argsort(dim=2))


def quarter_turns(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Which multiples of 90 degrees keep the shape (..., H, W): all for squares, else half turns."""
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
    batch, channels, height, width = x.shape[1:]
    down, right = (random.integers(2 * reach + 1, batch) - reach for _ in range(2))  # (members, batch)
    rows = torch.arange(height, device=x.device) - down[..., None]  # (members, batch, H): where each row comes from
    columns = torch.arange(width, device=x.device) - right[..., None]
    if flip:
        columns = torch.where(random.integers(2, batch).bool()[..., None], columns.flip(-1), columns)
    rows, columns = rows.clamp(0, height - 1), columns.clamp(0, width - 1)
    x = x.gather(3, rows[:, :, None, :, None].expand(-1, -1, channels, -1, width))
    return x.gather(4, columns[:, :, None, None, :].expand(-1, -1, channels, height, -1))


def to_grey(x: Tensor) -> Tensor:
    """The mean of the channels in every channel."""
    return x.mean(dim=-3, keepdim=True).expand_as(x)
