"""Time and peak memory of `esad fit` against the number of rows, read in parts and read whole.

    python benchmarks/streaming.py --folder FOLDER [--rows 200000 2000000 20000000] [--whole 200000] [--csv 200000]
                                   [--epochs N] [--out benchmarks/results/streaming.jsonl]

Rows are generated: eight correlated numbers, one of them with gaps, a category and a moment in time, in files of a
million rows sorted by time. One row in 200 is an anomaly, 100 of these are labelled. Each fit is a process of its own
that tells its peak memory itself: what `wait4` says of a child is at least what its parent has ever held, and this one
makes the rows. Scores are held against 20,000 rows of the same kind.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from sklearn.metrics import average_precision_score, roc_auc_score

import esad

FILE_ROWS, GROUP_ROWS = 1_000_000, 250_000
ANOMALY_RATIO, N_LABELLED = 0.005, 100
FIT = """
import sys
from pathlib import Path
from esad.cli.app import run
code = run(sys.argv[1:])
status = Path("/proc/self/status").read_text().splitlines()
print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
sys.exit(code)
"""
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


def write_csv(folder: Path) -> Path:
    """The same rows as one CSV file."""
    out, files = folder.with_suffix(".csv"), sorted(folder.iterdir())
    with pa_csv.CSVWriter(str(out), pq.read_schema(files[0])) as writer:
        for file in files:
            writer.write_table(pq.read_table(file))
    return out


def fit(data: Path, model: Path, *options: str) -> dict[str, Any]:
    """Run `esad fit` in a process of its own; seconds, peak memory and what it says."""
    arguments = ["fit", str(data), "-l", "label", "--out", str(model), "--json", *options]
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", FIT, *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"esad {' '.join(arguments)} failed")
    summary, peak = done.stdout.rstrip().rsplit("\n", 1)
    training = json.loads(summary)["seconds"]
    return {"seconds": time.perf_counter() - started, "seconds_training": training, "peak_mib": int(peak) / 1024}


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
    parser.add_argument("--csv", type=int, nargs="*", default=[200_000], help="sizes that are also read from CSV")
    parser.add_argument("--epochs", type=int, help="passes over all rows; by default what the recipe takes")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = []
    for n_rows in given.rows:
        data, model = given.folder / f"rows-{n_rows}", given.folder / f"rows-{n_rows}.esad"
        shutil.rmtree(data, ignore_errors=True)
        write(data, n_rows)
        ways = {"in parts": (data, "--stream")}
        if n_rows in given.csv:
            ways["CSV in parts"] = (write_csv(data), "--stream")
        if n_rows in given.whole and n_rows <= FILE_ROWS:
            ways["whole"] = (data / "part-000.parquet", "--no-stream")
        for way, (path, option) in ways.items():
            options = [option, *([] if given.epochs is None else ["--set", f"n_epochs={given.epochs}"])]
            size = sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path])) / 2**20
            line = {"n_rows": n_rows, "way": way, "epochs": given.epochs, "mib_on_disk": size}
            lines.append(line | fit(path, model, *options) | judged(model, n_rows))
            print(json.dumps(lines[-1]), flush=True)
            if given.out is not None:
                given.out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        shutil.rmtree(data)
        data.with_suffix(".csv").unlink(missing_ok=True)
        model.unlink()


if __name__ == "__main__":
    main()
