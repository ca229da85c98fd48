"""Pictures as data sets: with classes and two parts, or made from lists of files and a folder of original pictures."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Arrays
from esad.datasets.dataset import Dataset
from esad.datasets.download import Report
from esad.datasets.folder import data_folder, load_arrays, read_arrays
from esad.errors import DataFileError

CLASS_ARRAYS: Final = ("train_images", "train_labels", "test_images", "test_labels")
_ARRAYS: Final = ("images", "anomaly", "labellable", "test")


def files(name: str) -> tuple[str]:
    """Where a set that is one file lies in the data folder."""
    return (f"{name}.npz",)


class Split(NamedTuple):
    """Which pictures make up a set: files, and whether each is an anomaly, may be labelled, is for the test."""

    names: list[str]
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


def make_arrays(
    folder: Path, split: Split, read: Callable[[Path], NDArray[np.uint8]], *, advice: str, report: Report | None = None
) -> Arrays:
    """Read every picture of a set into the arrays of its file; that all are there is checked first.

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
    return dict(zip(_ARRAYS, (np.stack(images), split.anomaly, split.labellable, split.test), strict=True))


def check_pictures(folder: Path, names: Sequence[str], advice: str) -> None:
    """Refuse, in one line, to begin when pictures are missing."""
    there = set(os.listdir(folder)) if folder.is_dir() else set()
    missing = [name for name in names if name not in there]
    if missing:
        raise DataFileError(
            f"{len(missing):,} of {len(names):,} pictures are missing in {str(folder)!r}, first {missing[0]}. {advice}"
        )


def load_or_make(name: str, make: Callable[[Path], Arrays], description: str) -> Dataset:
    """Load a set from its finished file in the data folder or, where that is missing, make it from the pictures."""
    folder = data_folder()
    path = folder / f"{name}.npz"
    arrays = dict(zip(_ARRAYS, load_arrays(path, _ARRAYS), strict=True)) if path.is_file() else make(folder)
    return to_dataset(name, description, **arrays)


def to_dataset(
    name: str,
    description: str,
    *,
    images: NDArray[np.uint8],
    anomaly: NDArray[Any],
    labellable: NDArray[Any],
    test: NDArray[Any],
) -> Dataset:
    """Pictures of both parts in the form that scenarios take; which are anomalies, may be labelled, are for the test.

    Examples
    --------
    >>> flags = {"anomaly": np.array([0, 1, 1]), "labellable": np.array([0, 1, 0]), "test": np.array([0, 0, 1])}
    >>> dataset = to_dataset("three", "three pictures", images=np.zeros((3, 4, 4), dtype=np.uint8), **flags)
    >>> len(dataset.X), dataset.truth.tolist(), dataset.test.truth.tolist()
    (2, [False, True], [True])
    """
    anomaly, labellable, test = (flags.astype(bool) for flags in (anomaly, labellable, test))
    tested = Dataset(f"{name} (test)", images[test], anomaly[test], description)
    return Dataset(name, images[~test], anomaly[~test], description, test=tested, labellable=labellable[~test])


def load_classes(name: str, description: str) -> Dataset:
    """Load pictures of which any class may be taken as normal, with a test part, from their file in the data folder."""
    train_images, train_labels, test_images, test_labels = read_arrays(f"{name}.npz", CLASS_ARRAYS, get=name)
    test = Dataset(f"{name} (test)", test_images, None, description, classes=test_labels.astype(np.int64))
    return Dataset(name, train_images, None, description, test=test, classes=train_labels.astype(np.int64))
