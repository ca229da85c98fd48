"""The scores of solved models as torch modules, so that a file can hold them: (n, features) -> (1, n) of float64."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

__all__ = ["MIN_PATH", "ForestScore", "KernelScore"]

MIN_PATH = 1e-12  # a forest of single rows has a mean path of 0


class KernelScore(nn.Module):
    """rho - sum_s weights_s exp(-gamma ||x - support_s||^2)."""

    support: Tensor
    weights: Tensor
    rho: Tensor
    gamma: Tensor

    def __init__(self, support: NDArray[Any], weights: NDArray[Any], rho: NDArray[Any], *, gamma: float) -> None:
        super().__init__()
        constants = {"support": support, "weights": weights, "rho": rho, "gamma": gamma}
        for name, array in constants.items():  # buffers: torch writes plain numbers into ONNX files as float32
            self.register_buffer(name, torch.from_numpy(np.array(array, dtype=np.float64)))

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """The score by its name."""
        x = rows.double()
        squared = x.square().sum(1)[:, None] + self.support.square().sum(1) - 2 * (x @ self.support.T)
        return {"score": (self.rho - (-self.gamma * squared.clamp(min=0)).exp() @ self.weights)[None]}


class ForestScore(nn.Module):
    """2^(-E[h(x)] / c(n)): every row walks down all trees at once, level by level."""

    feature: Tensor
    cut: Tensor
    left: Tensor
    right: Tensor
    depth: Tensor
    roots: Tensor
    mean_path: Tensor

    def __init__(self, trees: dict[str, NDArray[Any]], *, mean_path: float) -> None:
        super().__init__()
        n_trees, n_nodes = trees["left"].shape
        self.n_levels = _n_levels(trees)
        self.register_buffer("mean_path", torch.tensor(max(mean_path, MIN_PATH), dtype=torch.float64))
        first = (np.arange(n_trees) * n_nodes)[:, None]  # nodes of all trees in a row
        for name, array in trees.items():
            flat = (array + first if name in ("left", "right") else array).reshape(-1)
            self.register_buffer(
                name, torch.from_numpy(flat.astype(np.float64 if array.dtype.kind == "f" else np.int64))
            )
        self.register_buffer("roots", torch.from_numpy(first.reshape(1, -1)))

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """The score by its name."""
        x = rows.double()
        node = self.roots.expand(rows.shape[0], -1)  # (n, trees)
        for _ in range(self.n_levels):
            goes_left = x.gather(1, self.feature[node]) <= self.cut[node]
            node = torch.where(goes_left, self.left[node], self.right[node])
        return {"score": (2.0 ** (-self.depth[node].mean(1) / self.mean_path))[None]}


def _n_levels(trees: dict[str, NDArray[Any]]) -> int:
    """How many steps lead to the deepest leaf; children come after their parent, and leaves point to themselves."""
    level = np.zeros_like(trees["left"])
    for node in range(level.shape[1]):
        for side in ("left", "right"):
            child = trees[side][:, node]
            (inner,) = np.nonzero(child != node)
            level[inner, child[inner]] = level[inner, node] + 1
    return int(level.max())
