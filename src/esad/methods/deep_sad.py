r"""Deep SAD (Ruff et al. 2020): codes of unlabelled rows near a centre, codes of known anomalies far from it.

    d(x) = ||Enc(x) - c||^2                                                                             Eq. (1)

    L    = 1/(n+m) sum_i d(x_i) + eta/(n+m) sum_j (d(x_j) + 1e-6)^(y_j) + lambda/2 ||W||^2              Eq. (2)

    S(x) = ||Enc(x) - c||                                                                               Eq. (3)

=============  ====================================================================================
i = 1 .. n     unlabelled rows, almost all of them normal
j = 1 .. m     labelled rows, y_j = -1 anomaly, +1 normal
c              mean code after pretraining as an autoencoder, every |c_k| at least 0.1, then fixed
eta            weight of a labelled row against an unlabelled one
W, lambda      all weights, `weight_decay`
=============  ====================================================================================

Labelled and unlabelled rows are drawn apart; their means are weighted by n/(n+m) and eta m/(n+m), so the expected loss
is Eq. (2). "mlp" and "lenet" networks have no bias; the deep "conv" network shifts in its batch norm, which lets all
codes collapse into the centre: the paper of ESAD shows this, and so does a test here.
"""

from dataclasses import replace
from typing import ClassVar

from torch import Tensor

from esad.core.arguments import NOT_NEGATIVE, TRUTH, parameter, with_parameters
from esad.detectors.standard import StandardDetector
from esad.errors import InputError
from esad.networks.spec import NetworkSpec
from esad.train.autoencoder import AutoencoderObjective, Change
from esad.train.hypersphere import HypersphereObjective
from esad.train.objective import Batch, Objective
from esad.train.transforms import augment_pictures

__all__ = ["DeepSAD"]


@with_parameters
class DeepSAD(StandardDetector):
    """Deep semi-supervised anomaly detection, for tables and pictures.

    Parameters
    ----------
    eta : float
        Weight of a labelled row against an unlabelled one.
    network : {"auto", "mlp", "lenet", "lenet_small", "conv"}
        Auto: "mlp" for tables, "lenet" for pictures; "lenet_small" is the authors' for MNIST. "conv" is the deep
        network of ESAD's paper.
    hidden, latent : sequence of int and int, or "auto"
        Hidden widths or channels, and the size of the code. Auto: those of the paper.
    lr : float or "auto"
        Of Adam, with a cosine schedule. Auto: 1e-3; 1e-4 for pictures once they are pretrained.
    pretrain_epochs, n_epochs : int or "auto"
        As an autoencoder on all rows, then as Deep SAD. Auto: 150 each, less on large data; 0 switches the
        pretraining off.
    augment : bool
        Pictures only: they are cut out and brightened at random while training, and colour ones mirrored, as `ESAD`
        does where it tells turns. Deep SAD's authors do none of this.
    weight_decay : float
        lambda of the equations.
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(200, 4)), rng.normal(5, 1, size=(8, 4))]
    >>> y = np.zeros(208, dtype=int)
    >>> y[-4:] = -1                                            # four known anomalies, the rest unlabelled
    >>> detector = DeepSAD(n_epochs=20, random_state=0).fit(X, y)
    >>> bool(detector.anomaly_score(X)[200:204].min() > np.median(detector.anomaly_score(X)))
    True
    """

    summary = "Deep SAD: codes near a centre, known anomalies far from it (Ruff et al. 2020)"
    learning_rates: ClassVar[dict[str, float]] = {"table": 1e-3, "images": 1e-4}

    eta: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    n_members: int = 1
    scaling: str = "standard"
    pretrain_epochs: int | str = "auto"
    augment: bool = parameter(default=False, allowed=TRUTH)
    labelled_batch_size: int = 32
    early_stopping: bool | str = False

    def _objective(self, spec: NetworkSpec) -> Objective:
        return DeepSADObjective(spec, eta=float(self.eta), augment=self._change(spec))

    def _change(self, spec: NetworkSpec) -> Change | None:
        if self.augment and spec.kind == "mlp":
            raise InputError("`augment` is for pictures; the data is a table. Leave it out.")
        return augment_pictures if self.augment else None

    def _pretraining_objective(self, spec: NetworkSpec) -> Objective:
        return AutoencoderObjective(spec, augment=self._change(spec))


class DeepSADObjective(HypersphereObjective):
    """Eq. (2); the weights' term is the optimiser's weight decay."""

    recordable = True

    def __init__(self, spec: NetworkSpec, *, eta: float, augment: Change | None = None) -> None:
        super().__init__(spec)
        self.eta, self.augment = eta, augment

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The two sums of Eq. (2), each (members,)."""
        if self.augment is not None:
            unlabelled, labelled = (self.augment(x, batch.random) for x in (batch.unlabelled, batch.labelled))
            batch = replace(batch, unlabelled=unlabelled, labelled=labelled)
        return self.sum_near_and_far(batch, eta=self.eta)
