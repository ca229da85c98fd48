"""From "auto" to numbers: which network, loss and training ESAD uses for data of a given kind and size."""

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from esad.errors import InputError
from esad.methods._esad_objective import LossSettings
from esad.networks.spec import NetworkSpec
from esad.train.loop import OPTIMIZERS, SCHEDULES, Settings

__all__ = ["PUBLISHED", "Recipe", "resolve"]

logger = logging.getLogger("esad")
T = TypeVar("T")

# Constructor arguments of `ESAD.as_published`.
PUBLISHED: dict[str, Any] = {
    "n_members": 1,
    "hidden": "published",
    "latent": "published",
    "input_noise": 0.0,
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

CONV_FULL = (64, 128, 256, 512, 512)
CONV_NARROW = (16, 32, 64, 64, 64)  # some ten times cheaper, for a CPU
CHOICES: dict[str, dict[str, tuple[str, ...]]] = {
    "phi": {
        "table": ("both", "noise", "permute", "normal", "none"),
        "images": ("both", "noise", "rotate", "normal", "none"),
    },
    "restore": {"table": ("none",), "images": ("none", "grey", "rotate", "both")},
    "network": {"table": ("auto", "mlp"), "images": ("auto", "conv", "lenet")},
}
WORDS = {"reduction": ("sum", "mean"), "combine": ("scaled", "sum")}
AT_LEAST_ZERO = ("noise", "lambda_norm", "lambda_assist", "anomaly_offset", "norm_weight", "weight_decay")


@dataclass(frozen=True)
class Recipe:
    """Every choice made for one training."""

    network: NetworkSpec
    loss: LossSettings
    settings: Settings

    def to_json(self) -> dict[str, Any]:
        """Plain values for the model file."""
        return {"network": self.network.to_json(), "loss": asdict(self.loss), "settings": asdict(self.settings)}

    @classmethod
    def from_json(cls, values: Any) -> "Recipe":
        """Rebuild from `to_json`."""
        loss = _exactly(LossSettings, values["loss"] | {"input_noise": tuple(values["loss"]["input_noise"])})
        network = NetworkSpec.from_json(values["network"])
        return cls(network, loss, _exactly(Settings, values["settings"]))


def _exactly(kind: Callable[..., T], values: dict[str, Any]) -> T:
    """Build a dataclass from a dict that must hold its fields with plain values of their types."""
    defaults = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    if set(values) != set(defaults):
        raise InputError("The recipe has other fields than expected.")
    for name, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if isinstance(defaults[name], float) and not (number or (name == "clip" and value is None)):
            raise InputError(f"The recipe's {name!r} must be a number. Got {value!r}.")
    return kind(**values)


def resolve(parameters: dict[str, Any], in_shape: tuple[int, ...], y: NDArray[np.int8], device: str) -> Recipe:
    """Check the constructor's arguments against the data and replace every "auto"."""
    kind = "images" if len(in_shape) == 3 else "table"
    _check(parameters, kind)
    network = _network(parameters, in_shape, kind, device)
    settings = _settings(parameters, y, kind)
    return Recipe(network, _loss(parameters, kind, network.n_members), settings)


def _check(parameters: dict[str, Any], kind: str) -> None:
    allowed = {name: choices[kind] for name, choices in CHOICES.items()} | WORDS
    allowed |= {"optimizer": ("auto", *OPTIMIZERS), "schedule": ("auto", *SCHEDULES)}
    for name, choices in allowed.items():
        if parameters[name] not in choices:
            what = "a table" if kind == "table" else "pictures"
            raise InputError(f"`{name}` must be one of {', '.join(choices)} for {what}. Got {parameters[name]!r}.")
    for name in AT_LEAST_ZERO:
        if not _is_number(parameters[name]) or parameters[name] < 0:
            raise InputError(f"`{name}` must be a number, 0 or more. Got {parameters[name]!r}.")
    for name in ("hidden", "latent"):
        if isinstance(parameters[name], str) and parameters[name] not in ("auto", "published"):
            raise InputError(f"`{name}` must be widths, 'auto' or 'published'. Got {parameters[name]!r}.")
    for name in ("lr", "clip", "anomaly_gain"):
        value = parameters[name]
        if value != "auto" and not (name == "clip" and value is None) and not (_is_number(value) and value > 0):
            raise InputError(f"`{name}` must be a number above 0. Got {value!r}.")
    for name in ("n_members", "n_epochs", "batch_size", "labelled_batch_size"):
        value = parameters[name]
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool) and value > 0
        if value != "auto" and not whole:
            raise InputError(f"`{name}` must be a whole number above 0 or 'auto'. Got {value!r}.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))


def _pick(value: Any, automatic: T) -> T:
    return automatic if isinstance(value, str) and value == "auto" else value


def _network(parameters: dict[str, Any], in_shape: tuple[int, ...], kind: str, device: str) -> NetworkSpec:
    network = _pick(parameters["network"], "mlp" if kind == "table" else "conv")
    published = parameters["hidden"] == "published"
    hidden, latent, dense = _widths(network, in_shape, device, published=published)
    if not (isinstance(parameters["hidden"], str)):
        hidden = tuple(int(width) for width in parameters["hidden"])
    if not isinstance(parameters["latent"], str):
        latent = int(parameters["latent"])
    return NetworkSpec(
        network,
        in_shape=tuple(in_shape),
        hidden=hidden,
        latent=latent,
        n_members=int(_pick(parameters["n_members"], 5 if kind == "table" else 1)),
        slope=0.01 if published else 0.2,
        bias=not published,
        sigmoid=published and kind == "table",
        dense=dense,
    )


def _widths(
    network: str, in_shape: tuple[int, ...], device: str, *, published: bool
) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    """Hidden widths, code and dense layers."""
    if network == "mlp":
        if not published:
            return (128, 64), 32, ()
        if in_shape[0] >= 100:
            return (128, 64), 32, ()
        return (32, 16), (8 if in_shape[0] >= 8 else 4), ()
    if network == "lenet":
        return ((16, 32), 64, (128,)) if in_shape[0] == 1 else ((32, 64, 128), 128, ())
    widths = CONV_FULL if published or device != "cpu" else CONV_NARROW
    if widths == CONV_NARROW:
        logger.warning(
            "training on a CPU: a narrower network than the paper's (%s channels)", "-".join(map(str, widths))
        )
    return widths[:-1], widths[-1], ()


def _settings(parameters: dict[str, Any], y: NDArray[np.int8], kind: str) -> Settings:
    n_unlabelled = max(1, int(np.count_nonzero(y == 0)) or len(y))
    batch_size = int(_pick(parameters["batch_size"], 512 if kind == "table" else 64))
    per_epoch = math.ceil(n_unlabelled / min(batch_size, n_unlabelled))
    if parameters["n_epochs"] == "auto":
        n_steps = min(1000, max(200, round(20 * n_unlabelled / min(batch_size, n_unlabelled))))
    else:
        n_steps = int(parameters["n_epochs"]) * per_epoch
    schedule = _pick(parameters["schedule"], "cosine")
    return Settings(
        n_steps=n_steps,
        batch_size=batch_size,
        labelled_batch_size=int(_pick(parameters["labelled_batch_size"], 128 if kind == "table" else 16)),
        optimizer=_pick(parameters["optimizer"], "adam"),
        lr=float(_pick(parameters["lr"], 5e-3)),
        schedule=schedule,
        warmup_ratio=0.05 if schedule == "cosine" else 0.0,
        halve_every=math.ceil(n_steps / 4),
        weight_decay=float(parameters["weight_decay"]),
        clip=_pick(parameters["clip"], 10.0),
        precision=parameters["precision"],
        min_anomaly_ratio=0.0 if parameters["hidden"] == "published" else 0.5,
    )


def _loss(parameters: dict[str, Any], kind: str, n_members: int) -> LossSettings:
    noise = _pick(parameters["input_noise"], 0.4 if kind == "table" else 0.0)
    levels = [float(level) for level in np.atleast_1d(noise)]
    if not all(_is_number(level) and level >= 0 for level in levels):
        raise InputError(f"`input_noise` must hold numbers, 0 or more. Got {parameters['input_noise']!r}.")
    return LossSettings(
        lambda_norm=float(parameters["lambda_norm"]),
        lambda_assist=float(parameters["lambda_assist"]),
        second_encoder=bool(parameters["second_encoder"]),
        phi=parameters["phi"],
        noise=float(parameters["noise"]),
        input_noise=tuple(levels[member % len(levels)] for member in range(n_members)),
        restore=parameters["restore"],
        reduction=parameters["reduction"],
        gain=float(parameters["anomaly_gain"]),
        offset=float(parameters["anomaly_offset"]),
        combine=parameters["combine"],
        norm_weight=float(parameters["norm_weight"]),
    )
