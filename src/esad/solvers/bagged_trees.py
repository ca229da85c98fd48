"""Bags of known anomalies and few other rows, and a tree grown on each; the equations are in the method's file."""

from collections.abc import Iterator
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeRegressor
from torch import Tensor, nn

from esad import labels
from esad.core.arguments import is_positive, is_whole
from esad.errors import InputError
from esad.solvers.base import RowModel, Rows, Scores, State
from esad.solvers.trees import Trees, TreeValues

__all__ = ["BaggedTreesModel"]

Numbers = NDArray[np.intp]

BAG_SHARE: Final = 2 / 3  # of the known anomalies, and of the unlabelled rows at most, in a bag
MIN_ANOMALIES: Final = 6  # with fewer, every bag has all of them
MAX_ANOMALIES: Final = 1024  # in a bag: more trees learn more than larger ones
GROWN_DEPTH: Final = 64


class BaggedTreesModel(RowModel):
    """`n_trees` trees, each with a bag of its own.

    Attributes
    ----------
    trees : Trees
    out_of_bag : ndarray, (n,)
        After `fit`: scores of the training rows by the trees that have not seen them, NaN where all have.
    """

    jumps: ClassVar[bool] = True

    def __init__(self, *, n_trees: int, unlabelled_ratio: float, min_unlabelled: int, max_features: float) -> None:
        for name, value in {"n_trees": n_trees, "min_unlabelled": min_unlabelled}.items():
            if not is_whole(value):
                raise InputError(f"`{name}` must be a whole number above 0. Got {value!r}.")
        if not is_positive(unlabelled_ratio):
            raise InputError(f"`unlabelled_ratio` must be a number above 0. Got {unlabelled_ratio!r}.")
        if not is_positive(max_features) or max_features > 1:
            raise InputError(f"`max_features` must be a share above 0, at most 1. Got {max_features!r}.")
        self.n_trees, self.min_unlabelled = int(n_trees), int(min_unlabelled)
        self.unlabelled_ratio, self.max_features = float(unlabelled_ratio), float(max_features)

    def fit(self, rows: Rows, y: NDArray[np.int8], *, seed: int) -> Self:
        """Grow the trees of Eqs. (1) and (2), and score every row by those without it, Eq. (4)."""
        bags, grown = [], []
        for anomalies, others, own_seed in self._draw(y, seed):
            bag = np.concatenate([anomalies, others])
            is_anomaly = (np.arange(len(bag)) < len(anomalies)).astype(np.float64)
            weight = np.where(is_anomaly, max(1, len(others)) / len(anomalies), 1.0)
            # for two classes the squared error cuts where Gini's index does, and is quicker
            tree = ExtraTreeRegressor(max_features=self.max_features, max_depth=GROWN_DEPTH, random_state=own_seed)
            X = np.ascontiguousarray(rows[bag], dtype=np.float32)
            grown.append(tree.fit(X, is_anomaly, sample_weight=weight, check_input=False).tree_)
            bags.append(bag)
        self.trees = Trees.grown(grown, [tree.value[:, 0, 0] for tree in grown])
        self.out_of_bag = _unseen_mean(self.trees, rows, bags)
        return self

    def _draw(self, y: NDArray[np.int8], seed: int) -> Iterator[tuple[Numbers, Numbers, int]]:
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

        def drawn(numbers: Numbers, n_most: int) -> Numbers:
            return numbers if len(numbers) <= n_most else rng.choice(numbers, n_most, replace=False)

        for own_seed in rng.integers(2**31, size=self.n_trees).tolist():
            others = np.concatenate([drawn(unlabelled, n_unlabelled), drawn(normal, n_others)])
            yield drawn(anomalies, n_anomalies), others, own_seed

    def score(self, rows: Rows) -> Scores:
        """Eq. (3)."""
        return self.trees.mean(rows)

    def importances(self) -> NDArray[np.float64]:
        """What share of the impurity the cuts at each column take away, after `fit`, (columns,); the sum is 1."""
        total = np.sum([tree.compute_feature_importances() for tree in self.trees.walkers], axis=0)
        return np.asarray(total / total.sum()) if total.sum() > 0 else np.full(len(total), 1 / len(total))

    def module(self) -> nn.Module:
        """Eq. (3) as a torch module."""
        return _MeanValue(TreeValues(self.trees))

    def state(self) -> State:
        """The trees."""
        return dict(self.trees.arrays), {}

    def restore(self, arrays: dict[str, NDArray[Any]], plain: Any, *, n_features: int) -> Self:
        """Take back trees that can be walked."""
        self.trees = Trees.restored(arrays, n_features=n_features)
        return self


class _MeanValue(nn.Module):
    """Rows (n, features) -> {"score": (1, n)}."""

    def __init__(self, values: TreeValues) -> None:
        super().__init__()
        self.values = values

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        return {"score": self.values(rows).mean(1)[None]}


def _unseen_mean(trees: Trees, rows: Rows, bags: list[Numbers]) -> Scores:
    """The mean over the trees whose bag a row is not in, (n,); NaN where it is in all."""
    total, n_unseen = np.zeros(len(rows)), np.full(len(rows), len(trees))
    for bag, values in zip(bags, trees.values(rows), strict=True):
        values[bag] = 0.0
        n_unseen[bag] -= 1
        total += values
    return np.where(n_unseen > 0, total / np.maximum(n_unseen, 1), np.nan)
