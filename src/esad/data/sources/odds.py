"""The six ODDS tables of the paper, from the data folder."""

from typing import Final

import numpy as np

from esad.data.dataset import Dataset
from esad.data.folder import read_arrays
from esad.errors import InputError

__all__ = ["NAMES", "load"]

NAMES = ("arrhythmia", "cardio", "satellite", "satimage-2", "shuttle", "thyroid")

_ANOMALIES: Final = {
    "arrhythmia": "heart recordings; the rare kinds of arrhythmia",
    "cardio": "heart rates of unborn children; pathological ones",
    "satellite": "satellite pictures of soil; the three rare kinds of soil",
    "satimage-2": "satellite pictures of soil; a few of the kind cotton crop",
    "shuttle": "sensors of a space shuttle; its rare states",
    "thyroid": "thyroid measures; hyperfunction",
}


def load(name: str) -> Dataset:
    """Load one of `NAMES` from the folder that ESAD_DATA names.

    Examples
    --------
    >>> load("iris")
    Traceback (most recent call last):
    esad.errors.InputError: `name` must be one of arrhythmia, cardio, ... Got 'iris'.
    """
    if name not in NAMES:
        raise InputError(f"`name` must be one of {', '.join(NAMES)}. Got {name!r}.")
    X, y = read_arrays(f"odds/{name}.npz", ("X", "y"))
    return Dataset(name=name, X=X.astype(np.float64), truth=y == 1, description=f"ODDS, {_ANOMALIES[name]} = anomaly")
