"""Networks as plain functions for scoring: batch norm folded into the weights where that is quicker."""

from collections.abc import Callable

from torch import Tensor, nn

from esad.networks.mlp import StackedMLP

__all__ = ["inference"]


def inference(network: nn.Module) -> Callable[[Tensor], Tensor]:
    """A function (members or 1, batch, *features) -> (members, batch, *out); the network must be in evaluation mode.

    One leading row means that all members see the same rows.
    """
    if isinstance(network, StackedMLP):
        frozen = network.freeze()
        return lambda x: frozen(x.transpose(1, 2)).transpose(1, 2)
    n_members = int(network.n_members)  # type: ignore[arg-type]

    def run(x: Tensor) -> Tensor:
        out: Tensor = network(x.expand(n_members, *x.shape[1:]))
        return out

    return run
