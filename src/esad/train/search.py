"""Searches that are made anew for every picture when it is scored: gradients where there are none, and progress."""

import contextlib
import logging
import time
from collections.abc import Iterator

import torch

from esad.core.arguments import Rule, is_whole

__all__ = ["BOUNDED", "MAX_STEPS", "searching", "told_steps"]

MAX_STEPS = 10_000  # a file that claims more would have a picture searched for without end
BOUNDED = Rule(f"a whole number from 1 to {MAX_STEPS:,}", lambda value: is_whole(value) and value <= MAX_STEPS)
TELL_EVERY = 10.0  # seconds
logger = logging.getLogger("esad")


@contextlib.contextmanager
def searching() -> Iterator[None]:
    """Let a forward pass without gradients have some; tensors from outside must be cloned before they are used.

    Examples
    --------
    >>> with torch.inference_mode(), searching():
    ...     x = torch.ones(2, requires_grad=True)
    ...     x.sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield


def told_steps(n_steps: int, what: str) -> Iterator[int]:
    """Count 0 .. n_steps - 1; where that takes long, lines of the log say how far it is.

    Examples
    --------
    >>> list(told_steps(3, "2 pictures"))
    [0, 1, 2]
    """
    told = time.monotonic()
    for step in range(n_steps):
        if time.monotonic() - told > TELL_EVERY:
            logger.info("searching for %s: step %d of %d", what, step, n_steps)
            told = time.monotonic()
        yield step
