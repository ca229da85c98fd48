"""Compare methods on tables: OddBench beside ADBench, one protocol for all, with few labels and none.

    ESAD_DATA=folder python benchmarks/tables.py --jobs 8                        run what is missing, print everything
    ESAD_DATA=folder python benchmarks/tables.py --methods committee esad --labels 3 10 --seeds 0
    ESAD_DATA=folder python benchmarks/tables.py --rerun esad                    the recipe changed: run ESAD again
    python benchmarks/tables.py --show --against bagged_trees                    print the stored results only

Protocol: normal rows and anomalies are each split 60:40; at most 3,000 training rows with the table's own share of
anomalies; so many of those labelled as `--labels` says ("1%": one in a hundred rows, three at least; "none"), all other
training rows unlabelled with their natural pollution; at most 5,000 test rows, with five anomalies or more. Defaults
everywhere; methods.py says what each method gets. `--part dev` are the tables that settings were chosen on (half of
OddBench by name, seven of ADBench), `--part last` those looked at when they were chosen.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from methods import METHODS, PACKAGE
from runs import RESULTS, judged, mean_and_error, versions
from scipy.stats import t as student

from esad.datasets.dataset import Dataset
from esad.datasets.folder import data_folder, read_arrays
from esad.datasets.scenario import Scenario, natural
from esad.datasets.sources import adbench

FOLDER = RESULTS / "tables"
LABELS = ("1%", "3", "10", "30", "none")
NEEDS_LABELS = (
    "bagged_trees",
    "pu_bagging",
    "extra_trees",
    "random_forest",
    "hgb",
    "devnet",
    "devnet_repaired",
    "rosas",
)
ADBENCH_DEV = ("1_ALOI", "10_cover", "16_http", "33_skin", "37_Stamps", "42_WBC", "47_yeast")
MAX_TRAIN, MAX_TEST, MIN_TEST_ANOMALIES = 3000, 5000, 5
CLOSE = 0.05  # differences of a table, in points, that are neither won nor lost

Run = dict[str, Any]


def table_names() -> dict[str, list[str]]:
    """All tables by their collection."""
    with np.load(data_folder() / "oddbench" / "tables.npz") as arrays:
        odd = sorted(name.removesuffix("__X") for name in arrays.files if name.endswith("__X"))
    return {"oddbench": odd, "adbench": list(adbench.NAMES)}


def part_of(tables: dict[str, list[str]], part: str) -> dict[str, list[str]]:
    """The tables that settings were chosen on ("dev"), the others ("last"), or "all"."""
    if part == "all":
        return tables
    odd, n_dev = sorted(tables["oddbench"]), len(tables["oddbench"]) // 2
    is_dev = part == "dev"
    return {
        "oddbench": odd[:n_dev] if is_dev else odd[n_dev:],
        "adbench": [name for name in tables["adbench"] if (name in ADBENCH_DEV) == is_dev],
    }


def load(collection: str, table: str) -> Dataset:
    """A table with its truth."""
    if collection == "adbench":
        return adbench.load(table)
    X, y = read_arrays("oddbench/tables.npz", (f"{table}__X", f"{table}__y"))
    return Dataset(name=table, X=X.astype(np.float64), truth=y == 1, description=f"OddBench table {table}")


def drawn(data: Dataset, labels: str, seed: int, max_test: int) -> Scenario:
    """The rows of one experiment."""
    ratio, least = (0.01, 3) if labels == "1%" else (0.0, 0 if labels == "none" else int(labels))
    found = natural(data, max_train=MAX_TRAIN, labelled_ratio=ratio, min_labelled=least, test_ratio=0.4, seed=seed)
    if not 0 < max_test < len(found.X_test):
        return found
    kept = np.sort(np.random.default_rng([seed, 7]).permutation(len(found.X_test))[:max_test])
    return replace(found, X_test=found.X_test[kept], truth_test=found.truth_test[kept])


class Store:
    """All runs: a file of JSON lines for each method."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: dict[tuple[str, str, int, str], Run] = {}  # (method, table, seed, labels)
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8").splitlines():
                run = json.loads(line)
                self.runs[_key(run)] = run

    def add(self, runs: Sequence[Run]) -> None:
        """Keep runs at once, so that an interrupted benchmark goes on where it stopped."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for run in runs:
            self.runs[_key(run)] = run
            with (self.folder / f"{run['method']}.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")

    def tables(self) -> dict[str, list[str]]:
        """The tables that were run, by their collection."""
        found: dict[str, set[str]] = {"oddbench": set(), "adbench": set()}
        for run in self.runs.values():
            found[run["collection"]].add(run["table"])
        return {collection: sorted(names) for collection, names in found.items()}

    def tidy(self) -> None:
        """Write every method's file anew: one line for each experiment, in order."""
        for method in {run["method"] for run in self.runs.values()}:
            lines = [json.dumps(self.runs[key]) for key in sorted(self.runs) if key[0] == method]
            beside = self.folder / f"{method}.tmp"
            beside.write_text("\n".join(lines) + "\n", encoding="utf-8")
            beside.replace(self.folder / f"{method}.jsonl")


def _key(run: Run) -> tuple[str, str, int, str]:
    return run["method"], run["table"], run["seed"], run["labels"]


def run_one(
    collection: str,
    table: str,
    labels: str,
    seed: int,
    methods: Sequence[str],
    max_test: int = MAX_TEST,
    until: float = math.inf,
) -> list[Run]:
    """Fit and judge methods on one draw of a table; nothing where the test has too few anomalies or time is up."""
    import warnings

    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # ids and gaps in the tables are known
    if time.time() > until:
        return []
    rows = drawn(load(collection, table), labels, seed, max_test)
    if rows.truth_test.sum() < MIN_TEST_ANOMALIES:
        return []
    done: list[Run] = []
    for method in methods:
        if time.time() > until:
            break
        started = time.perf_counter()
        try:
            scores, fit_seconds = METHODS[method](rows.X_train, rows.y_train, rows.X_test, seed)
        except Exception as error:  # a peer that cannot take a table must not end the others' runs
            print(f"{method} failed on {table}, seed {seed}, {labels}: {error}", flush=True)
            continue
        score_seconds = time.perf_counter() - started - fit_seconds
        run = judged(method, table, seed, rows, scores, seconds=fit_seconds, package=PACKAGE[method])
        done.append(run | {"collection": collection, "labels": labels, "score_s": round(score_seconds, 3)})
    return done


def run_missing(store: Store, options: argparse.Namespace) -> None:
    """Run every experiment that is not stored, several at a time; none is begun when the time is up."""
    until = math.inf if options.seconds is None else time.time() + options.seconds
    tasks = []
    for labels in options.labels:
        methods = [m for m in options.methods if not (labels == "none" and m in NEEDS_LABELS)]
        for seed in options.seeds:
            for collection, tables in part_of(table_names(), options.part).items():
                for table in [name for name in tables if not options.tables or name in options.tables]:
                    left = [m for m in methods if m in options.rerun or (m, table, seed, labels) not in store.runs]
                    if left:
                        tasks.append((collection, table, labels, seed, left, options.max_test, until))
    started, n_done, waiting = time.perf_counter(), 0, set[Future[list[Run]]]()
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for task in [*tasks, None]:
            if task is not None:
                waiting.add(pool.submit(run_one, *task))
            while waiting and (len(waiting) >= 2 * options.jobs or task is None):
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for runs in (one.result() for one in done):
                    store.add(runs)
                    n_done += 1
                    found = "  ".join(f"{run['method']} {run['auc']:.1f}/{run['ap']:.1f}" for run in runs)
                    named = f"{runs[0]['table']}, seed {runs[0]['seed']}, {runs[0]['labels']}" if runs else "nothing"
                    print(f"{n_done}/{len(tasks)} {time.perf_counter() - started:.0f} s  {named}  {found}", flush=True)
    store.tidy()


def by_table(store: Store, method: str, labels: str, tables: Sequence[str], measure: str) -> dict[str, float]:
    """Mean over the seeds for every table that a method was run on; times only where they were taken."""
    found: dict[str, list[float]] = {}
    for (its_method, table, _, its_labels), run in store.runs.items():
        if (its_method, its_labels) == (method, labels) and table in tables and run[measure] is not None:
            found.setdefault(table, []).append(run[measure])
    return {table: float(np.mean(values)) for table, values in found.items()}


def summarise(store: Store, options: argparse.Namespace) -> Iterator[Run]:
    """Means over the tables of a collection, and paired differences from the method that is held against."""
    collections = part_of(store.tables(), options.part)
    collections["both"] = [table for tables in collections.values() for table in tables]
    for labels in options.labels:
        for collection, tables in collections.items():
            wanted = [table for table in tables if not options.tables or table in options.tables]
            for method in options.methods:
                own = {m: by_table(store, method, labels, wanted, m) for m in ("auc", "ap", "fit_s", "score_s")}
                if not own["auc"]:
                    continue
                line: Run = {"labels": labels, "collection": collection, "method": method, "n": len(own["auc"])}
                line |= {m: float(np.mean(list(values.values()))) if values else np.nan for m, values in own.items()}
                for measure in ("auc", "ap"):
                    line[f"{measure}_paired"] = paired(
                        differences(store, method, options.against, labels, wanted, measure)
                    )
                yield line


def differences(store: Store, method: str, other: str, labels: str, tables: Sequence[str], measure: str) -> list[float]:
    """By how much a method is ahead of another on every table, mean over the seeds that both were run with."""
    found: dict[str, list[float]] = {}
    for (its_method, table, seed, its_labels), run in store.runs.items():
        beside = store.runs.get((other, table, seed, labels))
        if (its_method, its_labels) == (method, labels) and table in tables and beside is not None:
            found.setdefault(table, []).append(run[measure] - beside[measure])
    return [float(np.mean(found[table])) for table in sorted(found)]


def paired(differences: Sequence[float]) -> Run | None:
    """Mean difference, the half width of its 95 % interval over tables, and how many are won and lost."""
    if len(differences) < 2:
        return None
    mean, error = mean_and_error(differences)
    values = np.asarray(differences)
    half = float(student.ppf(0.975, len(values) - 1)) * error
    return {"mean": mean, "half": half, "won": int((values > CLOSE).sum()), "lost": int((values < -CLOSE).sum())}


def show(store: Store, options: argparse.Namespace) -> None:
    """Print the summary."""
    before = None
    for line in summarise(store, options):
        group = f"{line['collection']}, labelled: {line['labels']}"
        if group != before:
            head = f"{'AUC':>7}{'AP':>7}{'AUC against ' + options.against:>34}{'AP':>28}{'fit s':>8}{'score s':>8}"
            print(f"\n{group:34}{'tables':>7}{head}")
            before = group
        shown = "".join(_difference(line[f"{measure}_paired"]) for measure in ("auc", "ap"))
        print(
            f"{line['method']:34}{line['n']:7d}{line['auc']:7.1f}{line['ap']:7.1f}      {shown}"
            f"{line['fit_s']:8.2f}{line['score_s']:8.3f}"
        )
    print("\n", versions("esad", "deepod", "torch", "scikit-learn", "numpy"), sep="")


def _difference(found: Run | None) -> str:
    if found is None:
        return " " * 28
    return f"{found['mean']:+7.2f} ± {found['half']:4.2f} ({found['won']:3d}:{found['lost']:<3d})  "


def main() -> None:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--labels", nargs="+", choices=LABELS, default=["1%"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--part", choices=["dev", "last", "all"], default="all")
    parser.add_argument("--tables", nargs="+", default=[], help="only these")
    parser.add_argument("--rerun", nargs="+", choices=METHODS, default=[], help="run these again though stored")
    parser.add_argument("--against", choices=METHODS, default="bagged_trees")
    parser.add_argument("--max-test", type=int, default=MAX_TEST, help="test rows at most; 0: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, help="begin nothing after so long, and keep what is done")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the results")
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    store = Store(options.out)
    if not options.show:
        run_missing(store, options)
    show(store, options)


if __name__ == "__main__":
    main()
