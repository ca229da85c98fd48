"""Run every method that takes tables on the six ODDS tables; tools/methods_docs.py shows the runs in docs/methods.md.

    ESAD_DATA=folder python benchmarks/methods_odds.py [--variants deep_sad ssad] [--tables cardio] [--jobs 2]

Protocol: leak-free 60:40 split per class, every training normal unlabelled, labelled anomalies one per cent of the
training rows (gamma_l = .01), no hidden anomalies, ten seeds. Every method has its default settings, one thread, and a
process of its own. Variants ending in `_chosen` pick kernel width and nu by the AUC on ten per cent of the test
labels, as the paper's baselines did, and are judged by the other ninety. They are marked in the table.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from runs import Store, fingerprint, judged, mean_and_error

from esad import registry
from esad.data.scenario import Scenario, table
from esad.data.sources import odds

GAMMAS = tuple(2.0**power for power in range(-7, 3))
NUS = (0.01, 0.05, 0.1, 0.2, 0.5)
CHOSEN_RATIO = 0.1  # of the test rows, whose labels the `_chosen` variants see

# name -> (method, settings, whether the kernel is chosen on test labels)
VARIANTS: dict[str, tuple[str, dict[str, Any], bool]] = {
    **{
        name: (name, {}, False)
        for name in registry.method_names()
        if "table" in registry.method(name).takes and name not in ("deep_svdd", "ss_dgm")
    },
    "deep_svdd_one_class": ("deep_svdd", {"boundary": "one-class"}, False),
    "deep_svdd_soft": ("deep_svdd", {"boundary": "soft"}, False),
    "ss_dgm_m2": ("ss_dgm", {"variant": "m2"}, False),
    "ss_dgm_m1_m2": ("ss_dgm", {"variant": "m1+m2"}, False),
    **{f"{name}_chosen": (name, {}, True) for name in ("ocsvm", "ocsvm_hybrid", "ssad", "ssad_hybrid")},
}
# The paper's table of classic benchmarks: mean and standard deviation. It takes the better of two variants.
PUBLISHED = {
    "deep_sad": {
        "arrhythmia": (75.9, 8.7),
        "cardio": (95.0, 1.6),
        "satellite": (91.5, 1.1),
        "satimage-2": (99.9, 0.1),
        "shuttle": (98.4, 0.9),
        "thyroid": (98.6, 0.9),
    },
    "ssad_hybrid": {
        "arrhythmia": (78.3, 5.1),
        "cardio": (86.3, 5.8),
        "satellite": (86.9, 2.8),
        "satimage-2": (96.8, 2.1),
        "shuttle": (97.7, 1.0),
        "thyroid": (95.3, 3.1),
    },
    "deep_svdd": {
        "arrhythmia": (74.6, 9.0),
        "cardio": (84.8, 3.6),
        "satellite": (79.8, 4.1),
        "satimage-2": (98.3, 1.4),
        "shuttle": (86.3, 7.5),
        "thyroid": (72.0, 9.7),
    },
    "ss_dgm": {
        "arrhythmia": (50.3, 9.8),
        "cardio": (66.2, 14.3),
        "satellite": (57.4, 6.4),
        "satimage-2": (99.2, 0.6),
        "shuttle": (97.9, 0.3),
        "thyroid": (72.7, 12.0),
    },
    "esad": {
        "arrhythmia": (85.2, 2.9),
        "cardio": (98.8, 0.5),
        "satellite": (92.5, 0.7),
        "satimage-2": (99.9, 0.1),
        "shuttle": (99.1, 1.1),
        "thyroid": (99.6, 0.2),
    },
}


def drawn(name: str, seed: int) -> Scenario:
    """The rows of one run."""
    return table(odds.load(name), labelled_ratio=0.01, pollution_ratio=0.0, test_ratio=0.4, seed=seed)


def one_run(variant: str, name: str, seed: int) -> dict[str, Any]:
    """Fit and judge one variant on one table and seed, in a process of its own."""
    import torch

    torch.set_num_threads(1)
    method, settings, chosen = VARIANTS[variant]
    rows = drawn(name, seed)
    detector = registry.method(method)(random_state=seed, **settings)
    test = np.arange(len(rows.truth_test))
    started = time.perf_counter()
    if chosen:
        scores, test = chosen_scores(detector, rows, seed)
    else:
        scores = detector.fit(rows.X_train, rows.y_train).anomaly_score(rows.X_test)
    seconds = time.perf_counter() - started
    return judged(variant, name, seed, rows, scores, seconds=seconds, package="esad", test=test)


def chosen_scores(detector: Any, rows: Scenario, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores with the kernel width, then nu, that suit ten per cent of the test rows best, and the other test rows."""
    is_seen = np.zeros(len(rows.truth_test), dtype=bool)
    rng = np.random.default_rng(seed)
    for truth in (False, True):  # both kinds are needed to rank at all
        members = rng.permutation(np.flatnonzero(rows.truth_test == truth))
        is_seen[members[: max(1, round(CHOSEN_RATIO * len(members)))]] = True
    best: tuple[float, np.ndarray] = (-1.0, np.empty(0))
    gamma = "auto"
    for candidate in GAMMAS:
        best, gamma = better(best, gamma, candidate, detector.set_params(gamma=candidate), rows, is_seen)
    detector.set_params(gamma=gamma)
    if "nu" in detector.get_params():
        nu = detector.nu
        for candidate in NUS:
            best, nu = better(best, nu, candidate, detector.set_params(nu=candidate), rows, is_seen)
    return best[1], np.flatnonzero(~is_seen)


def better(
    best: tuple[float, np.ndarray], value: Any, candidate: Any, detector: Any, rows: Scenario, is_seen: np.ndarray
) -> tuple[tuple[float, np.ndarray], Any]:
    """The better of what there was and the detector with the candidate, judged on the rows that may be seen."""
    from sklearn.metrics import roc_auc_score

    scores = detector.fit(rows.X_train, rows.y_train).anomaly_score(rows.X_test)
    auc = float(roc_auc_score(rows.truth_test[is_seen], scores[is_seen]))
    return ((auc, scores), candidate) if auc > best[0] else (best, value)


def missing(store: Store, options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """What is to be run, the longest first."""
    for name in sorted(options.tables, key=lambda name: name != "shuttle"):
        for seed in options.seeds:
            rows = fingerprint(drawn(name, seed))
            for variant in options.variants:
                if options.rerun or not store.get(variant, name, seed, rows=rows):
                    yield variant, name, seed


def show_bars(store: Store) -> bool:
    """Print each mean beside the published mean less two standard deviations; say whether all are reached."""
    all_reached = True
    for method in ("deep_sad", "ssad_hybrid", "deep_svdd", "ss_dgm"):
        variants = [name for name, (own, _, _) in VARIANTS.items() if own == method]
        for name in odds.NAMES:
            mean, spread = PUBLISHED[method][name]
            means = {
                variant: mean_and_error([run["auc"] for run in store.of(variant, name)])[0]
                for variant in variants
                if store.of(variant, name)
            }
            if not means:
                continue
            best = max(means, key=lambda variant: means[variant])
            reached = means[best] >= mean - 2 * spread
            all_reached &= reached
            shown = ", ".join(f"{variant} {value:.1f}" for variant, value in means.items())
            print(f"{name:12} bar {mean - 2 * spread:5.1f}  {'reached' if reached else 'MISSED'}  {shown}")
    return all_reached


def main() -> None:
    """Read the options, run what is missing, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--tables", nargs="+", choices=odds.NAMES, default=list(odds.NAMES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--rerun", action="store_true", help="run again though stored")
    parser.add_argument("--show", action="store_true", help="run nothing, print the bars")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    store = Store("methods_odds", methods=VARIANTS)
    if not options.show:
        cells = list(missing(store, options))
        for run in Parallel(n_jobs=options.jobs, return_as="generator_unordered")(
            delayed(one_run)(*cell) for cell in cells
        ):
            store.put(run)
            print(f"{run['table']:12} seed {run['seed']}  {run['method']:22} AUC {run['auc']:6.2f}", flush=True)
    raise SystemExit(0 if show_bars(store) else 1)


if __name__ == "__main__":
    main()
