r"""IF Hybrid: an Isolation Forest on the bottleneck codes of an autoencoder.

    L    = 1/n sum_i ||Dec(z_i) - x_i||^2 / d,   z_i = Enc(x_i)                                         Eq. (1)

    S(x) = 2^(-E[h(Enc(x))] / c(n))                                                                     Eq. (2)

=============  ====================================================================================
i = 1 .. n     unlabelled and normal rows; known anomalies are left out
h, c           depth in a tree and its mean, see `esad.methods.iforest`
=============  ====================================================================================

Eq. (1) trains first, then the trees are grown on the codes: `esad.solvers.forest`.
"""

from typing import Any, ClassVar

import numpy as np

from esad.detectors.hybrid import HybridDetector
from esad.solvers.forest import ForestModel

__all__ = ["IFHybrid"]


class IFHybrid(HybridDetector):
    """Isolation Forest on the codes of an autoencoder, for tables and pictures.

    Parameters
    ----------
    n_trees : int
    n_samples : int
        Rows per tree, at most all there are.
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
    >>> detector = IFHybrid(n_epochs=40, random_state=0).fit(X)
    >>> bool(np.diff(detector.anomaly_score([[0, 0, 0], [6, -12, 6]]))[0] > 0)
    True
    """

    summary: ClassVar[str] = "IF Hybrid: an Isolation Forest on the codes of an autoencoder"
    labels_used: ClassVar[tuple[str, ...]] = ("unlabelled", "normal")

    def __init__(
        self,
        *,
        n_trees: int = 100,
        n_samples: int = 256,
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
        self.n_trees = n_trees
        self.n_samples = n_samples
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

    def _model(self) -> ForestModel:
        return ForestModel(n_trees=self.n_trees, n_samples=self.n_samples)
