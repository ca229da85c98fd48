"""Hold ESAD's default recipe against the bars on Fashion-MNIST pictures.

    ESAD_DATA=folder python benchmarks/images_fmnist.py [--rerun] [--normal 1 8] [--seeds 0 1 2]

Protocol: one class is normal, 2,000 of its training images are unlabelled, 5 % of the training set are labelled
anomalies of one other class (the next one unless --labelled names it), the full test set of 10,000 images is scored.
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from methods import METHODS
from runs import RESULTS, Run, judged, mean_and_error, versions

from esad.datasets.scenario import images
from esad.datasets.sources import mnist

BARS = {1: 97.0, 8: 85.0}
STORED = RESULTS / "images_fmnist" / "esad.json"
Runs = dict[tuple[str, int], Run]  # by table and seed


def pair(normal: int, labelled: int | None = None) -> str:
    """The name of a table: which class is normal, and which one the labelled anomalies are of."""
    return f"normal {normal}, labelled {(normal + 1) % 10 if labelled is None else labelled}"


def run(stored: Runs, normals: list[int], labelled: int | None, seeds: list[int], *, rerun: bool) -> None:
    """Fit and judge what is missing or was made on other rows; each run is kept at once."""
    data = mnist.load("fashion_mnist")
    for normal in normals:
        other = (normal + 1) % 10 if labelled is None else labelled
        for seed in seeds:
            key = (pair(normal, other), seed)
            drawn = images(
                data, normal_class=normal, labelled_classes=(other,), n_normal=2000, labelled_ratio=0.05, seed=seed
            )
            if not rerun and key in stored and stored[key]["rows"] == drawn.fingerprint()[:12]:
                continue
            scores, seconds = METHODS["esad"](drawn.X_train, drawn.y_train, drawn.X_test, seed)
            stored[key] = judged("esad", *key, drawn, scores, seconds=seconds, package="esad")
            lines = ",\n".join(json.dumps(stored[known]) for known in sorted(stored))
            beside = STORED.with_suffix(".tmp")
            beside.write_text(f"[\n{lines}\n]\n")
            beside.replace(STORED)


def show(stored: Runs) -> bool:
    """Print each mean beside its bar; whether all bars are reached."""
    missed = False
    bars = {pair(normal): bar for normal, bar in BARS.items()}
    for table in sorted({table for table, _ in stored}):
        runs = [run for (its, _), run in stored.items() if its == table]
        (auc, error), (ap, ap_error) = (mean_and_error([run[measure] for run in runs]) for measure in ("auc", "ap"))
        bar = bars.get(table, np.nan)
        missed |= auc < bar
        cells = f"AUC {auc:.2f} ± {error:.2f}, AP {ap:.2f} ± {ap_error:.2f} %; bar {bar:.1f}{' MISSED' * (auc < bar)}"
        print(f"{table}: {cells}; {len(runs)} seeds, {np.mean([run['fit_s'] for run in runs]):.1f} s to fit")
    print(versions("esad", "torch", "scikit-learn", "numpy"))
    return not missed


def main() -> None:
    """Read the options, run, print; exit code 0 when every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--normal", nargs="+", type=int, choices=range(10), default=list(BARS))
    parser.add_argument("--labelled", type=int, choices=range(10), help="class of the labelled anomalies")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--rerun", action="store_true", help="run again though stored")
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    kept = json.loads(STORED.read_text()) if STORED.exists() else []
    stored = {(run["table"], run["seed"]): run for run in kept}
    if not options.show:
        run(stored, options.normal, options.labelled, options.seeds, rerun=options.rerun)
    raise SystemExit(0 if show(stored) else 1)


if __name__ == "__main__":
    main()
