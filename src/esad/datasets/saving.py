"""Data sets as files that a newcomer can look at: a table with label and truth, or a folder of pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from esad import registry
from esad.core.arrays import Labels
from esad.core.atomic import new_folder
from esad.core.machine import require
from esad.datasets.dataset import Dataset
from esad.datasets.scenario import split
from esad.errors import InputError
from esad.io.scores import write_arrow

LABEL, TRUTH = "label", "truth"
_WORDS = {-1: "anomaly", 0: None, 1: "normal"}


class SavedDataSet(NamedTuple):
    """What `save_data_set` wrote."""

    description: str
    is_images: bool
    n_rows: int
    n_test_rows: int


def save_data_set(
    name: str, out: Path, test_out: Path | None = None, *, n_labels: int = 10, normal_class: int = 0, seed: int = 0
) -> SavedDataSet:
    """Write a data set as a table with a label and a truth column, or as a folder of pictures.

    Parameters
    ----------
    name : str
        As `esad data` lists it.
    out : Path
        File (.csv or .parquet), or folder for pictures.
    test_out : Path, optional
        Where rows go that are kept apart: the set's own test part, or else 40 % of the rows.
    n_labels : int
        How many anomalies get a label; other rows get none.
    normal_class : int
        For pictures with classes: the one that is taken as normal.
    seed : int
        The same seed gives the same files.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saved = save_data_set("wine", Path(folder, "wine.csv"), Path(folder, "test.csv"), n_labels=5)
    >>> saved.n_rows, saved.n_test_rows
    (106, 72)
    """
    if test_out is not None and test_out.absolute() == out.absolute():
        raise InputError("`out` and `test_out` must differ.")
    dataset: Dataset = registry.load_data_set(name)
    if dataset.truth is None:
        dataset = dataset.with_normal_class(normal_class)
    train, test = dataset, dataset.test
    if test_out is not None and test is None and dataset.truth is not None:
        train_rows, test_rows = split(dataset.truth, test_ratio=0.4, seed=seed)
        train, test = dataset.take(train_rows), dataset.take(test_rows)
    write = _save_pictures if dataset.is_images else _save_table
    n_rows = write(train, out, draw_labels(train, n_labels, seed=seed))
    n_test = write(test, test_out, None) if test is not None and test_out is not None else 0
    return SavedDataSet(dataset.description, dataset.is_images, n_rows, n_test)


def draw_labels(dataset: Dataset, n_labels: int, *, seed: int) -> Labels:
    """Label so many of the anomalies, drawn at random, and leave every other row unlabelled."""
    assert dataset.truth is not None
    allowed = dataset.truth if dataset.labellable is None else dataset.truth & dataset.labellable
    anomalies = np.flatnonzero(allowed)
    if not 0 <= n_labels <= len(anomalies):
        raise InputError(f"`n_labels` must be from 0 to {len(anomalies)}, the anomalies there are. Got {n_labels}.")
    y = np.zeros(len(dataset.truth), dtype=np.int8)
    y[np.random.default_rng(seed).permutation(anomalies)[:n_labels]] = -1
    return y


def _save_table(dataset: Dataset, path: Path, y: Labels | None) -> int:
    """Write a data set with its truth and, if given, labels; the number of rows."""
    write_table(path, dataset.X, names=dataset.columns, y=y, truth=dataset.truth)
    return len(dataset.X)


def write_table(
    path: Path,
    X: NDArray[np.float64],
    *,
    names: Sequence[str] = (),
    y: Labels | None = None,
    truth: NDArray[np.bool_] | None = None,
) -> None:
    """Write columns, then the column of labels, then the column of truth, as CSV or Parquet."""
    columns: dict[str, Any] = dict(zip(names or [f"x{index}" for index in range(X.shape[1])], X.T, strict=True))
    if y is not None:
        columns[LABEL] = pa.array([_WORDS[label] for label in y.tolist()], type=pa.string())
    if truth is not None:
        columns[TRUTH] = truth.astype("int8")
    write_arrow(path, pa.table(columns))


def _save_pictures(dataset: Dataset, folder: Path, y: Labels | None) -> int:
    """Write PNG files; count them.

    With labels the sub-folders are anomaly/ and unlabelled/, and anomalies without a label stay out. Without labels
    they are anomaly/ and normal/, by the truth.
    """
    assert dataset.truth is not None
    if y is None:
        words, kept = np.where(dataset.truth, "anomaly", "normal"), np.ones(len(dataset.X), dtype=bool)
    else:
        words, kept = np.where(y < 0, "anomaly", "unlabelled"), (y < 0) | ~dataset.truth
    pillow = require("PIL.Image", extra="image")
    with new_folder(folder) as beside:
        for row in np.flatnonzero(kept).tolist():
            (beside / words[row]).mkdir(exist_ok=True)
            pillow.fromarray(dataset.X[row]).save(beside / words[row] / f"{row:05d}.png")
    return int(kept.sum())
