"""From picture arrays of any usual layout to the numbers a network sees: float32 in [0, 1], always the same way."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Arrays
from esad.core.text import one_line
from esad.errors import InputError, SchemaError
from esad.table.table import expect

_FORMAT = 1
_BLOCK_VALUES = 1 << 18  # converted at a time, so that it stays in cache
UNIT_LIMITS = (-1.0, 2.0)  # floats beyond are plainly on another scale than [0, 1]
_BYTES, _UNIT, _RANGE = _SCALES = ("bytes", "unit", "range")
_ALLOWED = "(n, height, width), (n, height, width, channels) or (n, channels, height, width) with 1 or 3 channels"


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
        raise InputError(f"Pictures must be one array of numbers, all of one size ({one_line(error)}).") from error
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


class ImagePreprocessor:
    """Scale pictures to [0, 1].

    What `fit` sees decides for good: uint8 pictures are divided by 255; float pictures within [0, 1] stay; other float
    pictures are mapped by the smallest and largest value of the reference rows, and clipped. After training on
    the first two, uint8 and float pictures within [0, 1] may both be scored and mean the same.

    Attributes
    ----------
    shape_ : tuple of int
        Channels, height and width.
    scale_ : {"bytes", "unit", "range"}
        Which of the three rules holds.
    low_, high_ : float
        Values that become 0 and 1.

    Examples
    --------
    >>> preprocessor = ImagePreprocessor().fit(np.array([[[[-1.0, 3.0]]]], dtype=np.float32))
    >>> preprocessor.transform(np.array([[[[0.0, 9.0]]]], dtype=np.float32))
    array([[[[0.25, 1.  ]]]], dtype=float32)
    """

    shape_: tuple[int, int, int]
    scale_: str
    low_: float
    high_: float

    def fit(self, images: NDArray[Any], reference_mask: NDArray[np.bool_] | None = None) -> "ImagePreprocessor":
        """Learn size and scale.

        Parameters
        ----------
        images : ndarray of uint8 or float32, shape (n, channels, height, width)
            From `as_images`.
        reference_mask : ndarray of bool, shape (n,), optional
            Pictures whose values set the scale, at least one; all when None.

        Returns
        -------
        ImagePreprocessor
            Itself.
        """
        self.shape_ = (images.shape[1], images.shape[2], images.shape[3])
        if images.dtype == np.uint8:
            self.scale_, self.low_, self.high_ = _BYTES, 0.0, 255.0
        elif images.min() >= 0.0 and images.max() <= 1.0:
            self.scale_, self.low_, self.high_ = _UNIT, 0.0, 1.0
        else:
            chosen = images if reference_mask is None else images[reference_mask]
            self.scale_, self.low_, self.high_ = _RANGE, float(chosen.min()), float(chosen.max())
        return self

    def transform(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """Scale pictures of the size seen in training.

        Parameters
        ----------
        images : ndarray of uint8 or float32, shape (n, channels, height, width)
            From `as_images`.

        Returns
        -------
        ndarray of float32, shape (n, channels, height, width)
            C-contiguous, within [0, 1]. A picture's values do not depend on the other pictures.

        Raises
        ------
        SchemaError
            Another size or number of channels than in training, or values on another scale.
        """
        if images.shape[1:] != self.shape_:
            raise SchemaError(
                f"Pictures must have the training pictures' (channels, height, width) = {self.shape_}. "
                f"Got {images.shape[1:]}. Resize or convert them."
            )
        if self.scale_ != _RANGE and images.dtype != np.uint8:
            self._check_unit(images)
        out = np.empty(images.shape, dtype=np.float32)
        n_rows = max(1, _BLOCK_VALUES // out[0].size)
        for start in range(0, len(images), n_rows):
            self._scale_block(images[start : start + n_rows], out[start : start + n_rows])
        return out

    def _scale_block(self, images: NDArray[Any], out: NDArray[np.float32]) -> None:
        if self.scale_ == _RANGE:
            span = self.high_ - self.low_
            out[:] = np.clip((images.astype(np.float64) - self.low_) / (span if span > 0.0 else 1.0), 0.0, 1.0)
        elif images.dtype == np.uint8:
            np.divide(images, np.float32(255.0), out=out, dtype=np.float32)
        else:
            np.clip(images, 0.0, 1.0, out=out)

    def _check_unit(self, images: NDArray[Any]) -> None:
        """Refuse floats that are plainly on another scale than [0, 1]; small excesses are clipped."""
        low, high = float(images.min()), float(images.max())
        if low < UNIT_LIMITS[0] or high > UNIT_LIMITS[1]:
            seen = "uint8" if self.scale_ == _BYTES else "float pictures within [0, 1]"
            raise SchemaError(
                f"Training saw {seen}, so pictures must be uint8 or floats within [0, 1]. "
                f"Got floats from {low:g} to {high:g}. Bring them to the scale of training."
            )

    def state(self) -> tuple[dict[str, NDArray[np.float64]], dict[str, Any]]:
        """Fitted state as arrays and JSON values, for a model file."""
        meta = {"format": _FORMAT, "shape": list(self.shape_), "scale": self.scale_}
        return {"range": np.array([self.low_, self.high_], dtype=np.float64)}, meta

    @classmethod
    def from_state(cls, tensors: Arrays, meta: Any) -> "ImagePreprocessor":
        """Read what `state` gave; anything else is a ModelFileError.

        Examples
        --------
        >>> preprocessor = ImagePreprocessor().fit(np.zeros((2, 1, 8, 8), dtype=np.uint8))
        >>> ImagePreprocessor.from_state(*preprocessor.state()).shape_
        (1, 8, 8)
        """
        expect(type(meta) is dict and set(meta) == {"format", "shape", "scale"}, "its parts")
        expect(type(meta["format"]) is int and meta["format"] == _FORMAT, "`format`")
        shape, scale = meta["shape"], meta["scale"]
        expect(type(shape) is list and len(shape) == 3, "`shape`")
        expect(all(type(size) is int and 1 <= size < 1 << 16 for size in shape), "`shape`")
        expect(shape[0] in (1, 3), "`shape`")
        expect(type(scale) is str and scale in _SCALES, "`scale`")
        expect(set(tensors) == {"range"}, "its arrays")
        limits = np.asarray(tensors["range"])
        expect(limits.dtype == np.float64 and limits.shape == (2,) and bool(np.isfinite(limits).all()), "`range`")
        low, high = limits.tolist()
        known = {_BYTES: (0.0, 255.0), _UNIT: (0.0, 1.0)}
        expect(low <= high and known.get(scale, (low, high)) == (low, high), "`range`")
        preprocessor = cls()
        preprocessor.shape_ = (shape[0], shape[1], shape[2])
        preprocessor.scale_, preprocessor.low_, preprocessor.high_ = scale, low, high
        return preprocessor
