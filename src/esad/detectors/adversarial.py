"""What adversarial methods for pictures share: DCGAN's networks, and how they are trained against each other."""

from typing import Any, ClassVar

import torch

from esad.core.arguments import with_parameters
from esad.detectors.standard import StandardDetector
from esad.networks.spec import NetworkSpec

__all__ = ["GAME", "AdversarialDetector"]

GAME: dict[str, Any] = {"warmup_ratio": 0.0, "clip": None}  # whatever holds back one side of a game is left out
NARROW = 4  # how much narrower networks are on a CPU, where nothing else is asked for
MAX_MAP = 8  # pixels that the deepest level may have beside each other; larger pictures get more levels


@with_parameters
class AdversarialDetector(StandardDetector):
    """Networks that work against each other, each in moves of its own; they learn from unlabelled and normal pictures.

    Parameters
    ----------
    n_members : int
        Games played side by side; the score is their mean.
    network : {"auto", "dcgan"}
        There is one kind.
    hidden, latent : sequence of int and int, or "auto"
        Channels of the levels, each half as large as the one before, and the size of the code.
    lr : float or "auto"
        Of the optimiser, all the way.
    weight_decay : float
    ... : those of `StandardDetector`

    Attributes
    ----------
    auto_hidden, auto_latent, dense : tuple of int, int, tuple of int
        What "auto" stands for: channels of the levels, size of the code; and the dense layers between them. On a CPU
        channels and dense layers have a quarter of it.
    """

    takes: ClassVar[tuple[str, ...]] = ("images",)
    labels_used: ClassVar[tuple[str, ...]] = ("unlabelled", "normal")
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"images": ("dcgan",)}
    auto_hidden: ClassVar[tuple[int, ...]] = (64, 128)
    auto_latent: ClassVar[int] = 128
    dense: ClassVar[tuple[int, ...]] = ()
    loop: ClassVar[dict[str, Any]] = GAME | {"beta_1": 0.5}  # Adam as DCGAN has it
    schedule = "constant"

    n_members: int = 1
    weight_decay: float = 0.0

    def _make_network(self, in_shape: tuple[int, ...], device: torch.device) -> NetworkSpec:
        """The network asked for, kept as `network_`."""
        self._check("images")
        narrow = NARROW if device.type == "cpu" else 1
        hidden, dense = ([width // narrow for width in widths] for widths in (self.auto_hidden, self.dense))
        while max(in_shape[1:]) > MAX_MAP * 2 ** len(hidden):
            hidden.append(2 * hidden[-1])
        spec = NetworkSpec("dcgan", in_shape, tuple(hidden), self.auto_latent, int(self.n_members), dense=tuple(dense))
        self.network_ = spec.with_widths(self.hidden, self.latent)
        return self.network_
