"""The data folder, for data sets that do not ship with the package: ESAD_DATA, or else the user's cache.

A record of checksums, which `sha256sum -c` understands, tells whether a file is still what was brought.
"""

import contextlib
import logging
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from esad import registry
from esad.core.atomic import atomic_path, hash_file
from esad.core.machine import user_folder
from esad.errors import DataFileError, InputError, OutputError

if TYPE_CHECKING:
    from esad.datasets.download import Report

try:
    import fcntl
except ImportError:  # Windows: processes do not wait for each other there
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger("esad")

VARIABLE: Final = "ESAD_DATA"
RECORD: Final = "SHA256SUMS"
FileState = Literal["missing", "verified", "damaged", "unrecorded"]
# What numpy lets through when a file is cut, damaged, of another form, or lacks an array.
_DAMAGED: Final = (OSError, ValueError, KeyError, EOFError, TypeError, AttributeError, zipfile.BadZipFile, zlib.error)


def data_folder() -> Path:
    """The folder that ESAD_DATA names; without one, `esad` in XDG_CACHE_HOME or in ~/.cache."""
    return user_folder(VARIABLE, "cache", "data")


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
def lock_folder(folder: Path) -> Iterator[None]:
    """Let one process at a time write into a folder, making it if needed; the others log that they wait."""
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


# ---------------------------------------------------------------------- checksums


def record_checksum(folder: Path, file: str) -> str:
    """Note the checksum of a finished file of the data folder, and give it."""
    known = _read_checksums(folder) | {file: hash_file(folder / file)}
    with atomic_path(folder / RECORD) as temporary:
        temporary.write_text("".join(f"{known[name]}  {name}\n" for name in sorted(known)), encoding="utf-8")
    return known[file]


def file_state(folder: Path, file: str) -> FileState:
    """Whether a file of the data folder is still what was noted when it was finished."""
    if not (folder / file).is_file():
        return "missing"
    noted = _read_checksums(folder).get(file)
    if noted is None:
        return "unrecorded"
    return "verified" if hash_file(folder / file) == noted else "damaged"


def _read_checksums(folder: Path) -> dict[str, str]:
    """{file: checksum}."""
    path = folder / RECORD
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return {name: noted for noted, name in (line.split(maxsplit=1) for line in lines if line.strip())}
    except (OSError, ValueError) as error:
        raise DataFileError(f"Cannot read the checksums in {str(path)!r}: {error}. Remove the file.") from error


# ---------------------------------------------------------------------- data sets by name


def get_data_set(name: str, folder: Path, report: "Report") -> tuple[Path, FileState, bool]:
    """Download a data set into the data folder, unless it is there; its file, what it was before, whether it is new."""
    source = registry.data_set_source(name)
    if not hasattr(source, "files"):
        raise InputError(f"{name} need not be downloaded: it is built in. Try: esad data save {name} --out {name}")
    if name not in getattr(source, "GETS", ()):
        raise InputError(f"{name} cannot be downloaded. Put {source.files(name)[0]} into the data folder.")
    file = source.files(name)[0]
    before = file_state(folder, file)
    if before in ("missing", "damaged"):
        with lock_folder(folder):
            before = file_state(folder, file)  # another process may have brought it meanwhile
            if before in ("missing", "damaged"):
                source.get(name, folder, report)
                record_checksum(folder, file)
                return folder / file, before, True
    return folder / file, before, False


def is_here(name: str) -> bool:
    """Whether a data set can be loaded, as far as its files tell."""
    source = registry.data_set_source(name)
    return not hasattr(source, "files") or any((data_folder() / file).exists() for file in source.files(name))


def describe_data_set(name: str, folder: Path) -> dict[str, Any]:
    """What there is of a data set in the data folder: path, size, state, and whether it can be downloaded."""
    source = registry.data_set_source(name)
    described: dict[str, Any] = {"name": name, "path": None, "n_bytes": None, "state": "built in"}
    if hasattr(source, "files"):
        file, *others = source.files(name)
        described["state"] = file_state(folder, file)
        if described["state"] != "missing":
            described |= {"path": file, "n_bytes": (folder / file).stat().st_size}
        for other in others:
            if described["state"] == "missing" and (folder / other).is_dir():
                described |= {"path": other, "state": "original pictures"}
    return described | {"can_be_got": name in getattr(source, "GETS", ())}
