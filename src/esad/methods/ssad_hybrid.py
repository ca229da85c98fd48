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

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from esad.detectors.hybrid import HybridDetector
from esad.solvers.ssad import SSADModel
from esad.train.objective import all_unlabelled

__all__ = ["SSADHybrid"]


class SSADHybrid(HybridDetector):
    """SSAD on the codes of an autoencoder, for tables and pictures.

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
        Of the kernel. Auto: one over the median squared distance of two codes.
    tol : float
        Duality gap, relative to the objective, at which to stop.
    network : {"auto", "mlp", "lenet", "conv"}
        Of the autoencoder. Auto: "mlp" for tables, "lenet" for pictures.
    hidden, latent : sequence of int and int, or "auto"
        Hidden widths or channels, and the size of the code. Auto: those of Deep SAD's paper.
    scaling : {"standard", "minmax"}
        How table columns are scaled; "minmax" ends the decoder in a sigmoid, as in Deep SAD's paper.
    lr : float or "auto"
        Of Adam, with a cosine schedule. Auto: 1e-3.
    n_epochs : int or "auto"
        Of the autoencoder. Auto: 150, less on large data.
    batch_size : int
    weight_decay : float
    contamination : "auto" or float
        Share of the training rows to flag; "auto" takes a robust rule on unlabelled rows that were left out.
    device : str
        "auto", "cpu", "cuda", ...
    precision : {"auto", "float32", "float64", "bfloat16"}
    random_state : int, RandomState or None
    verbose : int
        1 logs the progress to the logger "esad".

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

    summary: ClassVar[str] = "SSAD Hybrid: SSAD on the codes of an autoencoder"

    def __init__(
        self,
        *,
        kappa: float = 1.0,
        eta_unlabelled: float | str = "auto",
        eta_labelled: float = 1.0,
        gamma: float | str = "auto",
        tol: float = 1e-3,
        network: str = "auto",
        hidden: Any = "auto",
        latent: int | str = "auto",
        scaling: str = "minmax",
        lr: float | str = "auto",
        n_epochs: int | str = "auto",
        batch_size: int = 128,
        weight_decay: float = 1e-6,
        contamination: float | str = "auto",
        device: str = "auto",
        precision: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.kappa = kappa
        self.eta_unlabelled = eta_unlabelled
        self.eta_labelled = eta_labelled
        self.gamma = gamma
        self.tol = tol
        self.network = network
        self.hidden = hidden
        self.latent = latent
        self.scaling = scaling
        self.lr = lr
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.weight_decay = weight_decay
        self.contamination = contamination
        self.device = device
        self.precision = precision
        self.random_state = random_state
        self.verbose = verbose

    def _seen(self, y: NDArray[np.int8]) -> NDArray[np.int8]:
        return all_unlabelled(y)

    def _model(self) -> SSADModel:
        return SSADModel(
            kappa=self.kappa,
            eta_unlabelled=self.eta_unlabelled,
            eta_labelled=self.eta_labelled,
            gamma=self.gamma,
            tol=self.tol,
        )
