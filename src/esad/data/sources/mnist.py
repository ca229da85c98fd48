"""MNIST and Fashion-MNIST, which come in one form; from the data folder."""

from typing import Final

import numpy as np

from esad.data.dataset import Dataset
from esad.data.folder import read_arrays
from esad.errors import InputError

__all__ = ["NAMES", "load"]

NAMES = ("mnist", "fashion_mnist")

_DESCRIPTIONS: Final = {
    "mnist": "handwritten digits as pictures of 28 x 28 pixels; any digit may be taken as normal",
    "fashion_mnist": "ten kinds of clothes as pictures of 28 x 28 pixels; any kind may be taken as normal",
}
_ARRAYS: Final = ("train_images", "train_labels", "test_images", "test_labels")


def load(name: str) -> Dataset:
    """Load one of `NAMES` from the folder that ESAD_DATA names.

    Examples
    --------
    >>> load("iris")
    Traceback (most recent call last):
    esad.errors.InputError: `name` must be one of mnist, fashion_mnist. Got 'iris'.
    """
    if name not in NAMES:
        raise InputError(f"`name` must be one of {', '.join(NAMES)}. Got {name!r}.")
    train_images, train_labels, test_images, test_labels = read_arrays(f"{name}.npz", _ARRAYS)
    description = _DESCRIPTIONS[name]
    test = Dataset(f"{name} (test)", test_images, None, description, classes=test_labels.astype(np.int64))
    return Dataset(name, train_images, None, description, test=test, classes=train_labels.astype(np.int64))
