"""What tests share: every method with settings that train in a moment, labels it can do with, processes at work."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esad import registry
from esad.core.random import MemberRandom
from esad.train.objective import Batch

# Cheap settings by the name of the argument; a method gets those it has.
SMALL: dict[str, Any] = {
    "n_members": 2,
    "n_epochs": 3,
    "pretrain_epochs": 3,
    "hidden": (8,),
    "latent": 2,
    "n_trees": 10,
    "reference": np.random.default_rng(4).integers(0, 256, size=(20, 10, 10), dtype=np.uint8),
    "transformations": "turns",
    "features": "random",
    "layer": "r11",
    "pooled": "conv2d_1a",
    "side": 75,
    "search_steps": 2,
    "n_starts": 2,
    "random_state": 0,
}


def methods(kind: str = "table") -> list[str]:
    """The methods that take tables or images."""
    return list(registry.methods_for(kind))


def tiny(name: str, *, base: type[Any] | None = None, **changes: Any) -> Any:
    """A method's detector, cheap to train; changes of arguments that the method does not have are left out."""
    detector = base or registry.method(name)
    has = detector().get_params()
    return detector(**{key: value for key, value in (SMALL | changes).items() if key in has})


def small_labels(name: str, n_rows: int) -> np.ndarray | None:
    """None for a method that can do without labels, else two known anomalies and a known normal row at the end."""
    if not registry.method(name).labels_needed:
        return None
    y = np.zeros(n_rows, dtype=int)
    y[-3:] = 1, -1, -1
    return y


def perceptrons(network: Any, x: np.ndarray, *, training: bool = False) -> np.ndarray:
    """A `StackedMLP` in plain numpy, member by member, layer by layer; x is (members, batch, features)."""
    matrices, bias = network.layers()
    out = []
    for member, h in enumerate(x):
        for index, matrix in enumerate(matrices):
            h = h @ matrix[member].detach().numpy().T
            if index < len(matrices) - 1:
                if training:
                    mean, variance = h.mean(0), h.var(0)
                else:
                    mean = network.get_buffer(f"mean_{index}")[member].numpy()
                    variance = network.get_buffer(f"variance_{index}")[member].numpy()
                h = (h - mean) / np.sqrt(variance + network.eps)
                h = np.where(h > 0, h, network.slope * h)
        out.append(h if bias is None else h + bias[member, :, 0].detach().numpy())
    return np.stack(out)


def pictures(*shape: int) -> Tensor:
    """Random pictures in float64."""
    return torch.from_numpy(np.random.default_rng(0).random(shape))


def batch_of(x: Tensor) -> Batch:
    """A batch of unlabelled rows or pictures (members, batch, ...) in float64."""
    empty = torch.empty((len(x), 0), dtype=torch.float64)
    return Batch(x, empty, empty, MemberRandom(range(len(x)), dtype=torch.float64))


def worker_of(process: int, name: str) -> int | None:
    """The number of a process below `process` with such a command, by Linux' process table."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                names[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    for number in [number for number, words in names.items() if name in words]:
        above = number
        while above in parents and above != process:
            above = parents[above]
        if above == process:
            return number
    return None
