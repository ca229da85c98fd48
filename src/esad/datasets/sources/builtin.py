"""Data that ship with scikit-learn: nothing to download, good for a first try."""

import numpy as np

from esad.datasets.dataset import Dataset
from esad.errors import InputError

__all__ = ["NAMES", "load"]

NAMES = ("breast_cancer", "wine", "digits")


def load(name: str) -> Dataset:
    """Load one of `NAMES`.

    Examples
    --------
    >>> data = load("breast_cancer")
    >>> data.X.shape, int(data.truth.sum())
    ((569, 30), 212)
    """
    if name == "breast_cancer":
        return _breast_cancer()
    if name == "wine":
        return _wine()
    if name == "digits":
        return _digits()
    raise InputError(f"`name` must be one of {', '.join(NAMES)}. Got {name!r}.")


def _breast_cancer() -> Dataset:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    return Dataset(
        name="breast_cancer",
        X=bunch.data,
        truth=bunch.target == list(bunch.target_names).index("malignant"),
        description="Wisconsin breast cancer: 30 measures of cell nuclei; malignant = anomaly",
        columns=tuple(str(column) for column in bunch.feature_names),
    )


def _wine() -> Dataset:
    from sklearn.datasets import load_wine

    bunch = load_wine()
    return Dataset(
        name="wine",
        X=bunch.data,
        truth=bunch.target == 2,
        description="chemical analysis of wines from three cultivars; the rarest cultivar = anomaly",
        columns=tuple(str(column) for column in bunch.feature_names),
    )


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return Dataset(
        name="digits",
        X=np.round(bunch.images * (255.0 / 16.0)).astype(np.uint8),  # (n, 8, 8), stored as 0 to 16
        truth=None,
        description="handwritten digits as pictures of 8 x 8 pixels; any digit may be taken as normal",
        classes=bunch.target.astype(np.int64),
    )
