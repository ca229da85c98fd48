"""Data sets as files that a newcomer can look at: a table with label and truth, or a folder of pictures."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from esad.core.atomic import new_folder
from esad.core.extras import require
from esad.errors import InputError
from esad.io.scores import write_arrow

if TYPE_CHECKING:
    from esad.datasets.dataset import Dataset

__all__ = [
    "LABEL",
    "TRUTH",
    "draw_labels",
    "save_pictures",
    "save_table",
    "write_table",
]

LABEL, TRUTH = "label", "truth"
_WORDS = {-1: "anomaly", 0: None, 1: "normal"}


def draw_labels(dataset: "Dataset", n_labels: int, *, seed: int) -> NDArray[np.int8]:
    """Label so many of the anomalies, drawn at random, and leave every other row unlabelled."""
    assert dataset.truth is not None
    allowed = dataset.truth if dataset.labellable is None else dataset.truth & dataset.labellable
    anomalies = np.flatnonzero(allowed)
    if n_labels > len(anomalies):
        raise InputError(f"--labels must be at most {len(anomalies)}, the anomalies there are. Got {n_labels}.")
    y = np.zeros(len(dataset.truth), dtype=np.int8)
    y[np.random.default_rng(seed).permutation(anomalies)[:n_labels]] = -1
    return y


def save_table(dataset: "Dataset", path: Path, y: NDArray[np.int8] | None) -> int:
    """Write a data set with its truth and, where given, labels; count the rows."""
    write_table(path, dataset.X, names=dataset.columns, y=y, truth=dataset.truth)
    return len(dataset.X)


def write_table(
    path: Path,
    X: NDArray[np.float64],
    *,
    names: Sequence[str] = (),
    y: NDArray[np.int8] | None = None,
    truth: NDArray[np.bool_] | None = None,
) -> None:
    """Write columns, then the column of labels, then the column of truth, as CSV or Parquet."""
    columns: dict[str, Any] = dict(zip(names or [f"x{index}" for index in range(X.shape[1])], X.T, strict=True))
    if y is not None:
        columns[LABEL] = pa.array([_WORDS[label] for label in y.tolist()], type=pa.string())
    if truth is not None:
        columns[TRUTH] = truth.astype("int8")
    write_arrow(path, pa.table(columns))


def save_pictures(dataset: "Dataset", folder: Path, y: NDArray[np.int8] | None) -> int:
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
