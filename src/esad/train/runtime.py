"""Where and how exactly tensors are computed: device and precision."""

import contextlib
import re
from collections.abc import Iterator

import torch

from esad.errors import InputError

__all__ = ["PRECISIONS", "autocast", "dtype_of", "resolve_device", "threads_for"]

PRECISIONS = ("auto", "float32", "float64", "bfloat16")
_DEVICES = re.compile(r"auto|cpu|mps|cuda(:[0-9]{1,2})?")  # mps: let through, never tried
ROWS_PER_THREAD = 2048  # table rows, over all members, that make a step worth one more thread


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


def dtype_of(precision: str) -> torch.dtype:
    """Type of the weights; bfloat16 keeps float32 weights and computes under autocast."""
    if precision not in PRECISIONS:
        raise InputError(f"`precision` must be one of {', '.join(PRECISIONS)}. Got {precision!r}.")
    return torch.float64 if precision == "float64" else torch.float32


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[None]:
    """The context a forward pass runs in."""
    if precision == "bfloat16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


@contextlib.contextmanager
def threads_for(n_rows: int) -> Iterator[None]:
    """Let torch use only as many threads as steps over `n_rows` table rows are worth.

    Threads that wait for each other at every small product cost more than they bring, and far more on a busy machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, n_rows // ROWS_PER_THREAD)))
    try:
        yield
    finally:
        torch.set_num_threads(before)
