r"""SS-DGM (Kingma et al. 2014), semi-supervised deep generative models: how rows of either class come about.

M2 explains a row x by its class y and a code z:

    p(x, y, z) = p(y) p(z) p(x | y, z),   p(y = anomaly) = pi,   p(z) = N(0, 1)                         Eq. (1)

    -L(x, y) = E_q(z|x,y) log p(x | y, z) + log p(y) - KL(q(z | x, y) || p(z))                          Eq. (2)
    -U(x)    = sum_y q(y | x) (-L(x, y)) + H(q(y | x))                                                  Eq. (3)

    J        = 1/n sum_i U(x_i) + 1/m sum_j L(x_j, y_j) - alpha/m sum_j log q(y_j | x_j)                Eq. (4)

M1 is a variational autoencoder; M1+M2 is M2 with z1 ~ q(z1 | x) of a trained M1 in the place of x:

    J1       = 1/n sum_i KL(q(z1 | x_i) || p(z1)) - E_q(z1|x_i) log p(x_i | z1)                         Eq. (5)

    S(x)     = log q(anomaly | x) - log q(normal | x)                                                   Eq. (6)

==================  ==============================================================================================
i = 1 .. n          unlabelled rows; in Eq. (5) all rows
j = 1 .. m          labelled rows
pi                  `anomaly_ratio`
q(y | x)            log(pi / (1 - pi)) plus the output of a network is the logit, Eq. (6)
q(z | x, y)         a network gives mean and log variance; y is one more column of x, or channel of the picture
p(x | y, z)         a network; columns are Gaussian (standard deviation 1, in M1 0.3), pixels in [0, 1] Bernoulli
==================  ==============================================================================================

Expectations over z take one draw. The score takes the mean of q(z1 | x) for z1.

Labelled anomalies without a labelled normal row push q(y | x) to one side only. Two things hold it in place. In Eq. (3)
log p(y) and H add up to -KL(q(y | x) || p(y)): a row without evidence has q(anomaly | x) = pi, and one that is called
an anomaly must be explained log((1 - pi) / pi) nats better as such. And training starts at q(y | x) = p(y), so that
p(x | normal, z) learns the unlabelled rows first. From a start at 1/2 every unlabelled picture may end as an anomaly,
for hundreds of pixels outweigh any p(y). So pi belongs to the model and is not learned: no label tells how many
anomalies the unlabelled rows hide.

Unlabelled and labelled rows are averaged apart, so each part has the same weight in Eq. (4); the paper counts every row
once and has alpha = 0.1 on this scale. Which of M2 and M1+M2 is better depends on the data.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from esad.core.arguments import NOT_NEGATIVE, Rule, is_positive, parameter, with_parameters
from esad.core.arrays import Labels, Rows
from esad.core.random import MemberRandom
from esad.detectors.deep import Phase
from esad.detectors.standard import StandardDetector
from esad.networks.layers import Network, inference
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, Objective, Scorer, mean_over_rows, unlabel_all

__all__ = ["SSDGM"]

_RATIO = Rule("a number between 0 and 1", lambda value: is_positive(value) and value < 1)
M1_EPOCHS = 60
M1_STD, M2_STD = 0.3, 1.0  # of p(x | ...) around a standardised column; M1 must keep details, M2 must not be too sure
NEAR_ZERO = 0.1  # of a logit
MAX_LOG_VARIANCE = 10.0  # keeps its exponential in range


@with_parameters
class SSDGM(StandardDetector):
    """Semi-supervised deep generative model, for tables and pictures.

    Needs labelled anomalies; labelled normal rows are used but not needed.

    Parameters
    ----------
    variant : {"m2", "m1+m2"}
        "m2" models the rows themselves, "m1+m2" the codes that a variational autoencoder gives them.
    anomaly_ratio : float
        p(y = anomaly) of the model: the share of anomalies to expect among the unlabelled rows.
    alpha : float
        Weight of the classification of labelled rows.
    network : {"auto", "mlp", "lenet"}
        Auto: "mlp" for tables, "lenet" for pictures.
    hidden, latent : sequence of int and int, or "auto"
        Hidden widths or channels, and the size of the code. Auto: those of Deep SAD's paper. M2 on codes has one
        hidden layer, four times as wide as the code.
    lr : float or "auto"
        Of Adam, with a cosine schedule. Auto: 3e-3, for pictures 1e-3.
    pretrain_epochs, n_epochs : int or "auto"
        Of M1 on all rows, then of M2. Auto: 60 and 30, less on large data.
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(200, 3)), rng.normal(3, 1, size=(10, 3))]
    >>> y = np.r_[np.zeros(200, dtype=int), np.full(10, -1)]   # ten known anomalies, the rest unlabelled
    >>> detector = SSDGM(random_state=0).fit(X, y)
    >>> bool(np.diff(detector.anomaly_score([[0, 0, 0], [3, 3, 3]]))[0] > 0)
    True
    """

    summary = "Semi-supervised deep generative model, M2 or M1+M2 (Kingma et al. 2014)"
    labels_needed = ("anomaly",)
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"table": ("mlp",), "images": ("lenet",)}
    learning_rates: ClassVar[dict[str, float]] = {"table": 3e-3, "images": 1e-3}
    auto_epochs = 30
    max_steps: ClassVar[dict[str, int]] = {"table": 2000, "images": 600, "images on a GPU": 7500}

    variant: str = parameter(default="m2", allowed=("m2", "m1+m2"))
    anomaly_ratio: float = parameter(default=0.1, allowed=_RATIO)
    alpha: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    n_members: int = 1
    pretrain_epochs: int | str = "auto"
    labelled_batch_size: int = 32
    early_stopping: bool | str = False

    def _objective(self, spec: NetworkSpec) -> Objective:
        model = M2Objective if self.variant == "m2" else M1M2Objective
        return model(spec, anomaly_ratio=float(self.anomaly_ratio), alpha=float(self.alpha))

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        spec = self._make_network(rows.shape[1:], device)
        phases = [Phase(self._objective(spec), self._settings(y, device, n_epochs=self.n_epochs))]
        if self.variant == "m1+m2":
            everything = unlabel_all(y)
            settings = self._settings(everything, device, n_epochs=self.pretrain_epochs, auto_epochs=M1_EPOCHS)
            phases.insert(0, Phase(M1Objective(spec), settings, everything))
        return phases


@dataclass(frozen=True)
class Latent:
    """q(z | ...): a Gaussian without correlations for every row.

    Attributes
    ----------
    mean, log_variance : Tensor, (members, batch, latent)
    """

    mean: Tensor
    log_variance: Tensor

    @classmethod
    def of(cls, output: Tensor) -> "Latent":
        """Make the Gaussian from an encoder's 2 x latent outputs."""
        mean, log_variance = output.chunk(2, dim=2)
        return cls(mean, log_variance.clamp(-MAX_LOG_VARIANCE, MAX_LOG_VARIANCE))

    def sample(self, random: MemberRandom) -> Tensor:
        """One draw per row that gradients pass through."""
        return self.mean + (0.5 * self.log_variance).exp() * random.normal(*self.mean.shape[1:])

    def divergence(self) -> Tensor:
        """KL(q(z | ...) || N(0, 1)), (members, batch)."""
        return 0.5 * (self.mean.square() + self.log_variance.exp() - 1 - self.log_variance).sum(2)


def log_density(x: Tensor, output: Tensor, *, std: float) -> Tensor:
    """log p(x | ...) of rows given the decoder's output, (members, batch).

    Columns are Gaussian around the output; pixels, within [0, 1], are Bernoulli with the output as their logit.
    """
    if x.dim() == 5:
        return -F.binary_cross_entropy_with_logits(output, x, reduction="none").flatten(2).sum(2)
    return -0.5 * (((x - output) / std).square() + math.log(2 * math.pi * std**2)).sum(2)


class M1Objective(Objective):
    """The variational autoencoder: q(z | x) and p(x | z) with the loss of Eq. (5), for all rows alike."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.encoder = _make_encoder(spec)
        self.decoder = replace(spec, bias=True, sigmoid=False).decoder()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (5), each term (members,)."""
        x = batch.unlabelled
        latent = Latent.of(self.encoder(x))
        output = self.decoder(latent.sample(batch.random))
        return {
            "reconstruction": -mean_over_rows(log_density(x, output, std=M1_STD)),
            "divergence": mean_over_rows(latent.divergence()),
        }

    def scorer(self) -> Scorer:
        """A function giving Eq. (5) at the mean code of every row, (members, batch)."""
        encode, decode = inference(self.encoder), inference(self.decoder)

        def bound(x: Tensor) -> dict[str, Tensor]:
            latent = Latent.of(encode(x[None]))
            rows = x.expand(self.n_members, *x.shape)
            return {"bound": latent.divergence() - log_density(rows, decode(latent.mean), std=M1_STD)}

        return bound


class M2Objective(Objective):
    """q(y | x), q(z | x, y) and p(x | y, z) with the loss of Eq. (4) and the score of Eq. (6)."""

    near_zero = NEAR_ZERO

    def __init__(self, spec: NetworkSpec, *, anomaly_ratio: float, alpha: float) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.anomaly_ratio, self.alpha = anomaly_ratio, alpha
        self.log_odds = math.log(anomaly_ratio / (1 - anomaly_ratio))
        n_features, *size = spec.in_shape
        self.classifier = replace(spec, latent=1, bias=True).encoder()
        self.encoder = _make_encoder(replace(spec, in_shape=(n_features + 1, *size)))
        self.decoder = replace(spec, latent=spec.latent + 1, bias=True, sigmoid=False).decoder()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (4), each term (members,); a part without rows drops out."""
        unlabelled, labelled = batch.unlabelled, batch.labelled
        n, m = unlabelled.shape[1], labelled.shape[1]
        is_anomaly = (batch.y < 0).to(labelled.dtype)
        logit_u, logit_l = batch.split(self.log_odds + self.classifier(batch.rows).squeeze(2))

        normal = torch.zeros(unlabelled.shape[:2], dtype=labelled.dtype, device=labelled.device)
        bounds = self.bound(  # every unlabelled row as if it were normal, then as if it were an anomaly
            torch.cat([unlabelled, unlabelled, labelled], dim=1),
            torch.cat([normal, normal + 1, is_anomaly], dim=1),
            batch.random,
        )
        as_normal, as_anomaly, as_labelled = torch.split(bounds, [n, n, m], dim=1)
        expected = as_normal + logit_u.sigmoid() * (as_anomaly - as_normal)  # sum_y q(y | x) (-L(x, y))
        entropy = F.softplus(logit_u) - logit_u * logit_u.sigmoid()  # H(q(y | x))
        return {
            "unlabelled": -mean_over_rows(expected + entropy),  # Eq. (3)
            "labelled": -mean_over_rows(as_labelled),
            "classification": self.alpha * mean_over_rows(F.softplus(logit_l) - is_anomaly * logit_l),
        }

    def bound(self, x: Tensor, is_anomaly: Tensor, random: MemberRandom) -> Tensor:
        """Eq. (2) with one draw of z: -L(x, y) of rows (members, batch, *features), y 1 or 0, (members, batch)."""
        mark = is_anomaly.view(*is_anomaly.shape, *[1] * (x.dim() - 2))
        latent = Latent.of(self.encoder(torch.cat([x, mark.expand(*x.shape[:2], 1, *x.shape[3:])], dim=2)))
        output = self.decoder(torch.cat([latent.sample(random), is_anomaly[:, :, None]], dim=2))
        log_ratio = is_anomaly * math.log(self.anomaly_ratio) + (1 - is_anomaly) * math.log(1 - self.anomaly_ratio)
        return log_density(x, output, std=M2_STD) + log_ratio - latent.divergence()

    def scorer(self) -> Scorer:
        """A function giving Eq. (6) for every row, (members, batch)."""
        logit = self.logits()
        return lambda x: {"logit": logit(x[None])}

    def logits(self) -> Callable[[Tensor], Tensor]:
        """A function from rows (members or 1, batch, *features) to Eq. (6), (members, batch)."""
        classify = inference(self.classifier)
        return lambda x: self.log_odds + classify(x).squeeze(2)


class M1M2Objective(Objective):
    """M2 on the codes of a trained M1, which stays as it is."""

    near_zero = NEAR_ZERO

    def __init__(self, spec: NetworkSpec, *, anomaly_ratio: float, alpha: float) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.encoder = _make_encoder(spec).requires_grad_(False)
        codes = replace(spec, kind="mlp", in_shape=(spec.latent,), hidden=(4 * spec.latent,), dense=())
        self.model = M2Objective(codes, anomaly_ratio=anomaly_ratio, alpha=alpha)

    def train(self, mode: bool = True) -> "M1M2Objective":
        """Training does not move M1, nor the statistics of its batch norm."""
        super().train(mode)
        self.encoder.eval()
        return self

    def inherit(self, previous: Objective) -> None:
        """Take over M1's encoder."""
        assert isinstance(previous, M1Objective)
        self.encoder.load_state_dict(previous.encoder.state_dict())

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (4) of codes drawn from M1, each term (members,)."""
        with torch.no_grad():
            unlabelled, labelled = batch.split(Latent.of(self.encoder(batch.rows)).sample(batch.random))
        return self.model.loss(replace(batch, unlabelled=unlabelled, labelled=labelled))

    def scorer(self) -> Scorer:
        """A function giving Eq. (6) for the mean code of every row, (members, batch)."""
        encode, logit = inference(self.encoder), self.model.logits()
        return lambda x: {"logit": logit(Latent.of(encode(x[None])).mean)}


def _make_encoder(spec: NetworkSpec) -> Network:
    """The encoder with a mean and a log variance for every number of the code."""
    return replace(spec, latent=2 * spec.latent, bias=True).encoder()
