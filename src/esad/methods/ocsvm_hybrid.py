r"""OC-SVM Hybrid: a one-class SVM on the bottleneck codes of an autoencoder.

    L          = 1/n sum_i ||Dec(z_i) - x_i||^2 / d,   z_i = Enc(x_i)                                   Eq. (1)
    min_w,rho  1/2 ||w||^2 - rho + 1/(nu n) sum_i max(0, rho - w.phi(z_i))                              Eq. (2)

    S(x)       = rho - w.phi(Enc(x))                                                                    Eq. (3)

=============  ====================================================================================
i = 1 .. n     unlabelled and normal rows; known anomalies are left out
phi            k(a, b) = phi(a).phi(b) = exp(-gamma ||a - b||^2)
=============  ====================================================================================

Eq. (1) trains first, then Eq. (2) is solved on the codes: `esad.solvers.one_class_svm`.
"""

from esad.core.arguments import with_parameters
from esad.detectors.solved import HybridDetector
from esad.solvers.one_class_svm import OneClassSVMArguments, OneClassSVMModel

__all__ = ["OCSVMHybrid"]


@with_parameters
class OCSVMHybrid(OneClassSVMArguments, HybridDetector):
    """One-class SVM on the codes of an autoencoder, for tables and pictures.

    Parameters
    ----------
    ... : those of `OneClassSVMArguments` and `HybridDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=300)
    >>> X = np.c_[t, 2 * t, -t] + rng.normal(0, 0.1, size=(300, 3))
    >>> detector = OCSVMHybrid(n_epochs=40, random_state=0).fit(X)
    >>> bool(np.diff(detector.anomaly_score([[0, 0, 0], [6, -12, 6]]))[0] > 0)
    True
    """

    summary = "OC-SVM Hybrid: a one-class SVM on the codes of an autoencoder"
    labels_used = ("unlabelled", "normal")
    solver = OneClassSVMModel
