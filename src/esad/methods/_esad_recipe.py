"""From "auto" to numbers: which network, loss and training ESAD uses for data of a given kind and size."""

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from esad.errors import InputError
from esad.methods._esad_bins import BinnedESADObjective
from esad.methods._esad_objective import ESADObjective
from esad.methods._esad_parameters import RECIPE_WORDS, check, is_auto, is_bins
from esad.methods._esad_pictures import PictureESADObjective
from esad.methods._esad_settings import LossSettings
from esad.networks.spec import CONV_NARROW, NetworkSpec
from esad.train.loop import Settings

__all__ = ["PUBLISHED", "Recipe", "resolve"]

logger = logging.getLogger("esad")
T = TypeVar("T")

# What "auto" stands for. docs/decisions/0005-default-recipe.md says what each choice brought.
AUTOMATIC: dict[str, dict[str, Any]] = {
    "table": {
        "n_members": 5,
        "input_noise": 0.5,
        "augment": 0,
        "shift": 0,
        "flip": False,
        "decoys": 0.0,
        "lambda_norm": 1.5,
        "lambda_assist": 1.0,
        "norm_weight": 3.0,
        "bins": 4,
        "optimizer": "adam",
        "lr": 5e-3,
        "schedule": "cosine",
        "batch_size": 128,
        "labelled_batch_size": 32,
        "clip": 10.0,
    },
    "images": {
        "n_members": 1,
        "bins": 0,
        "input_noise": 0.0,
        "lambda_norm": 1.0,
        "lambda_assist": 0.3,
        "norm_weight": 2.0,
        "optimizer": "adam",
        "schedule": "cosine",
        "batch_size": 64,
        "labelled_batch_size": 16,
        "clip": 10.0,
    },
}

# Constructor arguments of `ESAD.as_published`.
PUBLISHED: dict[str, Any] = {
    "recipe": "published",
    "n_members": 1,
    "input_noise": 0.0,
    "augment": 0,
    "shift": 0,
    "flip": False,
    "decoys": 0.0,
    "bins": 0,
    "lambda_norm": 1.0,
    "lambda_assist": 1.0,
    "reduction": "mean",
    "anomaly_gain": 1.0,
    "anomaly_offset": 0.0,
    "combine": "sum",
    "scaling": "minmax",
    "optimizer": "sgd",
    "lr": 0.1,
    "schedule": "halving",
    "n_epochs": 200,
    "batch_size": 32,
    "labelled_batch_size": 8,
    "clip": 1.0,
}

FEW_ANOMALIES = 5  # with more of them than this, labelled rows get less input noise: they cover their kind better
# Fields that the first files of version 0.1.0 do not have.
SINCE_0_1 = {"shift", "flip", "decoys", "decoys_alone", "compiled", "accumulate", "bins"}
MIN_STEPS, MAX_STEPS = 250, 1000  # on a table
PICTURE_PIXELS = 784  # a picture's error counts as if it had this many pixels


@dataclass(frozen=True)
class Recipe:
    """Every choice made for one training."""

    network: NetworkSpec
    loss: LossSettings
    settings: Settings

    def objective(self) -> ESADObjective:
        """The networks, with these losses and weights still to be drawn or filled."""
        if self.network.kind != "mlp":
            return PictureESADObjective(self.network, self.loss)
        return (BinnedESADObjective if self.loss.bins else ESADObjective)(self.network, self.loss)

    def to_json(self) -> dict[str, Any]:
        """Plain values for the model file."""
        return {"network": self.network.to_json(), "loss": asdict(self.loss), "settings": asdict(self.settings)}

    @classmethod
    def from_json(cls, values: Any) -> "Recipe":
        """Rebuild from `to_json`."""
        by_member = {name: tuple(values["loss"].get(name, ())) for name in ("input_noise", "bins")}
        loss = _exactly(LossSettings, values["loss"] | by_member)
        for name in ("phi", "restore", "reduction", "combine"):
            if getattr(loss, name) not in RECIPE_WORDS[name]:
                raise InputError(f"The recipe's {name!r} must be one of {RECIPE_WORDS[name]}.")
        network = NetworkSpec.from_json(values["network"])
        if len(loss.input_noise) != network.n_members:
            raise InputError("The recipe's 'input_noise' must hold one number per member.")
        if loss.bins and not (len(loss.bins) == network.n_members and network.kind == "mlp" and is_bins(loss.bins)):
            raise InputError("The recipe's 'bins' must hold one whole number per member, for a table.")
        return cls(network, loss, _exactly(Settings, values["settings"]))


def _exactly(kind: Callable[..., T], values: dict[str, Any]) -> T:
    """Build a dataclass from a dict that must hold its fields with plain values of their types."""
    defaults = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    if not set(defaults) - SINCE_0_1 <= set(values) <= set(defaults):
        raise InputError("The recipe has other fields than expected.")
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if isinstance(defaults[name], float) and not (number or (name == "clip" and value is None)):
            raise InputError(f"The recipe's {name!r} must be a number. Got {value!r}.")
        if isinstance(defaults[name], bool | str) and type(value) is not type(defaults[name]):
            raise InputError(f"The recipe's {name!r} is damaged. Got {value!r}.")
    return kind(**values)


def resolve(parameters: dict[str, Any], in_shape: tuple[int, ...], y: NDArray[np.int8], device: str) -> Recipe:
    """Check the constructor's arguments against the data and replace every "auto"."""
    kind = "images" if len(in_shape) == 3 else "table"
    check(parameters, kind)
    network = _network(parameters, in_shape, kind, device)
    automatic = AUTOMATIC[kind]
    if kind == "images":
        automatic = automatic | _automatic_for_pictures(parameters, network, y, device)
    if parameters["recipe"] == "published":  # `as_published` gives all of PUBLISHED; the word alone, these
        automatic = automatic | {name: PUBLISHED[name] for name in ("bins", "lambda_norm")}
    chosen = {name: automatic.get(name, value) if is_auto(value) else value for name, value in parameters.items()}
    return Recipe(network, _loss(chosen, in_shape, y, network.n_members), _settings(chosen, y, kind))


def _automatic_for_pictures(
    parameters: dict[str, Any], network: NetworkSpec, y: NDArray[np.int8], device: str
) -> dict[str, Any]:
    """What "auto" stands for with these pictures, in this network."""
    n_channels, *sides = network.in_shape
    reach = max(1, round(min(sides) / 8))
    # photographs have an upper side, and their reconstruction says little
    decoys = n_channels == 3 and parameters["restore"] in ("none", "grey")
    found: dict[str, Any] = {
        "lr": 2e-3 * min(1.0, 16 / network.hidden[0]),
        "augment": reach,
        "decoys": 0.5 if decoys else 0.0,
        "shift": reach if decoys else 0,
        "flip": decoys,
    }
    with_decoys = decoys if is_auto(parameters["decoys"]) else parameters["decoys"] > 0
    if not (y < 0).any() and not with_decoys:  # the norm has nothing to tell apart
        found["norm_weight"] = 0.0
    if device != "cpu":
        found |= {"batch_size": 128, "labelled_batch_size": 32}
    return found


def _network(parameters: dict[str, Any], in_shape: tuple[int, ...], kind: str, device: str) -> NetworkSpec:
    network = parameters["network"]
    if network == "auto":
        network = "mlp" if kind == "table" else "conv"
    published = parameters["recipe"] == "published"
    narrow = network == "conv" and device == "cpu" and not published
    if narrow and is_auto(parameters["hidden"]):
        logger.warning(
            "training on a CPU with a narrower network than the paper's: first level %d channels", CONV_NARROW[0]
        )
    n_members = parameters["n_members"]
    spec = NetworkSpec.published(
        network,
        in_shape,
        n_members=int(AUTOMATIC[kind]["n_members"] if is_auto(n_members) else n_members),
        narrow=narrow,
    )
    if not published:
        spec = replace(spec, slope=0.2, bias=True, sigmoid=False)
        if network == "mlp":
            spec = replace(spec, hidden=(64, 32), latent=32)
    return spec.resized(parameters["hidden"], parameters["latent"])


def _settings(chosen: dict[str, Any], y: NDArray[np.int8], kind: str) -> Settings:
    n_unlabelled = int(np.count_nonzero(y == 0)) or len(y)
    batch_size = min(int(chosen["batch_size"]), n_unlabelled)
    if not is_auto(chosen["n_epochs"]):
        n_steps = int(chosen["n_epochs"]) * math.ceil(n_unlabelled / batch_size)
    elif kind == "table":
        n_steps = min(MAX_STEPS, max(MIN_STEPS, n_unlabelled // 25))
    else:
        n_steps = min(1500, max(500, n_unlabelled // 4))
    return Settings(
        n_steps=n_steps,
        batch_size=int(chosen["batch_size"]),
        labelled_batch_size=int(chosen["labelled_batch_size"]),
        optimizer=chosen["optimizer"],
        lr=float(chosen["lr"]),
        schedule=chosen["schedule"],
        warmup_ratio=0.05 if chosen["schedule"] == "cosine" else 0.0,
        halve_every=math.ceil(n_steps / 4),
        weight_decay=float(chosen["weight_decay"]),
        clip=chosen["clip"],
        precision=chosen["precision"],
        min_anomaly_ratio=0.5 if chosen["recipe"] != "published" else 0.0,
        beta_2=0.999 if kind == "table" else 0.99,
        compiled=bool(chosen["compiled"]),
        accumulate=int(chosen["accumulate"]),
    )


def _bins(given: Any, n_members: int) -> tuple[int, ...]:
    """Bins of every member: one number is for two members of five, several are taken in turn."""
    turn = (0, given, 0, given, 0) if np.ndim(given) == 0 else given
    return tuple(int(turn[member % len(turn)]) for member in range(n_members))


def _loss(chosen: dict[str, Any], in_shape: tuple[int, ...], y: NDArray[np.int8], n_members: int) -> LossSettings:
    levels = [float(level) for level in np.atleast_1d(chosen["input_noise"])]
    bins = _bins(chosen["bins"], n_members)
    pictures = len(in_shape) == 3
    scale_pictures = pictures and chosen["reduction"] == "sum"
    return LossSettings(
        lambda_norm=float(chosen["lambda_norm"]),
        lambda_assist=float(chosen["lambda_assist"]),
        second_encoder=bool(chosen["second_encoder"]),
        phi=chosen["phi"],
        noise=float(chosen["noise"]),
        input_noise=tuple(levels[member % len(levels)] for member in range(n_members)),
        labelled_noise_ratio=min(1.0, math.sqrt(FEW_ANOMALIES / max(1, int(np.count_nonzero(y < 0))))),
        augment=int(chosen["augment"]),
        shift=int(chosen["shift"]),
        flip=bool(chosen["flip"]),
        decoys=float(chosen["decoys"]),
        decoys_alone=not (y < 0).any(),
        restore=chosen["restore"],
        reduction=chosen["reduction"],
        error_scale=PICTURE_PIXELS / math.prod(in_shape) if scale_pictures else 1.0,
        gain=float(chosen["anomaly_gain"]),
        offset=float(chosen["anomaly_offset"]),
        combine=chosen["combine"],
        norm_weight=float(chosen["norm_weight"]),
        robust=not pictures,
        norm_offset=1.0 if pictures else 0.0,
        min_spread=0.05 if pictures else 1e-3,
        bins=bins if any(bins) else (),
    )
