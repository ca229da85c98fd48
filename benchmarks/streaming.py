"""Time and peak memory of `esad fit` on Parquet files, against the number of rows, read in parts and read whole.

    python benchmarks/streaming.py --folder FOLDER [--rows 200000 2000000 20000000] [--whole 200000] [--epochs N]
                                   [--out benchmarks/results/streaming.jsonl]

Rows are generated: eight correlated numbers, one of them with gaps, a category and a moment in time, in files of a
million rows sorted by time. One row in 200 is an anomaly, 100 of these are labelled. Each fit is a process of its own,
whose peak memory the system tells. Scores are held against 20,000 rows of the same kind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.metrics import average_precision_score, roc_auc_score

import esad

FILE_ROWS, GROUP_ROWS = 1_000_000, 250_000
ANOMALY_RATIO, N_LABELLED = 0.005, 100
MIX = np.random.default_rng(7).normal(size=(3, 8))


def rows(n: int, seed: int, *, first: int = 0) -> tuple[dict[str, Any], np.ndarray]:
    """Columns of n rows, and which of them are anomalies."""
    rng = np.random.default_rng([seed, first])
    truth = rng.random(n) < ANOMALY_RATIO
    X = (rng.normal(size=(n, 3)) @ MIX + 0.3 * rng.normal(size=(n, 8))).astype(np.float32)
    X[truth] += rng.normal(scale=1.2, size=(int(truth.sum()), 8)).astype(np.float32)
    columns: dict[str, Any] = {f"x{index}": X[:, index] for index in range(8)}
    columns["x7"] = pa.array(X[:, 7], mask=rng.random(n) < 0.05)
    columns["kind"] = pa.array(rng.choice(["card", "cash", "cheque", "transfer"], n, p=[0.6, 0.2, 0.05, 0.15]))
    columns["moment"] = pa.array((np.arange(first, first + n) * 1_500_000).astype("M8[us]"))
    return columns, truth


def write(folder: Path, n_rows: int) -> None:
    """Files of sorted rows with a few labels."""
    folder.mkdir(parents=True)
    n_files = -(-n_rows // FILE_ROWS)
    for number in range(n_files):
        first = number * FILE_ROWS
        n = min(FILE_ROWS, n_rows - first)
        columns, truth = rows(n, 0, first=first)
        words = np.full(n, None, dtype=object)
        anomalies, n_labelled = np.flatnonzero(truth), -(-N_LABELLED // n_files)
        words[anomalies[:: len(anomalies) // n_labelled][:n_labelled]] = "anomaly"
        table = pa.table(columns | {"label": pa.array(words, type=pa.string())})
        pq.write_table(table, folder / f"part-{number:03d}.parquet", row_group_size=GROUP_ROWS)


def fit(data: Path, model: Path, *options: str) -> dict[str, Any]:
    """Run `esad fit` in a process of its own; seconds, peak memory and what it says."""
    command = [sys.executable, "-m", "esad", "fit", str(data), "-l", "label", "--out", str(model), "--json", *options]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    seconds, summary = time.perf_counter() - started, json.loads(said)
    training = summary["seconds"]
    return {"seconds": seconds, "seconds_training": training, "peak_mib": usage.ru_maxrss / 1024}


def judged(model: Path, n_rows: int) -> dict[str, float]:
    """How well new rows of the same times are told apart."""
    columns, truth = rows(20_000, 1)
    moments = np.random.default_rng(2).integers(0, n_rows, 20_000) * 1_500_000
    columns["moment"] = pa.array(moments.astype("M8[us]"))
    scores = esad.load(model).anomaly_score(pa.table(columns))
    return {"auc": float(roc_auc_score(truth, scores)), "ap": float(average_precision_score(truth, scores))}


def main() -> None:
    """Measure all sizes and print one line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the rows are written and removed again")
    parser.add_argument("--rows", type=int, nargs="*", default=[200_000, 2_000_000, 20_000_000])
    parser.add_argument("--whole", type=int, nargs="*", default=[200_000], help="sizes that are also read whole")
    parser.add_argument("--epochs", type=int, help="passes over all rows; by default what the recipe takes")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = []
    for n_rows in given.rows:
        data, model = given.folder / f"rows-{n_rows}", given.folder / f"rows-{n_rows}.esad"
        shutil.rmtree(data, ignore_errors=True)
        write(data, n_rows)
        size = sum(file.stat().st_size for file in data.iterdir())
        ways = {"in parts": (data, "--stream")}
        if n_rows in given.whole and n_rows <= FILE_ROWS:
            ways["whole"] = (data / "part-000.parquet", "--no-stream")
        for way, (path, option) in ways.items():
            options = [option, *([] if given.epochs is None else ["--set", f"n_epochs={given.epochs}"])]
            line = {"n_rows": n_rows, "way": way, "epochs": given.epochs, "mib_on_disk": size / 2**20}
            lines.append(line | fit(path, model, *options) | judged(model, n_rows))
            print(json.dumps(lines[-1]), flush=True)
            if given.out is not None:
                given.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        shutil.rmtree(data)
        model.unlink()


if __name__ == "__main__":
    main()
