"""Measure ESAD's speed and memory as ratios, in one run on one machine, against the bars.

    python benchmarks/speed.py                       everything (about ten minutes; wants an idle machine)
    python benchmarks/speed.py --only fit scoring    some parts
    python benchmarks/speed.py --small               a quick smoke test of the script itself; stores nothing

Parts: fit (against DeepOD's Deep SAD), members (ten against one), scoring (against bare matrix products), memory (of
the command `esad score` on a Parquet file), start (`import esad`, `esad --help`), committee (against ESAD alone, in
processor time, on the real tables of tables.py: needs ESAD_DATA).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import synthetic
from methods import METHODS
from runs import RESULTS, versions
from sklearn.metrics import average_precision_score, roc_auc_score

SPEEDUP_BAR, MEMBERS_BAR, RATE_BAR = 5.0, 4.0, 0.40
MEMORY_BAR_GIB, IMPORT_BAR_S, HELP_BAR_S = 1.2, 0.1, 0.6
FIT_TIMES_BAR, SCORE_TIMES_BAR = 1.6, 2.0


def seconds(action: Callable[[], object], *, repeats: int) -> float:
    """Wall time of the fastest of several calls."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def fit(small: bool) -> dict[str, Any]:
    """Fit on 5,000 x 30 with 50 labels: ESAD's default against DeepOD's Deep SAD, time and quality on fresh rows."""
    n_rows, repeats = (500, 1) if small else (5000, 5)
    X, truth = synthetic.make(n_rows, seed=0)
    y = synthetic.label_some(truth, n_rows // 100, seed=0)
    X_test, test_truth = synthetic.make(4 * n_rows, seed=1)
    result: dict[str, Any] = {}
    for _ in range(repeats):  # turn and turn about, so that a busy moment hits both
        for method in ("esad", "deepsad"):
            scores, fit_s = METHODS[method](X, y, X_test, 0)
            best = min(fit_s, result.get(method, {"fit_s": fit_s})["fit_s"])
            auc, ap = (float(f(test_truth, scores)) for f in (roc_auc_score, average_precision_score))
            result[method] = {"fit_s": round(best, 3), "auc": round(100 * auc, 2), "ap": round(100 * ap, 2)}
    result["ratio"] = round(result["deepsad"]["fit_s"] / result["esad"]["fit_s"], 2)
    result["reached"] = result["ratio"] >= SPEEDUP_BAR and result["esad"]["auc"] > result["deepsad"]["auc"]
    return result


def members(small: bool) -> dict[str, Any]:
    """Fit ten members in one go against one member."""
    from esad import ESAD

    n_rows, repeats = (500, 1) if small else (5000, 5)
    X, truth = synthetic.make(n_rows, seed=0)
    y = synthetic.label_some(truth, n_rows // 100, seed=0)
    one, ten = (
        seconds(lambda n=n: ESAD(n_members=n, random_state=0).fit(X, y), repeats=repeats)  # type: ignore[misc]
        for n in (1, 10)
    )
    ratio = round(ten / one, 2)
    return {"one_s": round(one, 3), "ten_s": round(ten, 3), "ratio": ratio, "reached": ratio <= MEMBERS_BAR}


Stack = tuple[int, list[tuple[int, int]]]


def layer_shapes(detector: Any) -> list[Stack]:
    """For either kind of members, how many, and (features in, out) of every layer in the order rows pass them."""
    objective, columns = detector.objective_, detector.inputs_.shape[0]
    n_binned = sum(n > 0 for n in objective.bins.n_bins)
    encoder, decoder, second = ([tuple(shape) for shape in network.shapes] for network in objective.networks)
    binned = [*encoder, *decoder, *second]
    first, last = (columns, encoder[0][1]), (decoder[-1][0], columns)
    plain = [first, *encoder[1:], *decoder[:-1], last, first, *second[1:]]
    return [(objective.n_members - n_binned, plain), (n_binned, binned)]


def bare_products(stacks: list[Stack], n_blocks: int, block: int) -> Callable[[], None]:
    """Only the matrix products of scoring blocks of rows, float32, into memory that is there already.

    All members of a kind read the same rows, so their first layers are one wide product; every other layer is one per
    member.
    """
    import torch

    ready = []
    for n_members, shapes in stacks:
        weights = [torch.randn(n_members, n_out, n_in) / n_in**0.5 for n_in, n_out in shapes]
        layers = [torch.empty(n_members, n_out, block) for _, n_out in shapes]  # each the input of the next
        ready.append((weights, layers, torch.randn(shapes[0][0], block)))

    def run() -> None:
        for _ in range(n_blocks):
            for weights, layers, rows in ready:
                torch.mm(weights[0].flatten(0, 1), rows, out=layers[0].flatten(0, 1))
                for weight, below, out in zip(weights[1:], layers, layers[1:], strict=False):
                    torch.bmm(weight, below, out=out)

    return run


def scoring(small: bool) -> dict[str, Any]:
    """Score 1,000,000 x 30 rows against the bare matrix products of the same shapes, at their best block size."""
    from esad import ESAD

    n_rows, repeats = (2**14, 1) if small else (1_000_000, 3)
    X, truth = synthetic.make(1000 if small else 5000, seed=0)
    detector = ESAD(random_state=0).fit(X, synthetic.label_some(truth, 10 if small else 50, seed=0))
    stacks = layer_shapes(detector)
    bare = {}
    for block in (128, 256, 512, 1024, 4096):
        n_blocks = n_rows // block
        taken = seconds(bare_products(stacks, n_blocks, block), repeats=repeats)
        bare[block] = taken * n_rows / (n_blocks * block)
    rows = np.random.default_rng(0).normal(size=(n_rows, synthetic.N_COLUMNS))
    best = min(bare.values())
    result: dict[str, Any] = {
        "members": sum(n_members for n_members, _ in stacks),
        "layers": {str(n_members): shapes for n_members, shapes in stacks},
        "bare_s": {str(block): round(value, 3) for block, value in bare.items()},
    }
    for dtype in ("float64", "float32"):
        typed = rows.astype(dtype)
        ours = seconds(lambda typed=typed: detector.anomaly_score(typed), repeats=repeats)  # type: ignore[misc]
        result[dtype] = {"score_s": round(ours, 3), "rate": round(best / ours, 3)}
    result["reached"] = min(result[d]["rate"] for d in ("float64", "float32")) >= RATE_BAR
    return result


def write_parquet(path: Path, n_rows: int) -> None:
    """Write `n_rows` x 30 float64 rows, one million at a time, in row groups of pyarrow's default size."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    names = [f"x{i}" for i in range(synthetic.N_COLUMNS)]
    with pq.ParquetWriter(path, pa.schema([(name, pa.float64()) for name in names])) as writer:
        while n_rows > 0:
            n = min(n_rows, 2**20)
            writer.write_table(pa.table({name: rng.normal(size=n) for name in names}))
            n_rows -= n


def esad_command() -> list[str]:
    """The `esad` command of the environment this script runs in."""
    beside = Path(sys.executable).with_name("esad")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "esad"]


# A process starts with the memory mark of the one that started it: this small one in between keeps ours out.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def memory(small: bool) -> dict[str, Any]:
    """Peak memory of `esad score` on a Parquet file of 5,000,000 x 30 rows, and of a fifth of it."""
    import pyarrow as pa

    from esad import ESAD

    X, truth = synthetic.make(1000 if small else 5000, seed=0)
    table = pa.table({f"x{i}": X[:, i] for i in range(X.shape[1])})
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        model, data, scores = (Path(folder, name) for name in ("model.esad", "rows.parquet", "scores.parquet"))
        ESAD(random_state=0).fit(table, synthetic.label_some(truth, 10, seed=0)).save(model)
        for n_rows in (20_000, 100_000) if small else (1_000_000, 5_000_000):
            write_parquet(data, n_rows)
            started = time.perf_counter()
            command = [*esad_command(), "score", str(model), str(data), "--out", str(scores)]
            done = subprocess.run([sys.executable, "-c", PEAK, *command], capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"esad score failed:\n{done.stderr}")
            peak = int(done.stdout.split()[-1]) / 2**20  # Linux counts in KiB
            wall = round(time.perf_counter() - started, 1)
            result[str(n_rows)] = {"peak_gib": round(peak, 3), "wall_s": wall, "file_mib": data.stat().st_size // 2**20}
    result["reached"] = peak < MEMORY_BAR_GIB
    return result


def start(small: bool) -> dict[str, Any]:
    """Wall time of `import esad` inside a fresh Python, and of the whole command `esad --help`; best of several."""
    repeats = 2 if small else 9
    timed = "import time; t = time.perf_counter(); import esad; print(time.perf_counter() - t)"
    imports = [float(subprocess.check_output([sys.executable, "-c", timed])) for _ in range(repeats)]
    bare = seconds(lambda: subprocess.check_call([sys.executable, "-c", "pass"]), repeats=repeats)
    shown = seconds(lambda: subprocess.check_output([*esad_command(), "--help"]), repeats=repeats)
    reached = min(imports) < IMPORT_BAR_S and shown < HELP_BAR_S
    return {
        "import_s": round(min(imports), 4),
        "help_s": round(shown, 3),
        "bare_python_s": round(bare, 3),
        "reached": reached,
    }


def committee(small: bool) -> dict[str, Any]:
    """Fit and scoring of 20,000 rows by the committee against ESAD alone, in processor time, on every fifth table."""
    import warnings

    from tables import drawn, load, table_names

    from esad import ESAD, Committee

    warnings.simplefilter("ignore")  # ids and gaps in the tables are known
    names = [(collection, table) for collection, tables in table_names().items() for table in tables]
    times: dict[str, dict[str, float]] = {}
    for collection, table in names[:1] if small else names[::5]:
        rows = drawn(load(collection, table), "1%", 0, max_test=0)
        scored = rows.X_test[np.random.default_rng(0).integers(len(rows.X_test), size=20_000)]
        found = []
        for _ in range(3):  # turn and turn about, so that a busy moment hits both
            for detector in (ESAD(random_state=0), Committee(random_state=0)):
                started = time.process_time()
                detector.fit(rows.X_train, rows.y_train)
                fitted = time.process_time()
                detector.anomaly_score(scored)
                found.append((fitted - started, time.process_time() - fitted))
        alone, together = np.array(found).reshape(3, 2, 2).min(axis=0)
        times[table] = {
            name: round(float(ratio), 2) for name, ratio in zip(("fit", "score"), together / alone, strict=True)
        }
    result: dict[str, Any] = {"tables": times}
    for name in ("fit", "score"):
        ratios = [found[name] for found in times.values()]
        result[name] = {"median": round(float(np.median(ratios)), 2), "largest": max(ratios)}
    result["reached"] = result["fit"]["median"] <= FIT_TIMES_BAR and result["score"]["median"] <= SCORE_TIMES_BAR
    return result


PARTS = {"fit": fit, "members": members, "scoring": scoring, "memory": memory, "start": start, "committee": committee}


def main() -> None:
    """Run the parts asked for, print them, keep them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--threads", type=int, help="threads of torch, for every method (default: torch's own choice)")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to test this script; stores nothing")
    options = parser.parse_args()
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    path = RESULTS / "speed.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    for name in options.only:
        conditions = {"threads": torch.get_num_threads(), "cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
        part = PARTS[name](options.small) | conditions
        part["versions"] = versions("esad", "torch", "numpy", *(["deepod"] if name == "fit" else []))
        print(f"\n{name}: {PARTS[name].__doc__}\n{json.dumps(part, indent=1)}", flush=True)
        stored[name] = part
        if not options.small:
            path.write_text(json.dumps(stored, indent=1) + "\n")
    missed = [name for name in options.only if not stored[name]["reached"]]
    print("\nEvery bar reached." if not missed else f"\nBars missed: {', '.join(missed)}.")


if __name__ == "__main__":
    main()
