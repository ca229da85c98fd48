r"""Autoencoder, for pictures the convolutional CAE (Masci et al. 2011): what is rebuilt badly is anomalous.

    L    = 1/n sum_i ||Dec(Enc(x_i)) - x_i||^2 / d                                                      Eq. (1)
    S(x) = ||Dec(Enc(x)) - x||^2 / d                                                                    Eq. (2)

=============  ====================================================================
i = 1 .. n     unlabelled and normal rows; known anomalies are left out
d              features of a row, or pixels of a picture times its channels
=============  ====================================================================
"""

from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from esad.detectors.deep import Phase
from esad.detectors.standard import StandardDetector
from esad.networks.spec import NetworkSpec
from esad.preprocess.inputs import Rows
from esad.train.autoencoder import AutoencoderObjective
from esad.train.objective import Objective, presumed_normal

__all__ = ["Autoencoder"]


class Autoencoder(StandardDetector):
    """Reconstruction error of an autoencoder, for tables and pictures.

    Parameters
    ----------
    n_members : int
        Networks trained side by side; the score is their mean.
    network : {"auto", "mlp", "lenet", "conv"}
        Auto: "mlp" for tables, "lenet" for pictures.
    hidden, latent : sequence of int and int, or "auto"
        Hidden widths or channels, and the size of the code. Auto: those of Deep SAD's paper.
    scaling : {"standard", "minmax"}
        How table columns are scaled; "minmax" ends the decoder in a sigmoid, as in Deep SAD's paper.
    lr : float or "auto"
        Of Adam, with a cosine schedule. Auto: 1e-3.
    n_epochs : int or "auto"
        Auto: 150, less on large data.
    batch_size : int
    weight_decay : float
    contamination : "auto" or float
        Share of the training rows to flag; "auto" takes a robust rule on the unlabelled scores.
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
    >>> detector = Autoencoder(random_state=0).fit(X)
    >>> bool(np.diff(detector.anomaly_score([[1, 2, -1], [1, -2, 1]]))[0] > 0)
    True
    """

    summary: ClassVar[str] = "Autoencoder, convolutional for pictures: the reconstruction error (Masci et al. 2011)"
    labels_used: ClassVar[tuple[str, ...]] = ("unlabelled", "normal")

    def __init__(
        self,
        *,
        n_members: int = 1,
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
        self.n_members = n_members
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

    def _objective(self, spec: NetworkSpec) -> Objective:
        return AutoencoderObjective(spec)

    def _phases(self, rows: Rows, y: NDArray[np.int8], device: torch.device) -> list[Phase]:
        seen = presumed_normal(y)
        objective = self._objective(self._make_network(rows.shape[1:], device))
        return [Phase(objective, self._settings(seen, device, n_epochs=self.n_epochs), seen)]
