"""Which network: a small description that builds encoders and decoders and is saved with the model."""

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from esad.errors import InputError
from esad.networks.conv import ConvDecoder, ConvEncoder, SkipDecoder
from esad.networks.dcgan import DCGANDecoder, DCGANEncoder
from esad.networks.layers import Network, map_size
from esad.networks.lenet import LeNetDecoder, LeNetEncoder
from esad.networks.mlp import StackedMLP
from esad.networks.residual import ResidualDecoder, ResidualEncoder, WideEncoder, n_levels_for

KINDS = ("mlp", "conv", "lenet", "dcgan", "wide", "residual", "residual18")
CONV_PUBLISHED = (64, 128, 256, 512, 512)
CONV_NARROW = (8, 16, 32, 64, 64)  # some fifty times cheaper, for a CPU
RESIDUAL_BLOCKS = {"residual": 1, "residual18": 2}  # per level
MAX_SIZES = 64  # layers and axes a description may name


@dataclass(frozen=True)
class NetworkSpec:
    """Shape of an encoder and its mirrored decoder.

    Attributes
    ----------
    kind : {"mlp", "conv", "lenet", "dcgan", "wide", "residual", "residual18"}
    in_shape : tuple of int
        (features,) or (channels, height, width).
    hidden : tuple of int
        Widths of the hidden layers, or channels of the levels.
    latent : int
        Size of the code, or its channels ("conv").
    n_members : int
    slope : float
        Of the leaky ReLU in "mlp".
    bias : bool
        Whether the last layers of "mlp" have a bias.
    sigmoid : bool
        Whether the decoder of "mlp" or "lenet" ends in a sigmoid.
    dense : tuple of int
        Hidden linear layers between the convolutions and the code of "lenet" and "dcgan".

    Examples
    --------
    >>> spec = NetworkSpec("mlp", in_shape=(6,), hidden=(32, 16), latent=4, n_members=3)
    >>> spec.encoder().shapes, spec.decoder().shapes
    ([(6, 32), (32, 16), (16, 4)], [(4, 16), (16, 32), (32, 6)])
    """

    kind: str
    in_shape: tuple[int, ...]
    hidden: tuple[int, ...]
    latent: int
    n_members: int = 1
    slope: float = 0.2
    bias: bool = True
    sigmoid: bool = False
    dense: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"`network` must be one of {', '.join(KINDS)}. Got {self.kind!r}.")
        wanted = 1 if self.kind == "mlp" else 3
        if len(self.in_shape) != wanted:
            takes = "tables" if wanted == 1 else "pictures"
            raise InputError(f"The network {self.kind!r} takes {takes}; the data has shape {self.in_shape} per row.")
        if not all(type(w) is int and w > 0 for w in self._sizes) or len(self._sizes) > MAX_SIZES:
            raise InputError(f"Widths and members must be positive whole numbers. Got {self}.")
        if not isinstance(self.slope, float | int) or not 0 <= self.slope <= 1:
            raise InputError(f"The slope of a leaky ReLU must be between 0 and 1. Got {self.slope!r}.")
        if not (isinstance(self.bias, bool) and isinstance(self.sigmoid, bool)):
            raise InputError(f"`bias` and `sigmoid` must be true or false. Got {self.bias!r} and {self.sigmoid!r}.")
        if self.kind == "conv" and len(self.hidden) < 2:
            raise InputError(f"The network 'conv' needs two or more hidden widths. Got {self.hidden}.")
        n_kept = {"mlp": len(self.hidden), "conv": 0, "lenet": 0, "dcgan": 0}  # levels that do not halve
        n_halvings = len(self.hidden) - n_kept.get(self.kind, 1)
        if n_halvings and 2**n_halvings > max(16, 2 * max(self.in_shape[1:])):
            raise InputError(
                f"The network {self.kind!r} with {len(self.hidden)} hidden widths halves a picture {n_halvings} times. "
                f"Pictures of {self.in_shape[1]} x {self.in_shape[2]} pixels need fewer."
            )
        if self.kind not in ("mlp", "conv") and not self.hidden:
            raise InputError(f"The network {self.kind!r} needs one or more hidden widths. Got none.")

    def encoder(self) -> Network:
        """A new encoder with zero weights; call `reset` to draw them."""
        widths, dense, n_members = (*self.hidden, self.latent), (*self.dense, self.latent), self.n_members
        match self.kind:
            case "mlp":
                return StackedMLP([*self.in_shape, *widths], n_members=n_members, slope=self.slope, bias=self.bias)
            case "conv":
                return ConvEncoder(self.picture, widths, n_members=n_members)
            case "wide":
                return WideEncoder(self.picture, widths, n_members=n_members)
            case "lenet":
                return LeNetEncoder(self.picture, self.hidden, dense, n_members=n_members)
            case "dcgan":
                return DCGANEncoder(self.picture, self.hidden, dense, n_members=n_members)
        n_blocks = RESIDUAL_BLOCKS[self.kind]
        return ResidualEncoder(self.picture, self.hidden, self.latent, n_members=n_members, n_blocks=n_blocks)

    def decoder(self, *, skips: bool = False) -> Network:
        """A new decoder, the mirror of the encoder; with skips, of "conv" only, it also sees what each level gave."""
        widths, dense, n_members = (*self.hidden, self.latent), (*self.dense, self.latent), self.n_members
        match self.kind:
            case "mlp":
                ends = {"bias": self.bias, "sigmoid": self.sigmoid}
                return StackedMLP([*reversed(widths), *self.in_shape], n_members=n_members, slope=self.slope, **ends)
            case "conv":
                return (SkipDecoder if skips else ConvDecoder)(self.picture, widths, n_members=n_members)
            case "wide":
                raise InputError(
                    "The network 'wide' tells pictures apart and cannot rebuild them. Take 'conv' or 'lenet'."
                )
            case "lenet":
                return LeNetDecoder(self.picture, self.hidden, dense, n_members=n_members, sigmoid=self.sigmoid)
            case "dcgan":
                return DCGANDecoder(self.picture, self.hidden, dense, n_members=n_members)
        n_blocks = RESIDUAL_BLOCKS[self.kind]
        return ResidualDecoder(self.picture, self.hidden, self.latent, n_members=n_members, n_blocks=n_blocks)

    @classmethod
    def as_published(
        cls, kind: str, in_shape: tuple[int, ...], *, n_members: int = 1, narrow: bool = False
    ) -> "NetworkSpec":
        """The shapes of the papers.

        "mlp" and "lenet" are Deep SAD's, "wide" GEOM's, "dcgan" GANomaly's, "residual18" DPA's, "residual" PIAD's and
        "conv", which may be made narrower, ESAD's. Deep SAD has two for grey pictures: "lenet" is Fashion-MNIST's,
        "lenet_small" MNIST's.

        Examples
        --------
        >>> NetworkSpec.as_published("mlp", (21,)).hidden, NetworkSpec.as_published("lenet", (1, 28, 28)).latent
        ((32, 16), 64)
        """
        hidden: tuple[int, ...]
        dense: tuple[int, ...] = ()
        if kind == "mlp":
            wide = in_shape[0] >= 100
            hidden, latent = ((128, 64), 32) if wide else ((32, 16), 8 if in_shape[0] >= 8 else 4)
        elif kind == "lenet_small":
            kind, hidden, latent = "lenet", (8, 4), 32
        elif kind == "lenet" and in_shape[0] == 1:
            hidden, dense, latent = (16, 32), (128,), 64
        elif kind == "lenet":
            hidden, latent = (32, 64, 128), 128
        elif kind == "wide":
            hidden, latent = (16, 64, 128), 256
        elif kind == "dcgan":
            hidden, latent = tuple(64 * 2**level for level in range(max(1, n_levels_for(in_shape)))), 100
        elif kind in RESIDUAL_BLOCKS:
            hidden, latent = (32,) * (n_levels_for(in_shape) + 1), 32
        else:
            *levels, latent = CONV_NARROW if narrow else CONV_PUBLISHED
            hidden = tuple(levels)
        ends = {"bias": False, "sigmoid": kind == "mlp"}
        return cls(kind, tuple(in_shape), hidden, latent, n_members, slope=0.01, dense=dense, **ends)

    def with_widths(self, hidden: Any, latent: Any) -> "NetworkSpec":
        """Return a copy with other widths; "auto" keeps them."""
        widths = self.hidden if isinstance(hidden, str) else tuple(int(width) for width in hidden)
        return replace(self, hidden=widths, latent=self.latent if isinstance(latent, str) else int(latent))

    def count_products(self) -> tuple[int, int]:
        """Multiplications that one row takes through the encoder and through the decoder, of all members.

        Examples
        --------
        >>> NetworkSpec("mlp", in_shape=(6,), hidden=(32,), latent=4).count_products()
        (320, 320)
        """
        with torch.no_grad():  # on the CPU: torch's "meta" device takes a second to load
            row = torch.empty(self.n_members, 1, *self.in_shape)
            with FlopCounterMode(display=False) as encoding:
                code = self.encoder().eval()(row)
            with FlopCounterMode(display=False) as decoding:
                self.decoder().eval()(code)
        return encoding.get_total_flops() // 2, decoding.get_total_flops() // 2

    @property
    def n_codes(self) -> int:
        """Numbers in the code of one row."""
        if self.kind != "conv":
            return self.latent
        return self.latent * math.prod(map_size(self.in_shape, len(self.hidden)))

    @property
    def _sizes(self) -> tuple[int, ...]:
        return (*self.in_shape, *self.hidden, *self.dense, self.latent, self.n_members)

    @property
    def picture(self) -> tuple[int, int, int]:
        """Channels, height and width of a row that is a picture."""
        channels, height, width = self.in_shape
        return channels, height, width

    def to_json(self) -> dict[str, Any]:
        """Plain values for the model file."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "NetworkSpec":
        """Rebuild from `to_json`; anything else is an error."""
        if set(values) != {field.name for field in fields(cls)}:
            raise InputError("The network description has other fields than expected.")
        lists = {name: tuple(values[name]) for name in ("in_shape", "hidden", "dense")}
        return cls(**values | lists)
