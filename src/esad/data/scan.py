"""How much of each column is missing and whether it varies, in one pass over the data."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["scan_column", "scan_matrix"]

_BLOCK_ROWS = 4096  # a block of a few dozen columns stays in cache


def scan_column(column: NDArray[Any]) -> tuple[int, bool]:
    """Number of missing rows, and whether the others are all the same."""
    if column.dtype == object:
        missing = np.array([cell is None for cell in column], dtype=bool)
    else:
        missing = np.isnat(column) if column.dtype.kind == "M" else np.isnan(column)
    present = column[~missing] if missing.any() else column
    return int(missing.sum()), len(present) == 0 or bool((present == present[0]).all())


def scan_matrix(matrix: NDArray[Any]) -> list[tuple[int, bool]]:
    """`scan_column` for every column at once, in blocks of rows that stay in cache."""
    n_rows, n_columns = matrix.shape
    n_missing = np.zeros(n_columns, dtype=np.int64)
    varies = np.zeros(n_columns, dtype=bool)
    for start in range(0, n_rows, _BLOCK_ROWS):
        block = matrix[start : start + _BLOCK_ROWS]
        missing = np.isnan(block) if matrix.dtype.kind == "f" else None
        if missing is not None and missing.any():
            n_missing += missing.sum(axis=0)
        still = np.flatnonzero(~varies)
        if start == 0:
            varies = (block != block[:1]).any(axis=0)
        elif len(still):
            varies[still] = (block[:, still] != matrix[:1, still]).any(axis=0)
    constant = ~varies
    for index in np.flatnonzero(varies & (n_missing > 0)):  # NaN differs from everything: look again
        constant[index] = scan_column(matrix[:, index])[1]
    return list(zip(n_missing.tolist(), constant.tolist(), strict=True))
