"""Pictures in: arrays of any usual layout as one form, (n, channels, height, width)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.errors import InputError
from esad.io.picture_folder import ImageFolder, open_images, read_folder

__all__ = ["ImageFolder", "as_images", "is_images", "open_images", "read_folder"]

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
