"""Measure what the automatic threshold does on new rows, with and without the labels' say, on the `adbench` tables.

    ESAD_DATA=folder python benchmarks/thresholds.py [--seeds 4]     run what is missing, print the table
    python benchmarks/thresholds.py --show                           print the stored results only

Protocol: stratified 60:40 split, at most 2,000 training rows with their natural pollution, ESAD with three members and
else its defaults; once with max(3, 1 %) labelled anomalies and once with 12, where a table has so many; the breast
cancer table beside the `adbench` ones, because a third of its rows are hidden anomalies. Judged on at most 8,000 test
rows by the truth: F1, share of false alarms, share of anomalies found, at the threshold by unlabelled rows alone
("alone"), at the automatic one, which labels may lower ("auto"), and at that of the best F1 on the labels ("labels").
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings

import numpy as np
from runs import RESULTS, versions

from esad import ESAD, Threshold, registry
from esad.datasets.draws import draw_natural, split
from esad.datasets.sources import adbench

PATH = RESULTS / "thresholds.json"
N_LABELS = (None, 12)  # None: max(3, 1 %)
Run = dict[str, object]


def measured(table: str, n_labels: int | None, seed: int) -> Run | None:
    """One training, three thresholds; None where no anomaly would be left to hide."""
    data = registry.load_data_set(table) if table == "breast_cancer" else adbench.load(table)
    rng = np.random.default_rng([seed, 77])
    train, test = split(data.truth, test_ratio=0.4, seed=rng)
    ratio, least = (0.01, 3) if n_labels is None else (0.0, n_labels)
    drawn = draw_natural(data.truth[train], max_rows=2000, labelled_ratio=ratio, min_labelled=least, seed=rng)
    if n_labels and data.truth[train][drawn.rows].sum() < n_labels + 2:
        return None
    test = rng.permutation(test)[:8000]
    detector = ESAD(random_state=seed, n_members=3).fit(data.X[train][drawn.rows], drawn.y)
    scores, truth = detector.anomaly_score(data.X[test]), data.truth[test]
    own, auto = detector.training_scores_, detector.threshold_
    alone = Threshold().fit(own[np.isfinite(own) & (drawn.y == 0)])
    by_labels = detector.fit_threshold(from_labels=True).threshold_
    known = own[drawn.y == -1]
    return {
        "table": table,
        "labels": n_labels or 0,
        "seed": seed,
        "n_labelled": len(known),
        "n_labelled_flagged": {"alone": int((known > alone).sum()), "auto": int((known > auto).sum())},
        "alone": judged(scores > alone, truth),
        "auto": judged(scores > auto, truth),
        "labels_rule": judged(scores > by_labels, truth),
    }


def judged(alarms: np.ndarray, truth: np.ndarray) -> list[float]:
    """F1, share of false alarms among normal rows, share of anomalies found."""
    hits = float((alarms & truth).sum())
    f1 = 2 * hits / max(1, alarms.sum() + truth.sum())
    return [round(float(value), 4) for value in (f1, (alarms & ~truth).sum() / (~truth).sum(), hits / truth.sum())]


def show(runs: dict[tuple[str, int, int], Run]) -> None:
    """Runs in which labels lowered the threshold, and means."""
    keys = ("alone", "auto", "labels_rule")
    lowered = [run for run in runs.values() if run["alone"] != run["auto"]]
    print(f"\nF1 / false alarms / found by: {', '.join(keys)}; runs in which labels lowered the threshold")
    for run in lowered:
        flagged = run["n_labelled_flagged"]
        cells = "   ".join(" / ".join(f"{value:.2f}" for value in run[key]) for key in keys)
        print(
            f"{run['table']:16} {flagged['alone']:2} -> {flagged['auto']:2} of {run['n_labelled']:2} labelled   {cells}"
        )
    for name, chosen in (("these", lowered), ("all", list(runs.values()))):
        means = {key: np.mean([run[key] for run in chosen], axis=0) for key in keys}
        cells = "   ".join(f"{key} {' / '.join(f'{value:.3f}' for value in mean)}" for key, mean in means.items())
        print(f"mean over {name} {len(chosen)} runs: {cells}")
    print(versions("esad", "torch", "scikit-learn", "numpy"))


def main() -> None:
    """Run what is missing, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[4])
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("esad").setLevel(logging.ERROR)
    stored = json.loads(PATH.read_text()) if PATH.exists() else []
    runs = {(run["table"], run["labels"], run["seed"]): run for run in stored}
    for seed in [] if options.show else options.seeds:
        for n_labels in N_LABELS:
            for table in [*adbench.NAMES, "breast_cancer"]:
                key = (table, n_labels or 0, seed)
                run = runs.get(key) or measured(table, n_labels, seed)
                if run is not None:
                    runs[key] = run
                    PATH.write_text("[\n" + ",\n".join(json.dumps(runs[key]) for key in sorted(runs)) + "\n]\n")
    show(runs)


if __name__ == "__main__":
    main()
