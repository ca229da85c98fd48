"""Pictures in one form: arrays of any usual layout; PNG, JPEG, BMP and TIFF files of any mode, read through Pillow."""

import contextlib
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.extras import require
from esad.errors import DataFileError, EsadError, InputError

__all__ = [
    "SUFFIXES",
    "Header",
    "as_images",
    "is_images",
    "is_picture",
    "middle",
    "read_bytes",
    "read_header",
    "read_pixels",
    "shrunk",
]

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff")

_GREY_MODES = frozenset({"1", "L", "LA", "I", "I;16", "I;16B"})
_ORIENTATION, _SIDEWAYS = 0x0112, (5, 6, 7, 8)  # Exif: how the camera was held; these swap width and height
_DEEP_MAX = np.float32(65535.0)
_FORMATS = ("PNG", "JPEG", "BMP", "TIFF")
_DRAFT = 2  # a JPEG is decoded with at least so many times the width and height wanted, and scaled from there


_ALLOWED = "(n, height, width), (n, height, width, channels) or (n, channels, height, width) with 1 or 3 channels"


def is_images(X: Any) -> bool:
    """Tell whether `X` has the dimensions of pictures, without looking at its values.

    Parameters
    ----------
    X : object
        Anything given to a detector.

    Returns
    -------
    bool
        True for arrays and nested lists of three or four dimensions.

    Examples
    --------
    >>> is_images(np.zeros((10, 28, 28))), is_images([[1.0, 2.0]])
    (True, False)
    """
    if hasattr(X, "shape"):
        return len(X.shape) in (3, 4)
    depth = 0
    while isinstance(X, list | tuple) and len(X) > 0:
        depth, X = depth + 1, X[0]
    return depth + len(getattr(X, "shape", ())) in (3, 4)


def as_images(X: Any) -> NDArray[Any]:
    """Bring pictures into the form (n, channels, height, width).

    Four dimensions are read by this rule: a last axis of 1, 3 or 4 is the channels (the fourth, alpha, is dropped);
    otherwise a second axis of 1 or 3 is.

    Parameters
    ----------
    X : array-like
        Of shape (n, height, width), (n, height, width, channels) or (n, channels, height, width).

    Returns
    -------
    ndarray of uint8 or float32, shape (n, channels, height, width)
        uint8 stays as it is and may share memory with `X`, truth values become 0 and 255, all other numbers float32
        of the same value. `ImagePreprocessor` brings them to [0, 1].

    Raises
    ------
    InputError
        Another shape, no picture at all, something else than numbers, or NaN and infinite values.

    Examples
    --------
    >>> as_images(np.zeros((10, 28, 28), dtype=np.uint8)).shape
    (10, 1, 28, 28)
    >>> as_images(np.zeros((10, 32, 32, 3))).shape
    (10, 3, 32, 32)
    """
    array = _as_array(X)
    if array.size == 0:
        raise InputError(f"Found array with 0 sample(s) or pixels (shape={array.shape}); at least one is needed.")
    images = _channels_second(array)
    if images.dtype == np.uint8:
        return images
    if images.dtype == np.bool_:
        return images.astype(np.uint8) * np.uint8(255)
    low, high = float(images.min()), float(images.max())  # NaN if there is any
    if not np.isfinite([low, high]).all():
        raise InputError(
            "Pictures hold NaN or infinite values. Every pixel must be a finite number: repair or drop them."
        )
    if max(-low, high) > float(np.finfo(np.float32).max):
        raise InputError(f"Pictures hold values too large for float32, from {low:g} to {high:g}. Rescale them.")
    return images.astype(np.float32)


def _as_array(X: Any) -> NDArray[Any]:
    """Array of numbers or truth values."""
    try:
        array = np.asarray(X)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise InputError(f"Pictures must be one array of numbers, all of one size ({reason}).") from error
    if array.dtype.kind not in "buif":
        raise InputError(f"Pictures must hold numbers. Got an array of {array.dtype}.")
    return array


def _channels_second(array: NDArray[Any]) -> NDArray[Any]:
    """View of shape (n, channels, height, width)."""
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4 and array.shape[3] in (1, 3, 4):
        return np.moveaxis(array[..., :3], 3, 1)
    if array.ndim == 4 and array.shape[1] in (1, 3):
        return array
    raise InputError(f"Pictures must have the shape {_ALLOWED}. Got {array.shape}.")


# ---------------------------------------------------------------------- files


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
    with _opened(path) as image:
        width, height = reversed(image.size) if _lies_on_its_side(image) else image.size
        if image.mode == "F":
            raise DataFileError(
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
    with _opened(path) as image:
        if image.format == "JPEG":
            width, height = reversed(header.size) if _lies_on_its_side(image) else header.size
            image.draft(None, (_DRAFT * width, _DRAFT * height))
            image = require("PIL.ImageOps", extra="image").exif_transpose(image)
        image = _deep_grey(image) if image.mode.startswith("I") else _with_channels(image, header.n_channels)
        pixels = np.asarray(_scaled(image, header.size))
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
    return np.asarray(_scaled(require("PIL.Image", extra="image").fromarray(pixels), (size, size)))


def _scaled(image: Any, size: tuple[int, int]) -> Any:
    """The picture with this width and height."""
    return image if image.size == size else image.resize(size, require("PIL.Image", extra="image").Resampling.BILINEAR)


def _lies_on_its_side(image: Any) -> bool:
    """Whether the camera was held so that width and height change places; Pillow turns TIFF by itself."""
    return image.format == "JPEG" and image.getexif().get(_ORIENTATION) in _SIDEWAYS


def _deep_grey(image: Any) -> Any:
    """Grey of 16 bits as fractions."""
    return require("PIL.Image", extra="image").fromarray(np.asarray(image).astype(np.float32) / _DEEP_MAX)


def _with_channels(image: Any, n_channels: int) -> Any:
    """Grey or RGB with 8 bits, transparent pixels laid on white."""
    if image.mode.endswith("A") or "transparency" in image.info:
        shown = require("PIL.Image", extra="image").new("RGBA", image.size, "white")
        shown.alpha_composite(image.convert("RGBA"))
        image = shown.convert("RGB")
    return image.convert("L" if n_channels == 1 else "RGB")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
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
        reason = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise DataFileError(f"Cannot read the picture {str(path)!r}: {reason}.") from error
