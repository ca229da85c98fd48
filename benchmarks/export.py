"""Hold exported files against the library: seconds for 100,000 rows, and scores on real tables.

python benchmarks/export.py               both parts (a few minutes on two cores)
python benchmarks/export.py --tables      scores on the development tables only; needs ESAD_DATA
"""

from __future__ import annotations

import argparse
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
from esad.data.dataset import Dataset
from esad.data.sources import adbench

N_ROWS, BLOCK_ROWS = 100_000, 10_000
MAX_ROWS = 3000  # of a real table, drawn at random


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


def tables(folder: Path) -> None:
    """ESAD's default recipe on every development table: the largest difference on rows that it has not seen."""
    for name in adbench.NAMES:
        X, y = drawn(registry.load_data_set(name))
        detector = ESAD(random_state=0).fit(X[::2], y[::2])
        parity = esad.export(detector, folder / "table.onnx", X=X[1::2])
        session = onnxruntime.InferenceSession(folder / "table.onnx")
        (scores,) = session.run(["score"], {"X": X[1::2].astype(np.float64)})
        wanted = detector.anomaly_score(X[1::2])
        plain = np.abs(scores / wanted - 1).max()
        print(f"{name:20} {parity.n_rows:6,} rows: {parity.difference:.1e}; by the score alone {plain:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true")
    only_tables = parser.parse_args().tables
    with tempfile.TemporaryDirectory() as name:
        if not only_tables:
            speed(Path(name))
        tables(Path(name))
