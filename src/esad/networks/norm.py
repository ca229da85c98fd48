"""Batch norm over several processes: every one normalises by the statistics of the whole batch."""

import torch
from torch import Tensor, nn

from esad.processes import ALONE, Processes

__all__ = ["OverProcesses", "batch_norm_of_all", "moments_of_all"]


class OverProcesses:
    """A module whose batch norm asks other processes; the loop says which."""

    processes: Processes = ALONE


def moments_of_all(x: Tensor, dims: tuple[int, ...], processes: Processes) -> tuple[Tensor, Tensor]:
    """Mean and variance of the whole batch, of which every process holds equally many rows; `dims` are kept as 1.

    Within and between the processes, one exchange for both: sum of squares less square of the mean would cancel.
    """
    variance, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    means, variances = processes.of_all(torch.stack([mean, variance])).unbind(1)  # (processes, ...)
    mean = means.mean(0)
    return mean, (variances + (means - mean).square()).mean(0)


def batch_norm_of_all(norm: nn.BatchNorm2d, x: Tensor, processes: Processes) -> Tensor:
    """`norm(x)` in training, for the whole batch."""
    assert norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None
    assert norm.momentum is not None
    x = x.to(norm.running_mean.dtype)
    mean, variance = moments_of_all(x, (0, 2, 3), processes)
    n_values = x[:, 0].numel() * processes.size
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean.flatten(), norm.momentum)
        norm.running_var.lerp_(variance.flatten() * (n_values / (n_values - 1)), norm.momentum)
    normal = (x - mean) * (variance + norm.eps).rsqrt()
    if norm.weight is None:
        return normal
    return normal * norm.weight[:, None, None] + norm.bias[:, None, None]
