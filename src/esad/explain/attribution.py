"""What every way of explaining gives: shares of the score's terms, and what they add up to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Attribution", "sum_by_unit"]

Shares = NDArray[np.float64]


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

    shares: Mapping[str, Shares]
    base: Mapping[str, NDArray[np.float64]]


def sum_by_unit(shares: NDArray[Any], units: NDArray[np.intp]) -> Shares:
    """Add up the shares of features (n, features) that belong to one unit, (n, units); every unit has a feature.

    Examples
    --------
    >>> sum_by_unit(np.array([[1.0, 2.0, 4.0]]), np.array([0, 1, 0]))
    array([[5., 2.]])
    """
    order = np.argsort(units, kind="stable")
    firsts = np.searchsorted(units[order], np.arange(int(units.max()) + 1))
    return np.add.reduceat(shares[:, order], firsts, axis=1)
