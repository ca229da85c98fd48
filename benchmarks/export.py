"""Hold exported files against the library: seconds for 100,000 rows, and scores on real tables.

python benchmarks/export.py               seconds (a minute on two cores)
python benchmarks/export.py --tables      scores on the development tables, into results/export.json; needs ESAD_DATA
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import synthetic
import torch

import esad
from esad import ESAD, registry
from esad.datasets.dataset import Dataset
from esad.datasets.sources import adbench
from esad.detectors.base import Detector
from esad.persist.parity import ROUNDING, random_data

N_ROWS, BLOCK_ROWS = 100_000, 10_000
MAX_ROWS = 3000  # of a real table, drawn at random
RESULTS = Path(__file__).parent / "results" / "export.json"
EVERY_METHOD_ON = ("24_mnist", "47_yeast")


def seconds(score: Callable[[np.ndarray], object], X: np.ndarray) -> float:
    """The fastest of three passes over all rows in blocks."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        for first in range(0, len(X), BLOCK_ROWS):
            score(X[first : first + BLOCK_ROWS])
        times.append(time.perf_counter() - started)
    return min(times)


def speed(folder: Path) -> None:
    """ESAD's default recipe on 30 columns."""
    X, truth = synthetic.make(2000, seed=0)
    detector = ESAD(n_epochs=5, random_state=0).fit(X, synthetic.label_some(truth, 20, seed=0))
    onnx_file, torch_file = folder / "speed.onnx", folder / "speed.pt2"
    for path, name in ((onnx_file, "onnx"), (torch_file, "torch")):
        started = time.perf_counter()
        parity = esad.export(detector, path, format=name, X=X)
        size = path.stat().st_size / 2**20
        took = time.perf_counter() - started
        print(f"{name:12} written in {took:.1f} s, {size:.1f} MiB, differs by {parity.difference:.1e}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(onnx_file, options)
    program = torch.export.load(torch_file).module()
    rows, _ = synthetic.make(N_ROWS, seed=1)
    library = seconds(detector.anomaly_score, rows)
    print(f"{'library':12} {library:.2f} s for {N_ROWS:,} rows, {torch.get_num_threads()} threads")
    with torch.inference_mode():
        for name, score in (
            ("onnxruntime", lambda part: session.run(["score"], {"X": part})),
            ("torch", lambda part: program(torch.from_numpy(part))),
        ):
            took = seconds(score, rows)
            print(f"{name:12} {took:.2f} s, {library / took:.2f} times the library's rows/s")


def drawn(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Some rows, and labels for a twentieth of the anomalies among them."""
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(dataset.X))[:MAX_ROWS]
    truth = dataset.truth[rows]
    return dataset.X[rows], np.where(truth & (rng.random(len(rows)) < 0.05), -1, 0)


def relative(found: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference as a share of the score itself; scores of 0, such as SSAD's boundary has, as in export."""
    usual = np.median(np.abs(wanted - np.median(wanted)))
    return float(np.max(np.abs(found - wanted) / np.maximum(np.abs(wanted), ROUNDING * usual)))


def differences(detector: Detector, X: np.ndarray, folder: Path) -> dict[str, float]:
    """How far an exported file is from the library on rows of the table and on random ones."""
    path = folder / "table.onnx"
    esad.export(detector, path, X=X)
    session = onnxruntime.InferenceSession(path)

    def compared(rows: np.ndarray) -> float:
        (scores,) = session.run(["score"], {"X": rows})
        return relative(scores, detector.anomaly_score(rows))

    random = random_data(detector.inputs_)
    rows = np.stack([random.column(index) for index in range(random.n_columns)], axis=1)
    return {"rows": compared(X.astype(np.float64)), "random_rows": compared(rows)}


def tables(folder: Path) -> None:
    """ESAD's default recipe on every development table, every method on some; half of the rows is unseen."""
    found = []
    for name in adbench.NAMES:
        X, y = drawn(registry.load_data_set(name))
        for method in registry.methods_for("table") if name in EVERY_METHOD_ON else ("esad",):
            detector = registry.method(method)(random_state=0).fit(X[::2], y[::2])
            found.append({"table": name, "method": method, **differences(detector, X, folder)})
            print(found[-1], flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true")
    with tempfile.TemporaryDirectory() as name:
        (tables if parser.parse_args().tables else speed)(Path(name))
