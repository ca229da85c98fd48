r"""SSAD Hybrid: SSAD on the bottleneck codes of an autoencoder.

    L    = 1/n sum_i ||Dec(z_i) - x_i||^2 / d,   z_i = Enc(x_i)                                         Eq. (1)

    min   1/2 ||w||^2 - rho - kappa g + eta_u sum_i xi_i + eta_l sum_j xi_j                             Eq. (2)
    s.t.  w.phi(z_i) >= rho - xi_i,    y_j w.phi(z_j) >= y_j rho + g - xi_j,    xi >= 0,    g >= 0

    S(x) = rho - w.phi(Enc(x))                                                                          Eq. (3)

=============  ====================================================================================
i, j           unlabelled and labelled rows in Eq. (2); in Eq. (1) all of them alike
phi            k(a, b) = phi(a).phi(b) = exp(-gamma ||a - b||^2)
g, kappa       margin that labelled rows keep from the boundary, and its weight
eta_u, eta_l   what it costs an unlabelled and a labelled row to lie on the wrong side
=============  ====================================================================================

Eq. (1) trains first, then Eq. (2) is solved on the codes: `esad.solvers.ssad`. The autoencoder sees known anomalies
too: a code that knows nothing of them could not tell them apart.
"""

from esad.core.arguments import with_parameters
from esad.core.arrays import Labels
from esad.detectors.solved import HybridDetector
from esad.solvers.ssad import SSADArguments, SSADModel
from esad.train.objective import unlabel_all

__all__ = ["SSADHybrid"]


@with_parameters
class SSADHybrid(SSADArguments, HybridDetector):
    """SSAD on the codes of an autoencoder, for tables and pictures.

    Parameters
    ----------
    ... : those of `SSADArguments` and `HybridDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(200, 4)), rng.normal(5, 1, size=(8, 4))]
    >>> y = np.zeros(208, dtype=int)
    >>> y[-4:] = -1                                            # four known anomalies, the rest unlabelled
    >>> scores = SSADHybrid(n_epochs=40, random_state=0).fit(X, y).anomaly_score(X)
    >>> bool(scores[200:204].mean() > np.median(scores))
    True
    """

    summary = "SSAD Hybrid: SSAD on the codes of an autoencoder"
    solver = SSADModel

    def _labels_seen(self, y: Labels) -> Labels:
        return unlabel_all(y)
