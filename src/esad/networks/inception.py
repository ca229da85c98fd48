"""Inception-ResNet-v2 (Szegedy et al. 2017) as fixed features, with the names of its published weights.

Stem, then levels of residual blocks whose branches of convolutions lie side by side; "block8" ends the last level.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.datasets.download import Remote
from esad.networks.pretrained import PublishedWeights

MIN_SIDE, MAX_SIDE = 75, 1024  # sides of a picture: smaller ones shrink to nothing, larger ones fill the memory
Kernel = int | tuple[int, int]

# name of a layer -> channels that it gives; the stages between have features too, but the authors pool none of them
LAYERS: Final = {
    "conv2d_1a": 32,
    "conv2d_2a": 32,
    "conv2d_2b": 64,
    "maxpool_3a": 64,
    "conv2d_3b": 80,
    "conv2d_4a": 192,
    "maxpool_5a": 192,
    "mixed_5b": 320,
    "mixed_6a": 1088,
    "mixed_7a": 2080,
    "conv2d_7b": 1536,
}


class _Conv(nn.Sequential):
    """Convolution, batch norm, ReLU."""

    def __init__(self, n_in: int, n_out: int, kernel: Kernel, stride: int = 1, padding: Kernel = 0) -> None:
        convolution = nn.Conv2d(n_in, n_out, kernel, stride, padding, bias=False)
        super().__init__(OrderedDict(conv=convolution, bn=nn.BatchNorm2d(n_out, eps=1e-3), relu=nn.ReLU()))


class _Branches(nn.Module):
    """The outputs of several branches, concatenated."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.n_branches = len(branches)
        for number, branch in enumerate(branches):
            self.add_module(f"branch{number}", branch)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.get_submodule(f"branch{number}")(x) for number in range(self.n_branches)], dim=1)


class _Residual(_Branches):
    """Branches that are weighed, brought to the width of the input and added to it."""

    def __init__(self, *branches: nn.Module, n_joined: int, width: int, scale: float, relu: bool = True) -> None:
        super().__init__(*branches)
        self.conv2d = nn.Conv2d(n_joined, width, 1)
        self.scale, self.relu = scale, relu

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.scale * self.conv2d(super().forward(x))
        return F.relu(out) if self.relu else out


def _block_35() -> nn.Module:
    return _Residual(
        _Conv(320, 32, 1),
        nn.Sequential(_Conv(320, 32, 1), _Conv(32, 32, 3, padding=1)),
        nn.Sequential(_Conv(320, 32, 1), _Conv(32, 48, 3, padding=1), _Conv(48, 64, 3, padding=1)),
        n_joined=128,
        width=320,
        scale=0.17,
    )


def _block_17() -> nn.Module:
    across = (_Conv(1088, 128, 1), _Conv(128, 160, (1, 7), padding=(0, 3)), _Conv(160, 192, (7, 1), padding=(3, 0)))
    return _Residual(_Conv(1088, 192, 1), nn.Sequential(*across), n_joined=384, width=1088, scale=0.1)


def _block_8(scale: float = 0.2, *, relu: bool = True) -> nn.Module:
    across = (_Conv(2080, 192, 1), _Conv(192, 224, (1, 3), padding=(0, 1)), _Conv(224, 256, (3, 1), padding=(1, 0)))
    return _Residual(_Conv(2080, 192, 1), nn.Sequential(*across), n_joined=448, width=2080, scale=scale, relu=relu)


# all stages by their official names, in order
_STAGES: Final[dict[str, Callable[[], nn.Module]]] = {
    "conv2d_1a": lambda: _Conv(3, 32, 3, stride=2),
    "conv2d_2a": lambda: _Conv(32, 32, 3),
    "conv2d_2b": lambda: _Conv(32, 64, 3, padding=1),
    "maxpool_3a": lambda: nn.MaxPool2d(3, stride=2),
    "conv2d_3b": lambda: _Conv(64, 80, 1),
    "conv2d_4a": lambda: _Conv(80, 192, 3),
    "maxpool_5a": lambda: nn.MaxPool2d(3, stride=2),
    "mixed_5b": lambda: _Branches(
        _Conv(192, 96, 1),
        nn.Sequential(_Conv(192, 48, 1), _Conv(48, 64, 5, padding=2)),
        nn.Sequential(_Conv(192, 64, 1), _Conv(64, 96, 3, padding=1), _Conv(96, 96, 3, padding=1)),
        nn.Sequential(nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False), _Conv(192, 64, 1)),
    ),
    "repeat": lambda: nn.Sequential(*(_block_35() for _ in range(10))),
    "mixed_6a": lambda: _Branches(
        _Conv(320, 384, 3, stride=2),
        nn.Sequential(_Conv(320, 256, 1), _Conv(256, 256, 3, padding=1), _Conv(256, 384, 3, stride=2)),
        nn.MaxPool2d(3, stride=2),
    ),
    "repeat_1": lambda: nn.Sequential(*(_block_17() for _ in range(20))),
    "mixed_7a": lambda: _Branches(
        nn.Sequential(_Conv(1088, 256, 1), _Conv(256, 384, 3, stride=2)),
        nn.Sequential(_Conv(1088, 256, 1), _Conv(256, 288, 3, stride=2)),
        nn.Sequential(_Conv(1088, 256, 1), _Conv(256, 288, 3, padding=1), _Conv(288, 320, 3, stride=2)),
        nn.MaxPool2d(3, stride=2),
    ),
    "repeat_2": lambda: nn.Sequential(*(_block_8() for _ in range(9))),
    "block8": lambda: _block_8(1.0, relu=False),
    "conv2d_7b": lambda: _Conv(2080, 1536, 1),
}


class InceptionResNetV2(nn.Module):
    """Pictures (batch, 1 or 3, H, W) in [0, 1] -> the means of layers over their pixels, (batch, n_features).

    Pictures are resized to `side` pixels a side. `layer` is one of `LAYERS`, or "concat" for all of them; what lies
    behind it is not built.
    """

    def __init__(self, layer: str = "conv2d_7b", side: int = 299) -> None:
        super().__init__()
        self.side = side
        self.pooled = tuple(LAYERS) if layer == "concat" else (layer,)
        self.n_features = sum(LAYERS[name] for name in self.pooled)
        for name, build in _STAGES.items():
            self.add_module(name, build())
            if name == self.pooled[-1]:
                break

    def forward(self, x: Tensor) -> Tensor:
        """The pooled features of every picture."""
        h = F.interpolate(x, (self.side, self.side), mode="bilinear", align_corners=False, antialias=True)
        h = 2 * h.expand(-1, 3, -1, -1) - 1
        found = []
        for name, stage in self.named_children():
            h = stage(h)
            if name in self.pooled:
                found.append(h.mean((-2, -1)))
        return torch.cat(found, dim=1)


WEIGHTS: Final = PublishedWeights(
    "Inception-ResNet-v2",
    Remote(("http://data.lip6.fr/cadene/pretrainedmodels/inceptionresnetv2-520b38e4.pth",), sha256="520b38e4"),
    InceptionResNetV2,
    ("last_linear.",),
)
