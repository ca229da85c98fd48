"""VGG19 (Simonyan & Zisserman 2015) as fixed features, and how far two pictures are apart in them.

d(x, y) = ||f(x) - f(y)||_1 / ||f(x)||_1,   f the features of one layer, standardised by channel               Eq. (1)
"""

from typing import Final

import torch
from torch import Tensor, nn

from esad.datasets.download import Remote
from esad.networks.pretrained import PublishedWeights, normalise_colours

WIDTHS: Final = ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4)
LAYERS: Final = tuple(
    f"r{level}{number}" for level, widths in enumerate(WIDTHS, 1) for number in range(1, len(widths) + 1)
)
MIN_SPREAD = 0.01  # of a channel, against the widest: one that is dark everywhere must not outweigh the others
MAX_MEASURED = 1024  # pictures that the spread of channels is taken from
BLOCK_PICTURES = 64


class VGG19(nn.Module):
    """Pictures (batch, 1 or 3, H, W) in [0, 1] -> what one layer gives, (batch, channels, h, w).

    Layers have the authors' names: "r32" is the second convolution after the second pooling, with its ReLU.
    """

    def __init__(self, layer: str = LAYERS[-1]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        n_in = 3
        for level, number in (divmod(int(name[1:]), 10) for name in LAYERS[: LAYERS.index(layer) + 1]):
            if number == 1 and level > 1:
                layers.append(nn.MaxPool2d(2))
            n_out = WIDTHS[level - 1][number - 1]
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU()]
            n_in = n_out
        self.features = nn.Sequential(*layers)
        self.n_channels = n_in

    def forward(self, x: Tensor) -> Tensor:
        """The features of every picture."""
        features: Tensor = self.features(normalise_colours(x))
        return features


WEIGHTS: Final = PublishedWeights(
    "VGG19",
    Remote(("https://download.pytorch.org/models/vgg19-dcbb9e9d.pth",), sha256="dcbb9e9d"),
    VGG19,
    ("classifier.",),
)


class PerceptualDistance(nn.Module):
    """Eq. (1) of pictures (members, batch, channels, H, W) and others like them, (members, batch)."""

    mean: Tensor
    spread: Tensor

    def __init__(self, layer: str) -> None:
        super().__init__()
        self.network = VGG19(layer).requires_grad_(False)
        self.register_buffer("mean", torch.zeros(self.network.n_channels, 1, 1))
        self.register_buffer("spread", torch.ones(self.network.n_channels, 1, 1))

    @torch.no_grad()
    def standardise(self, x: Tensor) -> None:
        """Take mean and standard deviation of every channel from pictures (n, channels, H, W), evenly spread."""
        blocks = torch.split(x[:: -(-len(x) // MAX_MEASURED)], BLOCK_PICTURES)
        moments = torch.zeros(2, len(self.mean), dtype=torch.float64, device=x.device)
        for block in blocks:
            features = self.network(block).double()
            moments += torch.stack([features.mean((0, 2, 3)), features.square().mean((0, 2, 3))]) * len(block)
        mean, square = moments / sum(map(len, blocks))
        spread = (square - mean.square()).clamp(min=0).sqrt()
        self.mean.copy_(mean.view(-1, 1, 1))
        least = MIN_SPREAD * spread.max()
        self.spread.copy_(spread.clamp(min=float(least) or 1.0).view(-1, 1, 1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the distance of y from x, relative to the size of x's features, which gets no gradient."""
        ours, theirs = self._features(x), self._features(y)
        size = ours.detach().abs().mean(2)
        return (ours - theirs).abs().mean(2) / size.clamp(min=torch.finfo(size.dtype).eps)

    def _features(self, x: Tensor) -> Tensor:
        """f, (members, batch, features)."""
        features: Tensor = (self.network(x.flatten(0, 1)) - self.mean) / self.spread
        return features.reshape(*x.shape[:2], -1)
