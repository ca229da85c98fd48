"""Compare ESAD with its peers on the `adbench` development tables, one protocol for all.

    ESAD_DATA=folder python benchmarks/tables_adbench.py                     run what is missing, print the table
    ESAD_DATA=folder python benchmarks/tables_adbench.py --rerun esad        the recipe changed: run ESAD again
    python benchmarks/tables_adbench.py --show                               print the stored results only

Protocol: stratified 60:40 split, at most 3,000 training rows, max(3, 1 %) labelled anomalies, all other training rows
unlabelled with their natural pollution, the full test part scored, three seeds. Defaults everywhere; see methods.py.
"""

from __future__ import annotations

import argparse

import numpy as np
from methods import METHODS
from runs import Store, mean_and_error, run_missing, versions

from esad.datasets.scenario import natural
from esad.datasets.sources import adbench


def run(store: Store, methods: list[str], seeds: list[int], rerun: list[str]) -> None:
    """Fit and judge every missing (method, table, seed)."""
    for table in adbench.NAMES:
        data = adbench.load(table)
        for seed in seeds:
            drawn = natural(data, max_train=3000, labelled_ratio=0.01, min_labelled=3, test_ratio=0.4, seed=seed)
            for method in methods:
                run_missing(store, method=method, table=table, seed=seed, drawn=drawn, rerun=method in rerun)


def overall(store: Store, method: str, measure: str) -> tuple[float, float]:
    """Mean over tables, with its standard error over seeds."""
    by_seed: dict[int, list[float]] = {}
    for one in store.of(method):
        by_seed.setdefault(one["seed"], []).append(one[measure])
    return mean_and_error([float(np.mean(values)) for values in by_seed.values()])


def show(store: Store) -> bool:
    """Print AUC / AP per table and over all; say whether ESAD's means are the highest."""
    methods = list(store.methods())
    print(f"\n{'AUC / AP, %':16}" + "".join(f"{method:>22}" for method in methods))
    for table in sorted({one["table"] for method in methods for one in store.of(method)}):
        cells = []
        for method in methods:
            runs = store.of(method, table)
            cells.append(" / ".join(f"{np.mean([one[k] for one in runs]):.1f}" for k in ("auc", "ap")) if runs else "-")
        print(f"{table:16}" + "".join(f"{cell:>22}" for cell in cells))
    means = {method: [overall(store, method, k) for k in ("auc", "ap")] for method in methods}
    cells = [" / ".join(f"{mean:.1f}±{error:.1f}" for mean, error in means[method]) for method in methods]
    print(f"{'mean':16}" + "".join(f"{cell:>22}" for cell in cells))
    print(f"{'runs':16}" + "".join(f"{len(store.of(method)):>22}" for method in methods))
    print(versions("esad", "deepod", "torch", "scikit-learn", "numpy"))
    peers = [means[method] for method in methods if method != "esad"]
    return "esad" in means and all(means["esad"][i][0] > peer[i][0] for peer in peers for i in (0, 1))


def main() -> None:
    """Read the options, run, print; exit code 0 when ESAD is ahead of every peer in both means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rerun", nargs="+", choices=METHODS, default=[], help="run these again though stored")
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    store = Store("tables_adbench")
    if not options.show:
        run(store, options.rerun or options.methods, options.seeds, options.rerun)
    ahead = show(store)
    print("ESAD is ahead of every peer in both means." if ahead else "ESAD is not ahead of every peer in both means.")
    raise SystemExit(0 if ahead else 1)


if __name__ == "__main__":
    main()
