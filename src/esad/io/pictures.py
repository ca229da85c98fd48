"""One picture file of any mode, PNG, JPEG, BMP or TIFF, as an array; read through Pillow."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.machine import require
from esad.core.text import one_line
from esad.errors import DataFileError, EsadError, PictureFileError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")

_GREY_MODES = frozenset({"1", "L", "LA", "I", "I;16", "I;16B"})
_ORIENTATION, _SIDEWAYS = 0x0112, (5, 6, 7, 8)  # Exif: how the camera was held; these swap width and height
_DEEP_MAX = np.float32(65535.0)
_FORMATS = ("PNG", "JPEG", "BMP", "TIFF")
_DRAFT = 2  # a JPEG is decoded with at least so many times the width and height wanted, and scaled from there


def is_picture(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a picture, by its name."""
    return os.fspath(path).lower().endswith(SUFFIXES)


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

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.width, self.height


def read_header(path: Path) -> Header:
    """Read size and mode of a picture without decoding it."""
    with _open(path) as image:
        width, height = reversed(image.size) if _lies_on_its_side(image) else image.size
        if image.mode == "F":
            raise PictureFileError(
                f"Cannot read the picture {str(path)!r}: its pixels are fractions. Save it with 16 bits."
            )
        return Header(width, height, 1 if image.mode in _GREY_MODES else 3, image.mode.startswith("I"))


def read_pixels(path: Path, header: Header) -> NDArray[Any]:
    """Read a picture in the form asked for, whatever its own.

    Transparent pixels are laid on white, palettes and CMYK become RGB, RGB becomes grey by its luminance, JPEG is
    turned as its Exif data says. Grey of 16 bits keeps its depth: it becomes float32, 65535 being 1; colour of 16 bits
    is read with 8. A picture of another size is scaled, every pixel being the weighted mean of those it replaces; a
    large JPEG is decoded at about the size wanted in the first place.

    Parameters
    ----------
    path : pathlib.Path
        PNG, JPEG, BMP or TIFF file; of several pages the first.
    header : Header
        Form wanted.

    Returns
    -------
    ndarray of shape (n_channels, height, width)
        uint8, or float32 in [0, 1] if `header.is_deep`.
    """
    with _open(path) as image:
        if image.format == "JPEG":
            width, height = reversed(header.size) if _lies_on_its_side(image) else header.size
            image.draft(None, (_DRAFT * width, _DRAFT * height))
            image = require("PIL.ImageOps", extra="image").exif_transpose(image)
        if image.mode.startswith("I"):  # grey of 16 bits, as fractions
            fractions = np.asarray(image).astype(np.float32) / _DEEP_MAX
            image = require("PIL.Image", extra="image").fromarray(fractions)
        else:
            image = _with_channels(image, header.n_channels)
        pixels = np.asarray(_scale(image, header.size))
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


def find_middle(pixels: NDArray[Any], size: int) -> tuple[slice, slice]:
    """Rows and columns of the middle of a picture, so many pixels high and wide."""
    height, width = pixels.shape[:2]
    if min(height, width) < size:
        raise DataFileError(f"A picture must have at least {size} x {size} pixels. Got {width} x {height}.")
    top, left = (height - size) // 2, (width - size) // 2
    return slice(top, top + size), slice(left, left + size)


def shrink(pixels: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """Scale a square picture down, every pixel being the weighted mean of those it replaces."""
    return np.asarray(_scale(require("PIL.Image", extra="image").fromarray(pixels), (size, size)))


def _scale(image: Any, size: tuple[int, int]) -> Any:
    """The picture with this width and height."""
    return image if image.size == size else image.resize(size, require("PIL.Image", extra="image").Resampling.BILINEAR)


def _lies_on_its_side(image: Any) -> bool:
    """Whether the camera was held so that width and height change places; Pillow turns TIFF by itself."""
    return image.format == "JPEG" and image.getexif().get(_ORIENTATION) in _SIDEWAYS


def _with_channels(image: Any, n_channels: int) -> Any:
    """Grey or RGB with 8 bits, transparent pixels laid on white."""
    if image.mode.endswith("A") or "transparency" in image.info:
        shown = require("PIL.Image", extra="image").new("RGBA", image.size, "white")
        shown.alpha_composite(image.convert("RGBA"))
        image = shown.convert("RGB")
    return image.convert("L" if n_channels == 1 else "RGB")


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open a picture with the decoders we want; whatever goes wrong with it is a DataFileError."""
    pillow = require("PIL.Image", extra="image")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(path, formats=_FORMATS) as image:
                yield image
    except EsadError:
        raise
    except (pillow.DecompressionBombWarning, pillow.DecompressionBombError) as error:
        raise DataFileError(
            f"Refused the picture {str(path)!r}: it has more than {pillow.MAX_IMAGE_PIXELS} pixels."
        ) from error
    except Exception as error:  # decoders raise many kinds on damaged files
        reason = one_line(error) or type(error).__name__
        raise PictureFileError(f"Cannot read the picture {str(path)!r}: {reason}.") from error
