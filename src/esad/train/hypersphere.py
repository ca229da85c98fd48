"""Codes around a centre: what Deep SVDD, Deep SAD and TLSAD share.

d(x) = ||Enc(x) - c||^2,   c the mean code of the training rows before the first step

1/(n+m) sum_i d(x_i)  and  eta/(n+m) sum_j (d(x_j) + 1e-6)^(y_j)                      Deep SAD's two sums
"""

import torch
from torch import Tensor

from esad.networks.layers import inference
from esad.networks.spec import NetworkSpec
from esad.train.autoencoder import AutoencoderObjective
from esad.train.objective import Batch, Objective, RowPool, Scorer

BLOCK_ROWS = 1024  # rows per forward pass when the centre is sought
EPS = 1e-6  # keeps the inverse of a distance finite
MIN_CENTRE = 0.1  # a centre coordinate near 0 could be reached by weights of 0


class HypersphereObjective(Objective):
    """An encoder, a centre, and the distance between a code and the centre as the score."""

    centre: Tensor

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.encoder = spec.encoder()
        self.labelled_ratio = 0.0  # m / (n + m)
        self.register_buffer("centre", torch.zeros(spec.n_members, spec.n_codes))

    def inherit(self, previous: Objective) -> None:
        """Take over the encoder of a trained autoencoder, batch-norm statistics included."""
        assert isinstance(previous, AutoencoderObjective)
        self.encoder.load_state_dict(previous.encoder.state_dict())

    @torch.no_grad()
    def prepare(self, data: RowPool) -> None:
        """Put each member's centre at the mean code of the rows it may draw, away from 0 in every coordinate."""
        n_unlabelled = data.n_unlabelled if data.refill is None else data.refill.n_rows
        self.labelled_ratio = data.n_labelled / (data.n_labelled + n_unlabelled)
        codes = self._codes(data.x)
        drawn = torch.cat([data.unlabelled, data.labelled], dim=1)[:, :, None]  # (members, rows, 1)
        centre = codes.gather(1, drawn.expand(-1, -1, codes.shape[2])).mean(1)
        pushed = torch.full_like(centre, MIN_CENTRE).copysign(centre)
        self.centre.copy_(torch.where(centre.abs() < MIN_CENTRE, pushed, centre))

    def squared_distance(self, x: Tensor) -> Tensor:
        """d of rows (members, batch, *features), (members, batch)."""
        return (self.encoder(x) - self.centre[:, None]).square().sum(2)

    def measure_batch(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """d of the unlabelled rows, (members, n), and (d + 1e-6)^y of the labelled ones, (members, m)."""
        near, known = batch.split(self.squared_distance(batch.rows))
        return near, torch.where(batch.y < 0, 1 / (known + EPS), known + EPS)

    def sum_near_and_far(self, batch: Batch, *, eta: float) -> dict[str, Tensor]:
        """Return Deep SAD's sums over unlabelled and over labelled rows, each (members,); 0 where there are none."""
        near, known = self.measure_batch(batch)
        return {
            "unlabelled": (1 - self.labelled_ratio) * near.sum(1) / max(1, near.shape[1]),
            "labelled": eta * self.labelled_ratio * known.sum(1) / max(1, known.shape[1]),
        }

    def codes(self, x: Tensor) -> dict[str, Tensor]:
        """Enc(x)."""
        return {"z": inference(self.encoder)(x[None])}

    def scorer(self) -> Scorer:
        """A function giving the distance of every row from the centre, (members, batch)."""
        encode = inference(self.encoder)
        return lambda x: {"distance": (encode(x[None]) - self.centre[:, None]).square().sum(2).sqrt()}

    def _codes(self, x: Tensor) -> Tensor:
        """Codes of all rows by all members in evaluation mode, (members, n, code)."""
        was_training = self.encoder.training
        encode = inference(self.encoder.eval())
        codes = torch.cat([encode(block[None]) for block in torch.split(x, BLOCK_ROWS)], dim=1)
        self.encoder.train(was_training)
        return codes
