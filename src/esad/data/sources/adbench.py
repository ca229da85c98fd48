"""Fifteen ADBench tables to develop on, none of which shares its source with the paper's six; from the data folder."""

import numpy as np

from esad.data.dataset import Dataset
from esad.data.folder import read_arrays
from esad.errors import InputError

__all__ = ["NAMES", "load"]

# ADBench's own names; the numbers keep its "mnist", a table, apart from the pictures.
NAMES = (
    "1_ALOI",
    "8_celeba",
    "10_cover",
    "11_donors",
    "15_Hepatitis",
    "16_http",
    "21_Lymphography",
    "24_mnist",
    "33_skin",
    "34_smtp",
    "37_Stamps",
    "39_vertebral",
    "42_WBC",
    "46_WPBC",
    "47_yeast",
)


def load(name: str) -> Dataset:
    """Load one of `NAMES` from the folder that ESAD_DATA names.

    Examples
    --------
    >>> load("iris")
    Traceback (most recent call last):
    esad.errors.InputError: `name` must be one of 1_ALOI, 8_celeba, ... Got 'iris'.
    """
    if name not in NAMES:
        raise InputError(f"`name` must be one of {', '.join(NAMES)}. Got {name!r}.")
    X, y = read_arrays(f"adbench/{name}.npz", ("X", "y"))
    return Dataset(name=name, X=X.astype(np.float64), truth=y == 1, description=f"ADBench table {name}")
