r"""IF Hybrid: an Isolation Forest on the bottleneck codes of an autoencoder.

    L    = 1/n sum_i ||Dec(z_i) - x_i||^2 / d,   z_i = Enc(x_i)                                         Eq. (1)

    S(x) = 2^(-E[h(Enc(x))] / c(n))                                                                     Eq. (2)

=============  ====================================================================================
i = 1 .. n     unlabelled and normal rows; known anomalies are left out
h, c           depth in a tree and its mean, see `esad.methods.iforest`
=============  ====================================================================================

Eq. (1) trains first, then the trees are grown on the codes: `esad.solvers.trees`.
"""

from esad.core.arguments import with_parameters
from esad.detectors.solved import HybridDetector
from esad.solvers.trees import ForestArguments, ForestModel

__all__ = ["IFHybrid"]


@with_parameters
class IFHybrid(ForestArguments, HybridDetector):
    """Isolation Forest on the codes of an autoencoder, for tables and pictures.

    Parameters
    ----------
    ... : those of `ForestArguments` and `HybridDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=300)
    >>> X = np.c_[t, 2 * t, -t] + rng.normal(0, 0.1, size=(300, 3))
    >>> detector = IFHybrid(n_epochs=40, random_state=0).fit(X)
    >>> bool(np.diff(detector.anomaly_score([[0, 0, 0], [6, -12, 6]]))[0] > 0)
    True
    """

    summary = "IF Hybrid: an Isolation Forest on the codes of an autoencoder"
    labels_used = ("unlabelled", "normal")
    solver = ForestModel
