"""Explains a trained objective: what it expects in place of a row, and the shares of its terms."""

import copy
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esad.explain.attribution import Attribution, sum_by_unit
from esad.explain.gradients import carry_shares, integrate_gradients
from esad.train.objective import Objective

__all__ = ["NetworkExplainer"]

Rows = NDArray[np.float32]

BLOCK_ROWS, BLOCK_PICTURES = 256, 16
MAX_PASSES = 256  # of a row with columns hidden; of more columns than this, several far apart are hidden at once
WAYS = (1.0, 0.75, 0.5, 0.25)  # from the typical row to the reconstruction
MIN_LOG_RISE = 1.0  # an error's logarithm is held against this much less at least, so that no share is negative


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
        self.typical = self._tensor(typical)
        self.limit = (threshold + float(self._score(self.typical[None]))) / 2
        self.units = units

    def expected(self, rows: Rows) -> Rows:
        """What the model expects in place of each column of a table, or of a picture as a whole.

        Column by column the row is shown to the network with that column at its typical value, so that what is
        rebuilt there rests on the other columns alone. Without a decoder the typical row is expected.
        """
        if self.rebuild is None:
            return np.broadcast_to(self.typical.cpu().numpy().astype(np.float32), rows.shape)
        out = np.empty_like(rows)
        for here in self._blocks(rows):
            found = self._rebuild(self._tensor(rows[here])) if rows.ndim > 2 else self._from_the_others(rows[here])
            out[here] = found.cpu().numpy()
        return out

    def attribute(self, rows: Rows) -> Attribution:
        """Eqs. (1) to (7) of `esad.explain.gradients`."""
        blocks = [self._attribute_block(rows[here]) for here in self._blocks(rows)]
        return Attribution(
            {name: np.concatenate([block.shares[name] for block in blocks]) for name in blocks[0].shares},
            {name: np.concatenate([block.base[name] for block in blocks]) for name in blocks[0].base},
        )

    def _attribute_block(self, rows: Rows) -> Attribution:
        x = self._tensor(rows)
        start = self._start(x)
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

    def _start(self, x: Tensor) -> Tensor:
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

    def _from_the_others(self, rows: Rows) -> Tensor:
        """Each column of a table as it is rebuilt when the network does not see it, (batch, features)."""
        x = self._tensor(rows)
        out = torch.empty_like(x)
        n_passes = min(int(self.units.max()) + 1, MAX_PASSES)
        for first in range(n_passes):
            hidden = torch.from_numpy(self.units % n_passes == first).to(self.device)
            out[:, hidden] = self._rebuild(torch.where(hidden, self.typical, x))[:, hidden]
        return out

    def _blocks(self, rows: Rows) -> list[slice]:
        size = BLOCK_ROWS if rows.ndim == 2 else BLOCK_PICTURES
        return [slice(first, first + size) for first in range(0, len(rows), size)]

    def _tensor(self, rows: Rows) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows)).to(self.device, torch.float64)
