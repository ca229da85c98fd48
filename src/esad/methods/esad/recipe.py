"""From ESAD's parameters to numbers: what "auto" is for these data, and which network, loss and training come of it."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from esad.core.arguments import is_auto, is_number, is_whole, list_of
from esad.core.arrays import Labels
from esad.errors import InputError
from esad.methods.esad.loss import ESADObjective, LossSettings
from esad.methods.esad.turns import N_NEAREST
from esad.networks.spec import NetworkSpec
from esad.train.loop import Settings
from esad.train.transforms import LEAST_AREA, quarter_turns

logger = logging.getLogger("esad")
T = TypeVar("T")

FEW_ANOMALIES = 5  # with more of them than this, labelled rows get less input noise: they cover their kind better
# fields that the first files of version 0.1.0 do not have
SINCE_0_1 = {"accumulate", "beta_1", "bins", "column_weights", "compiled", "contrast", "crop", "decoys", "decoys_alone"}
SINCE_0_1 |= {"flip", "momentum", "n_codes", "nearest_alone", "places", "shift", "signed", "skips", "turns"}
MIN_STEPS, MAX_STEPS = 250, 1000  # on a table
UNTAUGHT_STEPS = 0.4  # of them where no anomaly is known: later steps learn to rebuild the hidden anomalies too
FEWEST_STEPS = 50  # on pictures
MAX_PRODUCTS = 2.5e12  # of a training on pictures on a CPU, unless more is asked for
PRODUCTS_PER_SECOND = 1.5e10  # of one core
PICTURE_PIXELS = 784  # a picture's error counts as if it had this many pixels
MAX_BINS = 64  # of a column
MAX_FEATURES = 1100  # columns times bins; where they were more there are fewer bins, which takes less and ranks as well
MIN_BINS = 2
NORM_RATIO = 2.0  # weight of the norm in the scaled score, over lambda_norm
TURNS_WEIGHT = 4.0  # of what turned pictures tell, beside the paper's two terms
MAX_CODES = 4096  # of training pictures that are kept


def is_number_of_bins(value: Any) -> bool:
    """Whether a column can have so many bins."""
    return is_whole(value, 0) and value <= MAX_BINS


is_bins = list_of(is_number_of_bins)


@dataclass(frozen=True)
class Recipe:
    """Every choice made for one training."""

    network: NetworkSpec
    loss: LossSettings
    settings: Settings

    def objective(self) -> ESADObjective:
        """The networks, with these losses and weights still to be drawn or filled."""
        return ESADObjective(self.network, self.loss)

    @property
    def turn_settings(self) -> Settings:
        """Return the settings for learning turns, which takes about as long as training the paper's networks."""
        batch_size = self.settings.batch_size
        return replace(
            self.settings,
            n_steps=2 * self.settings.n_steps,
            batch_size=batch_size if batch_size > 64 else max(1, batch_size // 2),  # of pictures in four turns
            optimizer="sgd",
            momentum=0.9,
            lr=0.05,
            weight_decay=5e-4,
            schedule="cosine",
            warmup_ratio=0.05,
        )

    def count_products(self, y: Labels) -> int:
        """Return the multiplications of the whole training; a backward pass counts as two forward passes."""
        encoding, decoding = self.network.count_products()
        n_unlabelled, n_labelled = int(np.count_nonzero(y == 0)), int(np.count_nonzero(y))

        def rows(settings: Settings) -> int:
            n_drawn = min(settings.batch_size, n_unlabelled) + (settings.labelled_batch_size if n_labelled else 0)
            return settings.n_steps * n_drawn

        found = rows(self.settings) * (encoding * (1 + self.loss.second_encoder) + decoding)
        if self.loss.turns:
            n_made = len(quarter_turns(self.network.in_shape)) * (2 if self.loss.contrast else 1)
            found += rows(self.turn_settings) * n_made * encoding
        return 3 * found

    def to_json(self) -> dict[str, Any]:
        """Plain values for the model file."""
        return {"network": self.network.to_json(), "loss": asdict(self.loss), "settings": asdict(self.settings)}

    @classmethod
    def from_json(cls, values: Any) -> "Recipe":
        """Rebuild from `to_json`."""
        by_member = {name: tuple(values["loss"].get(name, ())) for name in ("input_noise", "bins")}
        loss = _build_exactly(LossSettings, values["loss"] | by_member)
        network = NetworkSpec.from_json(values["network"])
        if len(loss.input_noise) != network.n_members:
            raise InputError("The recipe's 'input_noise' must hold one number per member.")
        if loss.bins and not (len(loss.bins) == network.n_members and network.kind == "mlp" and is_bins(loss.bins)):
            raise InputError("The recipe's 'bins' must hold one whole number per member, for a table.")
        if (loss.turns or loss.skips) and network.kind != "conv":
            raise InputError("The recipe's 'turns' and 'skips' need the network 'conv'.")
        if loss.turns and loss.n_codes <= N_NEAREST:
            raise InputError(f"The recipe's 'n_codes' must be more than {N_NEAREST} where turns are told.")
        return cls(network, loss, _build_exactly(Settings, values["settings"]))


def _build_exactly(kind: Callable[..., T], values: dict[str, Any]) -> T:
    """Build a dataclass from a dict that must hold its fields with plain values of their types."""
    defaults = {field.name: field.default for field in fields(kind)}  # type: ignore[arg-type]
    if not set(defaults) - SINCE_0_1 <= set(values) <= set(defaults):
        raise InputError("The recipe has other fields than expected.")
    numbers = {}
    for name, value in values.items():
        if isinstance(defaults[name], float) and not (name == "clip" and value is None):
            if not is_number(value):
                raise InputError(f"The recipe's {name!r} must be a number. Got {value!r}.")
            numbers[name] = float(value)  # torch takes whole numbers of 64 bits only
        if type(defaults[name]) is int and (type(value) is not int or value < 0):
            raise InputError(f"The recipe's {name!r} must be a whole number. Got {value!r}.")
        if isinstance(defaults[name], bool | str) and type(value) is not type(defaults[name]):
            raise InputError(f"The recipe's {name!r} is damaged. Got {value!r}.")
    return kind(**values | numbers)


def make_recipe(
    given: Mapping[str, Any],
    automatic: dict[str, Any],
    in_shape: tuple[int, ...],
    y: Labels,
    device: str,
    *,
    upper_side: Callable[[], bool],
) -> Recipe:
    """Replace every "auto" of the constructor's arguments; `automatic` has those that do not depend on the data."""
    kind = "images" if len(in_shape) == 3 else "table"
    network = _make_network(given, automatic, in_shape, device)
    if kind == "table":
        automatic |= _choose_for_tables(given, automatic["bins"], in_shape[0], y)
    else:
        automatic |= _choose_for_pictures(given, network, y, device, upper_side)
    chosen = {name: automatic.get(name, value) if is_auto(value) else value for name, value in given.items()}
    if is_auto(chosen["norm_weight"]):
        chosen["norm_weight"] = NORM_RATIO * chosen["lambda_norm"]
    recipe = Recipe(
        network, _make_loss(chosen, in_shape, y, network.n_members, device), _make_settings(chosen, y, kind)
    )
    return _limit_to_minutes(recipe, given, y) if kind == "images" and device == "cpu" else recipe


def _limit_to_minutes(recipe: Recipe, given: Mapping[str, Any], y: Labels) -> Recipe:
    """Shorten a training on pictures to minutes on two cores where the user left it open, and log how.

    Batches are halved, then there are fewer steps; docs/decisions/0034-pictures-on-a-cpu.md has what either costs.
    """
    given_up = []
    if is_auto(given["hidden"]) and given["recipe"] != "published" and recipe.network.kind == "conv":
        given_up.append(f"{recipe.network.hidden[0]} channels in the first level, where the paper has 64")
    wanted, n_products = recipe.settings, recipe.count_products(y)
    if is_auto(given["n_epochs"]) and n_products > MAX_PRODUCTS:
        if is_auto(given["batch_size"]) and is_auto(given["labelled_batch_size"]):
            smaller = {name: getattr(wanted, name) // 2 for name in ("batch_size", "labelled_batch_size")}
            recipe = replace(recipe, settings=replace(wanted, **smaller))
            given_up.append(f"batches of {recipe.settings.batch_size} pictures, not {wanted.batch_size}")
            n_products = recipe.count_products(y)
        n_steps = min(wanted.n_steps, max(FEWEST_STEPS, int(wanted.n_steps * MAX_PRODUCTS / n_products)))
        settings = replace(recipe.settings, n_steps=n_steps, halve_every=math.ceil(n_steps / 4))
        recipe = replace(recipe, settings=settings)
        if n_steps < wanted.n_steps:
            given_up.append(f"{n_steps} steps, not {wanted.n_steps}")
        n_products = recipe.count_products(y)
    if given_up:
        logger.warning("training on a CPU in less time, with %s", "; ".join(given_up))
    if n_products > MAX_PRODUCTS:
        minutes = n_products / PRODUCTS_PER_SECOND / 60
        logger.warning(
            "this training takes about %s on one core of a CPU. Smaller pictures or fewer `n_epochs` take less.",
            f"{minutes / 60:.1f} hours" if minutes > 90 else f"{minutes:.0f} minutes",
        )
    return recipe


def _choose_for_tables(given: Mapping[str, Any], n_bins: int, n_columns: int, y: Labels) -> dict[str, Any]:
    """Return what "auto" stands for, given the number of columns and the labels."""
    power, n_anomalies = given["column_weights"], int(np.count_nonzero(y < 0))
    if is_auto(power):  # two anomalies cannot tell which of a hundred columns matter
        power = n_anomalies / (n_anomalies + n_columns) if given["recipe"] != "published" else 0.0
    return {
        "bins": min(n_bins, max(MIN_BINS, MAX_FEATURES // n_columns)),
        "column_weights": power,
        "input_noise": 0.5 - 0.25 * min(1.0, power),
    }


def _choose_for_pictures(
    given: Mapping[str, Any], network: NetworkSpec, y: Labels, device: str, upper_side: Callable[[], bool]
) -> dict[str, Any]:
    """Return what "auto" stands for, given the pictures and the network."""
    n_channels, *sides = network.in_shape
    reach = max(1, round(min(sides) / 8))
    bound, restore, published = given["mutual_information"], given["restore"], given["recipe"] == "published"
    if is_auto(restore):
        restore = "both" if published else "none"
    if is_auto(bound):
        plain = all(is_auto(given[name]) for name in ("decoys", "norm_weight")) and restore == "none"
        can_tell = plain and network.kind == "conv" and not published and given["combine"] == "scaled"
        bound = "both" if can_tell and upper_side() else "reconstruction"
    if bound == "both" and network.kind != "conv":
        raise InputError(f"`mutual_information='both'` needs the network 'conv'. Got {network.kind!r}.")
    # photographs have an upper side, and their reconstruction says little
    decoys = n_channels == 3 and restore in ("none", "grey") and bound == "reconstruction"
    found: dict[str, Any] = {
        "lr": 2e-3 * min(1.0, 16 / network.hidden[0]),
        "augment": reach,
        "mutual_information": bound,
        "decoys": 0.5 if decoys else 0.0,
        "shift": reach if decoys else 0,
        "flip": published or decoys or (bound == "both" and n_channels == 3),
        "restore": restore,
        "signed": published,
    }
    with_decoys = decoys if is_auto(given["decoys"]) else given["decoys"] > 0
    if not (y < 0).any() and not with_decoys:  # the norm has nothing to tell apart
        found["norm_weight"] = 0.0
    if device != "cpu":
        found |= {"batch_size": 128, "labelled_batch_size": 32}
    return found


def _make_network(
    given: Mapping[str, Any], automatic: Mapping[str, Any], in_shape: tuple[int, ...], device: str
) -> NetworkSpec:
    network = given["network"]
    if network == "auto":
        network = "mlp" if len(in_shape) == 1 else "conv"
    published = given["recipe"] == "published"
    network = "conv" if network == "unet" else network  # whose skips are the loss's to know
    narrow = network == "conv" and device == "cpu" and not published
    n_members = automatic["n_members"] if is_auto(given["n_members"]) else given["n_members"]
    spec = NetworkSpec.as_published(network, in_shape, n_members=int(n_members), narrow=narrow)
    if not published:
        spec = replace(spec, slope=0.2, bias=True, sigmoid=False)
        if network == "mlp":
            spec = replace(spec, hidden=(64, 32), latent=32)
    return spec.with_widths(given["hidden"], given["latent"])


def _make_settings(chosen: dict[str, Any], y: Labels, kind: str) -> Settings:
    n_unlabelled = int(np.count_nonzero(y == 0)) or len(y)
    batch_size = min(int(chosen["batch_size"]), n_unlabelled)
    if not is_auto(chosen["n_epochs"]):
        n_steps = int(chosen["n_epochs"]) * math.ceil(n_unlabelled / batch_size)
    elif kind == "table":
        n_steps = min(MAX_STEPS, max(MIN_STEPS, n_unlabelled // 25))
        if not (y < 0).any():
            n_steps = round(UNTAUGHT_STEPS * n_steps)
    else:
        n_steps = min(1500, max(500, n_unlabelled // 4))
    if chosen["mutual_information"] == "both":
        n_steps = math.ceil(n_steps / 2)  # the other half is for the turns, see `Recipe.turn_settings`
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
        clip=chosen["clip"] and float(chosen["clip"]),
        precision=chosen["precision"],
        min_anomaly_ratio=0.5 if chosen["recipe"] != "published" else 0.0,
        beta_2=0.999 if kind == "table" else 0.99,
        compiled=bool(chosen["compiled"]),
        accumulate=int(chosen["accumulate"]),
    )


def _deal_bins(given: Any, n_members: int) -> tuple[int, ...]:
    """Return every member's number of bins: one number goes to two members of five, several go round in turn."""
    turn = (0, given, 0, given, 0) if np.ndim(given) == 0 else given
    return tuple(int(turn[member % len(turn)]) for member in range(n_members))


def _make_loss(
    chosen: dict[str, Any], in_shape: tuple[int, ...], y: Labels, n_members: int, device: str
) -> LossSettings:
    levels = [float(level) for level in np.atleast_1d(chosen["input_noise"])]
    bins = _deal_bins(chosen["bins"], n_members)
    pictures = len(in_shape) == 3
    n_anomalies = int(np.count_nonzero(y < 0))
    # what the constructor and the loss call alike, in plain types that a model file can hold
    kinds: dict[str, Any] = {
        one.name: type(one.default) for one in fields(LossSettings) if not isinstance(one.default, tuple)
    }
    found: dict[str, Any] = {
        **{name: kind(chosen[name]) for name, kind in kinds.items() if name in chosen},
        "gain": float(chosen["anomaly_gain"]),
        "offset": float(chosen["anomaly_offset"]),
        "input_noise": tuple(levels[member % len(levels)] for member in range(n_members)),
        "labelled_noise_ratio": min(1.0, math.sqrt(FEW_ANOMALIES / max(1, n_anomalies))),
        "bins": bins if any(bins) else (),
        "skips": chosen["network"] == "unet",
        "decoys_alone": n_anomalies == 0,
        "robust": not pictures,
    }
    if pictures:
        found |= {"norm_offset": 1.0, "min_spread": 0.05}
        found |= {"error_scale": PICTURE_PIXELS / math.prod(in_shape)} if chosen["reduction"] == "sum" else {}
    if chosen["mutual_information"] == "both":
        found |= _make_turns(in_shape, y, device)
    return LossSettings(**found)


def _make_turns(in_shape: tuple[int, ...], y: Labels, device: str) -> dict[str, Any]:
    """Return the settings for turned pictures, which were chosen on training parts: docs/decisions/0028-turns.md."""
    n_channels, *sides = in_shape
    n_known = int(np.count_nonzero(y == 0)) or int(np.count_nonzero(y > 0))
    colour = n_channels == 3
    return {
        "turns": TURNS_WEIGHT,
        # known anomalies teach as much, in half the time; a CPU has none to spare
        "contrast": 1.0 if colour and device != "cpu" and not (y < 0).any() else 0.0,
        "places": 0 if colour else max(1, round(min(sides) / 8)),
        "crop": LEAST_AREA["colour" if colour else "grey"],
        "nearest_alone": not colour,
        "n_codes": min(MAX_CODES, max(N_NEAREST + 1, n_known)),
    }
