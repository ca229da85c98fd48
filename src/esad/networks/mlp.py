"""Multi-layer perceptrons stacked over members: one matrix product trains them all.

A layer is `h = leaky_relu(batch_norm(W h))`, the last one plain `W h + b`. All weights of a network are one
parameter of shape (members, n_weights), so that optimiser and clipping touch one tensor; inside the network
activations are (members, features, batch), where batch norm is one library call for all members.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.core.random import MemberRandom
from esad.networks.norm import SharedNorm, gather_moments

MOMENTUM = 0.1


class StackedMLP(SharedNorm, nn.Module):
    """`n_members` perceptrons of the same shape.

    Parameters
    ----------
    sizes : sequence of int
        Features in, hidden widths, features out.
    n_members : int
    slope : float, default 0.2
        Of the leaky ReLU for negative values.
    eps : float, default 1e-4
        Of batch norm, which has no affine part.
    bias : bool, default True
        Whether the last layer has a bias; hidden layers need none before batch norm.
    sigmoid : bool, default False
        Whether the output is squashed into (0, 1).
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        n_members: int,
        slope: float = 0.2,
        eps: float = 1e-4,
        bias: bool = True,
        sigmoid: bool = False,
    ) -> None:
        super().__init__()
        self.n_members = n_members
        self.shapes = list(pairwise(sizes))
        self.slope, self.eps, self.sigmoid = slope, eps, sigmoid
        self.n_bias = sizes[-1] if bias else 0
        self.weights = nn.Parameter(torch.zeros(n_members, sum(a * b for a, b in self.shapes) + self.n_bias))
        for index, width in enumerate(sizes[1:-1]):
            self.register_buffer(f"mean_{index}", torch.zeros(n_members, width))
            self.register_buffer(f"variance_{index}", torch.ones(n_members, width))

    def reset(self, random: MemberRandom) -> None:
        """Uniform in +-1/sqrt(features in), per layer."""
        blocks = [(random.uniform(n_in * n_out) * 2 - 1) / n_in**0.5 for n_in, n_out in self.shapes]
        blocks.append((random.uniform(self.n_bias) * 2 - 1) / self.shapes[-1][0] ** 0.5)
        with torch.no_grad():
            self.weights.copy_(torch.cat(blocks, dim=1))

    def layers(self) -> tuple[list[Tensor], Tensor | None]:
        """Weight matrices (members, out, in) and the last layer's bias (members, out, 1)."""
        sizes = [n_in * n_out for n_in, n_out in self.shapes]
        *flat, bias = torch.split(self.weights, [*sizes, self.n_bias], dim=1)
        matrices = [w.view(self.n_members, b, a) for w, (a, b) in zip(flat, self.shapes, strict=True)]
        return matrices, bias[:, :, None] if self.n_bias else None

    def forward(self, x: Tensor) -> Tensor:
        """(members, batch, features in) -> (members, batch, features out)."""
        matrices, bias = self.layers()
        h = x.transpose(1, 2)  # (members, features, batch)
        for index, matrix in enumerate(matrices[:-1]):
            h = self._activate(torch.bmm(matrix, h), index)
        out = torch.bmm(matrices[-1], h) if bias is None else torch.baddbmm(bias, matrices[-1], h)
        return (out.sigmoid() if self.sigmoid else out).transpose(1, 2)

    def _activate(self, h: Tensor, index: int) -> Tensor:
        """Batch norm and leaky ReLU of (members, width, batch).

        With the batch innermost, batch norm without an affine part is layer norm over the last axis.
        """
        mean, variance = self.get_buffer(f"mean_{index}"), self.get_buffer(f"variance_{index}")
        batch = h.shape[2] * self.processes.size
        if not self.training or batch == 1:
            scale = (variance + self.eps).rsqrt()
            return F.leaky_relu_((h - mean[:, :, None]) * scale[:, :, None], self.slope)
        if self.processes.is_alone:
            normal, batch_mean, inverse_std = torch.native_layer_norm(h, (batch,), None, None, self.eps)
        else:
            h = h.to(mean.dtype)
            batch_mean, batch_variance = gather_moments(h, (2,), self.processes)
            inverse_std = (batch_variance + self.eps).rsqrt()
            normal = (h - batch_mean) * inverse_std
        with torch.no_grad():
            unbiased = (inverse_std.pow(-2) - self.eps).clamp_(min=0.0).mul_(batch / (batch - 1))
            mean.lerp_(batch_mean.squeeze(2).to(mean.dtype), MOMENTUM)
            variance.lerp_(unbiased.squeeze(2).to(variance.dtype), MOMENTUM)
        return F.leaky_relu_(normal, self.slope)

    @torch.no_grad()
    def freeze(self) -> "FrozenMLP":
        """Return a network for scoring with batch norm folded into the weights, which computes the same."""
        matrices, bias = self.layers()
        folded: list[tuple[Tensor, Tensor]] = []
        for index, matrix in enumerate(matrices[:-1]):
            mean, variance = self.get_buffer(f"mean_{index}"), self.get_buffer(f"variance_{index}")
            scale = (variance + self.eps).rsqrt()[:, :, None]
            folded.append((matrix * scale, -mean[:, :, None] * scale))
        last = torch.zeros_like(matrices[-1][:, :, :1]) if bias is None else bias.clone()
        folded.append((matrices[-1].clone(), last))
        return FrozenMLP(folded, slope=self.slope, sigmoid=self.sigmoid)


class FrozenMLP:
    """Inference only: `leaky_relu(W h + b)` in place; activations are (members, features, batch)."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]], *, slope: float, sigmoid: bool) -> None:
        self.layers = layers
        self.slope = slope
        self.sigmoid = sigmoid

    @property
    def n_out(self) -> int:
        """Features out."""
        return self.layers[-1][0].shape[1]

    def take_members(self, members: Tensor, *, n_in: int | None = None, n_out: int | None = None) -> "FrozenMLP":
        """The networks of these members, cut down to their first `n_in` and `n_out` features."""
        layers = [(matrix[members], bias[members]) for matrix, bias in self.layers]
        matrix, bias = layers[0]
        layers[0] = (matrix[:, :, :n_in].clone(), bias)
        matrix, bias = layers[-1]
        layers[-1] = (matrix[:, :n_out].clone(), bias[:, :n_out].clone())
        return FrozenMLP(layers, slope=self.slope, sigmoid=self.sigmoid)

    def __call__(self, h: Tensor) -> Tensor:
        """(members or 1, features in, batch) -> (members, features out, batch)."""
        for index, (matrix, bias) in enumerate(self.layers):
            if h.shape[0] != matrix.shape[0]:  # rows shared by all members: one wide product
                members, width, n_in = matrix.shape
                h = torch.addmm(bias.view(-1, 1), matrix.view(-1, n_in), h[0]).view(members, width, -1)
            else:
                h = torch.baddbmm(bias, matrix, h)
            if index < len(self.layers) - 1:
                h = F.leaky_relu_(h, self.slope)
        return h.sigmoid_() if self.sigmoid else h
