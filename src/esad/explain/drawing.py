"""Heat maps as pictures: what was given, what was expected, and where it differs, side by side."""

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.extras import require
from esad.explain.reasons import HeatMaps

__all__ = ["draw", "draw_parts", "to_data_uri", "to_pixels", "to_png"]

MIN_SIDE = 112  # smaller pictures are enlarged by a whole factor
GAP = 4  # white pixels between the three
# Red to yellow, growing brighter: no grey picture has these colours.
HEAT = np.array([[90, 0, 20], [200, 20, 20], [245, 110, 0], [255, 220, 40]], dtype=np.float64)
MAX_COVER = 0.9  # how much of a picture the hottest spot hides
DIMMED = 0.7  # brightness of the picture below


def draw(maps: HeatMaps, row: int) -> NDArray[np.uint8]:
    """The picture, what the model expects in its place if it can tell, and its heat map, (height, width, 3).

    Examples
    --------
    >>> flat = np.zeros((1, 1, 8, 8), dtype=np.float32)
    >>> maps = HeatMaps(score=np.zeros(1), terms={}, base={}, shares={"s": flat[:, 0]}, pictures=flat, expected=flat)
    >>> draw(maps, 0).shape
    (112, 344, 3)
    """
    parts = list(draw_parts(maps, row).values())
    gap = np.full((len(parts[0]), GAP, 3), 255, dtype=np.uint8)
    return np.concatenate([piece for part in parts for piece in (part, gap)][:-1], axis=1)


def draw_parts(maps: HeatMaps, row: int) -> dict[str, NDArray[np.uint8]]:
    """The pictures apart, each (height, width, 3): "given", "expected" where it is one of its own, and "heat"."""
    heat = maps.heat[row]
    level = heat / heat.max() if heat.max() > 0 else heat
    given, expected = _rgb(maps.pictures[row]), _rgb(np.clip(maps.expected[row], 0.0, 1.0))
    stops = np.linspace(0.0, 1.0, len(HEAT))
    colours = np.stack([np.interp(level, stops, HEAT[:, channel]) for channel in range(3)], axis=2)
    cover = MAX_COVER * level[:, :, None]
    covered = (1 - cover) * DIMMED * given.mean(axis=2, keepdims=True) + cover * colours
    named = {"given": given} | ({"expected": expected} if maps.is_rebuilt else {}) | {"heat": covered}
    return {name: _enlarge(part).round().astype(np.uint8) for name, part in named.items()}


def to_pixels(picture: NDArray[Any]) -> NDArray[np.uint8]:
    """One picture (channels, height, width) within [0, 1] to look at, (height, width, 3)."""
    return _enlarge(_rgb(picture)).round().astype(np.uint8)


def to_png(pixels: NDArray[np.uint8]) -> bytes:
    """A drawing as the bytes of a PNG file."""
    pillow = require("PIL.Image", extra="image")
    out = io.BytesIO()
    pillow.fromarray(pixels).save(out, format="PNG", optimize=True)
    return out.getvalue()


def to_data_uri(pixels: NDArray[np.uint8]) -> str:
    """A drawing as an address that holds it, for the `src` of an image."""
    return f"data:image/png;base64,{base64.b64encode(to_png(pixels)).decode()}"


def _rgb(picture: NDArray[Any]) -> NDArray[np.float64]:
    """(channels, height, width) within [0, 1] as (height, width, 3) within [0, 255]."""
    channels_last = np.moveaxis(picture, 0, 2).astype(np.float64) * 255
    return np.broadcast_to(channels_last, (*channels_last.shape[:2], 3))


def _enlarge(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    factor = -(-MIN_SIDE // min(picture.shape[:2]))
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)
