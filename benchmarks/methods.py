"""Every method the benchmarks compare, behind one function: train on rows and labels, score the test rows.

Each takes the training rows, their labels (-1 anomaly, 0 unlabelled), the test rows and a seed, and returns the test
scores (higher is more anomalous) with the seconds spent in `fit`. Fairness, method by method:

* `esad`, `bagged_trees`, `committee` and `deep_sad_five` (ours, with ESAD's five members) get the raw table: their
  preprocessing is part of the recipe.
* DeepOD scales nothing, so its methods get the inputs ESAD's own preprocessor would make: standardised on the
  unlabelled rows and clipped to +-10. All parameters are its defaults, except the device (cpu) and silence, and
  that RoSAS, which draws its batches of 128 from the unlabelled rows, has smaller ones where there are fewer.
* `devnet_repaired` is DeepOD's DevNet with one line changed. As released, its loss multiplies labels of shape (batch,)
  with outputs of shape (batch, 1), which broadcasts to (batch, batch) and pairs every row with every label.
* `iforest` does not see labels; the labelled anomalies are taken out of its training rows, which helps it if anything.
* `hgb`, `extra_trees`, `random_forest` and `pu_bagging` take the labelled anomalies as positives and unlabelled rows as
  negatives, on the raw table; the two forests have 300 trees, leaves of two rows and balanced weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Fitted = tuple[np.ndarray, float]

FOREST = {"n_estimators": 300, "min_samples_leaf": 2, "class_weight": "balanced_subsample"}


def standardise(X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale both parts by the unlabelled training rows and clip to +-10, as ESAD does inside."""
    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    mean, std = X[y == 0].mean(axis=0), X[y == 0].std(axis=0)
    std[std == 0] = 1.0
    return np.clip((X - mean) / std, -10, 10), np.clip((X_test - mean) / std, -10, 10)


def _ours(detector: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> Fitted:
    """A detector of this package, on the raw table."""
    started = time.perf_counter()
    detector.fit(X, y)
    seconds = time.perf_counter() - started
    return np.asarray(detector.anomaly_score(X_test)), seconds


def esad(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """ESAD with its default recipe."""
    from esad import ESAD

    return _ours(ESAD(random_state=seed), X, y, X_test)


def bagged_trees(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """Our bagged trees."""
    from esad import BaggedTrees

    return _ours(BaggedTrees(random_state=seed), X, y, X_test)


def committee(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """ESAD and bagged trees together."""
    from esad import Committee

    return _ours(Committee(random_state=seed), X, y, X_test)


def deep_sad_five(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """Our Deep SAD, with as many members as ESAD."""
    from esad import DeepSAD

    return _ours(DeepSAD(n_members=5, random_state=seed), X, y, X_test)


def _deepod(make: Callable[..., Any], X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """Run a DeepOD method: it wants scaled floats and y = 1 for labelled anomalies, 0 otherwise."""
    X, X_test = standardise(X, y, X_test)
    started = time.perf_counter()
    detector = make(device="cpu", verbose=0, random_state=seed).fit(X, (y == -1).astype(np.int64))
    seconds = time.perf_counter() - started
    return np.asarray(detector.decision_function(X_test)), seconds


def deepsad(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """DeepOD's Deep SAD."""
    from deepod.models.tabular import DeepSAD

    return _deepod(DeepSAD, X, y, X_test, seed)


def rosas(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """DeepOD's RoSAS."""
    from deepod.models.tabular import RoSAS

    n_unlabelled = int((y == 0).sum())
    return _deepod(partial(RoSAS, batch_size=min(128, n_unlabelled)), X, y, X_test, seed)


def devnet(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """DeepOD's DevNet as released."""
    from deepod.models.tabular import DevNet

    return _deepod(DevNet, X, y, X_test, seed)


def devnet_repaired(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """DeepOD's DevNet with labels and outputs of one shape."""
    from deepod.models.tabular import DevNet

    class RepairedDevNet(DevNet):  # type: ignore[misc]
        def training_forward(self, batch_x: Any, net: Any, criterion: Any) -> Any:
            rows, labels = batch_x
            return criterion(labels, net(rows.float()).view(-1))

    return _deepod(RepairedDevNet, X, y, X_test, seed)


def iforest(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """scikit-learn's IsolationForest."""
    from sklearn.ensemble import IsolationForest

    started = time.perf_counter()
    forest = IsolationForest(random_state=seed).fit(X[y == 0])
    seconds = time.perf_counter() - started
    return -forest.score_samples(X_test), seconds


def hgb(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """scikit-learn's HistGradientBoostingClassifier, unlabelled rows as negatives."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    started = time.perf_counter()
    trees = HistGradientBoostingClassifier(random_state=seed).fit(X, y == -1)
    seconds = time.perf_counter() - started
    return trees.decision_function(X_test), seconds


def extra_trees(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """scikit-learn's ExtraTreesClassifier, unlabelled rows as negatives, balanced."""
    from sklearn.ensemble import ExtraTreesClassifier

    return _forest(ExtraTreesClassifier(max_features=0.5, bootstrap=True, **FOREST, random_state=seed), X, y, X_test)


def random_forest(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """scikit-learn's RandomForestClassifier, unlabelled rows as negatives, balanced."""
    from sklearn.ensemble import RandomForestClassifier

    return _forest(RandomForestClassifier(**FOREST, random_state=seed), X, y, X_test)


def pu_bagging(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """Two thirds of the labelled anomalies against four times as many unlabelled rows, 60 times, by extra trees."""
    from sklearn.ensemble import ExtraTreesClassifier

    X, X_test = (np.where(np.isfinite(part), part, np.nan) for part in (X, X_test))
    rng, started, forests = np.random.default_rng(seed), time.perf_counter(), []
    unlabelled, anomalies = np.flatnonzero(y == 0), np.flatnonzero(y == -1)
    for number in range(60):
        others = rng.choice(unlabelled, min(len(unlabelled) * 2 // 3, max(64, 4 * len(anomalies))), replace=False)
        few = len(anomalies) < 6
        known = anomalies if few else rng.choice(anomalies, max(3, len(anomalies) * 2 // 3), replace=False)
        bag = np.concatenate([known, others])
        forest = ExtraTreesClassifier(8, max_features=1.0, class_weight="balanced", random_state=number)
        forests.append(forest.fit(X[bag], y[bag] == -1))
    seconds = time.perf_counter() - started
    return np.mean([forest.predict_proba(X_test)[:, 1] for forest in forests], axis=0), seconds


def _forest(forest: Any, X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> Fitted:
    """A forest on the raw table; infinite cells count as missing, which it takes."""
    X, X_test = (np.where(np.isfinite(part), part, np.nan) for part in (X, X_test))
    started = time.perf_counter()
    forest.fit(X, y == -1)
    seconds = time.perf_counter() - started
    return forest.predict_proba(X_test)[:, 1], seconds


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, int], Fitted]] = {
    "esad": esad,
    "bagged_trees": bagged_trees,
    "committee": committee,
    "deep_sad_five": deep_sad_five,
    "deepsad": deepsad,
    "rosas": rosas,
    "devnet": devnet,
    "devnet_repaired": devnet_repaired,
    "iforest": iforest,
    "hgb": hgb,
    "extra_trees": extra_trees,
    "random_forest": random_forest,
    "pu_bagging": pu_bagging,
}
OURS = ("esad", "bagged_trees", "committee", "deep_sad_five")
DEEPOD = ("deepsad", "rosas", "devnet", "devnet_repaired")
PACKAGE = {name: "esad" if name in OURS else "deepod" if name in DEEPOD else "scikit-learn" for name in METHODS}
