r"""OC-SVM (Schoelkopf et al. 2001), for this kernel the same as SVDD (Tax and Duin 2004): few rows lie outside a ball.

    min_w,rho  1/2 ||w||^2 - rho + 1/(nu n) sum_i max(0, rho - w.phi(x_i))                              Eq. (1)
    k(a, b)    = phi(a).phi(b) = exp(-gamma ||a - b||^2)                                                Eq. (2)

    S(x)       = rho - w.phi(x)                                                                         Eq. (3)

=============  ====================================================================================
i = 1 .. n     unlabelled and normal rows; known anomalies are left out
nu             at most this share of the rows lies outside, at least this share are support vectors
gamma          inverse squared width of the kernel
=============  ====================================================================================

`esad.solvers.one_class_svm` states the dual and says why SVDD is the same. The paper tries gamma = 2^-7 .. 2^2 and
nu = .01 .. .5 on test labels; "auto" looks at no label.
"""

from esad.core.arguments import with_parameters
from esad.detectors.solved import ShallowDetector
from esad.solvers.one_class_svm import OneClassSVMArguments, OneClassSVMModel

__all__ = ["OCSVM"]


@with_parameters
class OCSVM(OneClassSVMArguments, ShallowDetector):
    """One-class SVM with the RBF kernel; of pictures it sees the pixels in a row.

    Parameters
    ----------
    ... : those of `OneClassSVMArguments` and `ShallowDetector`

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> detector = OCSVM(random_state=0).fit(X)
    >>> bool(detector.anomaly_score([[9, 9, 9]])[0] > detector.anomaly_score([[0, 0, 0]])[0])
    True
    """

    summary = "One-class SVM, for the RBF kernel the same as SVDD (Schoelkopf et al. 2001)"
    labels_used = ("unlabelled", "normal")
    solver = OneClassSVMModel
