"""How tensors are computed: device, precision, threads, and many rows block by block."""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from esad.core import processes
from esad.core.arrays import Rows
from esad.core.text import first_line
from esad.errors import InputError
from esad.train.objective import Objective, Scorer

PRECISIONS = ("auto", "float32", "float64", "bfloat16")
_DEVICES = re.compile(r"auto|cpu|mps|cuda(:[0-9]{1,2})?")  # mps: let through, never tried
PRODUCTS_PER_THREAD = 50_000_000  # rows times weights that make a step on a table worth one more thread
N_LOOKS, LOOK_SECONDS = 5, 0.002  # at how many processes run
BLOCK_ROWS = 512  # table rows per forward pass on a CPU: activations stay in the cache
BLOCK_ROWS_DOUBLE = 192  # the same in float64; a multiple of the kernels' tiles, so that no row is in a partial one
BLOCK_ROWS_GPU = 65_536
BLOCK_PICTURES = 256
BLOCK_PICTURES_GPU = 2048


def resolve_device(device: str) -> torch.device:
    """Turn "auto", "cpu", "cuda" or "cuda:1" into a device that exists here.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    """
    allowed = "`device` must be 'auto', 'cpu', 'cuda' or one of several such as 'cuda:0'."
    if not isinstance(device, str) or not _DEVICES.fullmatch(device):
        raise InputError(f"{allowed} Got {device!r}.")
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if ":" in device and not processes.current().is_alone:
        raise InputError(f"Each of several processes takes a GPU of its own: `device` must be 'cuda'. Got {device!r}.")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
    except (RuntimeError, AssertionError) as error:
        n_found = torch.cuda.device_count()
        raise InputError(
            f"{allowed} Got {device!r}, which is not here: torch sees {n_found or 'no'} CUDA device"
            f"{'' if n_found == 1 else 's'}."
        ) from error
    return resolved


def device_for_scoring(device: str) -> torch.device:
    """The device asked for, or the CPU where a model is loaded on a machine without it."""
    try:
        return resolve_device(device)
    except InputError:
        return torch.device("cpu")


def place_objective(objective: Objective, device: torch.device, dtype: torch.dtype) -> Objective:
    """Move an objective to a device; convolutions are quicker with the channels innermost."""
    moved: Objective = objective.to(device, dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved


def dtype_of(precision: str) -> torch.dtype:
    """Type of the weights; bfloat16 keeps float32 weights and computes under autocast."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise InputError(f"`precision` must be one of {', '.join(PRECISIONS)}. Got {precision!r}.")
    return torch.float64 if precision == "float64" else torch.float32


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Return the context in which a forward pass runs."""
    if precision == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def without_autocast(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """A part of a forward pass that needs all digits, whatever the rest is computed in."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return contextlib.nullcontext()


@contextlib.contextmanager
def compile_network(network: torch.nn.Module) -> Iterator[None]:
    """Compile a network for the time of the block, for shapes that do not change."""
    vars(network)["forward"] = torch.compile(network.forward, dynamic=False)  # hides the class's own
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("torch."):  # the compiler's own kinds
            raise
        reason = first_line(error).rstrip(".")
        raise InputError(f"`compiled` cannot be used here: {reason}. Leave it out.") from error
    finally:
        del vars(network)["forward"]


def limit_threads(n_products: int) -> contextlib.AbstractContextManager[None]:
    """Limit torch to as many threads as pay off for steps of `n_products` (rows times weights).

    Threads that wait for each other at every small product cost more than they bring. Where they spin while they wait,
    no more than there are free cores: on a busy machine they would wait for one that is not running. A training on a
    table gives the same bits with any number of them.
    """
    n_threads = min(torch.get_num_threads(), n_products // PRODUCTS_PER_THREAD)
    spin = os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE"  # `import esad` sets it, unless torch came first
    return _use_threads(min(n_threads, free_cores()) if spin and n_threads > 1 else n_threads)


def free_cores() -> int:
    """Return how many cores are idle now; all of them if the system does not tell.

    Examples
    --------
    >>> free_cores() >= 1
    True
    """
    n_cores, n_running = os.cpu_count() or 1, []
    for _ in range(N_LOOKS):  # what runs for a moment only does not count
        try:
            running, _, _ = Path("/proc/loadavg").read_text().split()[3].partition("/")
        except OSError:
            return n_cores
        n_running.append(int(running) - 1)  # this process is one of them
        time.sleep(LOOK_SECONDS)
    return max(1, n_cores - min(n_running))


def run_in_turn(run: Callable[[int], None], items: Iterable[int]) -> None:
    """Call `run` for every item, one after the other."""
    for item in items:
        run(item)


def run_in_parallel(run: Callable[[int], None], items: Sequence[int]) -> None:
    """Call `run` for every item, as many at a time as torch has threads, each with one thread.

    Whole items side by side need no waiting for each other, unlike threads inside every product.
    """
    n_workers = min(torch.get_num_threads(), len(items))
    with _use_threads(1):
        if n_workers == 1:
            run_in_turn(run, items)
            return
        pool = ThreadPoolExecutor(n_workers, thread_name_prefix="esad")
        try:
            for _ in pool.map(run, items):
                pass
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _use_threads(n_threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, n_threads))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_over_blocks(
    objective: Objective,
    rows: Rows,
    use: Callable[[slice, dict[str, Tensor]], None],
    *,
    scorer: Scorer | None = None,
    precision: str = "auto",
) -> None:
    """Score rows block by block; `use` is called with the slice of each block and its raw terms (members, block).

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
    run_block = scorer or objective.make_once("scorer", objective.scorer)

    def run(first: int) -> None:
        block = torch.from_numpy(rows[first : first + size]).to(device, dtype)
        n = len(block)
        if n < size and table_on_cpu:
            block = torch.cat([block, block.new_zeros(size - n, *block.shape[1:])])
        with torch.inference_mode(), autocast(precision, device):
            use(slice(first, first + n), run_block(block))

    (run_in_parallel if table_on_cpu else run_in_turn)(run, range(0, len(rows), size))
