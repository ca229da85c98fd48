"""Make, judge, keep and sum up single runs (method, table, seed), so that one method can be run again alone."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from methods import METHODS, PACKAGE
from sklearn.metrics import average_precision_score, roc_auc_score

import esad
from esad.datasets.scenario import Scenario

RESULTS = Path(__file__).parent / "results"
Run = dict[str, Any]


class Store:
    """The runs of one benchmark: a folder with one JSON file per method, one line per run."""

    def __init__(self, benchmark: str, *, methods: Iterable[str] = METHODS) -> None:
        self.folder = RESULTS / benchmark
        self.runs: dict[str, dict[tuple[str, int], Run]] = {method: {} for method in methods}
        for method, runs in self.runs.items():
            path = self.folder / f"{method}.json"
            if path.exists():
                runs.update({(run["table"], run["seed"]): run for run in json.loads(path.read_text())})

    def get(self, method: str, table: str, seed: int, *, rows: str) -> Run | None:
        """Return the stored run, unless it was made on other rows."""
        run = self.runs[method].get((table, seed))
        return run if run is not None and run["rows"] == rows else None

    def put(self, run: Run) -> None:
        """Keep a run and write its file at once: an interrupted benchmark goes on where it stopped."""
        runs = self.runs[run["method"]]
        runs[run["table"], run["seed"]] = run
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{run['method']}.json"
        beside = path.with_suffix(".tmp")
        beside.write_text("[\n" + ",\n".join(json.dumps(runs[key]) for key in sorted(runs)) + "\n]\n")
        beside.replace(path)

    def of(self, method: str, table: str | None = None) -> list[Run]:
        """All runs of a method, or those on one table."""
        return [run for run in self.runs[method].values() if table in (None, run["table"])]

    def methods(self) -> Iterator[str]:
        """Methods that have a run."""
        return (method for method, runs in self.runs.items() if runs)


def run_missing(store: Store, *, method: str, table: str, seed: int, drawn: Scenario, rerun: bool) -> None:
    """Fit a method on the rows drawn and judge its scores on the test rows, unless that is stored already."""
    rows = drawn.fingerprint()[:12]
    if not rerun and store.get(method, table, seed, rows=rows):
        return
    started = time.perf_counter()
    scores, fit_seconds = METHODS[method](drawn.X_train, drawn.y_train, drawn.X_test, seed)
    total_seconds = time.perf_counter() - started
    run = judged(method, table, seed, drawn, scores, seconds=fit_seconds, package=PACKAGE[method])
    store.put(run | {"total_s": round(total_seconds, 2)})
    print(f"{table:24} seed {seed}  {method:16} AUC {run['auc']:6.2f}  AP {run['ap']:6.2f}", flush=True)


def judged(
    method: str,
    table: str,
    seed: int,
    drawn: Scenario,
    scores: np.ndarray,
    *,
    seconds: float,
    package: str,
    test: np.ndarray | None = None,
) -> Run:
    """What is kept of a run; `test` are the test rows that count, all by default."""
    truth = drawn.truth_test if test is None else drawn.truth_test[test]
    counted = scores if test is None else scores[test]
    return {
        "method": method,
        "table": table,
        "seed": seed,
        "auc": round(100 * float(roc_auc_score(truth, counted)), 3),
        "ap": round(100 * float(average_precision_score(truth, counted)), 3),
        "fit_s": round(seconds, 2),
        "n_train": len(drawn.y_train),
        "n_labelled": int((drawn.y_train == -1).sum()),
        "n_test": len(truth),
        "rows": drawn.fingerprint()[:12],
        "version": versions(package)[package],
    }


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return float(np.mean(values)), error


def versions(*packages: str) -> dict[str, str]:
    """Name the software behind a result: Python, the machine and each package that is installed."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # the package itself may run from its sources
            found[package] = esad.__version__ if package == "esad" else "not installed"
    return found


def show_bars(store: Store, bars: dict[str, float]) -> bool:
    """Print each mean beside its bar; say whether ESAD reaches all."""
    print(f"\n{'table':24} {'method':16} {'AUC %':>14} {'AP %':>14} {'bar':>6}  seeds  fit s")
    all_reached = True
    tables = sorted({run["table"] for method in store.methods() for run in store.of(method)})
    for table in tables:
        for method in store.methods():
            runs = store.of(method, table)
            if not runs:
                continue
            (auc, error), (ap, ap_error) = (mean_and_error([run[k] for run in runs]) for k in ("auc", "ap"))
            verdict = ""
            if method == "esad" and table in bars:
                reached = auc >= bars[table]
                verdict = "reached" if reached else "MISSED"
                all_reached &= reached
            cells = f"{auc:7.2f} ±{error:5.2f} {ap:7.2f} ±{ap_error:5.2f} {bars.get(table, float('nan')):6.1f}"
            seconds = float(np.mean([run["fit_s"] for run in runs]))
            print(f"{table:24} {method:16} {cells}  {len(runs):5d} {seconds:6.1f}  {verdict}")
    print(versions("esad", "deepod", "torch", "scikit-learn", "numpy"))
    return all_reached
