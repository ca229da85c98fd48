"""Are the reasons of `detector.explain` true? Planted columns and squares are to be found, and to matter.

    ESAD_DATA=folder python benchmarks/explain.py tables [--seeds 0 1 2]
    ESAD_DATA=folder python benchmarks/explain.py pictures [--normal 1 8]
    python benchmarks/explain.py --show

Tables: ESAD's default recipe on ADBench development tables with 1 % labels. Anomalies are planted in normal test
rows that raise no alarm: k columns (a tenth of them, 1 to 5) are shifted by 3 to 6 standard deviations ("shift") or get
the value of another normal row ("swap"; of 200 rows the 100 whose score rises most). "real" are the 100 worst true
anomalies of the test part. Measured on each: which share of the k first-ranked columns was planted, and how far the
score falls when the k first-ranked, k random or the k planted columns are put back to what was expected.

Pictures: Fashion-MNIST, one class normal, 2,000 unlabelled pictures; squares of 6 x 6 pixels, flat or of noise, planted
in test pictures. Measured: AUC of the heat map for the pixels of the square.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from runs import RESULTS, mean_and_error, versions
from sklearn.metrics import roc_auc_score

from esad import ESAD
from esad.datasets import scenario
from esad.datasets.sources import adbench, mnist

TABLES = ("10_cover", "15_Hepatitis", "37_Stamps", "39_vertebral", "42_WBC", "46_WPBC", "47_yeast")
FILE = RESULTS / "explain.json"
N_ROWS, SIDE, N_PICTURES = 100, 6, 100
Run = dict[str, Any]


def tables(seeds: list[int], names: tuple[str, ...] = TABLES) -> list[Run]:
    """One run per table, seed and kind of anomaly."""
    runs = []
    for name in names:
        for seed in seeds:
            drawn = scenario.natural(adbench.load(name), seed=seed)
            detector = ESAD(random_state=seed).fit(drawn.X_train, drawn.y_train)
            for kind in ("shift", "swap", "real"):
                run = {"table": name, "seed": seed, "kind": kind} | judge_table(detector, drawn, kind, seed)
                print(json.dumps(run), flush=True)
                runs.append(run)
    return runs


def judge_table(detector: Any, drawn: scenario.Scenario, kind: str, seed: int) -> Run:
    """Plant, explain, put back."""
    rng = np.random.default_rng(seed)
    X, planted, n_columns = real(detector, drawn) if kind == "real" else plant(detector, drawn, kind, rng)
    started = time.perf_counter()
    reasons = detector.explain(X)
    seconds = (time.perf_counter() - started) / len(X)
    ranked = np.argsort(-reasons.total, axis=1)[:, :n_columns]
    at_random = np.stack([rng.permutation(X.shape[1])[:n_columns] for _ in X])
    expected = reasons.expected.astype(float)
    before = detector.anomaly_score(X)

    def fall(chosen: np.ndarray) -> float:
        changed = X.copy()
        np.put_along_axis(changed, chosen, np.take_along_axis(expected, chosen, axis=1), axis=1)
        return round(float((before - detector.anomaly_score(changed)).mean()), 3)

    base = sum(reasons.base.values())
    run = {
        "n_rows": len(X),
        "k": n_columns,
        "of": X.shape[1],
        "score": round(float(before.mean()), 2),
        "base": round(float(base.mean()), 2),
        "fall_ranked": fall(ranked),
        "fall_random": fall(at_random),
        "ms_a_row": round(1000 * seconds, 1),
    }
    if planted is not None:
        run["found"] = round(float(np.take_along_axis(planted, ranked, axis=1).mean()), 3)
        run["fall_planted"] = fall(np.argsort(~planted, axis=1, kind="stable")[:, :n_columns])
    return run


def plant(detector: Any, drawn: scenario.Scenario, kind: str, rng: np.random.Generator) -> tuple[Any, Any, int]:
    """Normal rows with a few columns changed, and which."""
    normal = drawn.X_test[~drawn.truth_test]
    normal = normal[detector.predict(normal) > 0]
    spread = drawn.X_train.std(axis=0)
    rows = rng.choice(len(normal), 2 * N_ROWS)
    X, planted = normal[rows].astype(float), np.zeros((len(rows), normal.shape[1]), dtype=bool)
    n_columns = min(5, max(1, normal.shape[1] // 10))
    varied = np.flatnonzero(spread > 0)
    for row in range(len(X)):
        columns = rng.choice(varied, n_columns, replace=False)
        planted[row, columns] = True
        if kind == "shift":
            X[row, columns] += rng.choice([-1, 1], n_columns) * rng.uniform(3, 6, n_columns) * spread[columns]
        else:
            X[row, columns] = normal[rng.integers(len(normal), size=n_columns), columns]
    rise = detector.anomaly_score(X) - detector.anomaly_score(normal[rows])
    kept = np.argsort(-rise)[:N_ROWS] if kind == "swap" else np.arange(N_ROWS)
    return X[kept], planted[kept], n_columns


def real(detector: Any, drawn: scenario.Scenario) -> tuple[Any, None, int]:
    """The worst true anomalies."""
    X = drawn.X_test[drawn.truth_test].astype(float)
    X = X[np.argsort(-detector.anomaly_score(X))[:N_ROWS]]
    return X, None, min(5, max(1, X.shape[1] // 10))


def pictures(normals: list[int], seed: int = 0) -> list[Run]:
    """One run per normal class."""
    data = mnist.load("fashion_mnist")
    runs = []
    for normal in normals:
        drawn = scenario.images(
            data,
            normal_class=normal,
            labelled_classes=((normal + 1) % 10,),
            n_normal=2000,
            labelled_ratio=0.05,
            seed=seed,
        )
        detector = ESAD(random_state=seed).fit(drawn.X_train, drawn.y_train)
        run = {"normal": normal, "seed": seed} | judge_pictures(detector, drawn.X_test[~drawn.truth_test], seed)
        print(json.dumps(run), flush=True)
        runs.append(run)
    return runs


def judge_pictures(detector: Any, normal: np.ndarray, seed: int) -> Run:
    """Plant squares and look for them in the heat maps."""
    rng = np.random.default_rng(seed)
    changed, inside = normal[:N_PICTURES].copy(), np.zeros((N_PICTURES, *normal.shape[1:3]), dtype=bool)
    for row, picture in enumerate(changed):
        top, left = (rng.integers(2, size - SIDE - 1) for size in picture.shape)
        place = (slice(top, top + SIDE), slice(left, left + SIDE))
        flat = 255 if picture[place].mean() < 128 else 0
        picture[place] = rng.integers(0, 256, size=(SIDE, SIDE)) if row % 2 else flat
        inside[row][place] = True
    started = time.perf_counter()
    maps = detector.explain(changed)
    seconds = (time.perf_counter() - started) / len(changed)
    auc = np.array([roc_auc_score(one.ravel(), heat.ravel()) for one, heat in zip(inside, maps.heat, strict=True)])
    return {
        "n_pictures": len(changed),
        "alarms": round(float((maps.score > detector.threshold_).mean()), 3),
        "pixel_auc": round(float(auc.mean()), 3),
        "pixel_auc_flat": round(float(auc[::2].mean()), 3),
        "pixel_auc_noise": round(float(auc[1::2].mean()), 3),
        "pixel_auc_alone": {
            name: round(
                float(np.mean([roc_auc_score(i.ravel(), s.ravel()) for i, s in zip(inside, share, strict=True)])), 3
            )
            for name, share in maps.shares.items()
        },
        "ms_a_picture": round(1000 * seconds, 1),
    }


def show(found: dict[str, Any]) -> None:
    """Means over tables and seeds."""
    for kind in ("shift", "swap", "real"):
        runs = [run for run in found.get("tables", []) if run["kind"] == kind]
        if not runs:
            continue
        names = [
            name for name in ("found", "fall_ranked", "fall_random", "fall_planted", "score", "base") if name in runs[0]
        ]
        cells = ("{} {:.2f} ±{:.2f}".format(name, *mean_and_error([run[name] for run in runs])) for name in names)
        ahead = sum(run["fall_ranked"] > run["fall_random"] for run in runs)
        print(f"{kind:6} {'  '.join(cells)}  ranked ahead of random in {ahead} of {len(runs)} runs")
    for run in found.get("pictures", []):
        print(
            f"normal {run['normal']}: pixel AUC {run['pixel_auc']:.3f}, flat {run['pixel_auc_flat']:.3f}, "
            f"noise {run['pixel_auc_noise']:.3f}"
        )


def main() -> None:
    """Read the options, run, keep, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("tables", "pictures"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--normal", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    if options.what and not options.show:
        runs = tables(options.seeds) if options.what == "tables" else pictures(options.normal)
        found |= {options.what: runs, "versions": versions("esad", "torch", "numpy")}
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    show(found)


if __name__ == "__main__":
    main()
