"""MNIST and Fashion-MNIST, which come in one form; from the data folder or the network."""

import struct
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from esad.datasets.archive import gunzip
from esad.datasets.dataset import Dataset
from esad.datasets.download import Remote, Report, download_files
from esad.datasets.folder import write_arrays
from esad.datasets.picture_sets import CLASS_ARRAYS, files, load_classes
from esad.errors import DataFileError

__all__ = ["GETS", "NAMES", "files", "get", "load"]

NAMES = ("mnist", "fashion_mnist")
GETS = NAMES

_DESCRIPTIONS: Final = {
    "mnist": "handwritten digits as pictures of 28 x 28 pixels; any digit may be taken as normal",
    "fashion_mnist": "ten kinds of clothes as pictures of 28 x 28 pixels; any kind may be taken as normal",
}
_FILES: Final = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MIRRORS: Final = {
    "mnist": ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    "fashion_mnist": (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
}
_MD5S: Final = {  # in the order of the files
    "mnist": (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    "fashion_mnist": (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
}
_MAX_BYTES: Final = 1 << 26


def load(name: str) -> Dataset:
    """Load one of `NAMES` from the data folder."""
    return load_classes(name, _DESCRIPTIONS[name])


def get(name: str, folder: Path, report: Report | None = None) -> None:
    """Download the four published files and write them as one."""
    remotes = [
        Remote(tuple(mirror + file for mirror in _MIRRORS[name]), md5=md5)
        for file, md5 in zip(_FILES, _MD5S[name], strict=True)
    ]
    with download_files(remotes, folder, name, report) as paths:
        arrays = dict(zip(CLASS_ARRAYS, map(_read_idx, paths), strict=True))
        write_arrays(folder / f"{name}.npz", arrays)


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes: two zeros, the type 8, the number of axes, their lengths, the values."""
    content = gunzip(path, max_bytes=_MAX_BYTES)
    start = 4 + 4 * content[3] if content[:3] == b"\0\0\x08" and len(content) > 3 else 0
    if not start or len(content) < start:
        raise DataFileError(f"{path} is not an idx file of bytes.")
    shape = struct.unpack(f">{content[3]}I", content[4:start])
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if int(np.prod(shape, dtype=object)) != len(values):
        raise DataFileError(f"{path} must hold {shape} values. Got {len(values)}.")
    return values.reshape(shape)
