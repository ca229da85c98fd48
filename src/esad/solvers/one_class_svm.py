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
from sklearn.svm import OneClassSVM

from esad.core.arguments import Rule, is_whole, parameter, with_parameters
from esad.core.arrays import Labels, Rows
from esad.solvers.base import SHARE, presumed_normal_rows
from esad.solvers.kernels import POSITIVE_OR_AUTO, SupportVectors

logger = logging.getLogger("esad")
CACHE_MB = 500
_ROWS = Rule("a whole number, 2 or more", lambda value: is_whole(value, 2))


@with_parameters
class OneClassSVMArguments:
    """What a one-class SVM is asked for, on rows or on codes.

    Parameters
    ----------
    gamma : float or "auto"
        Of the kernel. Auto: one over the median squared distance of two rows, or codes.
    nu : float
        Largest share of the rows that may lie outside.
    max_rows : int
        More rows than this are sampled: time grows with their square.
    """

    gamma: float | str = parameter(default="auto", allowed=POSITIVE_OR_AUTO)
    nu: float = parameter(default=0.1, allowed=SHARE)
    max_rows: int = parameter(default=30_000, allowed=_ROWS)


@with_parameters
class OneClassSVMModel(OneClassSVMArguments, SupportVectors):
    """Eqs. (1) and (2) on unlabelled and normal rows, at most `max_rows` of them."""

    def fit(self, rows: Rows, y: Labels, *, seed: int) -> Self:
        """Solve Eq. (1)."""
        used = presumed_normal_rows(rows, y).astype(np.float64)
        if len(used) > self.max_rows:
            logger.warning("OC-SVM takes %d of %d rows: its time grows with their square", self.max_rows, len(used))
            used = used[np.random.default_rng(seed).permutation(len(used))[: self.max_rows]]
        self.width = self._choose_width(used, seed=seed)
        solved = OneClassSVM(kernel="rbf", gamma=self.width, nu=float(self.nu), cache_size=CACHE_MB).fit(used)
        scale = solved.dual_coef_.sum()  # libsvm's weights add up to nu n
        self.support = solved.support_vectors_
        self.weights = solved.dual_coef_[0] / scale
        self.rho = -solved.intercept_ / scale
        return self
