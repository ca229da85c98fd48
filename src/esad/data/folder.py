"""Where data sets lie that do not ship with the package: the folder named by ESAD_DATA."""

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad.errors import DataFileError, InputError

__all__ = ["VARIABLE", "read_arrays"]

VARIABLE: Final = "ESAD_DATA"
# What numpy lets through when a file is cut, damaged, of another form, or lacks an array.
_DAMAGED: Final = (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error)


def read_arrays(file: str, names: tuple[str, ...]) -> tuple[NDArray[Any], ...]:
    """Read named arrays from an .npz file of the data folder; pickled objects are refused.

    Parameters
    ----------
    file : str
        Path inside the folder, such as "odds/cardio.npz".
    names : tuple of str
        The arrays wanted, in this order.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise InputError(
            f"{file} is read from the data folder, and the environment variable {VARIABLE} does not name one. "
            f"Set {VARIABLE} to the folder that holds {file}."
        )
    path = Path(folder) / file
    if not path.is_file():
        raise DataFileError(f"{path} does not exist. Set {VARIABLE} to the folder that holds {file}.")
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return tuple(np.asarray(arrays[name]) for name in names)
    except _DAMAGED as error:
        raise DataFileError(f"{path} must be an .npz file with the arrays {', '.join(names)}. Got: {error}.") from error
