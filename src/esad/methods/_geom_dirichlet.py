"""Dirichlet distributions fitted by maximum likelihood, many at a time.

The likelihood is greatest at the fixed point of Minka's (2000) iteration

    alpha_j <- psi^-1(psi(s) + mean of log p_j),      s = sum_k alpha_k,      psi the digamma function

whose step depends on alpha through s alone, raises a sum that is too small and lowers one that is too large. So s is
found here by halving an interval: where one entry outweighs the others, as in the answers of a good classifier,
plain iteration needs thousands of steps.
"""

import math

import torch
from torch import Tensor

__all__ = ["fit_dirichlet", "inverse_digamma"]

MIN_SUM, MAX_SUM = 1e-6, 1e6  # where all vectors are alike, the likelihood has no maximum and the sum is the largest
N_HALVINGS = 50  # of the interval of log s; 1e-14 is left of it
EULER = 0.5772156649015329  # -psi(1)
N_NEWTON = 5  # steps from Minka's first guess of the inverse digamma; each doubles the correct digits


@torch.no_grad()
def fit_dirichlet(mean_log: Tensor) -> Tensor:
    """The parameters alpha of Dirichlet distributions.

    Parameters
    ----------
    mean_log : Tensor, (..., k)
        The mean of log p over the observed probability vectors p.

    Returns
    -------
    Tensor of float64, (..., k)

    Examples
    --------
    >>> alpha = torch.tensor([2.0, 1.0], dtype=torch.float64)
    >>> mean_log = torch.digamma(alpha) - torch.digamma(alpha.sum())  # what infinitely many vectors would give
    >>> fit_dirichlet(mean_log).round(decimals=6)
    tensor([2., 1.], dtype=torch.float64)
    """
    mean_log = mean_log.double()
    low = torch.full_like(mean_log[..., :1], math.log(MIN_SUM))  # of log s, (..., 1)
    high = torch.full_like(low, math.log(MAX_SUM))
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        too_small = _step(middle.exp(), mean_log).sum(-1, keepdim=True) > middle.exp()
        low, high = torch.where(too_small, middle, low), torch.where(too_small, high, middle)
    return _step(low.exp(), mean_log)


def inverse_digamma(y: Tensor) -> Tensor:
    """The x > 0 with psi(x) = y, by Newton's method."""
    x = torch.where(y >= -2.22, y.exp() + 0.5, -1 / (y + EULER))
    for _ in range(N_NEWTON):
        x = x - (torch.digamma(x) - y) / torch.polygamma(1, x)
    return x


def _step(total: Tensor, mean_log: Tensor) -> Tensor:
    return inverse_digamma(torch.digamma(total) + mean_log)
