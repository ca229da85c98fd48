"""ResNet-18 (He et al. 2016) as a fixed feature extractor, with the names torchvision gives its weights."""

from itertools import pairwise
from typing import Final

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from esad.datasets.download import Remote
from esad.networks.pretrained import PublishedWeights, normalise_colours

N_FEATURES = 512
MIN_SIDE = 64  # smaller pictures are enlarged: five halvings need something to halve


class _ResNetBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(n_out)
        self.conv2 = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(n_out)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride=stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.downsample(x))


class ResNet18(nn.Module):
    """Pictures (batch, 1 or 3, H, W) in [0, 1] -> features (batch, 512)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = (64, 64, 128, 256, 512)
        for level, (n_in, n_out) in enumerate(pairwise(widths), start=1):
            stride = 1 if level == 1 else 2
            self.add_module(
                f"layer{level}", nn.Sequential(_ResNetBlock(n_in, n_out, stride), _ResNetBlock(n_out, n_out, 1))
            )

    def forward(self, x: Tensor) -> Tensor:
        """Features after the last pooling, before the classifier that ImageNet needs and we do not."""
        if min(x.shape[-2:]) < MIN_SIDE:
            x = F.interpolate(x, scale_factor=MIN_SIDE / min(x.shape[-2:]), mode="bilinear", align_corners=False)
        h = F.relu(self.bn1(self.conv1(normalise_colours(x))))
        h = F.max_pool2d(h, 3, stride=2, padding=1)
        for level in range(1, 5):
            h = self.get_submodule(f"layer{level}")(h)
        return h.mean((-2, -1))


WEIGHTS: Final = PublishedWeights(
    "a ResNet-18",
    Remote(("https://download.pytorch.org/models/resnet18-f37072fd.pth",), sha256="f37072fd"),
    ResNet18,
    ("fc.",),
)
