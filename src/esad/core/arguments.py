"""Constructor arguments: declared as annotated values of a class, described once, and checked when they are used."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from esad.errors import InputError

T = TypeVar("T")


def is_auto(value: Any) -> bool:
    """Whether the choice is left to the data."""
    return isinstance(value, str) and value == "auto"


def is_number(value: Any) -> bool:
    """Whether it is a real number that a float can hold."""
    is_real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_real and bool(abs(value) <= sys.float_info.max)


def is_whole(value: Any, least: int = 1) -> bool:
    """Whether it is a whole number, `least` or more."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def is_not_negative(value: Any) -> bool:
    """Whether it is a number, 0 or more."""
    return is_number(value) and value >= 0


def is_positive(value: Any) -> bool:
    """Whether it is a number above 0."""
    return is_number(value) and value > 0


def is_truth(value: Any) -> bool:
    """Whether it is True or False."""
    return isinstance(value, bool | np.bool_)


def list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A check for lists with one item or more, all of which pass `holds`."""

    def is_list(value: Any) -> bool:
        listed = value.ndim > 0 if isinstance(value, np.ndarray) else isinstance(value, Sequence)
        return listed and not isinstance(value, str | bytes) and len(value) > 0 and all(holds(item) for item in value)

    return is_list


@dataclass(frozen=True)
class Rule:
    """What an argument may be.

    Attributes
    ----------
    allowed : str
        In words, to follow "must be".
    holds : callable
        Tells whether a value is allowed.
    others : tuple
        Words, or None, that are allowed besides.
    """

    allowed: str
    holds: Callable[[Any], bool]
    others: tuple[str | None, ...] = ()

    def permits(self, value: Any) -> bool:
        """Whether the value may be used."""
        if value is None or isinstance(value, str):
            return value in self.others or self.holds(value)
        return self.holds(value)


WHOLE = Rule("a whole number above 0", is_whole)
_WHOLE_OR_AUTO = Rule("a whole number above 0 or 'auto'", is_whole, ("auto",))
NOT_NEGATIVE = Rule("a number, 0 or more", is_not_negative)
POSITIVE = Rule("a number above 0", is_positive)
TRUTH = Rule("True or False", is_truth)

# Arguments that mean the same in every method that has them.
COMMON: dict[str, Rule] = {
    **dict.fromkeys(("n_members", "latent", "n_epochs", "batch_size", "labelled_batch_size"), _WHOLE_OR_AUTO),
    "pretrain_epochs": Rule("a whole number, 0 or more, or 'auto'", lambda value: is_whole(value, 0), ("auto",)),
    "hidden": Rule("a list of whole numbers above 0, or 'auto'", list_of(is_whole), ("auto",)),
    "lr": Rule("a number above 0 or 'auto'", is_positive, ("auto",)),
    "clip": Rule("a number above 0, None or 'auto'", is_positive, ("auto", None)),
    "weight_decay": NOT_NEGATIVE,
    "early_stopping": Rule("True, False or 'splits'", is_truth, ("splits",)),
}


Allowed = Rule | tuple[str, ...] | dict[str, tuple[str, ...]]
KINDS = {"table": "a table", "images": "pictures"}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An argument of a constructor, as far as its class says more than the default.

    Attributes
    ----------
    allowed : Rule, tuple of str, dict of str to tuple of str, or None
        What it may be: by a rule, one of some words, or words by the kind of data; None as in `COMMON`.
    table, images : value, optional
        What "auto" stands for on tables and on pictures.
    paper : value, optional
        What it is in the paper, if not as here.
    only : {"table", "images"}, optional
        The data it is for; on others it must be "auto" or nothing.
    """

    allowed: Allowed | None = None
    table: Any = None
    images: Any = None
    paper: Any = None
    only: str | None = None

    def complete(self, name: str, meaning: str) -> str:
        """A docstring's lines on what the argument does, with what it may be, what "auto" is and what the paper has."""
        allowed = self.allowed or COMMON[name]
        if isinstance(allowed, Rule):
            may_be = allowed.allowed
        else:
            words = allowed if isinstance(allowed, tuple) else dict.fromkeys(w for own in allowed.values() for w in own)
            may_be = "{" + ", ".join(f'"{word}"' for word in words) + "}"
        said = []
        if "Auto:" not in meaning and self.table is not None:
            by_kind = f"{self.table} for tables, {self.images} for pictures"
            said.append(f"Auto: {self.table if self.table == self.images else by_kind}.")
        if self.paper is not None:
            said.append(f"As published: {self.paper!r}.")
        return f"{name} : {may_be}\n{meaning}" + (f"    {' '.join(said)}\n" if said else "")


def parameter(*, default: Any, **more: Any) -> Any:
    """The default of an argument of a class `with_parameters`, and what else there is to say of it: `Parameter`."""
    return field(default=default, metadata={"parameter": Parameter(**more)})


def find_parameters(detector: Any) -> dict[str, Parameter]:
    """The arguments of a class `with_parameters`, or of one of its objects, that are declared by `parameter`."""
    return {one.name: one.metadata["parameter"] for one in fields(detector) if one.metadata}


def check(values: Mapping[str, Any], allowed: Mapping[str, Allowed | Parameter], kind: str = "table") -> None:
    """Refuse the first wrong argument.

    Parameters
    ----------
    values : mapping of str to value
        The arguments of a constructor.
    allowed : mapping of str to what `Parameter.allowed` may be, or Parameter
        What arguments may be, on top of `COMMON`.
    kind : {"table", "images"}
        The data that they are for.

    Examples
    --------
    >>> check({"lr": 0.1, "kind": "one"}, {"kind": ("one", "two")})
    >>> check({"lr": -0.1}, {})
    Traceback (most recent call last):
        ...
    esad.errors.InputError: `lr` must be a number above 0 or 'auto'. Got -0.1.
    """
    for name, value in values.items():
        found, where = allowed.get(name), ""
        only = found.only if isinstance(found, Parameter) else None
        rule = (found.allowed if isinstance(found, Parameter) else found) or COMMON.get(name)
        if isinstance(rule, dict):
            rule, where = rule[kind], f" for {KINDS[kind]}"
        if isinstance(rule, tuple) and not (isinstance(value, str) and value in rule):
            raise InputError(f"`{name}` must be one of {', '.join(rule)}{where}. Got {value!r}.")
        if isinstance(rule, Rule) and not rule.permits(value):
            raise InputError(f"`{name}` must be {rule.allowed}. Got {value!r}.")
        if only is not None and only != kind and not is_auto(value) and np.any(value):
            raise InputError(f"`{name}` is for {KINDS[only]}; the data is {KINDS[kind]}. Leave it at 'auto'.")


def check_share(name: str, value: Any) -> float:
    """Refuse what is not a share between 0 and 1.

    Examples
    --------
    >>> check_share("`alpha`", 1)
    Traceback (most recent call last):
        ...
    esad.errors.InputError: `alpha` must be above 0 and below 1. Got 1.
    """
    if not is_number(value) or not 0 < value < 1:
        raise InputError(f"{name} must be above 0 and below 1. Got {value!r}.")
    return float(value)


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(parameter,))
def with_parameters(detector: type[T]) -> type[T]:
    """Make the annotated values of a class the arguments of its constructor, beside those of its base classes.

    The line "... : those of `Base`" of its docstring becomes what base classes say of arguments that it does not
    describe itself. To arguments that it names without a type it adds what `parameter` says of them.

    Examples
    --------
    >>> @with_parameters
    ... class Trained:
    ...     '''Parameters
    ...     ----------
    ...     lr : float
    ...         Learning rate.
    ...     '''
    ...
    ...     lr: float = 0.1
    >>> @with_parameters
    ... class Pruned(Trained):
    ...     '''Parameters
    ...     ----------
    ...     depth : int
    ...     ... : those of `Trained`
    ...     '''
    ...
    ...     depth: int = 3
    >>> Pruned(depth=2).lr, Pruned.__doc__.splitlines()[2:]
    (0.1, ['depth : int', 'lr : float', '    Learning rate.'])
    """
    made = dataclass(kw_only=True, eq=False, repr=False, match_args=False)(detector)
    text = inspect.cleandoc(made.__doc__ or "")
    missing = {one.name for one in fields(made)}  # type: ignore[arg-type]
    found = []
    for described in made.__mro__:
        for names, description in _parse_descriptions(inspect.cleandoc(described.__doc__ or "")):
            if names <= missing:
                found += [description] if described is not made else []
                missing -= names
    text = re.sub(r"^\.\.\. : those of .*$", lambda _: "\n".join(found), text, flags=re.MULTILINE)
    for name, one in find_parameters(made).items():
        bare = re.search(rf"^{name}\n((?:    .*\n)*)", text, flags=re.MULTILINE)
        text = text.replace(bare[0], one.complete(name, bare[1])) if bare else text
    made.__doc__ = text
    return made


def _parse_descriptions(text: str) -> Iterator[tuple[set[str], str]]:
    """Yield what a docstring says of its arguments: the names (several where it lists several), and the text."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?:\n\n|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    for description in re.split(r"\n(?=\S)", section[1]) if section else ():
        yield set(description.partition(" : ")[0].split(", ")), description
