r"""SSAD (Goernitz et al. 2013): a one-class SVM that also keeps known normal rows inside and known anomalies outside.

    min   1/2 ||w||^2 - rho - kappa g + eta_u sum_i xi_i + eta_l sum_j xi_j                             Eq. (1)
    s.t.  w.phi(x_i) >= rho - xi_i,    y_j w.phi(x_j) >= y_j rho + g - xi_j,    xi >= 0,    g >= 0

    k(a, b) = phi(a).phi(b) = exp(-gamma ||a - b||^2)                                                   Eq. (2)

    S(x)    = rho - w.phi(x)                                                                            Eq. (3)

=============  ====================================================================================
i = 1 .. n     unlabelled rows, almost all of them normal
j = 1 .. m     labelled rows, y_j = -1 anomaly, +1 normal
g, kappa       margin that labelled rows keep from the boundary, and its weight
eta_u, eta_l   what it costs an unlabelled and a labelled row to lie on the wrong side
gamma          inverse squared width of the kernel
=============  ====================================================================================

`esad.solvers.ssad` derives the dual and says what happens where labels are missing; `esad.solvers.working_set`
solves it for tens of thousands of rows, to a duality gap of `tol`.
"""

from esad.core.arguments import with_parameters
from esad.detectors.solved import ShallowDetector
from esad.solvers.ssad import SSADArguments, SSADModel

__all__ = ["SSAD"]


@with_parameters
class SSAD(SSADArguments, ShallowDetector):
    """Semi-supervised one-class SVM with the RBF kernel; of pictures it sees the pixels in a row.

    Parameters
    ----------
    ... : those of `SSADArguments` and `ShallowDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(200, 4)), rng.normal(3, 1, size=(8, 4))]
    >>> y = np.zeros(208, dtype=int)
    >>> y[-4:] = -1                                            # four known anomalies, the rest unlabelled
    >>> scores = SSAD(random_state=0).fit(X, y).anomaly_score(X)
    >>> bool(scores[200:204].min() > np.median(scores))
    True
    """

    summary = "SSAD: a one-class SVM with labelled rows on their sides of the boundary (Goernitz et al. 2013)"
    solver = SSADModel
