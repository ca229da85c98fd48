"""The Gaussian (RBF) kernel k(a, b) = exp(-gamma ||a - b||^2), and scores by support vectors.

The kernel is taken in blocks: never a matrix of all rows by all rows.
"""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esad.core.arguments import Rule, is_positive
from esad.core.arrays import Arrays, Rows, Scores, State
from esad.errors import ModelFileError
from esad.solvers.base import RowModel, check_arrays

Matrix = NDArray[np.float64]

BLOCK_ROWS = 128  # scored at a time
BLOCK_SUPPORT = 1024
POSITIVE_OR_AUTO = Rule("a number above 0 or 'auto'", is_positive, ("auto",))
N_PAIRS = 2000  # of rows, whose distances the automatic width is read from


def kernel(a: NDArray[Any], b: NDArray[Any], gamma: float) -> Matrix:
    """k of every row of `a` with every row of `b`, (len(a), len(b)).

    Examples
    --------
    >>> kernel(np.array([[0.0], [1.0]]), np.array([[0.0]]), gamma=1.0).round(3).tolist()
    [[1.0], [0.368]]
    """
    a, b = a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)
    squared: Matrix = a @ b.T  # every step in place, because allocating memory takes most of the time
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


class SupportVectors(RowModel):
    """S(x) = rho - sum_s weights_s k(x, support_s); `fit` finds the support vectors, their weights and rho.

    A model of its kind declares its arguments, `gamma` among them: `POSITIVE_OR_AUTO`.

    Attributes
    ----------
    support : ndarray of float64, (n, features)
    weights : ndarray of float64, (n,)
    rho : ndarray of float64, (1,)
    width : float
        The kernel's gamma.
    """

    gamma: float | str
    support: NDArray[np.float64]
    weights: NDArray[np.float64]
    rho: NDArray[np.float64]
    width: float

    def _choose_width(self, rows: NDArray[Any], *, seed: int) -> float:
        """The width asked for, or the one that suits the rows."""
        return median_gamma(rows, seed=seed) if isinstance(self.gamma, str) else float(self.gamma)

    def score(self, rows: Rows) -> Scores:
        """S, as written above."""
        return np.asarray(self.rho - kernel_sum(rows, self.support, self.weights, self.width))

    def module(self) -> nn.Module:
        """S as a torch module."""
        return _KernelScore(self.support, self.weights, self.rho, gamma=self.width)

    def state(self) -> State:
        """The support vectors with their weights, negative for known anomalies."""
        return {"support": self.support, "weights": self.weights, "rho": self.rho}, {"gamma": self.width}

    def restore(self, arrays: Arrays, plain: Any, *, n_features: int) -> Self:
        """Take back support vectors that fit together."""
        check_arrays(arrays, {"support": (-1, n_features), "weights": (-1,), "rho": (1,)})
        if len(arrays["support"]) != len(arrays["weights"]):
            raise ModelFileError("its support vectors and their weights differ in number")
        if not isinstance(plain, dict) or plain.keys() != {"gamma"} or not is_positive(plain["gamma"]):
            raise ModelFileError("its kernel width must be a number above 0")
        self.support, self.weights, self.rho = arrays["support"], arrays["weights"], arrays["rho"]
        self.width = float(plain["gamma"])
        return self


class _KernelScore(nn.Module):
    """rho - sum_s weights_s exp(-gamma ||x - support_s||^2)."""

    support: Tensor
    weights: Tensor
    rho: Tensor
    gamma: Tensor

    def __init__(self, support: NDArray[Any], weights: NDArray[Any], rho: NDArray[Any], *, gamma: float) -> None:
        super().__init__()
        constants = {"support": support, "weights": weights, "rho": rho, "gamma": gamma}
        for name, array in constants.items():  # buffers: torch writes plain numbers into ONNX files as float32
            self.register_buffer(name, torch.from_numpy(np.array(array, dtype=np.float64)))

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """The score by its name."""
        x = rows.double()
        squared = x.square().sum(1)[:, None] + self.support.square().sum(1) - 2 * (x @ self.support.T)
        return {"score": (self.rho - (-self.gamma * squared.clamp(min=0)).exp() @ self.weights)[None]}
