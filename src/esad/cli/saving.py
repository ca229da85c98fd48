"""Data sets as files that a newcomer can look at: a table with label and truth, or a folder of pictures."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.core.extras import require
from esad.errors import InputError, OutputError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from esad.datasets.dataset import Dataset

__all__ = [
    "LABEL",
    "TRUTH",
    "check_new_folder",
    "draw_labels",
    "new_folder",
    "save_pictures",
    "save_table",
    "write_arrow",
    "write_json",
    "write_table",
]

LABEL, TRUTH = "label", "truth"
_WORDS = {-1: "anomaly", 0: None, 1: "normal"}


def draw_labels(dataset: "Dataset", n_labels: int, *, seed: int) -> "NDArray[np.int8]":
    """Label so many of the anomalies, drawn at random, and leave every other row unlabelled."""
    import numpy as np

    assert dataset.truth is not None
    allowed = dataset.truth if dataset.labellable is None else dataset.truth & dataset.labellable
    anomalies = np.flatnonzero(allowed)
    if n_labels > len(anomalies):
        raise InputError(f"--labels must be at most {len(anomalies)}, the anomalies there are. Got {n_labels}.")
    y = np.zeros(len(dataset.truth), dtype=np.int8)
    y[np.random.default_rng(seed).permutation(anomalies)[:n_labels]] = -1
    return y


def save_table(dataset: "Dataset", path: Path, y: "NDArray[np.int8] | None") -> int:
    """Write a data set with its truth and, where given, labels; count the rows."""
    write_table(path, dataset.X, names=dataset.columns, y=y, truth=dataset.truth)
    return len(dataset.X)


def write_table(
    path: Path,
    X: "NDArray[np.float64]",
    *,
    names: Sequence[str] = (),
    y: "NDArray[np.int8] | None" = None,
    truth: "NDArray[np.bool_] | None" = None,
) -> None:
    """Write columns, then the column of labels, then the column of truth, as CSV or Parquet."""
    import pyarrow as pa

    columns: dict[str, Any] = dict(zip(names or [f"x{index}" for index in range(X.shape[1])], X.T, strict=True))
    if y is not None:
        columns[LABEL] = pa.array([_WORDS[label] for label in y.tolist()], type=pa.string())
    if truth is not None:
        columns[TRUTH] = truth.astype("int8")
    write_arrow(path, pa.table(columns))


def write_arrow(path: Path, table: "pa.Table") -> None:
    """Write CSV or Parquet, whole or not at all."""
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    from esad.core.atomic import atomic_path

    if path.suffix not in (".csv", ".parquet"):
        raise OutputError(f"Cannot write {str(path)!r}: its name must end in .csv or .parquet.")
    with atomic_path(path) as temporary:
        if path.suffix == ".csv":
            pa_csv.write_csv(table, str(temporary), pa_csv.WriteOptions(quoting_style="needed"))
        else:
            pq.write_table(table, str(temporary))


def write_json(path: Path, document: Any) -> None:
    """Write one JSON document, whole or not at all."""
    from esad.core.atomic import atomic_path

    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def save_pictures(dataset: "Dataset", folder: Path, y: "NDArray[np.int8] | None") -> int:
    """Write PNG files; count them.

    With labels the sub-folders are anomaly/ and unlabelled/, and anomalies without a label stay out. Without labels
    they are anomaly/ and normal/, by the truth.
    """
    import numpy as np

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


def check_new_folder(folder: Path) -> None:
    """Refuse a folder that holds something, or that could not be made."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"Cannot write pictures to {str(folder)!r}: it exists. Give the name of a new folder.")
    if not folder.absolute().parent.is_dir():
        raise OutputError(f"Cannot write {str(folder)!r}: the folder around it does not exist. Create it first.")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that takes its name when it is complete; one that holds something is not touched."""
    check_new_folder(folder)
    try:
        beside = Path(tempfile.mkdtemp(prefix=".esad-", dir=folder.absolute().parent))
    except OSError as error:
        raise OutputError(f"Cannot write {str(folder)!r}: {error.strerror}. Nothing was written there.") from error
    try:
        yield beside
        beside.chmod(0o755)
        beside.replace(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
