"""Scoring by search, as GANs do it for every picture: gradients inside a scoring pass, and log lines on the way."""

import contextlib
import logging
import time
from collections.abc import Iterator

import torch

from esad.core.arguments import Rule, is_whole

__all__ = ["BOUNDED", "MAX_STEPS", "enable_gradients", "log_steps"]

MAX_STEPS = 10_000  # a file that claims more would have a picture searched for without end
BOUNDED = Rule(f"a whole number from 1 to {MAX_STEPS:,}", lambda value: is_whole(value) and value <= MAX_STEPS)
LOG_SECONDS = 10.0  # seconds
logger = logging.getLogger("esad")


@contextlib.contextmanager
def enable_gradients() -> Iterator[None]:
    """Compute gradients inside a scoring pass, which has none; tensors from outside must be cloned first.

    Examples
    --------
    >>> with torch.inference_mode(), enable_gradients():
    ...     x = torch.ones(2, requires_grad=True)
    ...     x.sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield


def log_steps(n_steps: int, what: str) -> Iterator[int]:
    """Count 0 .. n_steps - 1, logging every ten seconds how far it is.

    Examples
    --------
    >>> list(log_steps(3, "2 pictures"))
    [0, 1, 2]
    """
    told = time.monotonic()
    for step in range(n_steps):
        if time.monotonic() - told > LOG_SECONDS:
            logger.info("searching for %s: step %d of %d", what, step, n_steps)
            told = time.monotonic()
        yield step
