"""Tables with their truth: read from the data folder, or downloaded and held against the counts that are known."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad.datasets.archive import check_zip
from esad.datasets.dataset import Dataset
from esad.datasets.download import Remote, Report, download_files
from esad.datasets.folder import load_arrays, read_arrays, write_arrays
from esad.errors import DataFileError

_ARRAYS: Final = ("X", "y")
_MAX_BYTES: Final = 1 << 27  # of an .npz file, unpacked


@dataclass(frozen=True)
class TableFamily:
    """Tables of one collection, each in a file of the data folder.

    Attributes
    ----------
    folder : str
        Where they lie in the data folder.
    counts : dict of str to tuple of int
        Rows, columns and anomalies of each. No checksum of such tables is published.
    urls : callable
        Where a table, a MATLAB or .npz file, can be had, by its name.
    describe : callable
        A line on a table, by its name.
    """

    folder: str
    counts: dict[str, tuple[int, int, int]]
    urls: Callable[[str], tuple[str, ...]]
    describe: Callable[[str], str]

    def files(self, name: str) -> tuple[str]:
        """Where the set may lie in the data folder."""
        return (f"{self.folder}/{name}.npz",)

    def load(self, name: str) -> Dataset:
        """Load a table from the data folder."""
        X, y = read_arrays(*self.files(name), _ARRAYS, get=name)
        return Dataset(name=name, X=X.astype(np.float64), truth=y == 1, description=self.describe(name))

    def get(self, name: str, folder: Path, report: Report | None = None) -> None:
        """Download a table and write it to the data folder if its counts are the known ones."""
        with download_files([Remote(self.urls(name))], folder, name, report) as (path,):
            X, y = _read_mat(path) if path.suffix == ".mat" else _read_npz(path)
            write_arrays(folder.joinpath(*self.files(name)), check_table(path, X, y, self.counts[name]))


def check_table(
    path: Path, X: NDArray[Any], y: NDArray[Any], counts: tuple[int, int, int]
) -> dict[str, NDArray[np.float64] | NDArray[np.uint8]]:
    """Refuse a table whose numbers of rows, columns and anomalies are not the known ones; give it in one form.

    Examples
    --------
    >>> check_table(Path("t.mat"), np.eye(2), np.array([0, 1]), (2, 2, 1))["y"].tolist()
    [0, 1]
    >>> check_table(Path("t.mat"), np.eye(2), np.array([1, 1]), (2, 2, 1))
    Traceback (most recent call last):
    esad.errors.DataFileError: t.mat must have 2 rows, 2 columns and 1 anomalies. Got 2, 2 and 2.
    """
    if X.ndim != 2 or y.shape != X.shape[:1] or not np.issubdtype(X.dtype, np.number) or not np.isin(y, (0, 1)).all():
        raise DataFileError(f"{path} must hold a table `X` of numbers and a truth `y` of 0 and 1 for its rows.")
    got = (*X.shape, int(np.sum(y)))
    if got != counts:
        raise DataFileError(
            f"{path} must have {counts[0]} rows, {counts[1]} columns and {counts[2]} anomalies. "
            f"Got {got[0]}, {got[1]} and {got[2]}."
        )
    return {"X": X.astype(np.float64), "y": y.astype(np.uint8)}


def _read_npz(path: Path) -> tuple[NDArray[Any], ...]:
    check_zip(path, max_bytes=_MAX_BYTES)
    return load_arrays(path, _ARRAYS)


def _read_mat(path: Path) -> tuple[NDArray[Any], ...]:
    from scipy.io import loadmat

    try:
        content = loadmat(path, variable_names=list(_ARRAYS))
        return np.asarray(content["X"]), np.asarray(content["y"]).ravel()
    except Exception as error:  # the reader raises many kinds on damaged files
        raise DataFileError(f"{path} must be a MATLAB file with the arrays X and y. Got: {error}.") from error
