r"""Shares of a network's score terms, feature by feature: exact where a term is a sum, integrated gradients elsewhere.

    S(x)     = sum_k C_k(x),   C_k(x) = 1/M sum_m f_km(T_km(x))                                         Eq. (1)

    a_kmj(x) = the j-th summand of T_km(x), where T_km is a sum over features (an error of reconstruction)    Eq. (2)
    a_kmj(x) = (x_j - r_j) int_0^1 dT_km/dx_j (r + t (x - r)) dt    for every other term                Eq. (3)

    share_kj = 1/M sum_m (f_km(T_km(x)) - b_km) a_kmj(x) / sum_i a_kmi(x)                               Eq. (4)
    base_k   = 1/M sum_m b_km,   b_km = f_km(T_km(r))                              for Eq. (3)          Eq. (5)
                                 b_km = 0                                          for Eq. (2), f_km(0) = 0
                                 b_km = f_km(min(T_km(typical), T_km(x) / e))      for Eq. (2), f_km a logarithm

    base_k + sum_j share_kj = C_k(x)                                                                    Eq. (6)

    r        = typical + w (x^ - typical),   w the largest of 1, 3/4, 1/2, 1/4, 0 with                  Eq. (7)
               S(r) <= (S(typical) + threshold) / 2

=============  ====================================================================================
k, m, j        term, member, feature
T_km, f_km     raw term, and what it adds to the member's score: itself, or the z-score of its logarithm
typical        the mean of the presumed normal training rows
x^             the reconstruction of x, mean over the members; without a decoder w = 0
r              where the path of Eq. (3) starts: as near to x^ as is still normal
=============  ====================================================================================

The share of a logarithm is that of what it is taken of, carried over in proportion (Eq. 4). Since f_km grows, shares
of an error are never negative, and in Eq. (3) the factor of proportion is never either. Eq. (3) is due to Sundararajan
et al. (2017); its a_kmj add up to T_km(x) - T_km(r). Where f_km takes more than one raw term, it is put into Eq. (3)
itself. The integral is a sum over equal steps, in double precision, twice as many until what is missing is at most
`TOLERANCE` of the two terms; what is still missing is then spread in proportion to |a_kmj|, so that Eq. (6) holds to
rounding.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["TOLERANCE", "carry_shares", "integrate_gradients"]

FIRST_STEPS, MAX_STEPS = 32, 512
MAX_STEPS_PICTURES = 64  # which take long, and whose maps are smoothed
BLOCK_ROWS = 256  # points of the path in one pass
TOLERANCE = 0.01
CANCELLED = 1e-8  # of what the summands amount to: their sum is rounding

Terms = Callable[[Tensor], dict[str, Tensor]]


def integrate_gradients(terms: Terms, name: str, x: Tensor, start: Tensor) -> Tensor:
    """Eq. (3) for one raw term of rows (batch, *features), (members, batch, *features).

    Examples
    --------
    >>> x, start = torch.tensor([[3.0, 4.0]]).double(), torch.zeros(1, 2).double()
    >>> integrate_gradients(lambda x: {"norm": x.square().sum(1).sqrt()[None]}, "norm", x, start).round(decimals=6)
    tensor([[[1.8000, 3.2000]]], dtype=torch.float64)
    """
    with torch.no_grad():
        there, here = (terms(rows)[name] for rows in (x, start))  # (members, batch)
    shares = x.new_empty(len(there), *x.shape)
    left = torch.arange(len(x), device=x.device)
    n_steps, most = FIRST_STEPS, MAX_STEPS if x.dim() == 2 else MAX_STEPS_PICTURES
    while len(left):
        found = _along(terms, name, x[left], start[left], n_steps)
        shares[:, left] = found
        missing = (there - here)[:, left] - found.flatten(2).sum(2)
        close = missing.abs() <= TOLERANCE * (there.abs() + here.abs())[:, left]
        left = left[~close.all(0)] if n_steps < most else left[:0]
        n_steps *= 2
    return _complete(shares, there - here)


def _along(terms: Terms, name: str, x: Tensor, start: Tensor, n_steps: int) -> Tensor:
    """The sum over the middles of `n_steps` equal steps, (members, batch, *features)."""
    middles = (torch.arange(n_steps, dtype=x.dtype, device=x.device) + 0.5) / n_steps
    total = x.new_zeros(1, *x.shape)
    for part in torch.split(middles, max(1, BLOCK_ROWS // len(x))):
        points = torch.lerp(start, x, part.view(-1, *[1] * x.dim())).flatten(0, 1).requires_grad_()
        with torch.enable_grad():
            values = terms(points)[name]  # (members, steps * batch)
            slopes = [torch.autograd.grad(value.sum(), points, retain_graph=True)[0] for value in values]
        slope = torch.stack(slopes).nan_to_num_(0.0, 0.0, 0.0)  # a norm of 0 has no slope
        total = total + slope.view(len(slopes), len(part), *x.shape).sum(1)
    return total * ((x - start) / n_steps)


def _complete(shares: Tensor, wanted: Tensor) -> Tensor:
    """Shares that add up to `wanted` (members, batch), the difference spread in proportion to their size."""
    flat = shares.flatten(2)
    sizes = flat.abs()
    sizes = torch.where(sizes.sum(2, keepdim=True) > 0, sizes, torch.ones_like(sizes))
    missing = wanted - flat.sum(2)
    return (flat + missing[:, :, None] * sizes / sizes.sum(2, keepdim=True)).view_as(shares)


def carry_shares(summands: Tensor, raised: Tensor, slope: Tensor) -> Tensor:
    """Eq. (4) for all members: `raised` (members, batch) in proportion to `summands` (members, batch, *features).

    `slope` (members, batch) is df/dT: what the factor of proportion tends to where the summands cancel.

    Examples
    --------
    >>> shares = torch.tensor([[[1.0, 3.0], [2.0, -2.0]]])
    >>> carry_shares(shares, torch.tensor([[8.0, 0.0]]), torch.tensor([[1.0, 5.0]]))
    tensor([[[  2.,   6.],
             [ 10., -10.]]])
    """
    flat = summands.flatten(2)
    total = flat.sum(2)
    cancelled = total.abs() <= CANCELLED * flat.abs().sum(2)
    factor = torch.where(cancelled, slope, raised / torch.where(cancelled, torch.ones_like(total), total))
    return (factor[:, :, None] * flat).view_as(summands)
