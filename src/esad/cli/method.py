"""The method that a command trains: the one that its options ask for, or the one that suits the data."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from esad import registry
from esad.cli.options import TRAINING, Device, OptionGroup, Seed, complete_method, option
from esad.core.text import hint, list_text
from esad.errors import EsadError, InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.detectors.training import TrainingData

_AUTO = "auto"  # what --method says where the data shall decide
_CHOICES = ("esad", "committee")  # between which they do


@dataclass(frozen=True)
class AskedMethod:
    """A method with its settings, as options name them."""

    name: str = option(
        _AUTO,
        "--method -m NAME",
        "The method; see: esad methods. auto: the committee for tables, ESAD for pictures.",
        TRAINING,
        autocompletion=complete_method,
    )
    members: int | None = option(None, "--members N", "Networks trained side by side.", TRAINING, min=1)
    settings: list[str] | None = option(
        None,
        "--set NAME=VALUE",
        "Any other parameter of the method, such as n_epochs=50; may be repeated. How to compute, of ESAD: "
        "precision=bfloat16 (or float64), compiled=true, accumulate=4 (a batch in parts).",
        TRAINING,
    )
    seed: Seed = 0
    device: Device = "auto"

    def parse_settings(self) -> list[tuple[str, Any]]:
        """Parse the values of --set: NAME=VALUE, where the value is JSON (a number, true, a list) or else a word."""
        return [_parse_setting(text) for text in self.settings or ()]

    def make_first(self, *, contamination: float | None = None) -> "Detector":
        """Make a detector before the data is read, to refuse wrong settings early; "auto" may choose another later."""
        if self.name != _AUTO:
            return self._make(self.name, contamination)
        names = [name for name, _ in self.parse_settings()]
        known = {method: registry.method(method)().get_params().keys() for method in _CHOICES}
        for method in _CHOICES:
            if known[method] >= set(names):
                return self._make(method, contamination)
        raise InputError(_tell_who_has(names, set().union(*known.values())))

    def make_for(self, training: "TrainingData", *, contamination: float | None = None) -> tuple["Detector", str]:
        """A detector for these data, and the reason for its method where the data have chosen it."""
        if self.name != _AUTO:
            return self._make(self.name, contamination), ""
        names = [name for name, _ in self.parse_settings()]
        method, reason = registry.choose_method(training.kind, training.label_counts(), parameters=names)
        return self._make(method, contamination), reason

    def _make(self, method: str, contamination: float | None) -> "Detector":
        """An unfitted detector; a parameter that the method does not have, or that has two values, is an error."""
        typed = {
            "random_state": ("--seed", self.seed or None),
            "n_members": ("--members", self.members),
            "contamination": ("--contamination", contamination),
            "device": ("--device", None if self.device == "auto" else self.device),
        }
        given = {name: (f"{option} {value}", value) for name, (option, value) in typed.items() if value is not None}
        for text, (name, value) in zip(self.settings or (), self.parse_settings(), strict=True):
            if name in given:
                raise InputError(f"{given[name][0]} and --set {text} give {name!r} two values. Leave one of them out.")
            given[name] = f"--set {text}", value
        wanted = {"random_state": self.seed} | {name: value for name, (_, value) in given.items()}
        detector_class: type[Detector] = registry.method(method, parameters=wanted)
        if "device" in wanted:
            from esad.train.runtime import resolve_device

            resolve_device(str(wanted["device"]))
        return detector_class(**wanted)

    @contextmanager
    def blame_settings(self, detector: "Detector") -> Iterator[None]:
        """Within the block, name the values of --set in errors that a method raises because of them."""
        try:
            yield
        except EsadError:
            raise
        except (TypeError, ValueError) as error:
            if not self.settings:
                raise
            blamed = [text for text in self.settings if _is_named(*_parse_setting(text), str(error))] or self.settings
            one_of = "one of " if len(blamed) > 1 else ""
            raise InputError(
                f"The method {registry.method_name(type(detector))!r} cannot use {one_of}{', '.join(blamed)}: "
                f"{str(error).rstrip('.')}."
            ) from error


MethodOptions = Annotated[AskedMethod, OptionGroup(AskedMethod)]


def _tell_who_has(names: Sequence[str], known: Collection[str]) -> str:
    """Say which setting the methods that "auto" chooses between lack, and which methods have it."""
    unknown = next((name for name in names if name not in known), None)
    lack = f"both lack {unknown!r}" if unknown else f"neither has all of {list_text(names)}"
    said = f"The data choose between {' and '.join(_CHOICES)}, and {lack}."
    others = [name for name in registry.method_names() if registry.method(name)().get_params().keys() >= set(names)]
    if others:
        return f"{said} Name a method that has what is set: --method {' or '.join(others)}."
    near = hint(unknown, known) if unknown else ""
    return f"{said}{near} They have: {', '.join(sorted(known))}."


def _parse_setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"--set must be NAME=VALUE, such as n_epochs=50. Got {text!r}.")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value.strip()


def _is_named(name: str, value: Any, message: str) -> bool:
    """Whether a message speaks of a parameter or of the value it was given."""
    words = [name, "NoneType" if value is None else repr(value)]
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message) for word in words)
