"""What a model fitted by a solver must say: how to fit rows, how to score them, and what its state is."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from torch import nn

from esad.core.arguments import Rule, check, find_parameters, is_positive
from esad.core.arrays import Arrays, Labels, Rows, Scores, State
from esad.errors import ModelFileError

SHARE = Rule("a share above 0 and at most 1", lambda value: is_positive(value) and value <= 1)


class RowModel(ABC):
    """A model of plain rows (n, features): a table's, a picture's pixels in a row, or the codes of a network.

    A model is a class `with_parameters`, whose arguments are checked when it is made.

    Attributes
    ----------
    jumps : bool
        Whether the score is a step function, so that rounding of a row can change it by more than rounding.
    draws_rows : bool
        Whether its parts see draws of the rows, so that every row is unseen by some of them.
    """

    jumps: ClassVar[bool] = False
    draws_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(vars(self), find_parameters(self))

    @abstractmethod
    def fit(self, rows: Rows, y: Labels, *, seed: int) -> Self:
        """Learn from rows and labels -1, 0, +1."""

    @abstractmethod
    def score(self, rows: Rows) -> Scores:
        """One number per row, higher = more anomalous."""

    @abstractmethod
    def module(self) -> nn.Module:
        """`score` as a torch module: rows (n, features) -> {"score": (1, n) of float64}."""

    @abstractmethod
    def state(self) -> State:
        """Return what was learned, as arrays and plain values."""

    @abstractmethod
    def restore(self, arrays: Arrays, plain: Any, *, n_features: int) -> Self:
        """Undo `state`, checking everything: the file may be forged."""


def presumed_normal_rows(rows: Rows, y: Labels) -> Rows:
    """Unlabelled and normal rows; all rows where there is nothing but known anomalies."""
    return rows[y >= 0] if (y >= 0).any() else rows


def check_arrays(arrays: Arrays, shapes: dict[str, tuple[int, ...]]) -> None:
    """Refuse arrays that are not exactly these, finite and of float64; -1 stands for any length above 0."""
    if arrays.keys() != shapes.keys():
        raise ModelFileError("its solved model holds other arrays than expected")
    for name, wanted in shapes.items():
        value = arrays[name]
        fits = len(value.shape) == len(wanted) and all(
            n == m or (m == -1 and n > 0) for n, m in zip(value.shape, wanted, strict=True)
        )
        if value.dtype != np.float64 or not fits:
            raise ModelFileError(f"its solved model's {name!r} has the wrong type or shape")
        if not np.isfinite(value).all():
            raise ModelFileError(f"its solved model's {name!r} is not finite")
