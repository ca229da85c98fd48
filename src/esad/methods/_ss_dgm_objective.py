"""SS-DGM's networks and bounds, Eq. by Eq.; `esad.methods.ss_dgm` states the equations."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from esad.core.random import MemberRandom
from esad.networks.inference import inference
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, Objective, Scorer

__all__ = ["Latent", "M1M2Objective", "M1Objective", "M2Objective", "log_density"]

M1_STD, M2_STD = 0.3, 1.0  # of p(x | ...) around a standardised column; M1 must keep details, M2 must not be too sure
NEAR_ZERO = 0.1  # of a logit
MAX_LOG_VARIANCE = 10.0  # keeps its exponential in range


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
        """What an encoder with 2 x latent outputs says."""
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
        self.encoder = _encoder_of(spec)
        self.decoder = replace(spec, bias=True, sigmoid=False).decoder()

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights."""
        self.encoder.reset(random)  # type: ignore[operator]
        self.decoder.reset(random)  # type: ignore[operator]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (5), each term (members,)."""
        x = batch.unlabelled
        latent = Latent.of(self.encoder(x))
        output = self.decoder(latent.sample(batch.random))
        return {
            "reconstruction": -_mean(log_density(x, output, std=M1_STD)),
            "divergence": _mean(latent.divergence()),
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
        self.encoder = _encoder_of(replace(spec, in_shape=(n_features + 1, *size)))
        self.decoder = replace(spec, latent=spec.latent + 1, bias=True, sigmoid=False).decoder()

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights."""
        for network in (self.classifier, self.encoder, self.decoder):
            network.reset(random)  # type: ignore[operator]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (4), each term (members,); a part without rows drops out."""
        unlabelled, labelled = batch.unlabelled, batch.labelled
        n, m = unlabelled.shape[1], labelled.shape[1]
        is_anomaly = (batch.y < 0).to(labelled.dtype)
        logits = self.log_odds + self.classifier(torch.cat([unlabelled, labelled], dim=1)).squeeze(2)
        logit_u, logit_l = torch.split(logits, [n, m], dim=1)

        normal = torch.zeros(unlabelled.shape[:2], dtype=labelled.dtype, device=labelled.device)
        bounds = self.bound(  # every unlabelled row as if it were normal, then as if it were an anomaly
            torch.cat([unlabelled, unlabelled, labelled], dim=1),
            torch.cat([normal, normal + 1, is_anomaly], dim=1),
            batch.random,
        )
        as_normal, as_anomaly, as_labelled = torch.split(bounds, [n, n, m], dim=1)
        return {
            "unlabelled": -_mean(_expected(logit_u, as_normal, as_anomaly) + _entropy(logit_u)),  # Eq. (3)
            "labelled": -_mean(as_labelled),
            "classification": self.alpha * _mean(F.softplus(logit_l) - is_anomaly * logit_l),
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
        logit = self.classify()
        return lambda x: {"logit": logit(x[None])}

    def classify(self) -> Callable[[Tensor], Tensor]:
        """A function from rows (members or 1, batch, *features) to Eq. (6), (members, batch)."""
        classify = inference(self.classifier)
        return lambda x: self.log_odds + classify(x).squeeze(2)


class M1M2Objective(Objective):
    """M2 on the codes of a trained M1, which stays as it is."""

    near_zero = NEAR_ZERO

    def __init__(self, spec: NetworkSpec, *, anomaly_ratio: float, alpha: float) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.encoder = _encoder_of(spec).requires_grad_(False)
        codes = replace(spec, kind="mlp", in_shape=(spec.latent,), hidden=(4 * spec.latent,), dense=())
        self.model = M2Objective(codes, anomaly_ratio=anomaly_ratio, alpha=alpha)

    def train(self, mode: bool = True) -> "M1M2Objective":
        """Training does not move M1, nor the statistics of its batch norm."""
        super().train(mode)
        self.encoder.eval()
        return self

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights."""
        self.encoder.reset(random)  # type: ignore[operator]
        self.model.reset(random)

    def inherit(self, previous: Objective) -> None:
        """Take over M1's encoder."""
        assert isinstance(previous, M1Objective)
        self.encoder.load_state_dict(previous.encoder.state_dict())

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (4) of codes drawn from M1, each term (members,)."""
        n, m = batch.unlabelled.shape[1], batch.labelled.shape[1]
        with torch.no_grad():
            latent = Latent.of(self.encoder(torch.cat([batch.unlabelled, batch.labelled], dim=1)))
            unlabelled, labelled = torch.split(latent.sample(batch.random), [n, m], dim=1)
        return self.model.loss(replace(batch, unlabelled=unlabelled, labelled=labelled))

    def scorer(self) -> Scorer:
        """A function giving Eq. (6) for the mean code of every row, (members, batch)."""
        encode, logit = inference(self.encoder), self.model.classify()
        return lambda x: {"logit": logit(Latent.of(encode(x[None])).mean)}


def _encoder_of(spec: NetworkSpec) -> torch.nn.Module:
    """The encoder with a mean and a log variance for every number of the code."""
    return replace(spec, latent=2 * spec.latent, bias=True).encoder()


def _expected(logit: Tensor, as_normal: Tensor, as_anomaly: Tensor) -> Tensor:
    """sum_y q(y | x) f(y)."""
    return as_normal + logit.sigmoid() * (as_anomaly - as_normal)


def _entropy(logit: Tensor) -> Tensor:
    """H(q(y | x)) = -sum_y q log q, from the logit."""
    return F.softplus(logit) - logit * logit.sigmoid()


def _mean(values: Tensor) -> Tensor:
    """Mean over the batch, (members,); zero for an empty batch."""
    return values.sum(1) / max(1, values.shape[1])
