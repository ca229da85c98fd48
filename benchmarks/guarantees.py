"""Do p-values hold their level, and lists their false-discovery rate, on real rows?

    ESAD_DATA=folder python benchmarks/guarantees.py [--draws 200]

From each of three development tables, 600 training rows, 500 calibration rows and 1,000 new rows (50 of them anomalies)
are drawn without replacement, again and again. Training and calibration rows hide a share of anomalies. Printed: the
share of new normal rows with p <= 0.05, the share of false rows among the discoveries at a rate of 0.2, and the share
of anomalies found.
"""

from __future__ import annotations

import argparse

import numpy as np

from esad import IsolationForest, discoveries
from esad.datasets.sources import adbench

TABLES = ("10_cover", "16_http", "24_mnist")
N_TRAIN, N_CALIBRATION, N_NEW, N_NEW_ODD = 600, 500, 1000, 50
ALPHA, RATE, POLLUTION = 0.05, 0.2, 0.05


def draw(rng: np.random.Generator, normal: np.ndarray, odd: np.ndarray, pollution: float) -> tuple[np.ndarray, ...]:
    """Training, calibration and new rows, anomalies last in each."""
    n_odd = [round(pollution * N_TRAIN), round(pollution * N_CALIBRATION), N_NEW_ODD]
    n_normal = [n - k for n, k in zip((N_TRAIN, N_CALIBRATION, N_NEW), n_odd, strict=True)]
    normal_parts = np.split(rng.permutation(len(normal))[: sum(n_normal)], np.cumsum(n_normal)[:-1])
    odd_parts = np.split(rng.permutation(len(odd))[: sum(n_odd)], np.cumsum(n_odd)[:-1])
    return tuple(np.r_[normal[a], odd[b]] for a, b in zip(normal_parts, odd_parts, strict=True))


def calibrated(forest: IsolationForest, way: str, rows: np.ndarray) -> IsolationForest:
    """Calibrate the forest in one of the ways that the page on guarantees describes."""
    n_odd = round(POLLUTION * len(rows))
    if way in ("clean", "polluted"):
        return forest.calibrate(rows)
    if way == "cut off":
        return forest.calibrate(rows, pollution_ratio=POLLUTION)
    y = np.zeros(len(rows), dtype=int)  # the suspects are looked at: as many as there are anomalies
    suspects = np.argsort(-forest.anomaly_score(rows))[:n_odd]
    y[suspects[suspects >= len(rows) - n_odd]] = -1
    return forest.calibrate(rows, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    n_draws = parser.parse_args().draws
    print(f"{'table':10}{'calibration':20}{'p <= 0.05':>12}{'false at 0.2':>14}{'found':>8}")
    for table in TABLES:
        data = adbench.load(table)
        normal, odd = data.X[~data.truth], data.X[data.truth]
        found: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(n_draws):
            rng = np.random.default_rng(seed)
            for pollution, ways in ((0.0, ["clean"]), (POLLUTION, ["polluted", "suspects labelled", "cut off"])):
                train, calibration, new = draw(rng, normal, odd, pollution)
                forest = IsolationForest(n_trees=50, random_state=seed).fit(train)
                for way in ways:
                    p_values = calibrated(forest, way, calibration).p_value(new)
                    flagged = discoveries(p_values, RATE)
                    false = flagged[:-N_NEW_ODD].sum() / max(flagged.sum(), 1)
                    level = np.mean(p_values[:-N_NEW_ODD] <= ALPHA)
                    found.setdefault(way, []).append((level, false, flagged[-N_NEW_ODD:].mean()))
        for way, runs in found.items():
            means, errors = np.mean(runs, axis=0), np.std(runs, axis=0) / np.sqrt(n_draws)
            cells = [f"{100 * mean:.1f} ± {100 * error:.1f}" for mean, error in zip(means, errors, strict=True)]
            print(f"{table:10}{way:20}{cells[0]:>12}{cells[1]:>14}{cells[2]:>12}")


if __name__ == "__main__":
    main()
