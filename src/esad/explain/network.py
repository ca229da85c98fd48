r"""Explains a trained objective: what it expects in place of a row, and the shares of its terms, feature by feature.

Shares are exact where a term is a sum over features, integrated gradients elsewhere.

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

import copy
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esad.core.arrays import Rows
from esad.explain.attribution import Attribution, sum_by_unit
from esad.train.objective import Objective

FIRST_STEPS, MAX_STEPS = 32, 512
MAX_STEPS_PICTURES = 64  # which take long, and whose maps are smoothed
PATH_ROWS = 256  # points of the path in one pass
PATH_VALUES = 1 << 18  # numbers in these, fewer points of large pictures
TOLERANCE = 0.01
CANCELLED = 1e-8  # of what the summands amount to: their sum is rounding
BLOCK_ROWS, BLOCK_PICTURES = 256, 16
MAX_PASSES = 256  # of a row with columns hidden; of more columns than this, several far apart are hidden at once
WAYS = (1.0, 0.75, 0.5, 0.25)  # from the typical row to the reconstruction
MIN_LOG_RISE = 1.0  # an error's logarithm is held against this much less at least, so that no share is negative

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
        found = _integrate(terms, name, x[left], start[left], n_steps)
        shares[:, left] = found
        missing = (there - here)[:, left] - found.flatten(2).sum(2)
        close = missing.abs() <= TOLERANCE * (there.abs() + here.abs())[:, left]
        left = left[~close.all(0)] if n_steps < most else left[:0]
        n_steps *= 2
    return _complete_shares(shares, there - here)


def _integrate(terms: Terms, name: str, x: Tensor, start: Tensor, n_steps: int) -> Tensor:
    """Sum the gradients at the middles of `n_steps` equal steps, (members, batch, *features)."""
    middles = (torch.arange(n_steps, dtype=x.dtype, device=x.device) + 0.5) / n_steps
    total = x.new_zeros(1, *x.shape)
    n_points = min(PATH_ROWS, PATH_VALUES // x[0].numel()) if x.dim() > 2 else PATH_ROWS
    for part in torch.split(middles, max(1, n_points // len(x))):
        points = torch.lerp(start, x, part.view(-1, *[1] * x.dim())).flatten(0, 1).requires_grad_()
        with torch.enable_grad():
            values = terms(points)[name]  # (members, steps * batch)
            slopes = [torch.autograd.grad(value.sum(), points, retain_graph=True)[0] for value in values]
        slope = torch.stack(slopes).nan_to_num_(0.0, 0.0, 0.0)  # a norm of 0 has no slope
        total = total + slope.view(len(slopes), len(part), *x.shape).sum(1)
    return total * ((x - start) / n_steps)


def _complete_shares(shares: Tensor, wanted: Tensor) -> Tensor:
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


class NetworkExplainer:
    """A copy of an objective in double precision, and what explaining needs to know beside it.

    Parameters
    ----------
    objective : Objective
        Trained; it is copied.
    typical : ndarray, (*features)
        The mean of the presumed normal training rows.
    threshold : float
        Scores above it are alarms.
    units : ndarray of int, (features,)
        Column or pixel that each feature, flattened, belongs to.
    front : callable, optional
        Something that rows pass before the objective, such as a fixed network: a differentiable function in double
        precision.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        typical: Rows,
        threshold: float,
        units: NDArray[np.intp],
        front: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        device = next(objective.parameters()).device
        self.device = torch.device("cpu") if device.type == "mps" else device  # which has no double precision
        self.objective = copy.deepcopy(objective).to(self.device, torch.float64).eval().requires_grad_(False)
        scorer = self.objective.scorer()
        self.terms = scorer if front is None else lambda x: scorer(front(x))
        self.summands = self.objective.summands()
        self.rebuild = None if front is not None else self.objective.rebuilder()
        self.typical = self._to_tensor(typical)
        self.limit = (threshold + float(self._score(self.typical[None]))) / 2
        self.units = units

    def find_expected(self, rows: Rows) -> Rows:
        """What the model expects in place of each column of a table, or of a picture as a whole.

        Column by column the row is shown to the network with that column at its typical value, so that what is
        rebuilt there rests on the other columns alone. Without a decoder the typical row is expected.
        """
        if self.rebuild is None:
            return np.broadcast_to(self.typical.cpu().numpy().astype(np.float32), rows.shape)
        out = np.empty_like(rows)
        for here in self._split_blocks(rows):
            found = self._rebuild(self._to_tensor(rows[here])) if rows.ndim > 2 else self._rebuild_hidden(rows[here])
            out[here] = found.cpu().numpy()
        return out

    def attribute(self, rows: Rows) -> Attribution:
        """Eqs. (1) to (7) of `esad.explain.network`."""
        blocks = [self._attribute_block(rows[here]) for here in self._split_blocks(rows)]
        return Attribution(
            {name: np.concatenate([block.shares[name] for block in blocks]) for name in blocks[0].shares},
            {name: np.concatenate([block.base[name] for block in blocks]) for name in blocks[0].base},
        )

    def _attribute_block(self, rows: Rows) -> Attribution:
        x = self._to_tensor(rows)
        start = self._find_start(x)
        with torch.no_grad():
            raw, summands = self.terms(x), self.summands(x)
            low = {name: term.clone() for name, term in self.terms(start).items()}
            typical = self.terms(self.typical[None])
        for name in summands:
            low[name] = torch.minimum(typical[name], raw[name] * np.exp(-MIN_LOG_RISE))
        high, slopes, mixed = self._contributions(raw)
        base = self.objective.contributions(low)
        nothing = self.objective.contributions({name: torch.zeros_like(term) for name, term in raw.items()})
        shares = {}
        for name in high:
            if name in mixed:
                by_member = integrate_gradients(lambda x: self.objective.contributions(self.terms(x)), name, x, start)
            else:
                if name in summands:
                    base[name] = torch.where(nothing[name] == 0, 0.0, base[name])
                found = summands[name] if name in summands else integrate_gradients(self.terms, name, x, start)
                by_member = carry_shares(found, high[name] - base[name], slopes[name])
            shares[name] = sum_by_unit(by_member.mean(0).flatten(1).cpu().numpy(), self.units)
        return Attribution(shares, {name: value.mean(0).cpu().numpy() for name, value in base.items()})

    def _find_start(self, x: Tensor) -> Tensor:
        """Eq. (7): from the reconstruction of a row towards the typical row, as far as it takes to be a normal one."""
        typical = self.typical.expand_as(x)
        if self.rebuild is None:
            return typical
        rebuilt, start = self._rebuild(x), typical.clone()
        open_ = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for share in WAYS:
            point = torch.lerp(typical, rebuilt, share)
            fits = open_ & (self._score(point) <= self.limit)
            start[fits] = point[fits]
            open_ &= ~fits
        return start

    @torch.no_grad()
    def _score(self, x: Tensor) -> Tensor:
        """The anomaly score, (batch,)."""
        return torch.stack(list(self.objective.contributions(self.terms(x)).values())).sum(0).mean(0)

    def _contributions(self, raw: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor], set[str]]:
        """What each term adds to the score, how steeply, (members, batch), and which are made of several raw terms."""
        slopes, mixed = {}, set()
        with torch.enable_grad():
            raw = {name: term.detach().requires_grad_() for name, term in raw.items()}
            found = self.objective.contributions(raw)
            for name, value in found.items():
                by_term = torch.autograd.grad(value.sum(), list(raw.values()), retain_graph=True, allow_unused=True)
                known = {term: slope for term, slope in zip(raw, by_term, strict=True) if slope is not None}
                slopes[name] = known[name]
                mixed |= {name} if len(known) > 1 else set()
        return {name: value.detach() for name, value in found.items()}, slopes, mixed

    @torch.no_grad()
    def _rebuild(self, x: Tensor) -> Tensor:
        """The reconstruction, mean over the members, (batch, *features)."""
        assert self.rebuild is not None
        return self.rebuild(x).mean(0)

    def _rebuild_hidden(self, rows: Rows) -> Tensor:
        """Each column of a table as it is rebuilt when the network does not see it, (batch, features)."""
        x = self._to_tensor(rows)
        out = torch.empty_like(x)
        n_passes = min(int(self.units.max()) + 1, MAX_PASSES)
        for first in range(n_passes):
            hidden = torch.from_numpy(self.units % n_passes == first).to(self.device)
            out[:, hidden] = self._rebuild(torch.where(hidden, self.typical, x))[:, hidden]
        return out

    def _split_blocks(self, rows: Rows) -> list[slice]:
        size = BLOCK_ROWS if rows.ndim == 2 else BLOCK_PICTURES
        return [slice(first, first + size) for first in range(0, len(rows), size)]

    def _to_tensor(self, rows: Rows) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.device, torch.float64)
