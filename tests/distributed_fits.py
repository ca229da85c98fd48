"""Fits of every deep method, by however many processes run this file; the first writes losses and scores."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from PIL import Image
from support import tiny

from esad import registry
from esad.core.processes import join
from esad.detectors import streaming
from esad.detectors.deep import DeepDetector
from esad.io.stream import open_stream

EXACT = {"device": "cpu", "precision": "float64", "batch_size": 16, "labelled_batch_size": 8}
# One of each kind of batch-wide statistic, beside the methods as they are.
VARIANTS: dict[str, dict[str, Any]] = {
    "soft": {"method": "deep_svdd", "boundary": "soft"},
    "stopped": {"method": "esad", "early_stopping": True},
    "to normal rows": {"method": "esad", "phi": "normal"},
    "in parts": {"method": "esad", "accumulate": 2},
    "decoys": {"method": "esad", "decoys": 0.5, "network": "conv"},
}


def table() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(60, 5))
    X[-6:] += 4
    return X, np.r_[np.zeros(50, dtype=int), 1, 1, 1, 1, [-1] * 6]


def pictures() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(1).integers(0, 256, size=(40, 8, 8, 3), dtype=np.uint8)
    X[-6:, :4] //= 2
    return X, np.r_[np.zeros(30, dtype=int), 1, 1, 1, 1, [-1] * 6]


def fits() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """What is fitted, by a name: the method, the kind of data, changed arguments."""
    deep = [name for name in registry.method_names() if issubclass(registry.method(name), DeepDetector)]
    found = {f"{name} {kind}": (name, kind, {}) for kind in ("table", "images") for name in deep}
    found = {key: value for key, value in found.items() if value[0] in registry.methods_for(value[1])}
    for key, changes in VARIANTS.items():
        kind = "images" if "decoys" in changes else "table"
        found[key] = (changes["method"], kind, {name: value for name, value in changes.items() if name != "method"})
    return found


def fit_all(names: list[str] | None = None) -> dict[str, np.ndarray]:
    """Loss curves and scores of all fits."""
    data, found = {"table": table(), "images": pictures()}, {}
    for key, (method, kind, changes) in fits().items():
        if names is not None and key not in names:
            continue
        X, y = data[kind]
        hidden = {"hidden": (4, 4) if kind == "images" else (8,)}
        detector = tiny(method, **EXACT | hidden | changes).fit(X, y)
        found[f"{key}: scores"] = detector.anomaly_score(X)
        found |= {f"{key}: {term}": curve for term, curve in detector.loss_curves_.items()}
    return found


def write_parts(folder: Path) -> None:
    """Rows as two Parquet files and one of CSV, in uneven parts, and pictures."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 5))
    columns = {name: X[:, index] for index, name in enumerate("abcde")} | {"kind": rng.choice(["x", "y"], 400)}
    table = pa.table(columns | {"label": ["anomaly"] * 6 + ["normal"] * 4 + [None] * 390})
    for name, rows in (("tables/1.parquet", slice(0, 150)), ("tables/2.parquet", slice(150, 250))):
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(table[rows], folder / name, row_group_size=60)
    pa_csv.write_csv(table[250:], folder / "tables" / "3.csv")
    for index, picture in enumerate(rng.integers(0, 256, size=(41, 8, 8), dtype=np.uint8)):
        path = folder / "pictures" / ("anomaly" if index < 4 else "unlabelled") / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)


def fit_streams(folder: Path) -> dict[str, np.ndarray]:
    """Loss curves and scores of fits that read what `write_parts` wrote, with room for few rows at a time."""
    streaming.N_SLOTS, streaming.N_HELD_OUT = 64, 30
    found = {}
    for key, hidden in (("tables", (8,)), ("pictures", (4, 4))):
        stream = open_stream(folder / key, label_column="label" if key == "tables" else None)
        detector = tiny("esad", **EXACT | {"n_epochs": 3, "hidden": hidden}).fit_stream(stream, calibration_ratio=0.1)
        found[f"{key} in parts: scores"] = detector.training_scores_
        found[f"{key} in parts: threshold"] = np.array(detector.threshold_)
        found |= {f"{key} in parts: {term}": curve for term, curve in detector.loss_curves_.items()}
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with join() as processes:
        results = fit_streams(folder) if (folder / "tables").exists() else fit_all()
        if processes.is_first:
            np.savez(folder / "found.npz", **results)
