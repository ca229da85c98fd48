r"""GANomaly (Akcay et al. 2018): the codes of a picture and of its adversarial reconstruction differ for anomalies.

    z = Enc1(x),   x^ = Dec(z),   z^ = Enc2(x^)                                                         Eq. (1)
    D(x)  = sigmoid(Head(f(x)))                                                                         Eq. (2)

    L_adv = 1/n sum_i ||f(x_i) - f(x^_i)||^2 / d_f                                                      Eq. (3)
    L_con = 1/n sum_i ||x_i - x^_i||_1 / d                                                              Eq. (4)
    L_enc = 1/n sum_i ||z_i - z^_i||^2 / d_z                                                            Eq. (5)
    L_G   = lambda_adversarial L_adv + lambda_context L_con + lambda_encoding L_enc                     Eq. (6)
    L_D   = - 1/(2 n) sum_i [log D(x_i) + log(1 - D(x^_i))]                                             Eq. (7)

    S(x)  = ||z - z^||_1 / d_z                                                                          Eq. (8)

================  ===========================================================================================
i = 1 .. n        unlabelled and normal pictures; known anomalies are left out
Enc1, Dec, Enc2   the generator, trained on L_G; the encoders have the same shape and do not share weights
f, Head           the discriminator, trained on L_D: an encoder of that shape and one linear layer
d, d_z, d_f       pixels times channels, numbers in a code and in f
================  ===========================================================================================

Pixels are in [-1, 1]. Generator and discriminator take their steps at the same time, by one backward pass through
L_G + L_D: L_G sees the discriminator's weights and L_D sees x^ as constants. The paper takes the steps in turn.
The loop clips the gradients of both together; without that the codes tell far less. The discriminator is not kept after
training.

`GANomaly.as_published()` has the settings of the authors' code: DCGAN's networks, Adam at 2e-4 with beta_1 .5, neither
clipping nor schedule, 15 epochs, f the last map of the discriminator, and ||z - z^||^2 / d_z for Eq. (8). Their steps
too are taken at the same time. They draw a discriminator anew whose loss falls below 1e-5, keep the epoch that is best
on the test set, and resize pictures to 32 x 32; this does none of it.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from esad.core.arguments import NOT_NEGATIVE, parameter, with_parameters
from esad.core.arrays import Labels
from esad.detectors.standard import GAME, StandardDetector
from esad.networks.dcgan import DCGANEncoder
from esad.networks.layers import map_size
from esad.networks.mlp import StackedMLP
from esad.networks.spec import NetworkSpec
from esad.train.adversarial import judge_loss
from esad.train.loop import Settings
from esad.train.objective import Batch, Objective, Scorer

__all__ = ["GANomaly"]

PUBLISHED: dict[str, Any] = {"recipe": "published", "network": "dcgan", "lr": 2e-4, "n_epochs": 15, "weight_decay": 0.0}


@with_parameters
class GANomaly(StandardDetector):
    """Distance between the codes of a picture and of its adversarially trained reconstruction.

    Parameters
    ----------
    lambda_adversarial, lambda_context, lambda_encoding : float
        Weights of L_adv, L_con and L_enc.
    recipe : {"auto", "published"}
        How to train, and how to measure the distance of codes: see `as_published` for the whole of it.
    network : {"auto", "conv", "lenet", "dcgan"}
        Auto: "conv", narrow on a CPU. "dcgan" is the authors'.
    hidden, latent : sequence of int and int, or "auto"
        Channels per level, and channels ("conv") or size ("lenet") of the code.
    n_epochs : int or "auto"
        Auto: 50, less on large data.
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> pictures[:, :2] += 200                                    # normal: bright at the top
    >>> bright = np.full((1, 8, 8), 225, dtype=np.uint8)
    >>> detector = GANomaly(hidden=(4, 4), latent=4, n_epochs=20, random_state=0).fit(pictures)
    >>> bool(detector.anomaly_score(bright)[0] > np.median(detector.anomaly_score(pictures)))
    True
    """

    summary = "Adversarial encoder-decoder-encoder for pictures: how far the codes are (Akcay et al. 2018)"
    takes = ("images",)
    labels_used = ("unlabelled", "normal")
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"images": ("conv", "lenet", "dcgan")}
    auto_epochs = 50

    recipe: str = parameter(default="auto", allowed=("auto", "published"))
    lambda_adversarial: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    lambda_context: float = parameter(default=50.0, allowed=NOT_NEGATIVE)
    lambda_encoding: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    n_members: int = 1
    batch_size: int = 64

    @classmethod
    def as_published(cls, **changes: Any) -> Self:
        """The settings of the authors' code.

        Examples
        --------
        >>> GANomaly.as_published(random_state=0).network
        'dcgan'
        """
        return cls(**PUBLISHED | changes)

    def _objective(self, spec: NetworkSpec) -> Objective:
        weights = self.lambda_adversarial, self.lambda_context, self.lambda_encoding
        return GANomalyObjective(spec, *weights, squared=self.recipe == "published")

    def _settings(self, y: Labels, device: torch.device, **how: Any) -> Settings:
        settings = super()._settings(y, device, **how)
        if self.recipe == "published":
            settings = replace(settings, schedule="constant", beta_1=0.5, **GAME)
        return settings


class GANomalyObjective(Objective):
    """A generator, which scores, and until the training has ended a discriminator."""

    for_training = ("features", "head")

    def __init__(
        self, spec: NetworkSpec, adversarial: float, context: float, encoding: float, *, squared: bool = False
    ) -> None:
        super().__init__()
        self.n_members, self.squared = spec.n_members, squared
        self.has_logits = spec.kind == "dcgan"  # whose decoder leaves the last sigmoid to others
        self.weights = {"adversarial": adversarial, "context": context, "encoding": encoding}
        self.encoder_1 = spec.encoder()
        self.decoder = spec.decoder()
        self.encoder_2 = spec.encoder()
        n_features = spec.n_codes
        if spec.kind == "dcgan":
            self.features: nn.Module = DCGANEncoder(spec.picture, spec.hidden, n_members=spec.n_members)
            n_features = spec.hidden[-1] * math.prod(map_size(spec.picture, len(spec.hidden)))
        else:
            self.features = spec.encoder()
        self.head = StackedMLP([n_features, 1], n_members=spec.n_members)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. (1): z, x^, z^, all (members, batch, ...)."""
        code = self.encoder_1(x)
        picture = self.decoder(code)
        reconstruction = 2 * (picture.sigmoid() if self.has_logits else picture) - 1
        return code, reconstruction, self.encoder_2(reconstruction)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eqs. (3) to (7), each (members,)."""
        x = 2 * batch.unlabelled - 1
        code, reconstruction, second_code = self(x)
        real, made = self.features(x), self.features(reconstruction.detach())
        mismatch = real.detach() - _with_fixed_weights(self.features, reconstruction)
        terms = {
            "adversarial": mismatch.square(),  # Eq. (3)
            "context": (reconstruction - x).abs(),  # Eq. (4)
            "encoding": (second_code - code).square(),  # Eq. (5)
        }
        weighted = {name: self.weights[name] * term.flatten(1).mean(1) for name, term in terms.items()}
        return weighted | {"discriminator": judge_loss(self.head(real), self.head(made)) / 2}  # Eq. (7)

    def scorer(self) -> Scorer:
        """A function giving Eq. (8), (members, batch)."""

        def score(x: Tensor) -> dict[str, Tensor]:
            code, _, second_code = self((2 * x - 1).expand(self.n_members, *x.shape))
            apart = second_code - code
            return {"encoding": (apart.square() if self.squared else apart.abs()).mean(2, dtype=x.dtype)}

        return score

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving x^, pixels in [0, 1] again, (members, batch, *features)."""
        return lambda x: (self((2 * x - 1).expand(self.n_members, *x.shape))[1] + 1) / 2


def _with_fixed_weights(network: nn.Module, x: Tensor) -> Tensor:
    """The network's output, whose gradient reaches x only; statistics of batch norm are left as they are."""
    fixed = {name: weight.detach() for name, weight in network.named_parameters()}
    fixed |= {name: buffer.clone() for name, buffer in network.named_buffers()}
    out: Tensor = functional_call(network, fixed, (x,))
    return out
