"""Measure what recipe search and early stopping by splits bring, and that they do no harm, on the `adbench` tables.

    ESAD_DATA=folder python benchmarks/search.py              run what is missing, print the table
    python benchmarks/search.py --show                        print the stored results only

Protocol: the scenario of tables.py (stratified 60:40 split, at most 3,000 training rows, max(3, 1 %) labelled
anomalies, all else unlabelled with its natural pollution). `search` sees the training part and its labels only. The
default, the recipe chosen and `early_stopping="splits"` are then trained with two members and judged on at most 20,000
test rows.

Noise: the default is trained a second time with another seed. A run counts as worse when it loses more against the
default than twice the standard deviation of such pairs over all tables, or twice its own pair if that is larger.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np
from runs import RESULTS, versions
from sklearn.metrics import average_precision_score, roc_auc_score

from esad import ESAD
from esad.advice.search import search
from esad.datasets.scenario import Scenario, natural
from esad.datasets.sources import adbench

PATH = RESULTS / "search.json"
# Where labels decide (five known anomalies or more) and the default's AUC is below 99 %, so that a recipe can be better
# and worse: all seeds. Other tables: seed 0.
WITH_ROOM = ("1_ALOI", "24_mnist", "33_skin", "47_yeast", "8_celeba")
Run = dict[str, object]


def judged(detector: ESAD, drawn: Scenario, kept: np.ndarray) -> list[float]:
    """AUC and AP in % on the test rows kept."""
    scores = detector.set_params(n_members=2).fit(drawn.X_train, drawn.y_train).anomaly_score(drawn.X_test[kept])
    truth = drawn.truth_test[kept]
    return [round(100 * float(measure(truth, scores)), 3) for measure in (roc_auc_score, average_precision_score)]


def measured(table: str, seed: int) -> Run:
    """Search on one table, then judge the default (twice), early stopping and what was chosen."""
    drawn = natural(adbench.load(table), seed=seed)
    kept = np.random.default_rng(0).permutation(len(drawn.X_test))[:20_000]
    started = time.process_time()
    found = search(ESAD(random_state=seed), drawn.X_train, drawn.y_train)
    seconds = time.process_time() - started
    default = judged(ESAD(random_state=seed), drawn, kept)
    return {
        "table": table,
        "seed": seed,
        "n_labelled": int((drawn.y_train == -1).sum()),
        "chosen": found.chosen,
        "search_s": round(seconds, 1),
        "default": default,
        "again": judged(ESAD(random_state=seed + 1000), drawn, kept),
        "stopped": judged(ESAD(random_state=seed, early_stopping="splits"), drawn, kept),
        "found": default if found.chosen == "default" else judged(found.detector, drawn, kept),
        "ahead": {trial.name: [round(trial.ahead, 4), round(trial.error, 4)] for trial in found.trials[1:]},
        "rows": drawn.fingerprint()[:12],
    }


def show(runs: dict[tuple[str, int], Run]) -> bool:
    """Print every run; say whether none is worse by more than noise."""
    pairs = np.array([np.subtract(run["again"], run["default"]) for run in runs.values()])
    noise = pairs.std(axis=0)
    print(f"\n{'AUC / AP, %':16} seed  labels  {'default':>13}  {'stopped':>15}  {'found':>15}   chosen")
    worse = 0
    for (table, seed), run in runs.items():
        own = np.abs(np.subtract(run["again"], run["default"]))
        cells = []
        for key in ("stopped", "found"):
            change = np.subtract(run[key], run["default"])
            is_worse = bool((change < -2 * np.maximum(noise, own)).any())
            worse += is_worse
            cells.append(f"{change[0]:+5.1f} / {change[1]:+5.1f}{' !' if is_worse else '  '}")
        default = f"{run['default'][0]:.1f} / {run['default'][1]:.1f}"
        print(f"{table:16} {seed:4} {run['n_labelled']:7}  {default:>13}  {cells[0]}  {cells[1]}   {run['chosen']}")
    for key in ("default", "again", "stopped", "found"):
        means = np.mean([run[key] for run in runs.values()], axis=0)
        print(f"mean of {key:8} {means[0]:.2f} / {means[1]:.2f}")
    print(f"noise between two trainings of the default (standard deviation): {noise[0]:.2f} / {noise[1]:.2f}")
    print(versions("esad", "torch", "scikit-learn", "numpy"))
    return worse == 0


def main() -> None:
    """Run what is missing, print; exit code 0 when no table is worse by more than noise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = {(run["table"], run["seed"]): run for run in json.loads(PATH.read_text())} if PATH.exists() else {}
    for seed in [] if options.show else options.seeds:
        for table in WITH_ROOM if seed else adbench.NAMES:
            if (table, seed) not in runs:
                runs[table, seed] = measured(table, seed)
                PATH.write_text("[\n" + ",\n".join(json.dumps(runs[key]) for key in sorted(runs)) + "\n]\n")
                print(json.dumps(runs[table, seed]), flush=True)
    raise SystemExit(0 if show(runs) else 1)


if __name__ == "__main__":
    main()
