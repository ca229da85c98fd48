"""Compare rules for the threshold on new rows of the tables that tables.py knows, by F1, hits and false alarms.

    ESAD_DATA=folder python benchmarks/thresholds.py --scores folder      run what is missing, print everything
    ESAD_DATA=folder python benchmarks/thresholds.py --scores folder --labels 3 --part dev --seconds 200
    python benchmarks/thresholds.py --scores folder --judge               other rules on the scores that are kept
    python benchmarks/thresholds.py --show                                print the stored results only

Protocol: that of tables.py (rows, labels, parts). Every detector is trained once, with its defaults; its scores of
training and test rows are kept in `--scores`, so that rules are compared without another training. Rules were chosen on
`--part dev`. Judged by the truth: F1, precision, share of the anomalies found, share of the normal rows flagged.

    auto         what a detector does by itself
    before       what it did before decision 33: three deviations above the median, lower where labels contradict it
    alone        auto without the labels' say
    labels       the best F1 of known anomalies against unlabelled rows, as far as some member had not seen these
    r2/q         the most recall squared for the share of alarms (Lee and Liu 2003), a fifth of alarms at most
    top 5 %      a fixed share of the unlabelled rows
    true share   as large a share of the unlabelled rows as there are anomalies among them, which nobody knows
"""

from __future__ import annotations

import argparse
import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from runs import RESULTS, versions
from sklearn.metrics import precision_recall_curve, roc_auc_score
from tables import MAX_TRAIN, MIN_TEST_ANOMALIES, drawn, load, part_of, table_names

from esad import IsolationForest, Threshold, registry
from esad.datasets.scenario import draw_natural, split
from esad.detectors.decisions import TrainingScores

PATH = RESULTS / "thresholds.jsonl"
METHODS = ("committee", "bagged_trees", "esad")
FIGURES = ("F1", "precision", "found", "false alarms")
Arrays = dict[str, np.ndarray]
Run = dict[str, Any]


def scores_of(method: str, collection: str, table: str, labels: str, seed: int) -> Arrays | None:
    """Train one detector and score all rows; None where the test has too few anomalies."""
    data = load(collection, table)
    rows = drawn(data, labels, seed, max_test=5000)
    if rows.truth_test.sum() < MIN_TEST_ANOMALIES:
        return None
    detector = registry.method(method)(random_state=seed).fit(rows.X_train, rows.y_train)
    return {
        "total": detector.training_totals_,
        "held_out": detector.training_scores_,
        "unseen": detector.training_unseen_,
        "y": rows.y_train,
        "truth": training_truth(data.truth, labels, seed),
        "test": detector.anomaly_score(rows.X_test),
        "truth_test": rows.truth_test,
    }


def training_truth(truth: np.ndarray, labels: str, seed: int) -> np.ndarray:
    """The truth of the training rows, which the scenario does not tell: the same draw again."""
    rng = np.random.default_rng(seed)
    train, _ = split(truth, test_ratio=0.4, seed=rng)
    ratio, least = (0.01, 3) if labels == "1%" else (0.0, 0 if labels == "none" else int(labels))
    again = draw_natural(truth[train], max_rows=MAX_TRAIN, labelled_ratio=ratio, min_labelled=least, seed=rng)
    return truth[train][again.rows]


# ---------------------------------------------------------------------- rules


def auto(found: Arrays) -> float:
    """The rule of every detector."""
    return decided(found).threshold_


def decided(found: Arrays) -> IsolationForest:
    """A detector that has learned nothing, with its threshold set on the scores."""
    detector = IsolationForest()
    detector.decide(TrainingScores(found["total"], found["held_out"], None, found["unseen"]), found["y"])
    return detector


def before(found: Arrays) -> float:
    """Decision 24."""
    unlabelled, anomalies = unlabelled_scores(found), found["held_out"][found["y"] < 0]
    low, median = np.quantile(unlabelled, [0.15865525393145707, 0.5])
    sigma = median - low or np.sqrt(np.pi / 2) * np.abs(unlabelled - median).mean()
    usual = median + 3 * sigma
    if len(anomalies) < 3 or 2 * (anomalies > usual).sum() >= len(anomalies):
        return usual
    y = np.repeat([0, -1], [len(unlabelled), len(anomalies)])
    best = Threshold("labels").fit(np.r_[unlabelled, anomalies], y)
    return min(usual, max(best, np.quantile(unlabelled, 0.8)))


def by_labels(found: Arrays) -> float:
    """The rule "labels"; without labels "auto"."""
    known = np.isfinite(found["held_out"])
    rule = Threshold("labels" if (found["y"] < 0).any() else "auto")
    return rule.fit(found["held_out"][known], found["y"][known])


def by_lee_and_liu(found: Arrays) -> float:
    """Recall squared for each alarm; without labels "auto"."""
    unlabelled, anomalies = unlabelled_scores(found), found["held_out"][found["y"] < 0]
    if not len(anomalies):
        return auto(found)
    cuts = np.unique(np.r_[unlabelled, anomalies])
    recall = (anomalies[:, None] >= cuts).mean(axis=0)
    alarms = (np.r_[unlabelled, anomalies][:, None] >= cuts).mean(axis=0)
    return float(np.nextafter(cuts[np.argmax(np.where(alarms <= 0.2, recall**2 / alarms, 0))], -np.inf))


def unlabelled_scores(found: Arrays) -> np.ndarray:
    """Scores of unlabelled rows by members that have not seen them."""
    return found["held_out"][np.isfinite(found["held_out"]) & (found["y"] == 0)]


def by_true_share(found: Arrays) -> float:
    """As many alarms as there are hidden anomalies."""
    return float(np.quantile(unlabelled_scores(found), 1 - found["truth"][found["y"] == 0].mean()))


RULES: dict[str, Callable[[Arrays], float]] = {
    "auto": auto,
    "before": before,
    "alone": lambda found: Threshold().fit(unlabelled_scores(found)),
    "labels": by_labels,
    "r2/q": by_lee_and_liu,
    "top 5 %": lambda found: float(np.quantile(unlabelled_scores(found), 0.95)),
    "true share": by_true_share,
}


# ---------------------------------------------------------------------- judging


def judged(found: Arrays) -> Run:
    """What every rule does on the test rows, and whether it was to be expected."""
    truth, scores = found["truth_test"], found["test"]
    detector = decided(found)
    alarms, forecast = scores > detector.threshold_, detector.forecast_
    precision, recall, _ = precision_recall_curve(truth, scores)
    low, high = forecast.alarm_interval
    promised = {
        "alarms": [round(value, 4) for value in (low, high, float(alarms[~truth].mean()))],
        "recall": [round(value, 4) for value in (*(forecast.recall_interval or ()), float(alarms[truth].mean()))],
    }
    return {
        "auc": round(float(roc_auc_score(truth, scores)), 4),
        "best_f1": round(float(np.max(2 * precision * recall / np.maximum(precision + recall, 1e-9))), 4),
        "chosen_by": detector.applied_.chosen_by,
        "expected": promised,
        "rules": {name: figures(scores > rule(found), truth) for name, rule in RULES.items()},
    }


def figures(alarms: np.ndarray, truth: np.ndarray) -> list[float]:
    """In the order of `FIGURES`."""
    hits = float((alarms & truth).sum())
    f1, precision = 2 * hits / (alarms.sum() + truth.sum()), hits / max(1, alarms.sum())
    return [round(float(v), 3) for v in (f1, precision, hits / truth.sum(), (alarms & ~truth).sum() / (~truth).sum())]


def show(runs: list[Run], part: str) -> None:
    """Means over tables for every method and number of labels, and where rules fail."""
    parts = {name: part_of(table_names(), name) for name in ("dev", "last")}
    tables = {table: name for name, known in parts.items() for some in known.values() for table in some}
    for labels, name, method in sorted({(run["labels"], tables[run["table"]], run["method"]) for run in runs}):
        some = [r for r in runs if (r["labels"], tables[r["table"]], r["method"]) == (labels, name, method)]
        if part not in ("all", name):
            continue
        best = np.mean([run["best_f1"] for run in some])
        print(f"\n{method}, labelled: {labels}, part {name}: {len(some)} tables, the best threshold has F1 {best:.3f}")
        print(f"{'':12}{'F1':>14}{'precision':>11}{'found':>8}", end="")
        print(f"{'false alarms: mean':>20}{'median':>8}{'worst':>8}   failures")
        auc = np.array([run["auc"] for run in some])
        for rule in RULES:
            f1, precision, found, false = np.array([run["rules"][rule] for run in some]).T
            failures = f"{((found < 0.1) & (auc > 0.9)).sum()} missed, {((false > 0.1) & (auc > 0.98)).sum()} false"
            print(
                f"{rule:12}{f1.mean():7.3f} ± {f1.std(ddof=1) / len(f1) ** 0.5:.3f}{precision.mean():10.3f}"
                f"{found.mean():9.3f}{false.mean():19.3f}{np.median(false):9.3f}{false.max():8.3f}   {failures}"
            )
        alarms, recalls = ([run["expected"][what] for run in some] for what in ("alarms", "recall"))
        print(f"false alarms no more than expected: {sum(one <= high for _, high, one in alarms)} of {len(alarms)}")
        known = [told for told in recalls if len(told) == 3]
        print(
            f"anomalies found, between what was expected: {sum(a <= one <= b for a, b, one in known)} of {len(known)}"
        )
    print("\nmissed: fewer than a tenth of the anomalies found, AUC above 0.9")
    print("false: more than a tenth of the normal rows flagged, AUC above 0.98")
    print(versions("esad", "torch", "scikit-learn", "numpy"))


def kept_scores(options: argparse.Namespace) -> Iterator[tuple[str, str, int, str, Arrays]]:
    """Method, labels, seed, table and scores of every experiment asked for, trained where they are missing."""
    started = time.perf_counter()
    for collection, tables in part_of(table_names(), options.part).items():
        for method, labels, seed, table in (
            (m, k, s, t) for m in options.methods for k in options.labels for s in options.seeds for t in tables
        ):
            if labels == "none" and method == "bagged_trees":
                continue
            path = options.scores / f"{method}-{labels}-{seed}-{table}.npz"
            late = options.judge or (options.seconds is not None and time.perf_counter() - started > options.seconds)
            if not path.exists() and not late:
                found = scores_of(method, collection, table, labels, seed)
                np.savez(path, **(found or {}))
                print(f"{method}, {labels} labelled, seed {seed}: {table}", flush=True)
            if path.exists():
                with np.load(path) as arrays:
                    found = dict(arrays)
                if found:
                    yield method, labels, seed, table, found


def main() -> None:
    """Run what is missing, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--labels", nargs="+", choices=["1%", "3", "10", "30", "none"], default=["1%", "3", "none"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--part", choices=["dev", "last", "all"], default="all")
    parser.add_argument("--scores", type=Path, help="folder in which scores are kept")
    parser.add_argument("--judge", action="store_true", help="train nothing, judge the scores that are kept")
    parser.add_argument("--seconds", type=float, help="train nothing more after so long")
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("esad").setLevel(logging.ERROR)
    stored = [json.loads(line) for line in PATH.read_text().splitlines()] if PATH.exists() else []
    runs = {(run["method"], run["labels"], run["seed"], run["table"]): run for run in stored}
    if not options.show:
        if options.scores is None:
            parser.error("--scores FOLDER is needed to run")
        options.scores.mkdir(parents=True, exist_ok=True)
        for *key, found in kept_scores(options):
            named = dict(zip(("method", "labels", "seed", "table"), key, strict=True))
            runs[tuple(key)] = named | {"n_labelled": int((found["y"] < 0).sum())} | judged(found)
        PATH.write_text("".join(json.dumps(runs[key]) + "\n" for key in sorted(runs)))
    show([runs[key] for key in sorted(runs)], options.part)


if __name__ == "__main__":
    main()
