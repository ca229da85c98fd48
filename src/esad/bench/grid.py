"""From an experiment file to cells: every combination of data, variant, axis values and seed.

An experiment file is TOML:

    name = "classic"
    title = "Classic tables"
    data = ["cardio", "thyroid"]
    seeds = 10
    stack = true                              # optional: seeds of a deep method on a table train side by side
    codes = 400                               # optional: keep a map of the codes of so many test rows, for a figure
    published = "table3_classic"              # where the paper's figures are, in published.json
    others = false                            # optional: leave out systems of that table that are no variant here
    note = "Trained in 2025."                 # optional: said above the tables

    [scenario]                                # arguments of esad.datasets.scenario
    kind = "table"
    labelled_ratio = 0.01

    [axes]                                    # optional: every value of one with every value of the others
    "scenario.pollution_ratio" = [0.0, 0.1]
    "settings.lambda_norm" = [0.1, 1.0, 10.0]

    [[variants]]
    name = "Deep SVDD"                        # the paper's name for it, where it has one
    method = "deep_svdd"
    settings = { boundary = "soft" }
    choose = { gamma = [0.1, 1.0] }           # optional: picked on a tenth of the test labels, and marked
    data = ["thyroid"]                        # optional: only for these; another of the same name may have the others
"""

import hashlib
import itertools
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from esad import registry
from esad.core.atomic import read_text
from esad.errors import DataFileError, InputError

KINDS = ("table", "natural", "images", "given")
KINDS_OF_VALUES = {
    **{"name": str, "title": str, "data": list, "seeds": int, "stack": bool, "codes": int, "published": str},
    **{"others": bool, "note": str, "scenario": dict, "axes": dict, "variants": list},
}
NEEDED = {"name", "title", "data", "seeds", "scenario", "variants"}
WORDS: dict[type, str] = {
    str: "a text",
    int: "a whole number, 0 or more",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
VARIANT_KINDS = {"name": str, "method": str, "settings": dict, "choose": dict, "data": list}


@dataclass(frozen=True)
class Cell:
    """One training and its judgement; two with the same description are the same.

    `stack` is the number of seeds that train side by side, 0 for none: it decides the last bits of a result. `codes` is
    the number of test rows whose codes are kept as a map, for a figure.

    Examples
    --------
    >>> cell = Cell("iforest", data="cardio", scenario={"kind": "table"}, seed=3)
    >>> cell.name == Cell("iforest", data="cardio", scenario={"kind": "table"}, seed=3).name
    True
    """

    method: str
    data: str
    scenario: Mapping[str, Any]
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    choose: Mapping[str, list[Any]] = field(default_factory=dict)
    stack: int = 0
    codes: int = 0

    def describe(self) -> dict[str, Any]:
        """Return plain values from which the same cell can be made again."""
        values = {name: _to_plain(getattr(self, name)) for name in Cell.__dataclass_fields__}
        return values if self.codes else {name: value for name, value in values.items() if name != "codes"}

    @property
    def name(self) -> str:
        """Return a hash of everything that decides the outcome."""
        text = json.dumps(self.describe(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Variant:
    """A method with settings, under the name it has in the tables."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    choose: Mapping[str, list[Any]] = field(default_factory=dict)
    data: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where in an experiment's tables a cell belongs."""

    variant: str
    data: str
    axes: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Experiment:
    """What an experiment file says."""

    name: str
    title: str
    data: tuple[str, ...]
    seeds: tuple[int, ...]
    scenario: Mapping[str, Any]
    variants: tuple[Variant, ...]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    stack: int = 0
    codes: int = 0
    published: str | None = None
    others: bool = True
    note: str = ""

    def cells(self) -> Iterator[tuple[Place, Cell]]:
        """Every cell with its place, seeds innermost; of cells that draw the same data only the first."""
        combinations = list(itertools.product(*self.axes.values()))
        for data, variant, values in itertools.product(self.data, self.variants, combinations):
            if variant.data and data not in variant.data:
                continue
            axes = tuple(zip(self.axes, values, strict=True))
            if self._is_repeated(dict(axes)):
                continue
            changed: dict[str, Any] = {"scenario": dict(self.scenario), "settings": dict(variant.settings)}
            for axis, value in axes:
                group, _, key = axis.partition(".")
                changed[group][key] = value
            for seed in self.seeds:
                changed |= {"choose": variant.choose, "stack": self.stack, "codes": self.codes}
                cell = Cell(variant.method, data, seed=seed, **changed)
                yield Place(variant.name, data, axes), cell

    def _is_repeated(self, axes: dict[str, Any]) -> bool:
        """Whether another cell has the same data: where nothing is labelled, the labelled class makes no difference."""
        scenario = {f"scenario.{name}": value for name, value in self.scenario.items()} | axes
        drawn = scenario.get("scenario.labelled_ratio", 1) or scenario.get("scenario.pollution_ratio", 0)
        offsets = self.axes.get("scenario.labelled_offset", ())
        return not drawn and axes.get("scenario.labelled_offset") in offsets[1:]

    def subset(self, chosen: Mapping[str, list[str]]) -> "Experiment":
        """A smaller experiment for a quick look.

        `chosen` maps "data", "variant", "seed" or an axis to the values to keep, and "settings.NAME" that is no axis to
        one value for every variant.
        """
        small = self
        for name, values in chosen.items():
            small = small._narrow(name, values)
        return small

    def _narrow(self, name: str, values: list[str]) -> "Experiment":
        if name == "data":
            return replace(self, data=_select_values(name, self.data, values))
        if name == "variant":
            names = _select_values(name, tuple(variant.name for variant in self.variants), values)
            return replace(self, variants=tuple(variant for variant in self.variants if variant.name in names))
        if name == "seed":
            return replace(self, seeds=_select_values(name, self.seeds, values))
        if name in self.axes:
            return replace(self, axes={**self.axes, name: _select_values(name, self.axes[name], values)})
        group, _, key = name.partition(".")
        if group != "settings" or not key or len(values) != 1:
            known = ["data", "variant", "seed", *self.axes, "settings.NAME"]
            raise InputError(f"A subset is chosen by one of {', '.join(known)}. Got {name!r} = {values}.")
        value = _parse_value(values[0])
        changed = tuple(replace(variant, settings={**variant.settings, key: value}) for variant in self.variants)
        return replace(self, variants=changed)


def read_experiment(path: str | os.PathLike[str]) -> Experiment:
    """Read an experiment file; an error names what is wrong in it."""
    try:
        found = tomllib.loads(read_text(path, "the experiment"))
    except tomllib.TOMLDecodeError as error:
        raise DataFileError(f"The experiment {str(path)!r} is not TOML: {error}.") from error
    try:
        return _parse_experiment(found)
    except InputError as error:
        raise DataFileError(f"The experiment {str(path)!r} cannot be run: {error}") from error


def _parse_experiment(found: dict[str, Any]) -> Experiment:
    unknown = found.keys() - KINDS_OF_VALUES.keys()
    if unknown:
        raise InputError(f"it has unknown keys: {', '.join(sorted(unknown))}.")
    missing = NEEDED - found.keys()
    if missing:
        raise InputError(f"it lacks {', '.join(sorted(missing))}.")
    _check_kinds(found, KINDS_OF_VALUES)
    names = registry.data_set_names()
    for data in found["data"]:
        if data not in names:
            raise InputError(f"there is no data set {data!r}.")
    if found["scenario"].get("kind") not in KINDS:
        raise InputError(f"`scenario.kind` must be one of {', '.join(KINDS)}. Got {found['scenario'].get('kind')!r}.")
    for axis, values in found.get("axes", {}).items():
        if axis.partition(".")[0] not in ("scenario", "settings") or not isinstance(values, list) or not values:
            raise InputError(f"the axis {axis!r} must be scenario.NAME or settings.NAME with a list of values.")
    parsed = {
        "data": tuple(found["data"]),
        "seeds": tuple(range(found["seeds"])),
        "variants": tuple(_parse_variant(variant) for variant in found["variants"]),
        "stack": found["seeds"] if found.get("stack") else 0,
        "axes": {axis: tuple(values) for axis, values in found.get("axes", {}).items()},
    }
    return Experiment(**found | parsed)


def _check_kinds(found: dict[str, Any], kinds: Mapping[str, type]) -> None:
    for name, value in found.items():
        if type(value) is not kinds[name] or (isinstance(value, int) and value < 0):
            raise InputError(f"`{name}` must be {WORDS[kinds[name]]}. Got {value!r}.")
        if not value and name in NEEDED:
            raise InputError(f"`{name}` must not be empty. Got {value!r}.")


def _parse_variant(found: Any) -> Variant:
    if not isinstance(found, dict) or not {"name", "method"} <= found.keys() <= VARIANT_KINDS.keys():
        raise InputError(f"a variant needs a name and a method, and may have settings, choose and data. Got {found!r}.")
    _check_kinds(found, VARIANT_KINDS)
    for name, values in found.get("choose", {}).items():
        if not isinstance(values, list) or not values:
            raise InputError(f"`choose.{name}` must be a list of values. Got {values!r}.")
    registry.method(found["method"], parameters=[*found.get("settings", {}), *found.get("choose", {})])
    return Variant(**found | {"data": tuple(found.get("data", ()))})


def _select_values(name: str, there: tuple[Any, ...], wanted: list[str]) -> tuple[Any, ...]:
    """The values of an axis that were asked for, in the axis's order."""
    words = {str(value): value for value in there}
    unknown = [word for word in wanted if word not in words]
    if unknown:
        raise InputError(f"{unknown[0]!r} is none of the experiment's values for {name!r}: {', '.join(words)}.")
    return tuple(value for word, value in words.items() if word in wanted)


def _parse_value(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        return word


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _to_plain(inner) for key, inner in value.items()}
    return [_to_plain(item) for item in value] if isinstance(value, list | tuple) else value
