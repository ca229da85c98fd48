"""Measure what `esad labels` claims, on the `adbench` development tables.

    ESAD_DATA=folder python benchmarks/labels.py choose       rows to label: suggested, random, highest scores
    ESAD_DATA=folder python benchmarks/labels.py choose-none  the same, beginning without any label
    ESAD_DATA=folder python benchmarks/labels.py gain         does the 80 % interval hold what the next labels bring?
    ESAD_DATA=folder python benchmarks/labels.py audit        are planted wrong labels found?
    python benchmarks/labels.py --show                        print the stored results only

Common to all: stratified 60:40 split, at most 3,000 training rows with their natural pollution, at most 20,000 test
rows, ESAD with two members and else its defaults. The truth of training rows is an oracle that answers when asked; the
truth of test rows only judges.

choose  Three known anomalies at first (choose-none: no label at all, as a review begins). Four times ten rows are
        chosen, the oracle labels them, ESAD is trained again. Per table: AP of the test part after each round, mean of
        the seeds; and how many labels each way needs for a given AP: eight tenths of the way from the start to the best
        mean that any of the three ways reaches, interpolated between rounds. Left out beforehand: tables with fewer
        than 18 anomalies to find, and 1_ALOI, where nobody does better than chance.
gain    m known anomalies. `learning_curve` sees the training rows and these labels, and gives an 80 % interval for the
        change of AUC by N more labels. Then N hidden anomalies, drawn at random, are really labelled (labels like those
        so far), ESAD is trained again, and the change of the AUC on the test part is looked up in the interval.
audit   Ten known anomalies and ten known normal rows are labelled right; two further normal rows are labelled as
        anomalies and two further anomalies as normal. Counted: how many of the four are among the four most doubtful,
        and the AUC of suspicion for planted against right labels.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from runs import RESULTS, mean_and_error, versions
from sklearn.metrics import average_precision_score, roc_auc_score

from esad import ESAD
from esad.advice.audit import audit_labels
from esad.advice.curve import learning_curve
from esad.advice.suggest import suggest_labels
from esad.datasets.scenario import draw_natural, split
from esad.datasets.sources import adbench

FOLDER = RESULTS / "labels"
N_MEMBERS = 2
N_ROUNDS, N_EACH, N_START = 4, 10, 3
CHOOSE_TABLES = [
    "24_mnist",
    "33_skin",
    "11_donors",
    "10_cover",
    "8_celeba",
    "37_Stamps",
    "39_vertebral",
    "47_yeast",
    "46_WPBC",
]
GAIN_TABLES = ["1_ALOI", "8_celeba", "10_cover", "11_donors", "24_mnist", "33_skin", "47_yeast", "46_WPBC"]
GAIN_SIZES = [(6, 5), (10, 10), (15, 10), (6, 10), (10, 5), (8, 20), (12, 15)]  # labels so far, further ones
FIRST_FRESH = 32  # seeds from here on had no say in how wide the interval is
AUDIT_TABLES = ["8_celeba", "10_cover", "11_donors", "24_mnist", "33_skin", "47_yeast"]


class Drawn:
    """One split with the truth of both parts."""

    def __init__(self, table: str, seed: int, *, n_labelled: int) -> None:
        data = adbench.load(table)
        rng = np.random.default_rng([seed, 5])
        train, test = split(data.truth, test_ratio=0.4, seed=rng)
        drawn = draw_natural(data.truth[train], max_rows=3000, labelled_ratio=0.0, min_labelled=n_labelled, seed=rng)
        self.X, self.y, self.truth = data.X[train][drawn.rows], drawn.y, data.truth[train][drawn.rows]
        kept = rng.permutation(test)[:20_000]
        self.X_test, self.truth_test, self.rng, self.seed = data.X[kept], data.truth[kept], rng, seed

    def fit(self, y: np.ndarray) -> ESAD:
        return ESAD(n_members=N_MEMBERS, random_state=self.seed).fit(self.X, y)

    def judge(self, detector: ESAD) -> tuple[float, float]:
        scores = detector.anomaly_score(self.X_test)
        return float(roc_auc_score(self.truth_test, scores)), float(average_precision_score(self.truth_test, scores))


def _suggested(drawn: Drawn, detector: ESAD, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.array([one.row for one in suggest_labels(detector, drawn.X, y, n=N_EACH)])


def _random(drawn: Drawn, detector: ESAD, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(np.flatnonzero(y == 0))[:N_EACH]


def _highest(drawn: Drawn, detector: ESAD, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    pool = np.flatnonzero(y == 0)
    return pool[np.argsort(-detector.anomaly_score(drawn.X[pool]), kind="stable")][:N_EACH]


WAYS: dict[str, Callable[..., np.ndarray]] = {"suggested": _suggested, "random": _random, "highest": _highest}


def choose(table: str, seed: int, n_start: int = N_START) -> dict[str, Any]:
    drawn = Drawn(table, seed, n_labelled=n_start)
    first = drawn.fit(drawn.y)
    run: dict[str, Any] = {"table": table, "seed": seed, "start": round(drawn.judge(first)[1], 5)}
    for way, pick in WAYS.items():
        y, detector, rng, curve, anomalies = drawn.y.copy(), first, np.random.default_rng(seed), [], []
        for _ in range(N_ROUNDS):
            rows = pick(drawn, detector, y, rng)
            y[rows] = np.where(drawn.truth[rows], -1, 1)
            detector = drawn.fit(y)
            curve.append(round(drawn.judge(detector)[1], 5))
            anomalies.append(int((y == -1).sum()))
        run[way] = {"ap": curve, "n_anomaly": anomalies}
    return run


def gain(table: str, seed: int) -> dict[str, Any] | None:
    n_now, n_next = GAIN_SIZES[(seed + GAIN_TABLES.index(table)) % len(GAIN_SIZES)]
    if table in ("10_cover", "46_WPBC") and n_now + n_next > 25:  # they have no more anomalies
        n_now, n_next = 10, 10
    drawn = Drawn(table, seed, n_labelled=n_now)
    estimate = learning_curve(ESAD(random_state=seed), drawn.X, drawn.y, n_next=n_next).gain
    hidden = np.flatnonzero(drawn.truth & (drawn.y == 0))
    more = drawn.y.copy()
    more[drawn.rng.permutation(hidden)[:n_next]] = -1
    before, after = (drawn.judge(drawn.fit(y))[0] for y in (drawn.y, more))
    return {
        "table": table,
        "seed": seed,
        "n_now": n_now,
        "n_next": n_next,
        "estimate": round(estimate.auc, 5),
        "low": round(estimate.low, 5),
        "high": round(estimate.high, 5),
        "truth": round(after - before, 5),
    }


def audit(table: str, seed: int) -> dict[str, Any]:
    drawn = Drawn(table, seed, n_labelled=12)
    normals, anomalies = drawn.rng.permutation(np.flatnonzero(~drawn.truth)), np.flatnonzero(drawn.y == -1)
    anomalies = drawn.rng.permutation(anomalies)
    y = drawn.y.copy()
    y[normals[:10]], y[normals[10:12]], y[anomalies[10:12]] = 1, -1, 1
    planted = np.zeros(len(y), dtype=bool)
    planted[normals[10:12]] = planted[anomalies[10:12]] = True
    doubts = audit_labels(ESAD(random_state=seed), drawn.X, y)
    is_planted = np.array([planted[doubt.row] for doubt in doubts])
    suspicion = np.array([doubt.suspicion for doubt in doubts])
    found = int(is_planted[:4].sum())
    auc = round(float(roc_auc_score(is_planted, suspicion)), 4)
    return {"table": table, "seed": seed, "n_found": found, "is_first": bool(is_planted[0]), "auc": auc}


PARTS: dict[str, tuple[Callable[..., Any], list[str], list[int]]] = {
    "choose": (choose, CHOOSE_TABLES, [10, 11, 12]),
    "choose-none": (partial(choose, n_start=0), CHOOSE_TABLES, [310, 311, 312]),
    "gain": (gain, GAIN_TABLES, [20, 21, 22, 23, 24, 25, 26, 30, 31, 32]),
    "audit": (audit, AUDIT_TABLES, [0, 1, 2, 3]),
}


def stored(part: str) -> dict[tuple[str, int], Any]:
    path = FOLDER / f"{part}.json"
    return {(run["table"], run["seed"]): run for run in json.loads(path.read_text())} if path.exists() else {}


def keep(part: str, runs: dict[tuple[str, int], Any]) -> None:
    """Write the file at once: an interrupted benchmark goes on where it stopped."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    path: Path = FOLDER / f"{part}.json"
    beside = path.with_suffix(".tmp")
    beside.write_text("[\n" + ",\n".join(json.dumps(runs[key]) for key in sorted(runs)) + "\n]\n")
    beside.replace(path)


def labels_needed(curve: list[float], target: float) -> float:
    """How many labels a mean curve needs for an AP, interpolated; infinite if it never gets there."""
    for round_ in range(1, len(curve)):
        before, after = curve[round_ - 1], curve[round_]
        if before >= target:
            return N_EACH * (round_ - 1.0)
        if after >= target:
            return N_EACH * (round_ - 1 + (target - before) / (after - before))
    return float("inf")


def show_choose(part: str) -> None:
    runs, better = stored(part), 0
    tables = [table for table in CHOOSE_TABLES if any(run["table"] == table for run in runs.values())]
    print(
        f"\n{part}: AP in % at the start and after {N_ROUNDS} times {N_EACH} labels, mean ± standard error over seeds;"
    )
    print("then the AP given, and how many labels each way needs for it (suggested, random, highest)")
    for table in tables:
        own = [run for run in runs.values() if run["table"] == table]
        curves = {way: np.array([[run["start"], *run[way]["ap"]] for run in own]) for way in WAYS}
        means = {way: curve.mean(axis=0) for way, curve in curves.items()}
        start, best = means["random"][0], max(mean.max() for mean in means.values())
        needed = {way: labels_needed(mean.tolist(), start + 0.8 * (best - start)) for way, mean in means.items()}
        fewer = needed["suggested"] < min(needed["random"], needed["highest"])
        better += fewer
        finals = [mean_and_error((100 * curve[:, -1]).tolist()) for curve in curves.values()]
        cells = "".join(f"{mean:9.1f} ±{error:4.1f}" for mean, error in finals)
        counts = ", ".join(f"{needed[way]:.0f}" if np.isfinite(needed[way]) else "never" for way in WAYS)
        given = 100 * (start + 0.8 * (best - start))
        print(f"{table:14}{100 * start:7.1f} {cells}   {given:5.1f}: {counts}{'   fewest' if fewer else ''}")
    print(f"Suggested rows need the fewest labels on {better} of {len(tables)} tables")


def show_gain() -> None:
    runs = list(stored("gain").values())
    held = [run["low"] <= run["truth"] <= run["high"] for run in runs]
    widths = [run["high"] - run["low"] for run in runs]
    errors = [abs(run["truth"] - run["estimate"]) for run in runs]
    print(f"\nThe 80 % interval holds the truth in {sum(held)} of {len(runs)} repeats ({100 * np.mean(held):.0f} %);")
    fresh = [fine for run, fine in zip(runs, held, strict=True) if run["seed"] >= FIRST_FRESH]
    print(f"with seeds that its width was not chosen by: {sum(fresh)} of {len(fresh)};")
    print(f"median width {np.median(widths):.3f}, median error of the estimate {np.median(errors):.3f} (AUC)")
    for table in GAIN_TABLES:
        own = [(run, fine) for run, fine in zip(runs, held, strict=True) if run["table"] == table]
        if own:
            truth, estimate = (np.mean([run[key] for run, _ in own]) for key in ("truth", "estimate"))
            n_held = sum(fine for _, fine in own)
            print(f"{table:14} {n_held} of {len(own)}  mean gain {truth:+.3f}, mean estimate {estimate:+.3f}")


def show_audit() -> None:
    runs = stored("audit")
    print("\nFour wrong labels among 24: how many are among the four most doubtful, AUC of suspicion (mean over seeds)")
    for table in AUDIT_TABLES:
        own = [run for run in runs.values() if run["table"] == table]
        if own:
            found, auc = (np.mean([run[key] for run in own]) for key in ("n_found", "auc"))
            first = sum(run["is_first"] for run in own)
            print(f"{table:14} {found:4.1f} of 4   first {first} of {len(own)}   AUC {auc:.3f}")


def main() -> None:
    """Run what is missing of the parts asked for, then print all that is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--seeds", nargs="+", type=int)
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in [] if options.show else options.parts or list(PARTS):
        measure, tables, seeds = PARTS[part]
        runs = stored(part)
        for seed in options.seeds or seeds:
            for table in tables:
                if (table, seed) not in runs:
                    runs[table, seed] = measure(table, seed)
                    keep(part, runs)
                    print(json.dumps(runs[table, seed]), flush=True)
    for part in ("choose", "choose-none"):
        show_choose(part)
    show_gain()
    show_audit()
    print(versions("esad", "torch", "scikit-learn", "numpy"))


if __name__ == "__main__":
    main()
