"""CIFAR-10, from the data folder or the network."""

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from esad.datasets.archive import read_tar
from esad.datasets.dataset import Dataset
from esad.datasets.download import Remote, Report, download_files
from esad.datasets.folder import write_arrays
from esad.datasets.picture_sets import CLASS_ARRAYS, files, load_classes
from esad.errors import DataFileError

__all__ = ["GETS", "NAMES", "files", "get", "load"]

NAMES = ("cifar10",)
GETS = NAMES

_DESCRIPTION: Final = "ten kinds of things as colour pictures of 32 x 32 pixels; any kind may be taken as normal"
# The binary version: the other ones are pickles or MATLAB files.
_REMOTE: Final = Remote(
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",), md5="c32a1d4ab5d03f1284b67883e8d87530"
)
_TRAIN: Final = tuple(f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6))
_TEST: Final = ("cifar-10-batches-bin/test_batch.bin",)
_MAX_BYTES: Final = 200_000_000
_SIDE, _N_CLASSES = 32, 10


def load(name: str) -> Dataset:
    """Load CIFAR-10 from the data folder."""
    return load_classes(name, _DESCRIPTION)


def get(name: str, folder: Path, report: Report | None = None) -> None:
    """Download the published archive and write its pictures and classes."""
    with download_files([_REMOTE], folder, name, report) as (path,):
        members = read_tar(path, (*_TRAIN, *_TEST), max_bytes=_MAX_BYTES)
        train = _read_batches(b"".join(members[member] for member in _TRAIN), path)
        test = _read_batches(b"".join(members[member] for member in _TEST), path)
        write_arrays(folder / f"{name}.npz", dict(zip(CLASS_ARRAYS, (*train, *test), strict=True)))


def _read_batches(content: bytes, path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read records of one byte for the class and three planes of pixels."""
    n_bytes = 1 + 3 * _SIDE * _SIDE
    if not content or len(content) % n_bytes:
        raise DataFileError(f"{path} must hold records of {n_bytes} bytes. Got {len(content)} bytes.")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, n_bytes)
    if records[:, 0].max() >= _N_CLASSES:
        raise DataFileError(f"{path} must hold classes 0 to {_N_CLASSES - 1}. Got {records[:, 0].max()}.")
    planes = records[:, 1:].reshape(-1, 3, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), records[:, 0].copy()
