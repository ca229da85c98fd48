"""One PNG or JPEG file, read through Pillow: whatever its mode, grey or RGB comes out."""

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.extras import require
from esad.errors import DataFileError, EsadError

__all__ = ["SUFFIXES", "Header", "middle", "read_bytes", "read_header", "read_pixels", "shrunk"]

SUFFIXES = (".png", ".jpg", ".jpeg")

_GREY_MODES = frozenset({"1", "L", "LA", "I", "I;16", "I;16B"})
_ORIENTATION, _SIDEWAYS = 0x0112, (5, 6, 7, 8)  # Exif: how the camera was held; these swap width and height
_DEEP_MAX = np.float32(65535.0)


@dataclass(frozen=True)
class Header:
    """What a picture says of itself before its pixels are read.

    Parameters
    ----------
    width, height : int
        Size as it is shown.
    n_channels : int
        1 for grey, 3 for colour.
    is_deep : bool
        Whether it is grey with 16 bits.
    """

    width: int
    height: int
    n_channels: int
    is_deep: bool

    @property
    def n_values(self) -> int:
        """Numbers in a picture."""
        return self.n_channels * self.height * self.width


def read_header(path: Path) -> Header:
    """Read size and mode of a picture without decoding it."""
    with _opened(path) as image:
        width, height = image.size
        if image.format == "JPEG" and image.getexif().get(_ORIENTATION) in _SIDEWAYS:
            width, height = height, width
        return Header(width, height, 1 if image.mode in _GREY_MODES else 3, image.mode.startswith("I"))


def read_pixels(path: Path, header: Header) -> NDArray[Any]:
    """Read a picture in the form asked for, whatever its own.

    Transparent pixels are laid on white, palettes and CMYK become RGB, RGB becomes grey by its luminance, JPEG is
    turned as its Exif data says. Grey of 16 bits keeps its depth: it becomes float32, 65535 being 1; colour of 16 bits
    is read with 8.

    Parameters
    ----------
    path : pathlib.Path
        PNG or JPEG file.
    header : Header
        Form wanted; the size must be the picture's own.

    Returns
    -------
    ndarray of shape (n_channels, height, width)
        uint8, or float32 in [0, 1] if `header.is_deep`.
    """
    with _opened(path) as image:
        if image.format == "JPEG":
            image = require("PIL.ImageOps", extra="image").exif_transpose(image)
        pixels = _deep_grey(image) if image.mode.startswith("I") else _bytes(image, header.n_channels)
        pixels = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, 2, 0)  # (channels, height, width)
        if header.is_deep and pixels.dtype == np.uint8:
            pixels = pixels / np.float32(255.0)
        return np.broadcast_to(pixels, (header.n_channels, header.height, header.width))


def read_bytes(path: Path, *, n_channels: int) -> NDArray[np.uint8]:
    """Read a picture with 8 bits, shape (height, width) for one channel or (height, width, 3)."""
    form = replace(read_header(path), n_channels=n_channels)
    pixels = read_pixels(path, form)
    if pixels.dtype != np.uint8:
        pixels = np.round(pixels * 255.0).astype(np.uint8)
    return pixels[0] if n_channels == 1 else np.moveaxis(pixels, 0, 2)


def middle(pixels: NDArray[Any], size: int) -> tuple[slice, slice]:
    """Rows and columns of the middle of a picture, so many pixels high and wide."""
    height, width = pixels.shape[:2]
    if min(height, width) < size:
        raise DataFileError(f"A picture must have at least {size} x {size} pixels. Got {width} x {height}.")
    top, left = (height - size) // 2, (width - size) // 2
    return slice(top, top + size), slice(left, left + size)


def shrunk(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Scale a square picture down, every pixel being the weighted mean of those it replaces."""
    pillow = require("PIL.Image", extra="image")
    return np.asarray(pillow.fromarray(pixels).resize((size, size), pillow.Resampling.BILINEAR))


def _deep_grey(image: Any) -> NDArray[Any]:
    return np.asarray(image).astype(np.float32) / _DEEP_MAX


def _bytes(image: Any, n_channels: int) -> NDArray[Any]:
    """Pixels as uint8, shape (height, width) or (height, width, 3)."""
    if image.mode.endswith("A") or "transparency" in image.info:
        shown = require("PIL.Image", extra="image").new("RGBA", image.size, "white")
        shown.alpha_composite(image.convert("RGBA"))
        image = shown.convert("RGB")
    return np.asarray(image.convert("L" if n_channels == 1 else "RGB"))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a picture with the two decoders we want; whatever goes wrong with it is a DataFileError."""
    pillow = require("PIL.Image", extra="image")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(path, formats=("PNG", "JPEG")) as image:
                yield image
    except EsadError:
        raise
    except (pillow.DecompressionBombWarning, pillow.DecompressionBombError) as error:
        raise DataFileError(
            f"Refused the picture {str(path)!r}: it has more than {pillow.MAX_IMAGE_PIXELS} pixels."
        ) from error
    except Exception as error:  # decoders raise many kinds on damaged files
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise DataFileError(f"Cannot read the picture {str(path)!r}: {reason}.") from error
