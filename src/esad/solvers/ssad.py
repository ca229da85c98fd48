r"""SSAD with the RBF kernel: the convex semi-supervised one-class problem, solved to a stated duality gap.

    min   1/2 ||w||^2 - rho - kappa g + eta_u sum_i xi_i + eta_l sum_j xi_j                             Eq. (1)
    s.t.  w.phi(x_i) >= rho - xi_i,    y_j w.phi(x_j) >= y_j rho + g - xi_j,    xi >= 0,    g >= 0

    S(x) = rho - w.phi(x)                                                                               Eq. (2)

i runs over unlabelled rows, j over labelled ones. With multipliers a >= 0 of the constraints, b >= 0 of xi >= 0 and
d >= 0 of g >= 0, and y_i = +1 for unlabelled rows, the Lagrangian

    1/2 ||w||^2 - rho - kappa g + eta.xi - sum_i a_i (y_i w.phi(x_i) - y_i rho - l_i g + xi_i) - b.xi - d g

with l_i = 1 for labelled rows and 0 for the others is least where

    d/dw:    w = sum_i a_i y_i phi(x_i)            d/dg:    sum_i l_i a_i = kappa + d >= kappa
    d/drho:  sum_i a_i y_i = 1                     d/dxi:   a_i + b_i = eta_i, so 0 <= a_i <= eta_i

and what is left of it is -1/2 ||w||^2. So the dual is

    min_a 1/2 sum_ij a_i a_j y_i y_j k_ij   s.t.   sum_i a_i y_i = 1,  sum_j a_j >= kappa,  0 <= a <= eta    Eq. (3)

where the second sum is over labelled rows. `esad.solvers.working_set` solves it. eta_u = "auto" is 1 / (NU n) for n
unlabelled rows: as in nu-SVM, about a share NU of them may then lie outside. Where Eq. (3) asks for what cannot be,
Eq. (1) is unbounded; then

- without a labelled anomaly kappa is 0: at kappa = 1 known normal rows would take all the weight, sum_j a_j = 1, and
  unlabelled rows none;
- kappa is lowered to the largest sum that the bounds allow;
- bounds are raised until those of unlabelled and normal rows add up to 1;
- where all rows are known anomalies they count as unlabelled: there is nothing else to lie inside.
"""

import logging
from typing import Self

import numpy as np

from esad.core.arguments import NOT_NEGATIVE, POSITIVE, parameter, with_parameters
from esad.core.arrays import Floats, Labels, Rows
from esad.solvers.kernels import POSITIVE_OR_AUTO, SupportVectors
from esad.solvers.working_set import Dual, Solution, solve

logger = logging.getLogger("esad")
NU = 0.1


@with_parameters
class SSADArguments:
    """What SSAD is asked for, on rows or on codes.

    Parameters
    ----------
    kappa : float
        Weight of the margin that labelled rows keep; without a labelled anomaly it plays no part.
    eta_unlabelled : float or "auto"
        Cost of an unlabelled row outside. Auto: 10 / n for n of them, so that about a tenth may lie outside; at the
        cost of 1 that is common in the literature hardly any may, anomalies hidden among them included.
    eta_labelled : float
        Cost of a labelled row on the wrong side.
    gamma : float or "auto"
        Of the kernel. Auto: one over the median squared distance of two rows, or codes.
    tol : float
        Duality gap, relative to the objective, at which to stop.
    """

    kappa: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    eta_unlabelled: float | str = parameter(default="auto", allowed=POSITIVE_OR_AUTO)
    eta_labelled: float = parameter(default=1.0, allowed=POSITIVE)
    gamma: float | str = parameter(default="auto", allowed=POSITIVE_OR_AUTO)
    tol: float = parameter(default=1e-3, allowed=POSITIVE)


@with_parameters
class SSADModel(SSADArguments, SupportVectors):
    """Eqs. (2) and (3)."""

    def fit(self, rows: Rows, y: Labels, *, seed: int) -> Self:
        """Solve Eq. (3)."""
        self.width = self._choose_width(rows, seed=seed)
        dual = self._make_dual(rows, y)
        solution = solve(dual, tol=self.tol, seed=seed)
        self._report(solution)
        used = solution.weights > 0
        self.support = rows[used].astype(np.float64)
        self.weights = (solution.weights * dual.signs)[used]
        self.rho = np.array([solution.rho])
        return self

    def _make_dual(self, rows: Rows, y: Labels) -> Dual:
        """Set up Eq. (3), with eta raised and kappa lowered where no weights could fulfil it."""
        if (y < 0).all():
            y = np.zeros_like(y)
        positive = y >= 0
        eta_unlabelled = self.eta_unlabelled
        if isinstance(eta_unlabelled, str):
            eta_unlabelled = 1 / (NU * max(int((y == 0).sum()), 1))
        bounds = np.where(y == 0, eta_unlabelled, float(self.eta_labelled))
        bounds[positive] *= max(1.0, 1 / bounds[positive].sum())
        return Dual(
            rows=rows,
            signs=np.where(positive, 1.0, -1.0),
            bounds=bounds,
            labelled=(y != 0).astype(np.float64),
            kappa=self._limit_kappa(bounds, y),
            gamma=self.width,
        )

    def _limit_kappa(self, bounds: Floats, y: Labels) -> float:
        if not (y < 0).any():
            return 0.0
        anomalies = min(bounds[y < 0].sum(), bounds[y >= 0].sum() - 1)
        largest = float(anomalies + min(bounds[y > 0].sum(), 1 + anomalies))
        if self.kappa > largest:
            logger.warning("SSAD: kappa = %g is more than the labels can carry; %g is used", self.kappa, largest)
        return min(self.kappa, largest)

    def _report(self, solution: Solution) -> None:
        reached = solution.gap / max(solution.objective, np.finfo(np.float64).tiny)  # 0 where all kernels are
        say = logger.warning if reached > self.tol else logger.debug
        say("SSAD: relative duality gap %.2g after %d rounds; %.2g asked for", reached, solution.n_rounds, self.tol)
