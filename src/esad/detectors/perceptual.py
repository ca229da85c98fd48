"""Methods that compare pictures in the features of a fixed VGG19."""

from typing import Any, ClassVar

import torch

from esad.core.arguments import is_auto, parameter, with_parameters
from esad.detectors.deep import Phase
from esad.detectors.standard import StandardDetector
from esad.errors import InputError, ModelFileError
from esad.networks.pretrained import FEATURES, fill_weights, hide_path
from esad.networks.spec import NetworkSpec
from esad.networks.vgg import LAYERS, WEIGHTS, PerceptualDistance
from esad.train.objective import Objective

__all__ = ["PerceptualDetector", "layer_for"]

AUTO_LAYERS = ((8, "r12"), (16, "r22"), (32, "r32"))  # up to so many pixels a side; "r42" for more


def layer_for(shape: tuple[int, ...]) -> str:
    """The layer that DPA's authors take for pictures (..., height, width) of such a size.

    Examples
    --------
    >>> layer_for((28, 28)), layer_for((64, 64))
    ('r32', 'r42')
    """
    return next((layer for side, layer in AUTO_LAYERS if max(shape[-2:]) <= side), "r42")


@with_parameters
class PerceptualDetector(StandardDetector):
    """A method whose objective holds `PerceptualDistance`s; `features` says where the VGG19's weights come from.

    The weights are part of the model: a file scores without them being at hand.

    Parameters
    ----------
    features : {"imagenet", "random"} or path
        Weights of the VGG19: torchvision's, downloaded once into the data folder; none, which is a stand-in of other
        results; or a file with torchvision's (.pth or .safetensors).
    layer : str
        Of the VGG19, "r11" to "r54". Auto: "r12", "r22", "r32" and "r42" for up to 8, 16, 32 and more pixels a side.
    """

    takes: ClassVar[tuple[str, ...]] = ("images",)
    labels_used: ClassVar[tuple[str, ...]] = ("unlabelled", "normal")

    features: Any = parameter(default="imagenet", allowed=FEATURES)
    layer: str = parameter(default="auto", allowed=("auto", *LAYERS))

    def _make_network(self, in_shape: tuple[int, ...], device: torch.device) -> NetworkSpec:
        spec = super()._make_network(in_shape, device)
        self.layer_ = layer_for(in_shape) if is_auto(self.layer) else self.layer
        least = 2 ** (int(self.layer_[1]) - 1)
        if min(in_shape[1:]) < least:
            raise InputError(
                f"The layer {self.layer_!r} of VGG19 needs pictures of {least} x {least} pixels or more. "
                f"Got {in_shape[1]} x {in_shape[2]}. Take an earlier `layer`, such as 'r12'."
            )
        return spec

    def _fill(self, phases: list[Phase]) -> list[Phase]:
        """Give every VGG19 of the phases its fixed weights, read once."""
        distances = [
            part for phase in phases for part in phase.objective.modules() if isinstance(part, PerceptualDistance)
        ]
        deepest = max((distance.network for distance in distances), key=lambda network: len(network.features))
        fill_weights(deepest, WEIGHTS, self.features, seed=self.seed_)
        weights = deepest.state_dict()
        for distance in distances:
            distance.network.load_state_dict({name: weights[name] for name in distance.network.state_dict()})
        return phases

    def plain_parameters(self) -> dict[str, Any]:
        """Without paths of this machine."""
        return super().plain_parameters() | {"features": hide_path(self.features)}

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {"layer": self.layer_}

    def _rebuild(self, plain: Any) -> Objective:
        self.layer_ = plain["layer"]
        if self.layer_ not in LAYERS:
            raise ModelFileError(f"its layer of VGG19 must be one of {', '.join(LAYERS)}. Got {self.layer_!r}")
        return super()._rebuild(plain)
