"""What the arguments of `ESAD` may be; a wrong one is named, with what is allowed and what came."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from esad.errors import InputError
from esad.train.loop import OPTIMIZERS, SCHEDULES

__all__ = ["RECIPE_WORDS", "check", "is_auto"]

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


def is_auto(value: Any) -> bool:
    """Whether the choice is left to the data."""
    return isinstance(value, str) and value == "auto"


def _number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))


def _whole(value: Any, least: int = 1) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def _at_least_zero(value: Any) -> bool:
    return _number(value) and value >= 0


def _above_zero(value: Any) -> bool:
    return _number(value) and value > 0


def _truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _list_of(allowed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check_list(value: Any) -> bool:
        listed = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        return listed and len(value) > 0 and all(allowed(item) for item in value)

    return check_list


_widths, _levels = _list_of(_whole), _list_of(_at_least_zero)

# name -> (what is allowed, in words; the check; other values that are fine)
NUMBERS: dict[str, tuple[str, Callable[[Any], bool], tuple[Any, ...]]] = {
    **dict.fromkeys(
        ("n_members", "n_epochs", "batch_size", "labelled_batch_size"),
        ("a whole number above 0 or 'auto'", _whole, ("auto",)),
    ),
    "hidden": ("a list of whole numbers above 0, or 'auto'", _widths, ("auto",)),
    "latent": ("a whole number above 0 or 'auto'", _whole, ("auto",)),
    "augment": ("a whole number, 0 or more, or 'auto'", lambda value: _whole(value, 0), ("auto",)),
    "input_noise": ("a number or a list of numbers, 0 or more, or 'auto'", _at_least_zero, ("auto",)),
    **dict.fromkeys(("lambda_assist", "norm_weight"), ("a number, 0 or more, or 'auto'", _at_least_zero, ("auto",))),
    **dict.fromkeys(
        ("noise", "lambda_norm", "anomaly_offset", "weight_decay"), ("a number, 0 or more", _at_least_zero, ())
    ),
    "lr": ("a number above 0 or 'auto'", _above_zero, ("auto",)),
    "anomaly_gain": ("a number above 0", _above_zero, ()),
    "clip": ("a number above 0, None or 'auto'", _above_zero, ("auto", None)),
    **dict.fromkeys(("second_encoder", "early_stopping"), ("True or False", _truth, ())),
}


def check(parameters: dict[str, Any], kind: str) -> None:
    """Refuse the first wrong argument; `kind` is "table" or "images"."""
    what = "a table" if kind == "table" else "pictures"
    for name, choices in WORDS.items():
        _check_word(name, parameters[name], choices, "")
    for name, by_kind in BY_KIND.items():
        _check_word(name, parameters[name], by_kind[kind], f" for {what}")
    for name, (allowed, holds, others) in NUMBERS.items():
        value = parameters[name]
        fine = holds(value) or (name == "input_noise" and _levels(value))
        if not fine and not any(value is other or (isinstance(value, str) and value == other) for other in others):
            raise InputError(f"`{name}` must be {allowed}. Got {value!r}.")


def _check_word(name: str, value: Any, choices: tuple[str, ...], where: str) -> None:
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"`{name}` must be one of {', '.join(choices)}{where}. Got {value!r}.")
