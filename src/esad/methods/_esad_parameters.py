"""What the arguments of `ESAD` may be; a wrong one is named, with what is allowed and what came."""

from typing import Any

import numpy as np

from esad.core import arguments
from esad.core.arguments import (
    NOT_NEGATIVE,
    POSITIVE,
    TRUTH,
    WHOLE,
    Rule,
    is_auto,
    is_not_negative,
    is_truth,
    is_whole,
    list_of,
)
from esad.errors import InputError
from esad.train.loop import OPTIMIZERS, SCHEDULES

__all__ = ["RECIPE_WORDS", "check", "is_auto", "is_bins"]

# Words that depend on the kind of data, and words that do not.
BY_KIND: dict[str, dict[str, tuple[str, ...]]] = {
    "phi": {
        "table": ("both", "noise", "permute", "normal", "none"),
        "images": ("both", "noise", "rotate", "normal", "none"),
    },
    "restore": {"table": ("none",), "images": ("none", "grey", "rotate", "both")},
    "network": {"table": ("auto", "mlp"), "images": ("auto", "conv", "lenet")},
}
WORDS: dict[str, tuple[str, ...]] = {
    "recipe": ("auto", "published"),
    "reduction": ("sum", "mean"),
    "combine": ("scaled", "sum"),
    "optimizer": ("auto", *OPTIMIZERS),
    "schedule": ("auto", *SCHEDULES),
}
# What a model file may hold.
RECIPE_WORDS: dict[str, set[str]] = {
    **{name: {word for words in by_kind.values() for word in words} for name, by_kind in BY_KIND.items()},
    **{name: set(words) for name, words in WORDS.items()},
}

MAX_BINS = 64  # of a column
_levels = list_of(is_not_negative)


def _is_number_of_bins(value: Any) -> bool:
    return is_whole(value, 0) and value <= MAX_BINS


is_bins = list_of(_is_number_of_bins)

RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("augment", "shift"), Rule("a whole number, 0 or more, or 'auto'", lambda value: is_whole(value, 0), ("auto",))
    ),
    "bins": Rule(
        f"a whole number from 0 to {MAX_BINS}, a list of them, or 'auto'",
        lambda value: _is_number_of_bins(value) or is_bins(value),
        ("auto",),
    ),
    "flip": Rule("True, False or 'auto'", is_truth, ("auto",)),
    "compiled": TRUTH,
    "accumulate": WHOLE,
    "decoys": Rule(
        "a share between 0 and 1, or 'auto'", lambda value: is_not_negative(value) and value <= 1, ("auto",)
    ),
    "input_noise": Rule(
        "a number or a list of numbers, 0 or more, or 'auto'",
        lambda value: is_not_negative(value) or _levels(value),
        ("auto",),
    ),
    **dict.fromkeys(
        ("lambda_norm", "lambda_assist", "norm_weight"),
        Rule("a number, 0 or more, or 'auto'", is_not_negative, ("auto",)),
    ),
    **dict.fromkeys(("noise", "anomaly_offset"), NOT_NEGATIVE),
    "anomaly_gain": POSITIVE,
    "second_encoder": TRUTH,
}


def check(parameters: dict[str, Any], kind: str) -> None:
    """Refuse the first wrong argument; `kind` is "table" or "images"."""
    what = "a table" if kind == "table" else "pictures"
    arguments.check(parameters, words=WORDS, rules=RULES)
    by_kind = {name: words[kind] for name, words in BY_KIND.items()}
    arguments.check(parameters, words=by_kind, where=f" for {what}")
    if kind == "images" and not is_auto(parameters["bins"]) and np.any(parameters["bins"]):
        raise InputError("`bins` are for the columns of a table; the data is pictures. Leave it at 'auto' or 0.")
    for name in ("augment", "shift", "flip"):
        if kind == "table" and not is_auto(parameters[name]) and parameters[name]:
            raise InputError(f"`{name}` is for pictures; the data is a table. Leave it at 'auto'.")
    if not is_auto(parameters["decoys"]) and parameters["decoys"]:
        if kind == "table":
            raise InputError("`decoys` are turned pictures; the data is a table. Leave it at 'auto' or 0.")
        if parameters["restore"] in ("rotate", "both"):
            raise InputError("`decoys` and a `restore` that turns pictures exclude each other. Choose one of them.")
