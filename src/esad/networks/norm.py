"""Batch norm over several processes: every one normalises by the statistics of the whole batch."""

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.core.processes import ALONE, Processes


class SharedNorm:
    """A module whose batch norm counts the rows of other processes too; the loop sets which."""

    processes: Processes = ALONE


def gather_moments(x: Tensor, dims: tuple[int, ...], processes: Processes) -> tuple[Tensor, Tensor]:
    """Mean and variance of the whole batch, of which every process holds equally many rows; `dims` are kept as 1.

    Within and between the processes, one exchange for both: sum of squares less square of the mean would cancel.
    """
    mean = x.mean(dims, keepdim=True)
    return _merge_moments(mean, (x - mean).square().mean(dims, keepdim=True), processes)  # torch.var_mean is far slower


def _merge_moments(mean: Tensor, variance: Tensor, processes: Processes) -> tuple[Tensor, Tensor]:
    """Mean and variance of the whole batch, from those of each process's rows."""
    means, variances = processes.gather(torch.stack([mean, variance])).unbind(1)  # (processes, ...)
    mean = means.mean(0)
    return mean, (variances + (means - mean).square()).mean(0)


def batch_norm_over_processes(norm: nn.BatchNorm2d, x: Tensor, processes: Processes) -> Tensor:
    """`norm(x)` in training, for the whole batch."""
    assert norm.running_mean is not None and norm.running_var is not None and norm.num_batches_tracked is not None
    assert norm.momentum is not None
    x = x.to(norm.running_mean.dtype)
    weight = torch.ones_like(norm.running_mean) if norm.weight is None else norm.weight
    bias = torch.zeros_like(norm.running_mean) if norm.bias is None else norm.bias
    normal, mean, variance = _BatchNormOverProcesses.apply(x, weight, bias, norm.eps, processes)  # type: ignore[no-untyped-call]
    n_values = x[:, 0].numel() * processes.size
    with torch.no_grad():
        norm.num_batches_tracked += 1
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (n_values / (n_values - 1)), norm.momentum)
    whole: Tensor = normal
    return whole


class _BatchNormOverProcesses(torch.autograd.Function):
    """Batch norm by torch's own kernels.

    With means over the whole batch, dx = weight / std * (dy - mean(dy) - normal * mean(dy * normal)). torch's backward
    pass takes means over the rows of this process; what the other rows change is added.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, processes: Processes
    ) -> tuple[Tensor, Tensor, Tensor]:
        # torch.var_mean would take thirty times as long where channels are innermost
        mean, variance = _merge_moments(*torch.batch_norm_update_stats(x, None, None, 0.0), processes)
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.processes = eps, processes
        ctx.mark_non_differentiable(mean, variance)
        return F.batch_norm(x, mean, variance, weight, bias, training=False, eps=eps), mean, variance

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, weight, mean, variance = ctx.saved_tensors
        inverse = (variance + ctx.eps).rsqrt()
        dx, dweight, dbias = torch.ops.aten.native_batch_norm_backward(
            dy, x, weight, None, None, mean, inverse, True, ctx.eps, [True, True, True]
        )
        own = torch.stack([dbias, dweight]) / x[:, 0].numel()  # means of dy and of dy * normal
        shift, slope = (own - ctx.processes.mean(own)) * (weight * inverse)
        dx += F.batch_norm(x, mean, variance, slope, shift, training=False, eps=ctx.eps)
        return dx, dweight, dbias, None, None
