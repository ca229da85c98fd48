"""One-class SVM with the RBF kernel over scikit-learn (libsvm); kept as support vectors, without pickle.

    min_a  1/2 sum_ij a_i a_j k(x_i, x_j)    s.t.  0 <= a_i <= 1/(nu n),  sum_i a_i = 1                Eq. (1)
    S(x) = rho - sum_i a_i k(x_i, x)                                                                   Eq. (2)

rho is the level that support vectors with 0 < a_i < 1/(nu n) have. k(x, x) is the same for all x, so the smallest ball
around the rows in feature space (SVDD) has its centre at the same sum_i a_i phi(x_i), and its distance from the centre
ranks rows as S does: for this kernel OC-SVM and SVDD are one method.
"""

import logging
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import OneClassSVM

from esad.core.arguments import is_positive, is_whole
from esad.errors import InputError
from esad.solvers.base import Rows, presumed_normal_rows
from esad.solvers.kernels import SupportVectors

__all__ = ["OneClassSVMModel"]

logger = logging.getLogger("esad")
CACHE_MB = 500


class OneClassSVMModel(SupportVectors):
    """Eqs. (1) and (2) on unlabelled and normal rows, at most `max_rows` of them."""

    def __init__(self, *, gamma: float | str, nu: float, max_rows: int) -> None:
        super().__init__(gamma=gamma)
        if not is_positive(nu) or nu > 1:
            raise InputError(f"`nu` must be a share above 0 and at most 1. Got {nu!r}.")
        if not is_whole(max_rows, 2):
            raise InputError(f"`max_rows` must be a whole number, 2 or more. Got {max_rows!r}.")
        self.nu, self.max_rows = float(nu), int(max_rows)

    def fit(self, rows: Rows, y: NDArray[np.int8], *, seed: int) -> Self:
        """Solve Eq. (1)."""
        used = presumed_normal_rows(rows, y).astype(np.float64)
        if len(used) > self.max_rows:
            logger.warning("OC-SVM takes %d of %d rows: its time grows with their square", self.max_rows, len(used))
            used = used[np.random.default_rng(seed).permutation(len(used))[: self.max_rows]]
        self.width = self._width(used, seed=seed)
        solved = OneClassSVM(kernel="rbf", gamma=self.width, nu=self.nu, cache_size=CACHE_MB).fit(used)
        scale = solved.dual_coef_.sum()  # libsvm's weights add up to nu n
        self.support = solved.support_vectors_
        self.weights = solved.dual_coef_[0] / scale
        self.rho = -solved.intercept_ / scale
        return self
