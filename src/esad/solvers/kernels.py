"""The Gaussian (RBF) kernel k(a, b) = exp(-gamma ||a - b||^2), in blocks: never a matrix of all rows by all rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arguments import is_positive
from esad.errors import InputError

__all__ = ["check_gamma", "kernel", "kernel_sum", "median_gamma"]

Matrix = NDArray[np.float64]

BLOCK_ROWS = 128  # scored at a time
BLOCK_SUPPORT = 1024
N_PAIRS = 2000  # of rows, whose distances the automatic width is read from


def kernel(a: NDArray[Any], b: NDArray[Any], gamma: float) -> Matrix:
    """k of every row of `a` with every row of `b`, (len(a), len(b)).

    Examples
    --------
    >>> kernel(np.array([[0.0], [1.0]]), np.array([[0.0]]), gamma=1.0).round(3).tolist()
    [[1.0], [0.368]]
    """
    a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
    squared: Matrix = a @ b.T  # every step in place: memory is what takes the time
    squared *= -2
    squared += np.square(a).sum(1)[:, None]
    squared += np.square(b).sum(1)
    np.maximum(squared, 0, out=squared)
    squared *= -gamma
    return np.exp(squared, out=squared)


def kernel_sum(rows: NDArray[Any], support: NDArray[Any], weights: NDArray[Any], gamma: float) -> NDArray[np.float64]:
    """sum_s weights_s k(row, support_s) for every row, in blocks of rows and of supports.

    All blocks of rows have the same size, the last one padded: arithmetic then rounds the same way for every row, so
    the sum does not depend on the rows beside it.
    """
    total = np.zeros(len(rows))
    for first in range(0, len(rows), BLOCK_ROWS):
        block = rows[first : first + BLOCK_ROWS]
        n_rows = len(block)
        block = np.pad(block, ((0, BLOCK_ROWS - n_rows), (0, 0)))
        for start in range(0, len(support), BLOCK_SUPPORT):
            part = slice(start, start + BLOCK_SUPPORT)
            total[first : first + n_rows] += (kernel(block, support[part], gamma) @ weights[part])[:n_rows]
    return total


def median_gamma(rows: NDArray[Any], *, seed: int) -> float:
    """1 / the median squared distance of two rows: the kernel of an ordinary pair is exp(-1).

    Looks at no label. Rows that are all the same get 1.
    """
    pairs = np.random.default_rng(seed).integers(len(rows), size=(2, N_PAIRS))
    a, b = (rows[index].astype(np.float64) for index in pairs)
    squared = np.square(a - b).sum(1)
    apart = squared[squared > 0]
    return float(1 / np.median(apart)) if len(apart) else 1.0


def check_gamma(gamma: Any) -> None:
    """Refuse a width that is neither a number above 0 nor "auto"."""
    if not is_positive(gamma) and not (isinstance(gamma, str) and gamma == "auto"):
        raise InputError(f"`gamma` must be a number above 0 or 'auto'. Got {gamma!r}.")
