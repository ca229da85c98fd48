"""The autoencoder that several methods train first: it reconstructs the rows, and its encoder is kept.

L = 1/n sum_i ||Dec(Enc(x_i)) - x_i||^2 / d,     d features
"""

from collections.abc import Callable
from typing import ClassVar

from torch import Tensor

from esad.core.random import MemberRandom
from esad.networks.layers import inference
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, RebuildingObjective

Change = Callable[[Tensor, MemberRandom], Tensor]


class AutoencoderObjective(RebuildingObjective):
    """Mean squared reconstruction error of the unlabelled rows; labelled rows are not looked at.

    A phase chooses which rows count as unlabelled, see `unlabel_all` and `hold_out_anomalies`. `augment` changes them
    at random before each step.
    """

    recordable: ClassVar[bool] = True

    def __init__(self, spec: NetworkSpec, *, augment: Change | None = None) -> None:
        super().__init__()
        self.n_members, self.augment = spec.n_members, augment
        self.encoder = spec.encoder()
        self.decoder = spec.decoder()

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The reconstruction error, (members,)."""
        x = batch.unlabelled if self.augment is None else self.augment(batch.unlabelled, batch.random)
        return {"reconstruction": (self.decoder(self.encoder(x)) - x).square().flatten(1).mean(1)}

    def errors(self) -> Callable[[Tensor], Tensor]:
        """A function giving the squared error of every feature, (members, batch, *features)."""
        rebuild = self.rebuilder()
        return lambda x: (rebuild(x) - x).square()

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function from rows (batch, *features) to their reconstruction (members, batch, *features)."""
        encode, decode = inference(self.encoder), inference(self.decoder)
        return lambda x: decode(encode(x[None]))

    def coder(self) -> Callable[[Tensor], Tensor]:
        """A function from rows (batch, *features) to codes (members, batch, code)."""
        encode = inference(self.encoder)
        return lambda x: encode(x[None])
