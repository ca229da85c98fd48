"""Grown trees: scikit-learn grows and walks them; they are kept as plain arrays and checked before use, without pickle.

A file's trees are made into scikit-learn's own again only after every node was found to lead on to a leaf: compiled
code follows children and columns without looking.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeRegressor
from torch import Tensor, nn

from esad.errors import ModelFileError

__all__ = ["TreeValues", "Trees"]

Arrays = dict[str, NDArray[Any]]
Rows = NDArray[np.float32]
Values = NDArray[np.float64]

FIELDS: Final = {"feature": np.int32, "cut": np.float64, "left": np.int32, "right": np.int32, "value": np.float64}
MAX_DEPTH: Final = 512  # of a tree in a file: an exported graph has a step for each level


class Trees:
    """Trees as arrays (trees, nodes), in which a leaf points to itself; every node has a value.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [2.0], [3.0]], dtype=np.float32)
    >>> tree = ExtraTreeRegressor(random_state=0).fit(rows, [0, 0, 1, 1]).tree_
    >>> [values.tolist() for values in Trees.grown([tree], [tree.value[:, 0, 0]]).values(rows)]
    [[0.0, 0.0, 1.0, 1.0]]
    """

    def __init__(self, arrays: Arrays, walkers: Sequence[Any]) -> None:
        self.arrays = arrays
        self.walkers = walkers

    @classmethod
    def grown(cls, trees: Sequence[Any], values: Sequence[Values]) -> Self:
        """Keep scikit-learn's trees, with a value for every node of each."""
        n_nodes = max(tree.node_count for tree in trees)
        arrays = {name: np.zeros((len(trees), n_nodes), dtype) for name, dtype in FIELDS.items()}
        arrays["left"][:] = arrays["right"][:] = np.arange(n_nodes)
        for row, (tree, value) in enumerate(zip(trees, values, strict=True)):
            here = np.arange(tree.node_count)
            leaf = tree.children_left < 0
            arrays["feature"][row, here] = np.where(leaf, 0, tree.feature)
            arrays["cut"][row, here] = np.where(leaf, 0.0, tree.threshold)
            arrays["left"][row, here] = np.where(leaf, here, tree.children_left)
            arrays["right"][row, here] = np.where(leaf, here, tree.children_right)
            arrays["value"][row, here] = value
        return cls(arrays, trees)

    @classmethod
    def restored(cls, arrays: Arrays, *, n_features: int) -> Self:
        """Trees of a file, which may be forged."""
        _check_trees(arrays, n_features)
        return cls(arrays, _walkers(arrays, n_features))

    def __len__(self) -> int:
        return len(self.walkers)

    def values(self, rows: Rows) -> Iterator[Values]:
        """Tree by tree, the value of the leaf that each row falls into, (n,)."""
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        for walker, value in zip(self.walkers, self.arrays["value"], strict=True):
            yield value[walker.apply(rows)]

    def mean(self, rows: Rows) -> Values:
        """The mean of `values` over the trees, (n,)."""
        total = np.zeros(len(rows))
        for values in self.values(rows):
            total += values
        return total / len(self)

    def shares(self, rows: Rows) -> tuple[Values, float]:
        """What each column adds to `mean` along the paths of a row, (n, columns), and the mean value of the roots.

        Each step from a node to its child adds the difference of their values to the share of the column that is cut
        there (Saabas 2014), so that roots and shares add up to the mean of the leaves.
        """
        arrays = self.arrays
        tree, row = np.arange(len(self))[None, :], np.arange(len(rows))[:, None]
        shares, node = np.zeros(rows.shape), np.zeros((len(rows), len(self)), dtype=np.int64)
        for _ in range(int(_levels(arrays).max())):
            column = arrays["feature"][tree, node]
            goes_left = rows[row, column] <= arrays["cut"][tree, node]
            below = np.where(goes_left, arrays["left"][tree, node], arrays["right"][tree, node])
            np.add.at(shares, (row, column), arrays["value"][tree, below] - arrays["value"][tree, node])
            node = below
        return shares / len(self), float(arrays["value"][:, 0].mean())


class TreeValues(nn.Module):
    """Rows (n, features) -> the value of the leaf that each falls into in each tree, (n, trees) of float64."""

    feature: Tensor
    cut: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    roots: Tensor

    def __init__(self, trees: Trees) -> None:
        super().__init__()
        arrays = trees.arrays
        n_trees, n_nodes = arrays["left"].shape
        self.n_levels = int(_levels(arrays).max())
        first = (np.arange(n_trees) * n_nodes)[:, None]  # nodes of all trees in a row
        for name, array in arrays.items():
            flat = (array + first if name in ("left", "right") else array).reshape(-1)
            dtype = np.float64 if array.dtype.kind == "f" else np.int64
            self.register_buffer(name, torch.from_numpy(flat.astype(dtype)))
        self.register_buffer("roots", torch.from_numpy(first.reshape(1, -1)))

    def forward(self, rows: Tensor) -> Tensor:
        """Every row walks down all trees at once, level by level."""
        x = rows.double()
        node = self.roots.expand(rows.shape[0], -1)  # (n, trees)
        for _ in range(self.n_levels):
            goes_left = x.gather(1, self.feature[node]) <= self.cut[node]
            node = torch.where(goes_left, self.left[node], self.right[node])
        return self.value[node]


def _levels(arrays: Arrays) -> NDArray[np.int32]:
    """How many steps lead to each node, (trees, nodes); children come after their parent."""
    level = np.zeros_like(arrays["left"])
    for node in range(level.shape[1]):
        for side in ("left", "right"):
            child = arrays[side][:, node]
            (inner,) = np.nonzero(child != node)
            level[inner, child[inner]] = level[inner, node] + 1
    return level


def _walkers(arrays: Arrays, n_features: int) -> list[Any]:
    """scikit-learn's trees of arrays that were checked, as it restores its own: only to be walked."""
    pattern = ExtraTreeRegressor().fit(np.zeros((1, n_features), dtype=np.float32), [0.0]).tree_
    make, arguments, _ = pattern.__reduce__()
    dtype = pattern.__getstate__()["nodes"].dtype
    n_trees, n_nodes = arrays["left"].shape
    leaf = arrays["left"] == np.arange(n_nodes)
    nodes = np.zeros((n_trees, n_nodes), dtype)
    nodes["left_child"], nodes["right_child"] = (np.where(leaf, -1, arrays[side]) for side in ("left", "right"))
    nodes["feature"], nodes["threshold"] = np.where(leaf, -2, arrays["feature"]), arrays["cut"]
    walkers = []
    for own in nodes:
        walker = make(*arguments)
        values = np.zeros((n_nodes, 1, 1))
        walker.__setstate__({"max_depth": MAX_DEPTH, "node_count": n_nodes, "nodes": own, "values": values})
        walkers.append(walker)
    return walkers


def _check_trees(arrays: Arrays, n_features: int) -> None:
    """Refuse arrays that would index out of bounds or never reach a leaf."""
    if arrays.keys() != FIELDS.keys():
        raise ModelFileError("its trees are incomplete")
    shape = arrays["left"].shape
    for name, dtype in FIELDS.items():
        if arrays[name].dtype != dtype or arrays[name].shape != shape or len(shape) != 2 or 0 in shape:
            raise ModelFileError(f"its trees' {name!r} has the wrong type or shape")
    here = np.arange(shape[1])
    inner = (arrays["left"] != here) | (arrays["right"] != here)
    for side in ("left", "right"):
        outside = (arrays[side] < here) | (arrays[side] >= shape[1])
        if (outside | (inner & (arrays[side] == here))).any():  # forward only: every walk ends
            raise ModelFileError("its trees point outside themselves or in circles")
    children = np.concatenate([np.where(inner, arrays[side], 0) for side in ("left", "right")], axis=1)
    in_order = np.sort(children, axis=1)
    if ((np.diff(in_order, axis=1) == 0) & (in_order[:, 1:] > 0)).any():
        raise ModelFileError("its trees have nodes with two parents")
    if (arrays["feature"] < 0).any() or (arrays["feature"] >= n_features).any():
        raise ModelFileError("its trees use columns that do not exist")
    if not (np.isfinite(arrays["cut"]).all() and np.isfinite(arrays["value"]).all()):
        raise ModelFileError("its trees hold numbers that are not finite")
    if _levels(arrays).max() > MAX_DEPTH:
        raise ModelFileError(f"its trees are deeper than {MAX_DEPTH} levels")
