"""A table with a known answer for the speed benchmark: any number of rows, 30 columns, 5 % anomalies.

Normal rows lie near a curved five-dimensional surface: a code from one of three Gaussian clusters goes through
tanh(code A) B plus noise. Two kinds of anomalies, half each, that no single column gives away:

* mixed: the left half of the columns comes from one normal row and the right half from another, so every column keeps
  its own distribution and only the dependence between the halves breaks;
* shifted: normal rows whose code is moved by a fixed vector, small clusters beside the normal ones, same surface.
"""

from __future__ import annotations

import numpy as np

N_COLUMNS = 30
N_CODE = 5


def normal_rows(n_rows: int, rng: np.random.Generator, *, shift: float = 0.0) -> np.ndarray:
    """Rows near the surface; the surface itself is the same for every generator."""
    shape = np.random.default_rng(7)
    centres = shape.normal(scale=1.5, size=(3, N_CODE))
    direction = shape.normal(size=N_CODE)
    A = shape.normal(scale=0.7, size=(N_CODE, 20))
    B = shape.normal(size=(20, N_COLUMNS))
    code = centres[rng.integers(3, size=n_rows)] + rng.normal(size=(n_rows, N_CODE))
    code += shift * direction / np.linalg.norm(direction)
    return np.tanh(code @ A) @ B + rng.normal(scale=0.5, size=(n_rows, N_COLUMNS))


def make(n_rows: int, *, seed: int, anomaly_ratio: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows in random order and their truth (True: anomaly)."""
    rng = np.random.default_rng(seed)
    n_anomaly = round(n_rows * anomaly_ratio)
    n_mixed = n_anomaly // 2
    left, right = normal_rows(n_mixed, rng), normal_rows(n_mixed, rng)
    mixed = np.hstack([left[:, : N_COLUMNS // 2], right[:, N_COLUMNS // 2 :]])
    shifted = normal_rows(n_anomaly - n_mixed, rng, shift=3.0)
    X = np.vstack([normal_rows(n_rows - n_anomaly, rng), mixed, shifted])
    truth = np.arange(n_rows) >= n_rows - n_anomaly
    order = rng.permutation(n_rows)
    return X[order], truth[order]


def label_some(truth: np.ndarray, n_labelled: int, *, seed: int) -> np.ndarray:
    """Show `n_labelled` of the anomalies as -1, leave every other row unlabelled (0)."""
    y = np.zeros(len(truth), dtype=np.int8)
    y[np.random.default_rng(seed).choice(np.flatnonzero(truth), n_labelled, replace=False)] = -1
    return y
