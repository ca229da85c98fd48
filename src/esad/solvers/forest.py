"""Isolation Forest: the mean depth of a row's leaves in trees that scikit-learn grows.

S(x) = 2^(-E[h(x)] / c(n))                                        Eq. (1)
c(n) = 2 H(n - 1) - 2 (n - 1) / n,   H(i) ~ ln(i) + 0.5772        Eq. (2)
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest as _Forest

from esad.core.arguments import is_whole
from esad.errors import InputError, ModelFileError
from esad.solvers.base import RowModel, Rows, Scores, State, presumed_normal_rows
from esad.solvers.tensors import MIN_PATH, ForestScore
from esad.solvers.trees import Trees

__all__ = ["ForestModel"]

EULER = 0.5772156649015329


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
        grown = [estimator.tree_ for estimator in forest.estimators_]
        self.trees = Trees.grown(grown, [_depths(tree) + _average_path(tree.n_node_samples) for tree in grown])
        return self

    def score(self, rows: Rows) -> Scores:
        """Eq. (1)."""
        return np.asarray(2.0 ** (-self.trees.mean(rows) / max(_average_path(self.n_drawn), MIN_PATH)))

    def module(self) -> ForestScore:
        """Eq. (1) as a torch module."""
        return ForestScore(self.trees, mean_path=float(_average_path(self.n_drawn)))

    def state(self) -> State:
        """The trees; a node's value is its depth."""
        arrays = {"depth" if name == "value" else name: array for name, array in self.trees.arrays.items()}
        return arrays, {"n_drawn": self.n_drawn}

    def restore(self, arrays: dict[str, NDArray[Any]], plain: Any, *, n_features: int) -> Self:
        """Take back trees that can be walked."""
        named = {"value" if name == "depth" else name: array for name, array in arrays.items()}
        self.trees = Trees.restored(named, n_features=n_features)
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


def _depths(tree: Any) -> NDArray[np.float64]:
    """Depth of every node; children come after their parent."""
    depths = np.zeros(tree.node_count)
    for node in np.flatnonzero(tree.children_left >= 0):
        depths[tree.children_left[node]] = depths[tree.children_right[node]] = depths[node] + 1
    return depths
