"""Losses of GANs and of Wasserstein GANs: for the network that judges, and for the one that is judged.

A judge D gives logits (Goodfellow et al. 2014), of real rows a and made ones b:

    L_D = - 1/n sum_i [log D(a_i) + log(1 - D(b_i))],     L_G = - 1/n sum_i log D(b_i)

A critic C is large where rows are real, with gradients of length 1 in between (Gulrajani et al. 2017):

    L_C = 1/n sum_i C(b_i) - C(a_i) + penalty (||grad C(c_i)|| - 1)^2 + drift (C(a_i)^2 + C(b_i)^2)
    c_i = t_i a_i + (1 - t_i) b_i,   t_i uniform in [0, 1]
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.core.random import MemberRandom
from esad.train.objective import mean_over_rows

__all__ = ["critic_loss", "deception_loss", "gradient_penalty", "judge_loss"]


def judge_loss(on_real: Tensor, on_made: Tensor) -> Tensor:
    """L_D of a judge's logits (members, batch, 1), (members,)."""
    return mean_over_rows((F.softplus(-on_real) + F.softplus(on_made))[..., 0])


def deception_loss(on_made: Tensor) -> Tensor:
    """L_G of a judge's logits (members, batch, 1), (members,)."""
    return mean_over_rows(F.softplus(-on_made)[..., 0])


def critic_loss(
    critic: nn.Module, real: Tensor, made: Tensor, random: MemberRandom, *, penalty: float, drift: float = 0.0
) -> Tensor:
    """L_C of real rows a and made ones b, both (members, batch, ...) and constants, (members,)."""
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
