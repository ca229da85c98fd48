"""Batches in equal parts, for several processes or one after the other, and batch norm over the whole batch."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from esad.core.processes import ALONE, Processes
from esad.errors import InputError
from esad.networks.norm import SharedNorm
from esad.train.objective import Batch, Objective, RowPool

if TYPE_CHECKING:
    from esad.train.loop import Settings

logger = logging.getLogger("esad")


class _Loss(nn.Module):
    """The loss as the forward pass of a module, the form in which torch averages gradients over processes."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The objective's terms."""
        return self.objective.loss(batch)


def make_replica(objective: Objective) -> DistributedDataParallel:
    """The loss of this process's rows, whose gradients are the mean over all processes."""
    with warnings.catch_warnings():  # newer versions of torch have renamed this argument
        warnings.simplefilter("ignore", FutureWarning)
        # statistics of batch norm are alike everywhere: there is nothing to broadcast
        return DistributedDataParallel(_Loss(objective), broadcast_buffers=False)


def even_batches(settings: Settings, data: RowPool, n_parts: int) -> Settings:
    """Change the batch sizes so that they divide into equal parts: a few rows more or, if there are no more, fewer."""
    n_drawn = min(settings.batch_size, data.n_unlabelled)
    if n_parts == 1 or (n_drawn % n_parts == 0 and settings.labelled_batch_size % n_parts == 0):
        return settings
    if 0 < data.n_unlabelled < n_parts:
        raise InputError(f"{data.n_unlabelled} unlabelled rows cannot be taken in {n_parts} parts. Take fewer.")
    even = -(-n_drawn // n_parts) * n_parts
    n_even = even if even <= data.n_unlabelled else even - n_parts
    m_even = -(-settings.labelled_batch_size // n_parts) * n_parts
    logger.info("%d unlabelled and %d labelled rows a step, to be taken in %d equal parts", n_even, m_even, n_parts)
    return replace(settings, batch_size=n_even or settings.batch_size, labelled_batch_size=m_even)


@contextlib.contextmanager
def share_norm(objective: Objective, processes: Processes) -> Iterator[None]:
    """Let batch norm take its statistics from the rows of all processes."""
    modules = [module for module in objective.modules() if isinstance(module, SharedNorm)]
    for module in modules:
        module.processes = processes
    try:
        yield
    finally:
        for module in modules:
            module.processes = ALONE
