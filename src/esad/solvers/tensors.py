"""The scores of solved models as torch modules, so that a file can hold them: (n, features) -> (1, n) of float64."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esad.solvers.trees import Trees, TreeValues

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
    """2^(-E[h(x)] / c(n)), of trees whose values are depths."""

    mean_path: Tensor

    def __init__(self, trees: Trees, *, mean_path: float) -> None:
        super().__init__()
        self.depths = TreeValues(trees)
        self.register_buffer("mean_path", torch.tensor(max(mean_path, MIN_PATH), dtype=torch.float64))

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """The score by its name."""
        return {"score": (2.0 ** (-self.depths(rows).mean(1) / self.mean_path))[None]}
