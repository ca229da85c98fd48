"""What models made of support vectors share: S(x) = rho - sum_s weights_s k(x, support_s)."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from esad.core.arguments import is_positive
from esad.errors import ModelFileError
from esad.solvers.base import RowModel, Rows, Scores, State, check_arrays
from esad.solvers.kernels import check_gamma, kernel_sum, median_gamma
from esad.solvers.tensors import KernelScore

__all__ = ["SupportVectors"]


class SupportVectors(RowModel):
    """A score by support vectors; `fit` finds them, their weights and rho.

    Attributes
    ----------
    support : ndarray of float64, (n, features)
    weights : ndarray of float64, (n,)
    rho : ndarray of float64, (1,)
    width : float
        The kernel's gamma.
    """

    support: NDArray[np.float64]
    weights: NDArray[np.float64]
    rho: NDArray[np.float64]
    width: float

    def __init__(self, *, gamma: float | str) -> None:
        check_gamma(gamma)
        self.gamma = gamma

    def _width(self, rows: NDArray[Any], *, seed: int) -> float:
        """The width asked for, or the one that suits the rows."""
        return median_gamma(rows, seed=seed) if isinstance(self.gamma, str) else float(self.gamma)

    def score(self, rows: Rows) -> Scores:
        """S, as written above."""
        return np.asarray(self.rho - kernel_sum(rows, self.support, self.weights, self.width))

    def module(self) -> KernelScore:
        """S as a torch module."""
        return KernelScore(self.support, self.weights, self.rho, gamma=self.width)

    def state(self) -> State:
        """The support vectors with their weights, negative for known anomalies."""
        return {"support": self.support, "weights": self.weights, "rho": self.rho}, {"gamma": self.width}

    def restore(self, arrays: dict[str, NDArray[Any]], plain: Any, *, n_features: int) -> Self:
        """Take back support vectors that fit together."""
        check_arrays(arrays, {"support": (-1, n_features), "weights": (-1,), "rho": (1,)})
        if len(arrays["support"]) != len(arrays["weights"]):
            raise ModelFileError("its support vectors and their weights differ in number")
        if not isinstance(plain, dict) or plain.keys() != {"gamma"} or not is_positive(plain["gamma"]):
            raise ModelFileError("its kernel width must be a number above 0")
        self.support, self.weights, self.rho = arrays["support"], arrays["weights"], arrays["rho"]
        self.width = float(plain["gamma"])
        return self
