"""From what was typed to a detector and its threshold, checked before anything takes long."""

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from esad import registry
from esad.cli import common
from esad.errors import EsadError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detector import Detector
    from esad.score.threshold import Threshold

__all__ = ["Choice", "build_detector", "settings_checked", "threshold_rule"]


@dataclass(frozen=True)
class Choice:
    """The method and its parameters, as typed."""

    method: str = "esad"
    seed: int = 0
    device: str = "auto"
    members: int | None = None
    settings: tuple[str, ...] = ()
    contamination: float | None = None
    false_alarm_rate: float | None = None
    from_labels: bool = False


def build_detector(choice: Choice) -> "Detector":
    """An unfitted detector; a parameter that the method does not have is an error."""
    detector_class = registry.method(choice.method)
    known = set(inspect.signature(detector_class).parameters)
    wanted: dict[str, Any] = {"random_state": choice.seed}
    if choice.members is not None:
        wanted["n_members"] = choice.members
    if choice.device != "auto":
        wanted["device"] = choice.device
    if choice.contamination is not None:
        wanted["contamination"] = choice.contamination
    wanted |= dict(_setting(text) for text in choice.settings)
    for name in wanted:
        if name not in known:
            raise InputError(
                f"The method {choice.method!r} has no parameter {name!r}.{common.hint(name, known)} "
                f"It has: {', '.join(sorted(known))}."
            )
    detector: Detector = detector_class(**wanted)
    return detector


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where the value is JSON (numbers, true, lists) or else a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"--set must be NAME=VALUE, such as n_epochs=50. Got {text!r}.")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value.strip()


@contextmanager
def settings_checked(choice: Choice) -> Iterator[None]:
    """Blame what was typed after --set for what a method cannot compute with."""
    try:
        yield
    except EsadError:
        raise
    except (TypeError, ValueError) as error:
        if not choice.settings:
            raise
        raise InputError(f"The method {choice.method!r} cannot use {' '.join(choice.settings)}: {error}.") from error


def threshold_rule(choice: Choice, n_rows: int, y: "NDArray[np.int8] | None") -> "Threshold | None":
    """The rule asked for, None for the method's own; tried out now, since it is needed only after the training."""
    import numpy as np

    from esad.score.threshold import Threshold

    asked = []
    if choice.contamination is not None:
        asked.append(Threshold("contamination", choice.contamination))
    if choice.false_alarm_rate is not None:
        asked.append(Threshold("false_alarm", choice.false_alarm_rate))
    if choice.from_labels:
        asked.append(Threshold("labels"))
    if len(asked) > 1:
        raise InputError("Give one of --contamination, --false-alarm-rate and --threshold-from-labels, not several.")
    for rule in asked:
        rule.fit(np.zeros(n_rows), y)
    return asked[0] if asked else None
