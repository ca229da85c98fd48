"""Data sets made from lists of files and a folder of original pictures, which takes long and is done once."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esad.datasets.dataset import Dataset
from esad.datasets.download import Report
from esad.datasets.folder import load_arrays, write_arrays
from esad.errors import DataFileError

__all__ = ["PictureSet", "Split", "as_dataset", "check_pictures", "make", "read_names", "read_set", "write_set"]

_ARRAYS: Final = ("images", "anomaly", "labellable", "test")


class Split(NamedTuple):
    """Which pictures make up a set: files, and whether each is an anomaly, may be labelled, is for the test."""

    names: list[str]
    anomaly: NDArray[np.bool_]
    labellable: NDArray[np.bool_]
    test: NDArray[np.bool_]


class PictureSet(NamedTuple):
    """Pictures of both parts, and whether each is an anomaly, may be labelled, is for the test."""

    images: NDArray[np.uint8]
    anomaly: NDArray[np.bool_]
    labellable: NDArray[np.bool_]
    test: NDArray[np.bool_]


def read_names(path: Path, pattern: str, advice: str) -> list[str]:
    """Read a list of files, one a line.

    Parameters
    ----------
    path : pathlib.Path
        Text file.
    pattern : str
        What every name must look like, so that none can lead out of its folder.
    advice : str
        Where the list comes from, for when it is missing.
    """
    try:
        names = path.read_text(encoding="ascii").split()
    except FileNotFoundError as error:
        raise DataFileError(f"{path} does not exist. {advice}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataFileError(f"Cannot read the list of files {str(path)!r}: {error}.") from error
    for name in names:
        if not re.fullmatch(pattern, name):
            raise DataFileError(f"{path} must list files named like {pattern}. Got {name[:100]!r}.")
    return names


def make(
    folder: Path,
    split: Split,
    read: Callable[[Path], NDArray[np.uint8]],
    *,
    advice: str,
    report: Report | None = None,
) -> PictureSet:
    """Read every picture of a set; that all are there is checked first.

    Parameters
    ----------
    folder : pathlib.Path
        Where the pictures lie.
    split : Split
        What the set is made of.
    read : callable
        Gives the finished pixels of one file.
    advice : str
        Where pictures come from, for when some are missing.
    report : callable, optional
        Told how many are done.
    """
    check_pictures(folder, split.names, advice)
    images = []
    for name in split.names:
        images.append(read(folder / name))
        if report is not None:
            report("pictures", len(images), len(split.names))
    return PictureSet(np.stack(images), split.anomaly, split.labellable, split.test)


def check_pictures(folder: Path, names: Sequence[str], advice: str) -> None:
    """Refuse, in one line, to begin when pictures are missing."""
    there = set(os.listdir(folder)) if folder.is_dir() else set()
    missing = [name for name in names if name not in there]
    if missing:
        raise DataFileError(
            f"{len(missing):,} of {len(names):,} pictures are missing in {str(folder)!r}, first {missing[0]}. {advice}"
        )


def write_set(path: Path, pictures: PictureSet) -> None:
    """Write a finished set as one file of arrays."""
    write_arrays(path, dict(zip(_ARRAYS, pictures, strict=True)))


def read_set(path: Path) -> PictureSet:
    """Read a finished set."""
    images, *flags = load_arrays(path, _ARRAYS)
    return PictureSet(images, *(flag.astype(bool) for flag in flags))


def as_dataset(name: str, pictures: PictureSet, description: str) -> Dataset:
    """Give a set the form that scenarios take."""
    images, anomaly, labellable, test = pictures
    tested = Dataset(f"{name} (test)", images[test], anomaly[test], description)
    return Dataset(name, images[~test], anomaly[~test], description, test=tested, labellable=labellable[~test])
