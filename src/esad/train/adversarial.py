"""Losses of generators and discriminators, and what scoring by a search needs.

A judge D gives logits (Goodfellow et al. 2014), of real rows a and made ones b:

    L_D = - 1/n sum_i [log D(a_i) + log(1 - D(b_i))],     L_G = - 1/n sum_i log D(b_i)

A critic C is large where rows are real, with gradients of length 1 in between (Gulrajani et al. 2017):

    L_C = 1/n sum_i C(b_i) - C(a_i) + penalty (||grad C(c_i)|| - 1)^2 + drift (C(a_i)^2 + C(b_i)^2)
    c_i = t_i a_i + (1 - t_i) b_i,   t_i uniform in [0, 1]
"""

import contextlib
import logging
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.core.arguments import Rule, is_whole
from esad.core.random import MemberRandom
from esad.train.objective import mean_over_rows

MAX_STEPS = 10_000  # a forged file with more steps would make scoring endless
BOUNDED = Rule(f"a whole number from 1 to {MAX_STEPS:,}", lambda value: is_whole(value) and value <= MAX_STEPS)
LOG_SECONDS = 10.0
logger = logging.getLogger("esad")


def judge_loss(on_real: Tensor, on_made: Tensor) -> Tensor:
    """L_D of a judge's logits (members, batch, 1), (members,)."""
    return mean_over_rows((F.softplus(-on_real) + F.softplus(on_made))[..., 0])


def deception_loss(on_made: Tensor) -> Tensor:
    """L_G of a judge's logits (members, batch, 1), (members,)."""
    return mean_over_rows(F.softplus(-on_made)[..., 0])


def critic_loss(
    critic: nn.Module, real: Tensor, made: Tensor, random: MemberRandom, *, penalty: float, drift: float = 0.0
) -> Tensor:
    """Return L_C of real rows a and generated rows b, both (members, batch, ...) without gradients, (members,)."""
    on_real, on_made = critic(real).flatten(1), critic(made).flatten(1)
    size = on_real.square() + on_made.square()
    loss: Tensor = (on_made - on_real + drift * size).mean(1) + penalty * gradient_penalty(critic, real, made, random)
    return loss


def gradient_penalty(critic: nn.Module, real: Tensor, made: Tensor, random: MemberRandom) -> Tensor:
    """The mean of (||grad C(c_i)|| - 1)^2 with t uniform in [0, 1], (members,)."""
    share = random.uniform(real.shape[1]).view(*real.shape[:2], *[1] * (real.dim() - 2))
    between = (share * real + (1 - share) * made).detach().requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    excess: Tensor = torch.linalg.vector_norm(slope.flatten(2), dim=2) - 1
    return excess.square().mean(1)


# ---------------------------------------------------------------------- scoring by search


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
