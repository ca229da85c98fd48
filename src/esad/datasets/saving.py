"""Data sets as files: brought into the data folder, and written as a newcomer can look at them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from esad import registry
from esad.core.atomic import new_folder
from esad.core.extras import require
from esad.datasets.folder import FileState, data_folder, file_state, locked, record_checksum
from esad.errors import InputError
from esad.io.scores import write_arrow

if TYPE_CHECKING:
    from esad.datasets.dataset import Dataset
    from esad.datasets.download import Report

__all__ = [
    "LABEL",
    "TRUTH",
    "describe_data_set",
    "draw_labels",
    "get_data_set",
    "is_here",
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
        with locked(folder):
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
