"""Downloaded tables are held against what is known of them from the literature."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.errors import DataFileError

__all__ = ["check_table"]


def check_table(
    path: Path, X: NDArray[Any], y: NDArray[Any], counts: tuple[int, int, int]
) -> dict[str, NDArray[np.float64] | NDArray[np.uint8]]:
    """Refuse a table whose numbers of rows, columns and anomalies are not the known ones; give it in one form.

    Examples
    --------
    >>> check_table(Path("t.mat"), np.eye(2), np.array([0, 1]), (2, 2, 1))["y"].tolist()
    [0, 1]
    >>> check_table(Path("t.mat"), np.eye(2), np.array([1, 1]), (2, 2, 1))
    Traceback (most recent call last):
    esad.errors.DataFileError: t.mat must have 2 rows, 2 columns and 1 anomalies. Got 2, 2 and 2.
    """
    if X.ndim != 2 or y.shape != X.shape[:1] or not np.issubdtype(X.dtype, np.number) or not np.isin(y, (0, 1)).all():
        raise DataFileError(f"{path} must hold a table `X` of numbers and a truth `y` of 0 and 1 for its rows.")
    got = (*X.shape, int(np.sum(y)))
    if got != counts:
        raise DataFileError(
            f"{path} must have {counts[0]} rows, {counts[1]} columns and {counts[2]} anomalies. "
            f"Got {got[0]}, {got[1]} and {got[2]}."
        )
    return {"X": X.astype(np.float64), "y": y.astype(np.uint8)}
