"""From what was typed to a detector and its threshold, checked before anything takes long."""

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from esad import registry
from esad.cli import common
from esad.cli.training import TrainingSet
from esad.errors import EsadError, InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.score.threshold import Threshold

__all__ = ["Choice", "build_detector", "settings_checked", "threshold_rule"]

_PARAMETERS = {
    "--seed": "random_state",
    "--members": "n_members",
    "--contamination": "contamination",
    "--device": "device",
}


@dataclass(frozen=True, kw_only=True)
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
    calibration_ratio: float | None = None
    cross_calibration: bool = False


def build_detector(choice: Choice) -> "Detector":
    """An unfitted detector; a parameter that the method does not have is an error."""
    detector_class = registry.method(choice.method)
    known = set(inspect.signature(detector_class).parameters)
    wanted = {"random_state": choice.seed} | _typed(choice)
    for name in wanted:
        if name not in known:
            raise InputError(
                f"The method {choice.method!r} has no parameter {name!r}.{common.hint(name, known)} "
                f"It has: {', '.join(sorted(known))}."
            )
    if "device" in wanted:
        from esad.train.runtime import resolve_device

        resolve_device(wanted["device"])
    detector: Detector = detector_class(**wanted)
    return detector


def _typed(choice: Choice) -> dict[str, Any]:
    """Parameters as typed, by an option of their own or after --set; two values for one of them are an error."""
    options: dict[str, Any] = {"--members": choice.members, "--contamination": choice.contamination}
    options |= {"--seed": choice.seed or None, "--device": None if choice.device == "auto" else choice.device}
    found: dict[str, tuple[str, Any]] = {
        _PARAMETERS[option]: (f"{option} {value}", value) for option, value in options.items() if value is not None
    }
    for text in choice.settings:
        name, value = _setting(text)
        if name in found:
            raise InputError(f"{found[name][0]} and --set {text} give {name!r} two values. Leave one of them out.")
        found[name] = f"--set {text}", value
    return {name: value for name, (_, value) in found.items()}


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
    """Blame what was typed after --set for what a method cannot compute with, where it does not say so itself."""
    try:
        yield
    except EsadError:
        raise
    except (TypeError, ValueError) as error:
        if not choice.settings:
            raise
        named = [text for text in choice.settings if _is_named(*_setting(text), str(error))]
        blamed = named or choice.settings
        one_of = "one of " if len(blamed) > 1 else ""
        message = f"The method {choice.method!r} cannot use {one_of}{', '.join(blamed)}: {error}"
        raise InputError(message if message.endswith(".") else f"{message}.") from error


def _is_named(name: str, value: Any, message: str) -> bool:
    """Whether a message speaks of a parameter or of the value it was given."""
    words = [name, "NoneType" if value is None else repr(value)]
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message) for word in words)


def threshold_rule(choice: Choice, detector: "Detector", training: TrainingSet) -> "Threshold | None":
    """The rule asked for, None for the method's own; tried out now, since it is needed only after the training."""
    import numpy as np

    from esad.score.threshold import Threshold

    asked = []
    if choice.contamination is not None:
        if not 0 < choice.contamination <= 0.5:
            raise InputError(
                f"--contamination must be a share above 0 and at most 0.5. Got {choice.contamination:g}. "
                "For 5 % write 0.05."
            )
        asked.append(Threshold("contamination", choice.contamination))
    if choice.false_alarm_rate is not None:
        asked.append(Threshold("false_alarm", choice.false_alarm_rate))
    if choice.from_labels:
        asked.append(Threshold("labels"))
    by_setting = choice.contamination is None and any(_setting(text)[0] == "contamination" for text in choice.settings)
    if len(asked) + by_setting > 1:
        raise InputError("Give one of --contamination, --false-alarm-rate and --threshold-from-labels, not several.")
    n_calibration = _calibration_rows(choice, training)
    if choice.cross_calibration and not _n_cross(detector, training):
        raise InputError(
            "--cross-calibration needs a method whose members leave rows out, and 20 unlabelled rows or more. "
            "Take --calibration-ratio."
        )
    for rule in asked:
        if rule.rule == "false_alarm" and n_calibration:
            rule.fit(np.zeros(n_calibration))
        elif rule.rule == "false_alarm":
            _check_false_alarm(rule, detector, training)
        else:
            rule.fit(np.zeros(training.n_rows), training.y)
    return asked[0] if asked else None


def _calibration_rows(choice: Choice, training: TrainingSet) -> int:
    """How many rows --calibration-ratio will hold out; a share that leaves none is refused."""
    import numpy as np

    from esad.score.splits import calibration_rows

    if choice.calibration_ratio is None:
        return 0
    if choice.cross_calibration:
        raise InputError("Give --calibration-ratio or --cross-calibration, not both.")
    if training.survey is not None:
        from esad.core.arguments import check_share

        check_share("--calibration-ratio", choice.calibration_ratio)
        return training.survey.n_calibration(choice.calibration_ratio)
    y = np.zeros(training.n_rows, dtype=np.int8) if training.y is None else training.y
    return int(calibration_rows(y, choice.calibration_ratio, choice.seed).sum())


def _n_cross(detector: "Detector", training: TrainingSet) -> int:
    """How many unlabelled rows some member will leave out."""
    from esad.score.splits import held_out_rows

    n_members = 0 if training.survey is not None else _n_members(detector, training)
    return held_out_rows(training.labels()["n_unlabelled"], n_members) if n_members else 0


def _check_false_alarm(rule: "Threshold", detector: "Detector", training: TrainingSet) -> None:
    """Refuse a rate for which too few rows will be left: of the unlabelled, only those that a member has not seen."""
    from esad.score.splits import N_PARTS, held_out_rows

    if training.survey is not None:
        error = _refusal(rule, {"n_normal": 0, "n_anomaly": 0}, training.survey.n_held_out())
        if error is not None:
            raise error
        return
    counts, n_members = training.labels(), _n_members(detector, training)
    n_unlabelled = counts["n_unlabelled"]
    n_held_out = held_out_rows(n_unlabelled, n_members) if n_members else 0
    error = _refusal(rule, counts, n_held_out or n_unlabelled)  # too few to hold any out: all of them are taken
    if error is None:
        return
    if not n_members or not n_held_out:
        raise error
    advice = f"Unlabelled rows count if a member leaves them out of its training: {n_held_out:,} of {n_unlabelled:,} "
    advice += f"with {common.counted(n_members, 'member')}."
    most = n_members if "n_members" not in detector.get_params() else N_PARTS
    while n_members < most:
        n_members += 1
        if _refusal(rule, counts, held_out_rows(n_unlabelled, n_members)) is None:
            advice += f" --members {n_members} would do."
            break
    raise InputError(f"{error} {advice}") from error


def _refusal(rule: "Threshold", counts: dict[str, int], n_held_out: int) -> InputError | None:
    """Why the rule cannot be used with so many unlabelled rows, if so."""
    import numpy as np

    y = np.repeat(np.array([0, 1, -1], dtype=np.int8), [n_held_out, counts["n_normal"], counts["n_anomaly"]])
    try:
        rule.fit(np.zeros(len(y)), y)
    except InputError as error:
        return error
    return None


def _n_members(detector: "Detector", training: TrainingSet) -> int:
    """How many members leave rows out of their training."""
    return detector.n_leaving_out("images" if training.schema is None else "table")
