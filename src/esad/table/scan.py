"""How much of each column is missing and whether it varies, in one pass over the data."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["scan_column", "scan_matrix"]

_BLOCK_ROWS = 4096  # a block of a few dozen columns stays in cache


def scan_column(column: NDArray[Any]) -> tuple[int, bool]:
    """Number of missing rows, and whether the others are all the same.

    Examples
    --------
    >>> scan_column(np.array(["red", None, "red"], dtype=object))
    (1, True)
    """
    if column.dtype == object:
        missing = np.array([cell is None for cell in column], dtype=bool)
    else:
        missing = np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)
    present = column[~missing] if missing.any() else column
    return int(missing.sum()), len(present) == 0 or bool((present == present[0]).all())


def scan_matrix(matrix: NDArray[Any]) -> list[tuple[int, bool]]:
    """`scan_column` for every column at once, in blocks of rows that stay in cache.

    Examples
    --------
    >>> scan_matrix(np.array([[1.0, 5.0], [2.0, np.nan]]))
    [(0, False), (1, True)]
    """
    n_rows, n_columns = matrix.shape
    n_missing = np.zeros(n_columns, dtype=np.int64)
    first = matrix[0].copy()  # first value that is not missing
    constant = np.arange(n_columns)  # columns that have not varied yet
    for start in range(0, n_rows, _BLOCK_ROWS):
        block = matrix[start : start + _BLOCK_ROWS]
        if matrix.dtype.kind == "f":
            missing = np.isnan(block)
            if missing.any():
                n_missing += np.bincount(np.nonzero(missing)[1], minlength=n_columns)
        if len(constant):
            constant = constant[~_varies(block[:, constant], first, constant)]
    is_constant = np.isin(np.arange(n_columns), constant)
    return list(zip(n_missing.tolist(), is_constant.tolist(), strict=True))


def _varies(block: NDArray[Any], first: NDArray[Any], columns: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each of the columns holds a value other than its first one, which is noted in `first` once it comes."""
    present = block == block  # not NaN
    for index in np.flatnonzero(first[columns] != first[columns]):
        first[columns[index]] = block[present[:, index].argmax(), index]
    return np.asarray(((block != first[columns]) & present).any(axis=0))
