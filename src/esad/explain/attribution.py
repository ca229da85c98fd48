r"""Attributions, shares of the score's terms; and occlusion, by which any score can be explained.

Units are put back to what was expected, one after the other, in several orders.

    S(x)    = sum_k C_k(x)                                                                              Eq. (1)
    share_j = 1/P sum_p [C_k(x with the units before j in order p expected) - C_k(the same with j too)]   Eq. (2)
    base    = C_k(e),    base + sum_j share_j = C_k(x)                                                  Eq. (3)

=============  ====================================================================================
k, j           term, unit: a column with all its features, or a patch of a picture
e              the expected row
p = 1 .. P     orders of the units, drawn at random, each together with its reverse
=============  ====================================================================================

With all orders Eq. (2) is the Shapley value (Strumbelj & Kononenko 2014). Few orders give the same for a score that
is a sum over columns, an estimate otherwise; Eq. (3) holds for any number of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Floats, Rows

Contributions = Callable[[Rows], dict[str, Floats]]

N_ORDERS = 8  # and their reverses
MAX_PATCHES = 10  # along the longer side of a picture
BLOCK_VALUES = 1 << 24  # of one call of the model


@dataclass(frozen=True, eq=False)
class Attribution:
    """Shares of the terms of n scores.

    Attributes
    ----------
    shares : mapping of str to ndarray, (n, units)
        For each term, what each unit (a column, a pixel) adds to it.
    base : mapping of str to ndarray, (n,)
        For each term, what is left when no unit adds anything; base plus all shares is the term.
    """

    shares: Mapping[str, Floats]
    base: Mapping[str, Floats]


def sum_by_unit(shares: NDArray[Any], units: NDArray[np.intp]) -> Floats:
    """Add up the shares of features (n, features) that belong to one unit, (n, units); every unit has a feature.

    Examples
    --------
    >>> sum_by_unit(np.array([[1.0, 2.0, 4.0]]), np.array([0, 1, 0]))
    array([[5., 2.]])
    """
    order = np.argsort(units, kind="stable")
    firsts = np.searchsorted(units[order], np.arange(int(units.max()) + 1))
    return np.add.reduceat(shares[:, order], firsts, axis=1)


def occlude_units(contributions: Contributions, rows: Rows, expected: Rows, units: NDArray[np.intp]) -> Attribution:
    """Eqs. (2) and (3).

    Parameters
    ----------
    contributions : callable
        From rows to terms that add up to the score, each (n,).
    rows, expected : ndarray, (n, *features)
    units : ndarray of int, (features,)
        The unit that each feature, flattened, belongs to.

    Examples
    --------
    >>> def score(rows):
    ...     return {"score": rows.astype(np.float64).sum(axis=1)}
    >>> found = occlude_units(score, np.ones((1, 3), np.float32), np.zeros((1, 3), np.float32), np.array([0, 1, 1]))
    >>> found.shares["score"].tolist(), found.base["score"].tolist()
    ([[1.0, 2.0]], [0.0])
    """
    n_units = int(units.max()) + 1
    rng = np.random.default_rng(0)
    orders = [order[::turn] for order in (rng.permutation(n_units) for _ in range(N_ORDERS)) for turn in (1, -1)]
    base = contributions(np.ascontiguousarray(expected))
    shares = {name: np.zeros((len(rows), n_units)) for name in base}
    size = max(1, BLOCK_VALUES // ((n_units + 1) * rows[0].size))
    for first in range(0, len(rows), size):
        here = slice(first, first + size)
        for order in orders:
            chain = _put_back(rows[here], expected[here], units, order)  # (block, units + 1, *features)
            for name, values in contributions(chain.reshape(-1, *rows.shape[1:])).items():
                falls = -np.diff(values.reshape(chain.shape[:2]), axis=1)
                shares[name][here, order] += falls / len(orders)
    return Attribution(shares, base)


def _put_back(rows: Rows, expected: Rows, units: NDArray[np.intp], order: NDArray[np.intp]) -> Rows:
    """Put units back one after the other: rows with none, one, two, ... all of them, (n, units + 1, *features)."""
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    replaced = rank[units] < np.arange(len(order) + 1)[:, None]  # (units + 1, features)
    replaced = replaced.reshape(-1, *rows.shape[1:])
    return np.where(replaced, expected[:, None], rows[:, None])


def number_patches(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Number of the patch that each pixel lies in, (height, width), for a picture (channels, height, width).

    Examples
    --------
    >>> number_patches((1, 20, 20))[:4, :6]
    array([[ 0,  0,  1,  1,  2,  2],
           [ 0,  0,  1,  1,  2,  2],
           [10, 10, 11, 11, 12, 12],
           [10, 10, 11, 11, 12, 12]])
    """
    _, height, width = shape
    side = -(-max(height, width) // MAX_PATCHES)
    across = -(-width // side)
    return np.arange(height)[:, None] // side * across + np.arange(width)[None, :] // side
