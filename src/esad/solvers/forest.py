"""Isolation Forest: scikit-learn grows the trees; they are kept as plain arrays and walked here, without pickle.

S(x) = 2^(-E[h(x)] / c(n))                                        Eq. (1)
c(n) = 2 H(n - 1) - 2 (n - 1) / n,   H(i) ~ ln(i) + 0.5772        Eq. (2)
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest as _Forest

from esad.core.arguments import is_whole
from esad.errors import InputError, ModelFileError
from esad.solvers.base import RowModel, Rows, Scores, State, presumed_normal_rows
from esad.solvers.tensors import MIN_PATH, ForestScore

__all__ = ["ForestModel"]

EULER = 0.5772156649015329
BLOCK_ROWS = 4096
FIELDS = {"feature": np.int32, "cut": np.float64, "left": np.int32, "right": np.int32, "depth": np.float64}


class ForestModel(RowModel):
    """`n_trees` trees of `n_samples` rows each, drawn from unlabelled and normal rows."""

    jumps: ClassVar[bool] = True

    def __init__(self, *, n_trees: int, n_samples: int) -> None:
        for name, value in {"n_trees": n_trees, "n_samples": n_samples}.items():
            if not is_whole(value):
                raise InputError(f"`{name}` must be a whole number above 0. Got {value!r}.")
        self.n_trees, self.n_samples = int(n_trees), int(n_samples)

    def fit(self, rows: Rows, y: NDArray[np.int8], *, seed: int) -> Self:
        """Grow the trees."""
        used = presumed_normal_rows(rows, y)
        self.n_drawn = min(self.n_samples, len(used))
        forest = _Forest(n_estimators=self.n_trees, max_samples=self.n_drawn, random_state=seed).fit(used)
        self.trees = _stack_trees([estimator.tree_ for estimator in forest.estimators_])
        return self

    def score(self, rows: Rows) -> Scores:
        """Eq. (1)."""
        scores = np.empty(len(rows))
        for first in range(0, len(rows), BLOCK_ROWS):
            depth = _mean_depth(self.trees, rows[first : first + BLOCK_ROWS])
            scores[first : first + BLOCK_ROWS] = 2.0 ** (-depth / max(_average_path(self.n_drawn), MIN_PATH))
        return scores

    def module(self) -> ForestScore:
        """Eq. (1) as a torch module."""
        return ForestScore(self.trees, mean_path=float(_average_path(self.n_drawn)))

    def state(self) -> State:
        """The trees."""
        return dict(self.trees), {"n_drawn": self.n_drawn}

    def restore(self, arrays: dict[str, NDArray[Any]], plain: Any, *, n_features: int) -> Self:
        """Take back trees that can be walked."""
        _check_trees(arrays, n_features)
        self.trees = arrays
        self.n_drawn = plain["n_drawn"]
        if not isinstance(self.n_drawn, int) or not 0 < self.n_drawn < 2**31:
            raise ModelFileError(f"its number of rows per tree must be positive. Got {self.n_drawn!r}")
        return self


def _average_path(n: Any) -> Any:
    """Eq. (2), elementwise."""
    n = np.asarray(n, dtype=float)
    safe = np.maximum(n, 3.0)
    path = 2.0 * (np.log(safe - 1.0) + EULER) - 2.0 * (safe - 1.0) / safe
    return np.where(n > 2, path, np.where(n == 2, 1.0, 0.0))


def _stack_trees(trees: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """All trees as arrays (trees, nodes); a leaf points to itself and holds its depth."""
    n_nodes = max(tree.node_count for tree in trees)
    stacked = {name: np.zeros((len(trees), n_nodes), dtype) for name, dtype in FIELDS.items()}
    stacked["left"][:] = stacked["right"][:] = np.arange(n_nodes)
    for row, tree in enumerate(trees):
        n = tree.node_count
        leaf = tree.children_left < 0
        stacked["feature"][row, :n] = np.where(leaf, 0, tree.feature)
        stacked["cut"][row, :n] = np.where(leaf, 0.0, tree.threshold)
        stacked["left"][row, :n] = np.where(leaf, np.arange(n), tree.children_left)
        stacked["right"][row, :n] = np.where(leaf, np.arange(n), tree.children_right)
        stacked["depth"][row, :n] = np.where(leaf, _depths(tree) + _average_path(tree.n_node_samples), 0.0)
    return stacked


def _depths(tree: Any) -> NDArray[np.float64]:
    """Depth of every node; children come after their parent."""
    depths = np.zeros(tree.node_count)
    for node in np.flatnonzero(tree.children_left >= 0):
        depths[tree.children_left[node]] = depths[tree.children_right[node]] = depths[node] + 1
    return depths


def _mean_depth(trees: dict[str, NDArray[Any]], rows: Rows) -> Scores:
    """E[h(x)] over the trees: every row walks down all trees at once, level by level."""
    tree = np.arange(len(trees["left"]))[None, :]  # (1, trees)
    row = np.arange(len(rows))[:, None]  # (rows, 1)
    node = np.zeros((len(rows), tree.shape[1]), dtype=np.int64)
    while True:
        goes_left = rows[row, trees["feature"][tree, node]] <= trees["cut"][tree, node]
        below = np.where(goes_left, trees["left"][tree, node], trees["right"][tree, node])
        if np.array_equal(below, node):
            return np.asarray(trees["depth"][tree, node].mean(axis=1))
        node = below


def _check_trees(trees: dict[str, NDArray[Any]], n_features: int) -> None:
    """Refuse arrays that would index out of bounds or never reach a leaf."""
    if trees.keys() != FIELDS.keys():
        raise ModelFileError("its trees are incomplete")
    shape = trees["left"].shape
    for name, dtype in FIELDS.items():
        if trees[name].dtype != dtype or trees[name].shape != shape or len(shape) != 2 or 0 in shape:
            raise ModelFileError(f"its trees' {name!r} has the wrong type or shape")
    here = np.arange(shape[1])[None, :]
    for side in ("left", "right"):
        if (trees[side] < here).any() or (trees[side] >= shape[1]).any():  # forward only: every walk ends
            raise ModelFileError("its trees point outside themselves or in circles")
    if (trees["feature"] < 0).any() or (trees["feature"] >= n_features).any():
        raise ModelFileError("its trees use columns that do not exist")
    if not (np.isfinite(trees["cut"]).all() and np.isfinite(trees["depth"]).all()):
        raise ModelFileError("its trees hold numbers that are not finite")
