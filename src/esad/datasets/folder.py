"""Where data sets lie that do not ship with the package: the folder named by ESAD_DATA, or else the user's cache."""

import contextlib
import logging
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad.core.atomic import atomic_path
from esad.errors import DataFileError, InputError, OutputError

__all__ = [
    "VARIABLE",
    "data_folder",
    "load_arrays",
    "locked",
    "make_folder",
    "read_arrays",
    "write_arrays",
]

try:
    import fcntl
except ImportError:  # Windows: processes do not wait for each other there
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("esad")

VARIABLE: Final = "ESAD_DATA"
# What numpy lets through when a file is cut, damaged, of another form, or lacks an array.
_DAMAGED: Final = (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error)


def data_folder() -> Path:
    """The folder that ESAD_DATA names; without one, `esad` in XDG_CACHE_HOME or in ~/.cache."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):  # the standard has relative ones ignored
        return Path(cache) / "esad"
    try:
        return Path.home() / ".cache" / "esad"
    except RuntimeError as error:
        raise InputError(f"There is no home folder to keep data in. Set {VARIABLE} to a folder.") from error


def read_arrays(file: str, names: tuple[str, ...], *, get: str | None = None) -> tuple[NDArray[Any], ...]:
    """Read named arrays from an .npz file of the data folder; pickled objects are refused.

    Parameters
    ----------
    file : str
        Path inside the folder, such as "odds/cardio.npz".
    names : tuple of str
        The arrays wanted, in this order.
    get : str, optional
        The name by which `esad data get` brings the file, where it can.
    """
    path = data_folder() / file
    if not path.is_file():
        way = f", or run: esad data get {get}" if get else "."
        raise DataFileError(f"{path} does not exist. Set {VARIABLE} to the folder that holds {file}{way}")
    return load_arrays(path, names)


def load_arrays(path: Path, names: tuple[str, ...]) -> tuple[NDArray[Any], ...]:
    """Read named arrays from an .npz file; pickled objects are refused."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return tuple(np.asarray(arrays[name]) for name in names)
    except _DAMAGED as error:
        raise DataFileError(f"{path} must be an .npz file with the arrays {', '.join(names)}. Got: {error}.") from error


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays as an .npz file that is there whole or not at all; its folder is made."""
    make_folder(path.parent)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]  # no array is called "allow_pickle"


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot make the folder {str(folder)!r}: {error.strerror}. Choose another one.") from error


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder, which is made; others wait, and say so. A killed one lets go."""
    make_folder(folder)
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning("another process is getting data into %s: waiting for it", folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # some network file systems know no locks
            logger.warning("%s cannot be locked: get one data set at a time", folder)
        yield
    finally:
        os.close(descriptor)
