"""Networks that others trained on ImageNet: weights from a file, from the web with a checksum, or random.

Files are read without the packages that made them, which would have to match the torch release to the digit; a network
here has the names and the numbers of its official one. Nothing in a file can run.
"""

import logging
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from esad.core.arguments import Rule
from esad.core.random import MemberRandom
from esad.core.text import first_line
from esad.datasets.download import Remote, fetch
from esad.datasets.folder import data_folder, lock_folder
from esad.errors import DataFileError
from esad.networks.layers import draw_weights
from esad.persist.bundle import check_weights
from esad.train.runtime import BLOCK_PICTURES

logger = logging.getLogger("esad")
N = TypeVar("N", bound=nn.Module)

FEATURES = Rule(
    "'imagenet', 'random' or the path of a file with weights", lambda value: isinstance(value, str | os.PathLike)
)
"""What an argument `features` may be."""

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of the colours of ImageNet
BACKBONE = "backbone."  # what the names of a fixed network's arrays begin with in a model file
_COUNTER = "num_batches_tracked"  # of batch norm in training; files from before torch 0.4.1 have none


@dataclass(frozen=True)
class PublishedWeights:
    """Where the official weights of a network are, and what their file holds.

    Attributes
    ----------
    name : str
        What the network is called.
    remote : Remote
    build : callable
        Gives the whole network, of which a method may use the first layers only.
    unused : tuple of str
        Beginnings of the names of other weights in the file: the classifier of ImageNet.
    """

    name: str
    remote: Remote
    build: Callable[[], nn.Module]
    unused: tuple[str, ...]


def fill_weights(network: nn.Module, published: PublishedWeights, features: Any, *, seed: int) -> None:
    """Give a network its fixed weights: the official ones ("imagenet"), random ones ("random"), or those of a file."""
    if features == "random":
        logger.warning("%s is untrained: its random features are a stand-in, with results of their own", published.name)
        draw_weights(network, MemberRandom([seed]))
        return
    path = get_weights(published) if features == "imagenet" else features
    read = read_weights(path, published)
    network.load_state_dict({name: read[name] for name in network.state_dict() if name in read}, strict=False)


def hide_path(features: Any) -> Any:
    """The argument for the model file: a path of this machine becomes "imagenet", whose weights it holds."""
    return features if features in ("imagenet", "random") else "imagenet"


def get_weights(published: PublishedWeights) -> Path:
    """The file with the official weights, in the folder `weights` of the data folder; downloaded if it is not there."""
    folder, remote = data_folder() / "weights", published.remote
    path = folder / remote.file
    if path.is_file():
        return path
    with lock_folder(folder):
        if not path.is_file():  # another process may have brought it meanwhile
            logger.info("getting the weights of %s from %s", published.name, remote.urls[0])
            try:
                fetch(remote.urls[0], path, md5=remote.md5, sha256=remote.sha256)
            except DataFileError as error:
                raise DataFileError(
                    f"{error} The weights of {published.name} can also be given as a file, features='PATH'; "
                    "features='random' does without, and gives other results."
                ) from error
    return path


def read_weights(path: str | os.PathLike[str], published: PublishedWeights) -> dict[str, Tensor]:
    """The official weights from their .pth file, or from a .safetensors file, less those of the classifier."""
    named, wrong = f"The weights {str(path)!r}", f"are not those of {published.name}"
    try:
        if Path(path).suffix == ".safetensors":
            read = load_file(path)
        else:
            read = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError, SafetensorError) as error:
        raise DataFileError(f"{named} cannot be read: {first_line(error)}") from error
    if not isinstance(read, dict):
        raise DataFileError(f"{named} {wrong}.")
    with torch.device("meta"):
        expected = {name: value.shape for name, value in published.build().state_dict().items()}
    weights = {name: value for name, value in read.items() if not str(name).startswith(published.unused)}
    if {name for name in weights if not str(name).endswith(_COUNTER)} != {
        name for name in expected if not name.endswith(_COUNTER)
    }:
        raise DataFileError(f"{named} {wrong}.")
    for name, value in weights.items():
        if not isinstance(value, Tensor) or value.shape != expected[name]:
            raise DataFileError(f"{named} {wrong}: {name!r} has another shape.")
    return weights


def normalise_colours(x: Tensor) -> Tensor:
    """Pictures (batch, 1 or 3, H, W) in [0, 1] by mean and deviation of ImageNet's colours, (batch, 3, H, W)."""
    mean, std = (torch.tensor(values, dtype=x.dtype, device=x.device).view(3, 1, 1) for values in (MEAN, STD))
    return (x.expand(-1, 3, -1, -1) - mean) / std


def extract_features(
    network: nn.Module, rows: NDArray[np.float32], n_features: int, *, block: int = BLOCK_PICTURES
) -> NDArray[np.float32]:
    """The features (n, n_features), float32, of pictures (n, channels, H, W) by a fixed network, block by block."""
    device = next(network.parameters()).device
    features: NDArray[np.float32] = np.empty((len(rows), n_features), dtype=np.float32)
    with torch.inference_mode():
        for first in range(0, len(rows), block):
            features[first : first + block] = network(torch.from_numpy(rows[first : first + block]).to(device)).cpu()
            if first and first // block % 20 == 0:
                logger.info("features of %d of %d pictures", first, len(rows))
    return features


def fixed_arrays(network: nn.Module) -> dict[str, NDArray[Any]]:
    """The weights of a fixed network, for the model file."""
    return {f"{BACKBONE}{name}": value.cpu().numpy() for name, value in network.state_dict().items()}


def restore_fixed(build: Callable[[], N], arrays: dict[str, NDArray[Any]]) -> tuple[N, dict[str, NDArray[Any]]]:
    """Rebuild a fixed network from the arrays of a model file, which may be forged; and the arrays left over."""
    with torch.device("meta"):  # nothing is allocated for sizes that a forged file claims
        network = build()
    own = {name: value for name, value in arrays.items() if name.startswith(BACKBONE)}
    weights = {name.removeprefix(BACKBONE): torch.from_numpy(value) for name, value in own.items()}
    check_weights(network, weights)
    network.load_state_dict(weights, assign=True)
    return network, {name: value for name, value in arrays.items() if name not in own}
