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

from typing import Any, ClassVar

import numpy as np

from esad.detectors.hybrid import HybridDetector
from esad.solvers.one_class_svm import OneClassSVMModel

__all__ = ["OCSVMHybrid"]


class OCSVMHybrid(HybridDetector):
    """One-class SVM on the codes of an autoencoder, for tables and pictures.

    Parameters
    ----------
    gamma : float or "auto"
        Of the kernel. Auto: one over the median squared distance of two codes.
    nu : float
        Largest share of the rows that may lie outside.
    max_rows : int
        More rows than this are sampled for the SVM: its time grows with their square.
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
    >>> t = rng.normal(size=300)
    >>> X = np.c_[t, 2 * t, -t] + rng.normal(0, 0.1, size=(300, 3))
    >>> detector = OCSVMHybrid(n_epochs=40, random_state=0).fit(X)
    >>> bool(np.diff(detector.anomaly_score([[0, 0, 0], [6, -12, 6]]))[0] > 0)
    True
    """

    summary: ClassVar[str] = "OC-SVM Hybrid: a one-class SVM on the codes of an autoencoder"
    labels_used: ClassVar[tuple[str, ...]] = ("unlabelled", "normal")

    def __init__(
        self,
        *,
        gamma: float | str = "auto",
        nu: float = 0.1,
        max_rows: int = 30_000,
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
        self.gamma = gamma
        self.nu = nu
        self.max_rows = max_rows
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

    def _model(self) -> OneClassSVMModel:
        return OneClassSVMModel(gamma=self.gamma, nu=self.nu, max_rows=self.max_rows)
