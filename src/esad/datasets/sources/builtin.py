"""Data that ship with scikit-learn: nothing to download, good for a first try."""

from typing import Final

import numpy as np

from esad.datasets.dataset import Dataset

NAMES = ("breast_cancer", "wine", "digits")

_TABLES: Final = {  # which class is the anomaly, and what it is
    "breast_cancer": ("malignant", "Wisconsin breast cancer: 30 measures of cell nuclei; malignant = anomaly"),
    "wine": ("class_2", "chemical analysis of wines from three cultivars; the rarest cultivar = anomaly"),
}


def load(name: str) -> Dataset:
    """Load one of `NAMES`.

    Examples
    --------
    >>> data = load("breast_cancer")
    >>> data.X.shape, int(data.truth.sum())
    ((569, 30), 212)
    """
    from sklearn import datasets

    if name == "digits":
        bunch = datasets.load_digits()
        return Dataset(
            name=name,
            X=np.round(bunch.images * (255.0 / 16.0)).astype(np.uint8),  # (n, 8, 8), stored as 0 to 16
            truth=None,
            description="handwritten digits as pictures of 8 x 8 pixels; any digit may be taken as normal",
            classes=bunch.target.astype(np.int64),
        )
    bunch = datasets.load_wine() if name == "wine" else datasets.load_breast_cancer()
    anomaly, description = _TABLES[name]
    is_anomaly = bunch.target == list(bunch.target_names).index(anomaly)
    columns = tuple(str(column) for column in bunch.feature_names)
    return Dataset(name=name, X=bunch.data, truth=is_anomaly, description=description, columns=columns)
