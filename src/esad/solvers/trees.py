"""Isolation Forest and bagged trees: scikit-learn grows and walks them; kept as plain arrays, without pickle.

A file's trees are made into scikit-learn's own again only after every node was found to lead on to a leaf: compiled
code follows children and columns without looking.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.ensemble import IsolationForest as _Forest
from sklearn.tree import ExtraTreeRegressor
from torch import Tensor, nn

from esad import labels
from esad.core.arguments import POSITIVE, WHOLE, parameter, with_parameters
from esad.core.arrays import Arrays, Labels, RowNumbers, Rows, Scores, State
from esad.errors import ModelFileError
from esad.solvers.base import SHARE, RowModel, presumed_normal_rows

FIELDS: Final = {"feature": np.int32, "cut": np.float64, "left": np.int32, "right": np.int32, "value": np.float64}
N_TREES_OF_ORDER: Final = 6  # by whose leaves rows are put in order before they are scored
MAX_DEPTH: Final = 512  # of a tree in a file: an exported graph has a step for each level


class Trees:
    """Trees as arrays (trees, nodes), in which a leaf points to itself; every node has a value.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [2.0], [3.0]], dtype=np.float32)
    >>> tree = ExtraTreeRegressor(random_state=0).fit(rows, [0, 0, 1, 1]).tree_
    >>> [values.tolist() for values in Trees.from_sklearn([tree], [tree.value[:, 0, 0]]).values(rows)]
    [[0.0, 0.0, 1.0, 1.0]]
    """

    def __init__(self, arrays: Arrays, sklearn_trees: Sequence[Any]) -> None:
        self.arrays = arrays
        self.sklearn_trees = sklearn_trees

    @classmethod
    def from_sklearn(cls, trees: Sequence[Any], values: Sequence[Scores]) -> Self:
        """Take over trees that scikit-learn has grown, with a value for every node of each."""
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

    def cut_at_values(self, which: slice, values: Rows, ranks: NDArray[np.float32]) -> Self:
        """Return the trees with the cuts of `which`, which were grown on `ranks`, changed to cuts of `values`."""
        cuts, features = self.arrays["cut"].copy(), self.arrays["feature"][which]
        is_inner = self.arrays["left"][which] != np.arange(cuts.shape[1])
        for column in range(values.shape[1]):
            here = is_inner & (features == column)
            places = np.sort(ranks[:, column]), np.sort(values[:, column])
            cuts[which][here] = np.interp(cuts[which][here], *places)
        arrays = self.arrays | {"cut": cuts}
        return type(self)(arrays, _to_sklearn(arrays, values.shape[1]))

    @classmethod
    def from_arrays(cls, arrays: Arrays, *, n_features: int) -> Self:
        """Check and take over the arrays of a file, which may be forged."""
        _check_trees(arrays, n_features)
        return cls(arrays, _to_sklearn(arrays, n_features))

    def __len__(self) -> int:
        return len(self.sklearn_trees)

    def values(self, rows: Rows) -> Iterator[Scores]:
        """Tree by tree, the value of the leaf that each row falls into, (n,)."""
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        for walker, value in zip(self.sklearn_trees, self.arrays["value"], strict=True):
            yield value[walker.apply(rows)]

    def mean(self, rows: Rows) -> Scores:
        """The mean of `values` over the trees, (n,).

        Rows that fall into the same leaves of a few trees take the same turns in the others too. Side by side they are
        walked up to 1.7 times as fast, because the processor guesses the turns.
        """
        rows = np.ascontiguousarray(rows, dtype=np.float32)
        order = np.lexsort([walker.apply(rows) for walker in self.sklearn_trees[:N_TREES_OF_ORDER]])
        total, mean = np.zeros(len(rows)), np.empty(len(rows))
        for values in self.values(rows[order]):
            total += values
        mean[order] = total / len(self)
        return mean

    def shares(self, rows: Rows) -> tuple[Scores, float]:
        """Return what each column adds to `mean` along a row's paths, (n, columns), and the mean value of the roots.

        Each step from a node to its child adds the difference of their values to the share of the column that is cut
        there (Saabas 2014), so that roots and shares add up to the mean of the leaves.
        """
        arrays = self.arrays
        tree, row = np.arange(len(self))[None, :], np.arange(len(rows))[:, None]
        shares, node = np.zeros(rows.shape), np.zeros((len(rows), len(self)), dtype=np.int64)
        for _ in range(int(_count_levels(arrays).max())):
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
        self.n_levels = int(_count_levels(arrays).max())
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


def _count_levels(arrays: Arrays) -> NDArray[np.int32]:
    """Return the depth of each tree, (trees,); depths above `MAX_DEPTH` count as one more than that."""
    n_levels = np.zeros(len(arrays["left"]), dtype=np.int32)
    tree = np.arange(len(n_levels))
    node = np.zeros_like(tree)
    for level in range(MAX_DEPTH + 1):
        below = arrays["left"][tree, node], arrays["right"][tree, node]
        is_inner = below[0] != node
        tree, node = np.tile(tree[is_inner], 2), np.concatenate([child[is_inner] for child in below])
        if not len(tree):
            break
        n_levels[tree] = level + 1
    return n_levels


def _to_sklearn(arrays: Arrays, n_features: int) -> list[Any]:
    """Build scikit-learn's trees from arrays that were checked; they can find leaves, and nothing else."""
    pattern = ExtraTreeRegressor().fit(np.zeros((1, n_features), dtype=np.float32), [0.0]).tree_
    make, arguments, _ = pattern.__reduce__()
    dtype = pattern.__getstate__()["nodes"].dtype
    n_trees, n_nodes = arrays["left"].shape
    leaf = arrays["left"] == np.arange(n_nodes)
    nodes = np.zeros((n_trees, n_nodes), dtype)
    nodes["left_child"], nodes["right_child"] = (np.where(leaf, -1, arrays[side]) for side in ("left", "right"))
    nodes["feature"], nodes["threshold"] = np.where(leaf, -2, arrays["feature"]), arrays["cut"]
    trees = []
    for own in nodes:
        tree = make(*arguments)
        values = np.zeros((n_nodes, 1, 1))
        tree.__setstate__({"max_depth": MAX_DEPTH, "node_count": n_nodes, "nodes": own, "values": values})
        trees.append(tree)
    return trees


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
    if _count_levels(arrays).max() > MAX_DEPTH:
        raise ModelFileError(f"its trees are deeper than {MAX_DEPTH} levels")


MIN_PATH = 1e-12  # a forest of single rows has a mean path of 0


@with_parameters
class ForestArguments:
    """What an Isolation Forest is asked for, on rows, codes or features.

    Parameters
    ----------
    n_trees : int
    n_samples : int
        Rows per tree, at most all there are.
    """

    n_trees: int = parameter(default=100, allowed=WHOLE)
    n_samples: int = parameter(default=256, allowed=WHOLE)


@with_parameters
class ForestModel(ForestArguments, RowModel):
    """Isolation Forest: `n_trees` trees of `n_samples` rows each, drawn from unlabelled and normal rows.

    S(x) = 2^(-E[h(x)] / c(n))                                        Eq. (1)
    c(n) = 2 H(n - 1) - 2 (n - 1) / n,   H(i) ~ ln(i) + 0.5772        Eq. (2)
    """

    jumps: ClassVar[bool] = True
    draws_rows: ClassVar[bool] = True

    def fit(self, rows: Rows, y: Labels, *, seed: int) -> Self:
        """Grow the trees."""
        used = presumed_normal_rows(rows, y)
        self.n_drawn = min(int(self.n_samples), len(used))
        forest = _Forest(n_estimators=self.n_trees, max_samples=self.n_drawn, random_state=seed % 2**32).fit(used)
        grown = [estimator.tree_ for estimator in forest.estimators_]
        self.trees = Trees.from_sklearn(
            grown, [tree.compute_node_depths() - 1.0 + _average_path(tree.n_node_samples) for tree in grown]
        )
        return self

    def score(self, rows: Rows) -> Scores:
        """Eq. (1)."""
        return np.asarray(2.0 ** (-self.trees.mean(rows) / max(_average_path(self.n_drawn), MIN_PATH)))

    def module(self) -> nn.Module:
        """Eq. (1) as a torch module."""
        return _ForestScore(self.trees, mean_path=float(_average_path(self.n_drawn)))

    def state(self) -> State:
        """The trees; a node's value is its depth."""
        arrays = {"depth" if name == "value" else name: array for name, array in self.trees.arrays.items()}
        return arrays, {"n_drawn": self.n_drawn}

    def restore(self, arrays: Arrays, plain: Any, *, n_features: int) -> Self:
        """Take back trees that can be walked."""
        named = {"value" if name == "depth" else name: array for name, array in arrays.items()}
        self.trees = Trees.from_arrays(named, n_features=n_features)
        self.n_drawn = plain["n_drawn"]
        if not isinstance(self.n_drawn, int) or not 0 < self.n_drawn < 2**31:
            raise ModelFileError(f"its number of rows per tree must be positive. Got {self.n_drawn!r}")
        return self


class _ForestScore(nn.Module):
    """2^(-E[h(x)] / c(n)), of trees whose values are depths."""

    mean_path: Tensor

    def __init__(self, trees: Trees, *, mean_path: float) -> None:
        super().__init__()
        self.depths = TreeValues(trees)
        self.register_buffer("mean_path", torch.tensor(max(mean_path, MIN_PATH), dtype=torch.float64))

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """The score by its name."""
        return {"score": (2.0 ** (-self.depths(rows).mean(1) / self.mean_path))[None]}


def _average_path(n: Any) -> Any:
    """Eq. (2), elementwise."""
    n = np.asarray(n, dtype=float)
    safe = np.maximum(n, 3.0)
    path = 2.0 * (np.log(safe - 1.0) + np.euler_gamma) - 2.0 * (safe - 1.0) / safe
    return np.where(n > 2, path, np.where(n == 2, 1.0, 0.0))


BAG_SHARE: Final = 2 / 3  # of the known anomalies, and of the unlabelled rows at most, in a bag
MIN_ANOMALIES: Final = 6  # with fewer anomalies, every bag has all of them, and no tree is grown on ranks
MAX_ANOMALIES: Final = 1024  # in a bag: more trees learn more than larger ones
GROWN_DEPTH: Final = 64


@with_parameters
class BaggedTreesArguments:
    """What bagged trees are asked for.

    Parameters
    ----------
    n_trees : int
        Trees, each with a bag of its own.
    unlabelled_ratio : float
        Unlabelled rows of a bag for each of its anomalies.
    min_unlabelled : int
        At least so many unlabelled rows in a bag, where there are.
    max_features : float
        Share of the features that each cut is chosen among.
    """

    n_trees: int = parameter(default=320, allowed=WHOLE)
    unlabelled_ratio: float = parameter(default=4.0, allowed=POSITIVE)
    min_unlabelled: int = parameter(default=32, allowed=WHOLE)
    max_features: float = parameter(default=1.0, allowed=SHARE)


@with_parameters
class BaggedTreesModel(BaggedTreesArguments, RowModel):
    """`n_trees` trees, each grown on a bag of known anomalies and few other rows; the method's file has the equations.

    Parameters
    ----------
    with_ranks : bool
        Whether every second tree is grown on ranks where that is of use.

    Attributes
    ----------
    trees : Trees
    out_of_bag : ndarray, (n,)
        After `fit`: scores of the training rows by the trees that have not seen them, NaN where all have.
    importances : ndarray, (columns,)
        After `fit`: what share of the impurity the cuts at each column take away; the sum is 1.
    """

    jumps: ClassVar[bool] = True
    draws_rows: ClassVar[bool] = True

    with_ranks: bool = True

    def fit(self, rows: Rows, y: Labels, *, seed: int) -> Self:
        """Grow the trees of Eqs. (1) and (2), and score every row by those without it, Eq. (4)."""
        drawn = list(self._draw(y, seed))
        bags = [np.concatenate([anomalies, others]) for anomalies, others, _ in drawn]
        used = np.unique(np.concatenate(bags))
        values = np.ascontiguousarray(rows[used], dtype=np.float32)
        with_ranks = self.with_ranks and np.count_nonzero(y == labels.ANOMALY) >= MIN_ANOMALIES
        ranks = rankdata(values, axis=0).astype(np.float32) if with_ranks else values
        grown = []
        for number, (bag, (anomalies, others, own_seed)) in enumerate(zip(bags, drawn, strict=True)):
            is_anomaly = (np.arange(len(bag)) < len(anomalies)).astype(np.float64)
            weight = np.where(is_anomaly, max(1, len(others)) / len(anomalies), 1.0)
            # for two classes the squared error cuts where Gini's index does, and is quicker
            share = float(self.max_features)  # a whole number would be one of features
            tree = ExtraTreeRegressor(max_features=share, max_depth=GROWN_DEPTH, random_state=own_seed)
            X = (ranks if number % 2 else values)[np.searchsorted(used, bag)]
            grown.append(tree.fit(X, is_anomaly, sample_weight=weight, check_input=False).tree_)
        self.trees = Trees.from_sklearn(grown, [tree.value[:, 0, 0] for tree in grown])
        if with_ranks:
            self.trees = self.trees.cut_at_values(slice(1, None, 2), values, ranks)
        taken = np.sum([tree.compute_feature_importances() for tree in grown], axis=0)
        self.importances = taken / taken.sum() if taken.sum() > 0 else np.full(len(taken), 1 / len(taken))
        self.out_of_bag = _out_of_bag_mean(self.trees, rows, bags)
        return self

    def _draw(self, y: Labels, seed: int) -> Iterator[tuple[RowNumbers, RowNumbers, int]]:
        """For every tree, numbers of the anomalies and of the other rows in its bag, Eq. (1), and a seed."""
        rng = np.random.default_rng(seed)
        anomalies, unlabelled, normal = (
            np.flatnonzero(y == label) for label in (labels.ANOMALY, labels.UNLABELLED, labels.NORMAL)
        )
        n_anomalies = len(anomalies)
        if n_anomalies >= MIN_ANOMALIES:
            n_anomalies = min(int(BAG_SHARE * n_anomalies), MAX_ANOMALIES)
        n_others = max(self.min_unlabelled, round(self.unlabelled_ratio * n_anomalies))
        n_unlabelled = min(n_others, max(1, int(BAG_SHARE * len(unlabelled))))

        def draw(numbers: RowNumbers, n_most: int) -> RowNumbers:
            return numbers if len(numbers) <= n_most else rng.choice(numbers, n_most, replace=False)

        for own_seed in rng.integers(2**31, size=self.n_trees).tolist():
            others = np.concatenate([draw(unlabelled, n_unlabelled), draw(normal, n_others)])
            yield draw(anomalies, n_anomalies), others, own_seed

    def score(self, rows: Rows) -> Scores:
        """Eq. (3)."""
        return self.trees.mean(rows)

    def module(self) -> nn.Module:
        """Eq. (3) as a torch module."""
        return _MeanValue(TreeValues(self.trees))

    def state(self) -> State:
        """The trees."""
        return dict(self.trees.arrays), {}

    def restore(self, arrays: Arrays, plain: Any, *, n_features: int) -> Self:
        """Take back trees that can be walked."""
        self.trees = Trees.from_arrays(arrays, n_features=n_features)
        return self


class _MeanValue(nn.Module):
    """Rows (n, features) -> {"score": (1, n)}."""

    def __init__(self, values: TreeValues) -> None:
        super().__init__()
        self.values = values

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        return {"score": self.values(rows).mean(1)[None]}


def _out_of_bag_mean(trees: Trees, rows: Rows, bags: list[RowNumbers]) -> Scores:
    """Return each row's mean over the trees whose bag does not hold it, (n,); NaN if every bag does."""
    total, n_unseen = np.zeros(len(rows)), np.full(len(rows), len(trees))
    for bag, values in zip(bags, trees.values(rows), strict=True):
        values[bag] = 0.0
        n_unseen[bag] -= 1
        total += values
    return np.where(n_unseen > 0, total / np.maximum(n_unseen, 1), np.nan)
