r"""The dual of SSAD by working sets: exact but for a stated duality gap, never a matrix of all rows by all rows.

    min_a  D(a) = 1/2 ||w||^2 = 1/2 sum_ij a_i a_j s_i s_j k_ij                                         Eq. (1)
    s.t.   0 <= a_i <= c_i,    sum_i s_i a_i = 1,    sum_i l_i a_i >= kappa                             Eq. (2)

    D(a) - min D  <=  gap(a) = sum_i a_i s_i f_i - min_b sum_i b_i s_i f_i,    b as in Eq. (2)          Eq. (3)

=============  ====================================================================================
s_i            +1, or -1 for a known anomaly
l_i            1 for a labelled row, else 0
c_i            largest weight of a row
f_i            w.phi(x_i) = sum_j a_j s_j k_ij
=============  ====================================================================================

Eq. (3) holds because D is convex: D(b) >= D(a) + sum_i (b_i - a_i) s_i f_i. Its right side is also the primal objective
at the best rho and margin for w, minus the dual one.

Each round solves Eq. (1) for a working set of rows, the other weights fixed, by the interior-point solver clarabel,
and brings f up to date for all rows from the kernel columns of the set. A set is made of all rows with weights strictly
inside their bounds, and of some that violate the optimality conditions most; where too many rows are inside, of a part
of them. Every step goes down or nowhere, and the gap says how far there is to go.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from esad.solvers.kernels import kernel, kernel_sum

Vector = NDArray[np.float64]
Index = NDArray[np.intp]

N_START = 300  # rows of each kind that share the weight at the start
N_NEW = 100  # violating rows that join a working set
N_WHOLE = 300  # rows strictly inside their bounds that are solved for at once; more are taken in parts
N_PART = 120  # rows in such a part
N_HALVINGS = 40  # of the interval for the margin
FLAT = 1e-9  # of the value: less is not worth another halving
MAX_ROUNDS = 2500
MAX_WORK = 4e12  # multiplications in kernel columns, over all rounds
PATIENCE = 100  # rounds without a smaller gap
NOTHING = 1e-7  # of the largest weight: a weight below this is none
AT_BOUND = 1 - 1e-6
ACCURACY = 1e-10  # of a working set's program, relative


@dataclass(frozen=True)
class Dual:
    """Eqs. (1) and (2); there must be weights that fulfil Eq. (2)."""

    rows: NDArray[Any]  # (n, features)
    signs: Vector
    bounds: Vector
    labelled: Vector
    kappa: float
    gamma: float

    @cached_property
    def kinds(self) -> tuple[Index, Index, Index]:
        """Unlabelled rows, known normal ones, known anomalies."""
        normal, anomalous = self.labelled * (self.signs > 0), self.signs < 0
        return np.flatnonzero(self.labelled == 0), np.flatnonzero(normal), np.flatnonzero(anomalous)

    @cached_property
    def n_rounds(self) -> int:
        """How many rounds there may be."""
        per_round = float(len(self.rows)) * N_PART * (self.rows.shape[1] + 30)  # 30: what an exponential costs
        return max(int(min(MAX_ROUNDS, MAX_WORK / per_round)), 20)


@dataclass(frozen=True)
class Solution:
    """Weights a, with the primal's offset and margin, and how good they are."""

    weights: Vector
    rho: float
    margin: float
    objective: float  # D(a)
    gap: float  # at most this far above the minimum
    n_rounds: int


@dataclass(frozen=True)
class _Iterate:
    """The state of the search: weights a, levels f, and the multipliers of the last working set."""

    weights: Vector
    levels: Vector
    rho: float = 0.0
    margin: float = 0.0
    failed: bool = False  # the last working set did

    def objective(self, dual: Dual) -> float:
        """Eq. (1)."""
        return float(0.5 * (self.weights * dual.signs) @ self.levels)


@dataclass(frozen=True)
class _Step:
    """A step of a working set's weights, and the multipliers of the two sums in Eq. (2)."""

    step: Vector
    rho: float
    margin: float


def solve(dual: Dual, *, tol: float, seed: int) -> Solution:
    """Minimise Eq. (1) until the gap is at most `tol` times the objective, or the rounds are used up.

    Parameters
    ----------
    dual : Dual
    tol : float
        Relative gap to reach.
    seed : int
        Of the rows that are drawn; the same seed gives the same solution.
    """
    rng = np.random.default_rng(seed)
    now = _start_weights(dual, rng)
    best: Solution | None = None
    n_rounds = quiet = 0
    while True:
        objective = now.objective(dual)
        rho, margin, least = _solve_linear_program(dual, now.levels)
        gap = max(2 * objective - least, 0.0)
        if best is None or gap < best.gap:
            quiet = 0
            best = Solution(now.weights.copy(), rho, margin, objective, gap, n_rounds)
        if n_rounds == 0:
            now = replace(now, rho=rho, margin=margin)
        chosen = _choose_working_set(dual, now, rng)
        if gap <= tol * objective or n_rounds == dual.n_rounds or quiet == PATIENCE or len(chosen) == 0:
            return replace(best, n_rounds=n_rounds)
        now = _advance(dual, now, chosen, objective)
        n_rounds, quiet = n_rounds + 1, quiet + 1


# ---------------------------------------------------------------------- the gap


def _solve_linear_program(dual: Dual, levels: Vector) -> tuple[float, float, float]:
    """rho, margin >= 0 and the minimum over b in Eq. (3), by its linear program's dual.

    For a given margin g the best rho is a weighted quantile of f_i - s_i l_i g, where the weights c_i add up to one
    more than those of the known anomalies. The value is concave in g; its slope is kappa - sum_i l_i b_i.
    """
    total = 1 + dual.bounds[dual.signs < 0].sum()
    n_needed = min(int(total / dual.bounds.min()) + 2, len(levels))

    def at(margin: float) -> tuple[float, float, float]:
        shifted = levels - dual.signs * dual.labelled * margin
        first = np.argpartition(shifted, n_needed - 1)[:n_needed]
        first = first[np.argsort(shifted[first], kind="stable")]
        reached = np.cumsum(dual.bounds[first])
        last = min(int(np.searchsorted(reached, total * (1 - 1e-12))), n_needed - 1)
        filled = np.zeros(len(levels))
        filled[first[:last]] = dual.bounds[first[:last]]
        filled[first[last]] = total - (reached[last - 1] if last else 0.0)
        b = np.where(dual.signs > 0, filled, dual.bounds - filled)
        slope = dual.kappa - float(dual.labelled @ b)
        return float(shifted[first[last]]), float((b * dual.signs) @ levels) + margin * slope, slope

    rho, value, slope = at(0.0)
    best = (rho, 0.0, value)
    low, high = 0.0, float(np.abs(levels).max())
    if dual.kappa == 0 or slope <= 0:
        return best
    for _ in range(N_HALVINGS):
        rho, value, slope = at(high)
        best = max(best, (rho, high, value), key=lambda found: found[2])
        if slope <= 1e-9 * dual.kappa:
            break
        low, high = high, 2 * high
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        rho, value, slope = at(middle)
        best = max(best, (rho, middle, value), key=lambda found: found[2])
        if abs(slope) * (high - low) <= FLAT * abs(value):  # concave: no more than this is left to gain
            break
        low, high = (middle, high) if slope > 0 else (low, middle)
    return best


# ---------------------------------------------------------------------- the working set


def _choose_working_set(dual: Dual, now: _Iterate, rng: np.random.Generator) -> Index:
    """Rows to solve for next, sorted.

    A weight at 0 may rise if its cost is below 0, or below that of a weight of the same kind which could fall instead;
    likewise for a weight at its bound. The second matters where no weight is inside and leaves rho undetermined.
    """
    cost = dual.signs * (now.levels - now.rho) - dual.labelled * now.margin  # 0 inside, >= 0 at 0, <= 0 at the bound
    used = now.weights > NOTHING * now.weights.max()
    below = now.weights < AT_BOUND * dual.bounds
    inside = np.flatnonzero(used & below)
    in_parts = now.failed or len(inside) > N_WHOLE
    n_new = N_PART // 3 if in_parts else N_NEW
    can_rise, can_fall = (below, used) if in_parts else (below & ~used, used & ~below)  # else all inside are taken
    rising, falling = [], []
    for kind in dual.kinds:
        highest = cost[kind[used[kind]]].max(initial=0.0)
        lowest = cost[kind[below[kind]]].min(initial=0.0)
        rising.append(kind[(can_rise & (cost < highest))[kind]])
        falling.append(kind[(can_fall & (cost > lowest))[kind]])
    new = [_pick_rows(np.concatenate(rising), -cost, n_new, rng), _pick_rows(np.concatenate(falling), cost, n_new, rng)]
    if in_parts:
        inside = _pick_rows(inside, np.abs(cost), N_PART - sum(map(len, new)), rng)
    return np.unique(np.concatenate([*new, inside]))


def _pick_rows(candidates: Index, violation: Vector, n: int, rng: np.random.Generator) -> Index:
    """Pick at most n rows: half of them those that violate most, often neighbours, half drawn from the others."""
    if len(candidates) <= n:
        return candidates
    order = candidates[np.argsort(-violation[candidates], kind="stable")]
    return np.concatenate([order[: n // 2], rng.choice(order[n // 2 :], n - n // 2, replace=False)])


def _advance(dual: Dual, now: _Iterate, chosen: Index, objective: float) -> _Iterate:
    """Solve for the chosen rows; the next iterate, or the same one marked as failed."""
    signs, bounds, labelled = (values[chosen] for values in (dual.signs, dual.bounds, dual.labelled))
    weights = now.weights.copy()
    weights[chosen] = 0.0
    alone = weights.max() <= NOTHING * now.weights.max()
    if alone:  # from nothing, so that no error of earlier rounds stays
        weights[:] = 0.0
    old = now.weights[chosen]
    origin = np.zeros(len(chosen)) if alone else old
    found = _solve_quadratic_program(
        kernel(dual.rows[chosen], dual.rows[chosen], dual.gamma) * np.outer(signs, signs),
        np.zeros(len(chosen)) if alone else signs * (now.levels[chosen] - now.rho),
        lower=-origin,
        upper=bounds - origin,
        signs=signs,
        total=1.0 if alone else 0.0,
        labelled=labelled,
        at_least=dual.kappa if alone else min(dual.kappa - float(dual.labelled @ now.weights), 0.0),
        scale=(max(float(old.mean()), 1e-12), objective),
    )
    weights[chosen] = _tidy_weights(origin + found.step, bounds, signs, total=1.0 if alone else float(signs @ old))
    change = signs * (weights[chosen] - origin)
    levels = kernel_sum(dual.rows, dual.rows[chosen], change, dual.gamma) + (0.0 if alone else now.levels)
    after = _Iterate(
        weights,
        levels,
        rho=found.rho if alone else now.rho + found.rho,
        margin=found.margin if labelled.any() else now.margin,
    )
    worse = not after.objective(dual) <= objective * (1 + 1e-6)  # or not a number
    return replace(now, failed=True) if worse else after


def _tidy_weights(weights: Vector, bounds: Vector, signs: Vector, *, total: float) -> Vector:
    """Clip weights to their bounds and drop tiny ones; the others make up for it, so that the sum stays."""
    tidy = np.clip(weights, 0.0, bounds)
    tidy[tidy < NOTHING * tidy.max()] = 0.0
    inside = (signs > 0) & (tidy > 0) & (tidy < AT_BOUND * bounds)
    error, mass = float(signs @ tidy) - total, float(tidy[inside].sum())
    if mass > 2 * abs(error):
        tidy[inside] *= 1 - error / mass
    return np.minimum(tidy, bounds)


def _solve_quadratic_program(
    quadratic: NDArray[np.float64],
    linear: Vector,
    *,
    lower: Vector,
    upper: Vector,
    signs: Vector,
    total: float,
    labelled: Vector,
    at_least: float,
    scale: tuple[float, float],
) -> _Step:
    """The step d with the least 1/2 d'Qd + linear'd, between bounds, with s.d = total and l.d >= at_least.

    `scale` holds the order of the step and of the objective: the solver's accuracy is relative to them.
    """
    import clarabel  # only here, so that every method can be imported where it is not installed

    n, (size, objective) = len(linear), scale
    eye = sparse.identity(n, format="csc")
    matrices = [sparse.csc_matrix(signs[None]), -eye, eye]
    limits = [np.array([total]), -lower, upper]
    n_limits = 2 * n
    if labelled.any():
        matrices.append(sparse.csc_matrix(-labelled[None]))
        limits.append(np.array([-at_least]))
        n_limits += 1
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = ACCURACY
    found = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(quadratic * (size * size / objective))),
        linear * (size / objective),
        sparse.vstack(matrices, format="csc"),
        np.concatenate(limits) / size,
        [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n_limits)],
        settings,
    ).solve()
    step, duals = np.asarray(found.x) * size, np.asarray(found.z) * (objective / size)
    return _Step(step, rho=-float(duals[0]), margin=float(duals[-1]) if labelled.any() else 0.0)


# ---------------------------------------------------------------------- the start


def _start_weights(dual: Dual, rng: np.random.Generator) -> _Iterate:
    """Weights that fulfil Eq. (2), even over a few rows of each kind, or over all where hardly two rows are alike.

    Alike: the off-diagonal kernels of a row in a sample of N_START add up to more than the diagonal one.
    """
    of_unlabelled, of_normal, of_anomalous = (float(dual.bounds[kind].sum()) for kind in dual.kinds)
    anomalies = max(min(dual.kappa, of_anomalous, of_unlabelled + of_normal - 1), 0.0)
    positive = 1 + anomalies
    even = positive * of_normal / (of_unlabelled + of_normal)
    normals = min(max(even, dual.kappa - anomalies, positive - of_unlabelled), of_normal, positive)
    sample = rng.permutation(np.flatnonzero(dual.signs > 0))[:N_START]
    alike = kernel(dual.rows[sample], dual.rows[sample], dual.gamma).sum() >= 2 * len(sample)
    weights = np.zeros(len(dual.rows))
    for kind, mass in zip(dual.kinds, (positive - normals, normals, anomalies), strict=True):
        if len(kind) and mass > 0:
            n = max(N_START, int(1.25 * mass / dual.bounds[kind].min()) + 1) if alike else len(kind)
            drawn = rng.permutation(kind)[:n]
            weights[drawn] = mass / len(drawn)
    used = np.flatnonzero(weights)
    levels = kernel_sum(dual.rows, dual.rows[used], (dual.signs * weights)[used], dual.gamma)
    return _Iterate(weights, levels)
