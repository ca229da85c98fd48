"""Every method the benchmarks compare, behind one function: train on rows and labels, score the test rows.

Each takes the training rows, their labels (-1 anomaly, 0 unlabelled), the test rows and a seed, and returns the test
scores (higher is more anomalous) with the seconds spent in `fit`. Fairness, method by method:

* `esad` gets the raw table: its preprocessing is part of the recipe.
* DeepOD scales nothing, so its methods get the inputs ESAD's own preprocessor would make: standardised on the
  unlabelled rows and clipped to +-10. All parameters are its defaults, except the device (cpu) and silence.
* `devnet_repaired` is DeepOD's DevNet with one line changed. As released, its loss multiplies labels of shape (batch,)
  with outputs of shape (batch, 1), which broadcasts to (batch, batch) and pairs every row with every label.
* `iforest` does not see labels; the labelled anomalies are taken out of its training rows, which helps it if anything.
* `hgb` takes the labelled anomalies as positives and every unlabelled row as a negative, on the raw table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

Fitted = tuple[np.ndarray, float]


def standardise(X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scale both parts by the unlabelled training rows and clip to +-10, as ESAD does inside."""
    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    mean, std = X[y == 0].mean(axis=0), X[y == 0].std(axis=0)
    std[std == 0] = 1.0
    return np.clip((X - mean) / std, -10, 10), np.clip((X_test - mean) / std, -10, 10)


def esad(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, seed: int) -> Fitted:
    """ESAD with its default recipe."""
    from esad import ESAD

    started = time.perf_counter()
    detector = ESAD(random_state=seed).fit(X, y)
    seconds = time.perf_counter() - started
    return np.asarray(detector.anomaly_score(X_test)), seconds


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


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, int], Fitted]] = {
    "esad": esad,
    "deepsad": deepsad,
    "devnet": devnet,
    "devnet_repaired": devnet_repaired,
    "iforest": iforest,
    "hgb": hgb,
}
PACKAGE = {
    "esad": "esad",
    "deepsad": "deepod",
    "devnet": "deepod",
    "devnet_repaired": "deepod",
    "iforest": "scikit-learn",
    "hgb": "scikit-learn",
}
