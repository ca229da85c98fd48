r"""Autoencoder, for pictures the convolutional CAE (Masci et al. 2011): what is rebuilt badly is anomalous.

    L    = 1/n sum_i ||Dec(Enc(x_i)) - x_i||^2 / d                                                      Eq. (1)
    S(x) = ||Dec(Enc(x)) - x||^2 / d                                                                    Eq. (2)

=============  ====================================================================
i = 1 .. n     unlabelled and normal rows; known anomalies are left out
d              features of a row, or pixels of a picture times its channels
=============  ====================================================================
"""

from esad.core.arguments import with_parameters
from esad.detectors.standard import StandardDetector
from esad.networks.spec import NetworkSpec
from esad.train.autoencoder import AutoencoderObjective
from esad.train.objective import Objective

__all__ = ["Autoencoder"]


@with_parameters
class Autoencoder(StandardDetector):
    """Reconstruction error of an autoencoder, for tables and pictures.

    Parameters
    ----------
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> t = rng.normal(size=300)
    >>> X = np.c_[t, 2 * t, -t] + rng.normal(0, 0.1, size=(300, 3))
    >>> detector = Autoencoder(random_state=0).fit(X)
    >>> bool(np.diff(detector.anomaly_score([[1, 2, -1], [1, -2, 1]]))[0] > 0)
    True
    """

    summary = "Autoencoder, convolutional for pictures: the reconstruction error (Masci et al. 2011)"
    labels_used = ("unlabelled", "normal")

    n_members: int = 1
    scaling: str = "minmax"

    def _objective(self, spec: NetworkSpec) -> Objective:
        return AutoencoderObjective(spec)
