"""What the benchmarks share: how a run (method, table, seed) is judged and summed up, and what software made it."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

import esad
from esad.datasets.scenario import Scenario

RESULTS = Path(__file__).parent / "results"
Run = dict[str, Any]


def judged(
    method: str,
    table: str,
    seed: int,
    drawn: Scenario,
    scores: np.ndarray,
    *,
    seconds: float,
    package: str,
) -> Run:
    """What is kept of a run."""
    return {
        "method": method,
        "table": table,
        "seed": seed,
        "auc": round(100 * float(roc_auc_score(drawn.truth_test, scores)), 3),
        "ap": round(100 * float(average_precision_score(drawn.truth_test, scores)), 3),
        "fit_s": round(seconds, 2),
        "n_train": len(drawn.y_train),
        "n_labelled": int((drawn.y_train == -1).sum()),
        "n_test": len(drawn.truth_test),
        "rows": drawn.fingerprint()[:12],
        "version": versions(package)[package],
    }


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error."""
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return float(np.mean(values)), error


def versions(*packages: str) -> dict[str, str]:
    """Name the software behind a result: Python, the machine and each package that is installed."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # the package itself may run from its sources
            found[package] = esad.__version__ if package == "esad" else "not installed"
    return found
