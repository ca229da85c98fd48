"""What the competing deep methods share: their networks, and one usual way to train them.

Beside them stand two families for pictures: adversarial methods, and those that compare pictures as a VGG19 sees them.
"""

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
import torch

from esad.core import arguments
from esad.core.arguments import WHOLE, Allowed, Parameter, Rule, is_auto, parameter, with_parameters
from esad.core.arrays import Labels, Rows
from esad.detectors.deep import DeepDetector, Phase
from esad.errors import InputError, ModelFileError
from esad.networks.pretrained import FEATURES, fill_weights, hide_path
from esad.networks.spec import NetworkSpec
from esad.networks.vgg import LAYERS, WEIGHTS, PerceptualDistance
from esad.preprocess.inputs import SCALINGS
from esad.train.autoencoder import AutoencoderObjective
from esad.train.loop import Settings
from esad.train.objective import Objective, hold_out_anomalies, unlabel_all

SCHEDULES = ("cosine", "constant")  # of learning rates
_ALLOWED: dict[str, Allowed | Parameter] = {
    **dict.fromkeys(("n_members", "batch_size", "labelled_batch_size"), WHOLE),
    **{"scaling": SCALINGS, "schedule": SCHEDULES},
}
PRETRAIN_LR = 1e-3  # of the autoencoder that a method starts from


@with_parameters
class StandardDetector(DeepDetector):
    """A deep method whose objective follows from a network and the constructor's arguments.

    `_phases` makes the network with `_make_network`, the objective with `_objective` and how to train it with
    `_settings`, after an autoencoder where the method has `pretrain_epochs`. What else a fit settles is in `settled`.
    Some arguments are described here that not every method has.

    Parameters
    ----------
    n_members : int
        Networks trained side by side; the score is their mean.
    network : {"auto", "mlp", "lenet", "lenet_small", "conv"}
        Auto: "mlp" for tables, "lenet" for pictures; "lenet_small" is Deep SAD's for MNIST.
    hidden, latent : sequence of int and int, or "auto"
        Hidden widths or channels, and the size of the code. Auto: those of Deep SAD's paper.
    scaling : {"standard", "minmax"}
        How table columns are scaled; "minmax" ends the decoder in a sigmoid, as in Deep SAD's paper.
    lr : float or "auto"
        Of Adam, with a cosine schedule. Auto: 1e-3.
    n_epochs : int or "auto"
        Auto: 150, less on large data.
    batch_size, labelled_batch_size : int
        Unlabelled and labelled rows per step.
    batch_size : int
        Rows per step.
    weight_decay : float
    ... : those of `DeepDetector`
    """

    networks: ClassVar[dict[str, tuple[str, ...]]] = {"table": ("mlp",), "images": ("lenet", "lenet_small", "conv")}
    auto_epochs: ClassVar[int] = 150  # of each phase, as long as it stays within the steps below
    max_steps: ClassVar[dict[str, int]] = {"table": 5000, "images": 1500, "images on a GPU": 7500}
    learning_rates: ClassVar[dict[str, float]] = {"table": 1e-3, "images": 1e-3}  # for lr="auto"
    loop: ClassVar[dict[str, Any]] = {}  # settings of the loop that are no arguments, where they are not its defaults
    settled: ClassVar[dict[str, Rule]] = {}  # what is kept as `name_` beside the network, and what a file may say of it

    network: str = "auto"
    hidden: Any = "auto"
    latent: int | str = "auto"
    lr: float | str = "auto"
    n_epochs: int | str = "auto"
    batch_size: int = 128
    weight_decay: float = 1e-6
    contamination: float | str = "auto"
    device: str = "auto"
    precision: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    # no arguments, unless a method makes them its own
    n_members = 1
    pretrain_epochs = cast("int | str", 0)
    schedule = "cosine"
    labelled_batch_size = 32

    @abstractmethod
    def _objective(self, spec: NetworkSpec) -> Objective:
        """The model of this network, weights still to be drawn or filled."""

    def _check(self, kind: str) -> None:
        networks = {kind: ("auto", *words) for kind, words in self.networks.items()}
        arguments.check(
            self.get_params(deep=False), _ALLOWED | arguments.find_parameters(self) | {"network": networks}, kind
        )

    def _make_network(self, in_shape: tuple[int, ...], device: torch.device) -> NetworkSpec:
        """The network asked for, kept as `network_`; "auto" takes the first one the method has for such data."""
        kind = _kind(in_shape)
        self._check(kind)
        network = self.networks[kind][0] if is_auto(self.network) else self.network
        narrow = network == "conv" and device.type == "cpu"
        spec = NetworkSpec.as_published(network, in_shape, n_members=int(self.n_members), narrow=narrow)
        within_unit = kind == "images" or self.scaling == "minmax"
        spec = replace(spec, sigmoid=within_unit and network != "conv")
        self.network_ = spec.with_widths(self.hidden, self.latent)
        return self.network_

    def _labels_seen(self, y: Labels) -> Labels:
        """The labels as the training sees them; a method that uses no known anomalies leaves them out."""
        return y if "anomaly" in self.labels_used else hold_out_anomalies(y)

    def _pretraining_objective(self, spec: NetworkSpec) -> Objective:
        """What is trained first, where `pretrain_epochs` is not 0."""
        return AutoencoderObjective(spec)

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        seen = self._labels_seen(y)
        spec = self._make_network(rows.shape[1:], device)
        phases = [Phase(self._objective(spec), self._settings(seen, device, n_epochs=self.n_epochs), seen)]
        if self.pretrain_epochs != 0:
            before = unlabel_all(y) if "anomaly" in self.labels_used else seen
            settings = self._settings(before, device, n_epochs=self.pretrain_epochs, lr=PRETRAIN_LR)
            phases.insert(0, Phase(self._pretraining_objective(spec), settings, before))
        return phases

    def _settings(
        self,
        y: Labels,
        device: torch.device,
        *,
        n_epochs: int | str,
        lr: float | None = None,
        auto_epochs: int | None = None,
    ) -> Settings:
        """Adam, with a cosine schedule unless the method has another.

        `y` are the labels as the phase sees them, `lr` and `auto_epochs` what "auto" stands for, if not the method's
        own.
        """
        n_rows = int(np.count_nonzero(y == 0)) or int(np.count_nonzero(np.abs(y) == 1))
        kind = _kind(self.network_.in_shape)
        n_batches = math.ceil(n_rows / min(int(self.batch_size), n_rows))
        if is_auto(n_epochs):
            most = self.max_steps["images on a GPU" if kind == "images" and device.type != "cpu" else kind]
            n_steps = min(most, (auto_epochs or self.auto_epochs) * n_batches)
        else:
            n_steps = int(n_epochs) * n_batches
        return Settings(
            n_steps=n_steps,
            batch_size=int(self.batch_size),
            labelled_batch_size=int(self.labelled_batch_size),
            lr=(lr or self.learning_rates[kind]) if isinstance(self.lr, str) else self.lr,
            schedule=self.schedule,
            weight_decay=float(self.weight_decay),
            precision=self.precision,
            **self.loop,
        )

    def _row_shape(self) -> tuple[int, ...]:
        """Shape of one row as the network sees it."""
        return self.inputs_.shape

    def _describe(self) -> dict[str, Any]:
        return {"network": self.network_.to_json()} | {name: getattr(self, f"{name}_") for name in self.settled}

    def _rebuild(self, plain: Any) -> Objective:
        self.network_ = NetworkSpec.from_json(plain["network"])
        if self.network_.in_shape != self._row_shape():
            raise ModelFileError("its network takes other rows than its inputs give")
        kind = _kind(self.network_.in_shape)
        self._check(kind)
        if self.network_.kind not in self.networks[kind]:
            raise ModelFileError(f"its network {self.network_.kind!r} is not one of this method")
        for name, rule in self.settled.items():
            if not rule.permits(plain[name]):
                raise ModelFileError(f"its {name!r} must be {rule.allowed}. Got {plain[name]!r}")
            setattr(self, f"{name}_", plain[name])
        objective = self._objective(self.network_)
        objective.keep_for_scoring()
        return objective


def _kind(in_shape: tuple[int, ...]) -> str:
    return "table" if len(in_shape) == 1 else "images"


# ---------------------------------------------------------------------- adversarial methods

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
    learning_rates: ClassVar[dict[str, float]] = {"images": 2e-4}
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


# ---------------------------------------------------------------------- as a VGG19 sees pictures

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
    settled: ClassVar[dict[str, Rule]] = {"layer": Rule(f"one of {', '.join(LAYERS)}", lambda layer: layer in LAYERS)}

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

    def _fill_vgg(self, phases: list[Phase]) -> list[Phase]:
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
