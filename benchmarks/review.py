"""Measure the loop of `esad review`: from 0 to 30 labels, chosen by the page's queue, on `adbench` development tables.

    ESAD_DATA=folder python benchmarks/review.py TABLE ...    run what is not stored yet
    python benchmarks/review.py --show                        print the stored results only

Stratified 60:40 split, at most 3,000 training rows with their natural pollution and no label, at most 20,000 test rows,
ESAD with two members and else its defaults, four seeds. Three times the queue of the page gives ten rows, the truth of
the training rows answers for the reviewer, and the model is fitted again: once from the old weights (warm, half the
steps, as the page does) and, for comparison, with the same labels from the beginning (cold). The queue follows the warm
model. The truth of test rows only judges.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np
from labels import Drawn
from runs import RESULTS, versions

from esad.advice.suggest import find_border
from esad.review.queue import BATCH, Queue
from esad.review.refit import refit_detector

FOLDER = RESULTS / "review"
TABLES = ["24_mnist", "33_skin", "39_vertebral", "10_cover"]
N_ROUNDS, N_EACH = 3, 10
SEEDS = (0, 1, 2, 3)


def measure(table: str, seed: int) -> dict[str, object]:
    """One table and seed: AUC and AP of the test part after 0, 10, 20 and 30 labels."""
    drawn = Drawn(table, seed, n_labelled=0)
    y = np.zeros(len(drawn.X), dtype=np.int8)
    began = time.perf_counter()
    detector = drawn.fit(y)
    seconds = {"first": time.perf_counter() - began, "warm": [], "cold": []}
    points = [{"n_labels": 0, "n_anomalies": 0, "warm": drawn.judge(detector), "cold": drawn.judge(detector)}]
    for _ in range(N_ROUNDS):
        rows = detector.rows_of(drawn.X)
        scores = detector.anomaly_score(drawn.X)
        where = find_border(scores, y, threshold=detector.threshold_, n=BATCH)
        queue = Queue(scores, border=where, rows_of=rows.__getitem__)
        for one in queue.take("oracle", N_EACH, is_open=y == 0):
            y[one.row] = -1 if drawn.truth[one.row] else 1
        judged = {}
        for name, warm in (("cold", False), ("warm", True)):
            began = time.perf_counter()
            new, _ = refit_detector(detector, drawn.X, y, warm=warm)
            seconds[name].append(time.perf_counter() - began)
            judged[name] = drawn.judge(new)
        detector = new  # the warm one
        points.append({"n_labels": int((y != 0).sum()), "n_anomalies": int((y < 0).sum())} | judged)
    return {
        "table": table,
        "seed": seed,
        "n_train": len(y),
        "n_hidden": int(drawn.truth.sum()),
        "points": points,
        "seconds": seconds,
        "versions": versions(),
    }


def show() -> None:
    """The stored results as a table in Markdown: AUC / AP in %, mean of the seeds."""
    print("| table | labels | anomalies among them | AUC / AP warm | AUC / AP cold |")
    print("| --- | --- | --- | --- | --- |")
    for table in TABLES:
        runs = [json.loads(path.read_text()) for path in sorted(FOLDER.glob(f"{table}-*.json"))]
        for points in zip(*(run["points"] for run in runs), strict=True):
            cells = [table, str(points[0]["n_labels"]), f"{np.mean([p['n_anomalies'] for p in points]):.1f}"]
            for name in ("warm", "cold"):
                auc, ap = 100 * np.mean([p[name] for p in points], axis=0)
                cells.append(f"{auc:.1f} / {ap:.1f}")
            print("| " + " | ".join(cells) + " |")
        for name in ("warm", "cold"):
            spent = [second for run in runs for second in run["seconds"][name]]
            if spent:
                print(f"<!-- {table} {name}: {np.mean(spent):.1f} s a refit -->")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", default=TABLES)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for table in [] if arguments.show else arguments.tables:
        for seed in SEEDS:
            path = FOLDER / f"{table}-{seed}.json"
            if not path.exists():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    path.write_text(json.dumps(measure(table, seed), indent=1) + "\n")
    show()


if __name__ == "__main__":
    main()
