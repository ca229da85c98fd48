"""Forward passes over blocks of rows, for scoring as many of them as there are."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esad.train.objective import Objective, Scorer
from esad.train.runtime import autocast, in_parallel, in_turn

__all__ = ["BLOCK_PICTURES", "each_block"]

BLOCK_ROWS = 512  # table rows per forward pass on a CPU: activations stay in the cache
BLOCK_ROWS_DOUBLE = 192  # the same in float64; whole tiles of the usual kernels, so that no row is in a broken one
BLOCK_ROWS_GPU = 65_536
BLOCK_PICTURES = 256
BLOCK_PICTURES_GPU = 2048


def each_block(
    objective: Objective,
    rows: NDArray[np.float32],
    use: Callable[[slice, dict[str, Tensor]], None],
    *,
    scorer: Scorer | None = None,
    precision: str = "auto",
) -> None:
    """Take rows block by block; `use` gets which rows, and their raw terms (members, block).

    `scorer` gives something else than the objective's own terms.

    Table blocks on a CPU all have the same size, the last one padded, and one thread each: arithmetic then rounds the
    same way for every row, so a row's score depends neither on the rows beside it nor on the threads.
    """
    parameter = next(objective.parameters())
    device, dtype = parameter.device, parameter.dtype
    table_on_cpu = rows.ndim == 2 and device.type == "cpu"
    block_rows = BLOCK_ROWS_DOUBLE if dtype == torch.float64 else BLOCK_ROWS
    sizes = (block_rows, BLOCK_ROWS_GPU) if rows.ndim == 2 else (BLOCK_PICTURES, BLOCK_PICTURES_GPU)
    size = sizes[device.type != "cpu"]
    run_block = scorer or objective.kept("scorer", objective.scorer)

    def run(first: int) -> None:
        block = torch.from_numpy(rows[first : first + size]).to(device, dtype)
        n = len(block)
        if n < size and table_on_cpu:
            block = torch.cat([block, block.new_zeros(size - n, *block.shape[1:])])
        with torch.inference_mode(), autocast(precision, device):
            use(slice(first, first + n), run_block(block))

    (in_parallel if table_on_cpu else in_turn)(run, range(0, len(rows), size))
