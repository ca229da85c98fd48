r"""Deep SVDD (Ruff et al. 2018): codes of normal rows are drawn into a sphere around a centre.

    d(x)          = ||Enc(x) - c||^2                                                                    Eq. (1)
    L_one-class   = 1/n sum_i d(x_i)                        + lambda/2 ||W||^2                          Eq. (2)
    L_soft        = R^2 + 1/(nu n) sum_i max(0, d(x_i) - R^2) + lambda/2 ||W||^2                        Eq. (3)
    R             = the (1 - nu)-quantile of sqrt(d) over the mini-batch, which minimises Eq. (3)       Eq. (4)

    S(x)          = ||Enc(x) - c||,   less R for the soft boundary                                      Eq. (5)

=============  ====================================================================================
i = 1 .. n     unlabelled and normal rows; known anomalies are left out
c              mean code after pretraining as an autoencoder, every |c_k| at least 0.1, then fixed
W, lambda      all weights, `weight_decay`
nu             share of rows that may lie outside the sphere
=============  ====================================================================================

Networks have no bias anywhere, nor has batch norm: with a bias they could map every row to c. For this reason the
deep "conv" network, whose batch norm shifts, is not offered. In Eq. (3) R is a number that is solved anew for every
mini-batch; after training it is the quantile over all training rows, or over evenly spread ones of tens of millions.
"""

from typing import ClassVar

import torch
from torch import Tensor

from esad.core.arguments import Rule, is_positive, parameter, with_parameters
from esad.detectors.standard import StandardDetector
from esad.networks.spec import NetworkSpec
from esad.train.hypersphere import HypersphereObjective
from esad.train.objective import Batch, Objective, RowPool, Scorer

__all__ = ["DeepSVDD"]

_SHARE = Rule("a share above 0 and below 1", lambda value: is_positive(value) and value < 1)
MAX_RANKED = 2**24  # distances that torch takes a quantile of


@with_parameters
class DeepSVDD(StandardDetector):
    """Deep support vector data description, for tables and pictures.

    Parameters
    ----------
    boundary : {"one-class", "soft"}
        Eq. (2) or Eq. (3).
    nu : float
        Soft boundary: share of rows that may lie outside.
    network : {"auto", "mlp", "lenet"}
        Auto: "mlp" for tables, "lenet" for pictures.
    lr : float or "auto"
        Of Adam, with a cosine schedule. Auto: 1e-3; 1e-4 for pictures once they are pretrained.
    pretrain_epochs, n_epochs : int or "auto"
        As an autoencoder, then as Deep SVDD. Auto: 150 each, less on large data; 0 switches the pretraining off.
    weight_decay : float
        lambda of the equations.
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> detector = DeepSVDD(n_epochs=20, random_state=0).fit(X)
    >>> bool(detector.anomaly_score([[8, 8, -8, 8]])[0] > np.median(detector.anomaly_score(X)))
    True
    """

    summary = "Deep SVDD: distance of the code from a centre, one-class or soft (Ruff et al. 2018)"
    labels_used = ("unlabelled", "normal")
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"table": ("mlp",), "images": ("lenet",)}
    learning_rates: ClassVar[dict[str, float]] = {"table": 1e-3, "images": 1e-4}

    boundary: str = parameter(default="one-class", allowed=("one-class", "soft"))
    nu: float = parameter(default=0.1, allowed=_SHARE)
    n_members: int = 1
    scaling: str = "standard"
    pretrain_epochs: int | str = "auto"

    def _objective(self, spec: NetworkSpec) -> Objective:
        if self.boundary == "soft":
            return SoftBoundaryObjective(spec, nu=float(self.nu))
        return OneClassObjective(spec)


class OneClassObjective(HypersphereObjective):
    """Eq. (2); the weights' term is the optimiser's weight decay."""

    recordable = True

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Mean squared distance, (members,)."""
        return {"distance": self.squared_distance(batch.unlabelled).mean(1)}


class SoftBoundaryObjective(HypersphereObjective):
    """Eqs. (3) and (4)."""

    radius: Tensor

    def __init__(self, spec: NetworkSpec, *, nu: float) -> None:
        super().__init__(spec)
        self.nu = nu
        self.register_buffer("radius", torch.zeros(spec.n_members))

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """R^2 and the mean excess over it, each (members,)."""
        squared = self.squared_distance(batch.unlabelled)
        self._solve_radius(batch.processes.gather_rows(squared.detach().sqrt()))
        limit = self.radius.square()
        excess = (squared - limit[:, None]).clamp(min=0).mean(1) / self.nu
        return {"radius": limit, "excess": excess}

    @torch.no_grad()
    def finish(self, data: RowPool) -> None:
        """The radius over all rows that a member may draw."""
        distance = (self._codes(data.x) - self.centre[:, None]).square().sum(2).sqrt()
        self._solve_radius(distance.gather(1, data.unlabelled[:, :: -(-data.unlabelled.numel() // MAX_RANKED)]))

    def scorer(self) -> Scorer:
        """A function giving the distance beyond the radius, (members, batch)."""
        score = super().scorer()
        return lambda x: {"distance": score(x)["distance"] - self.radius[:, None]}

    def _solve_radius(self, distance: Tensor) -> None:
        self.radius.copy_(torch.quantile(distance.float(), 1 - self.nu, dim=1))
