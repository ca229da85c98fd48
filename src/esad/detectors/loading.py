"""From a model file to a fitted detector, checking everything on the way."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad import labels, registry
from esad.detectors.base import Detector
from esad.errors import EsadError, ModelFileError
from esad.explain.cases import Cases
from esad.persist import bundle
from esad.preprocess.inputs import Inputs
from esad.score.conformal import Calibration
from esad.score.threshold import Applied
from esad.table.profile import Profile

__all__ = ["load"]

_GROUPS = ("inputs", "model", "calibration", "profile", "cases")  # of arrays in a model file


def load(path: str | os.PathLike[str]) -> Detector:
    """Read a fitted detector from a `.esad` file.

    Nothing in the file can run code; a damaged, foreign or newer file gives one clear `ModelFileError`.

    Examples
    --------
    >>> load("no-such-model.esad")
    Traceback (most recent call last):
    ...
    esad.errors.ModelFileError: ...
    """
    manifest, arrays = bundle.read(path)
    try:
        return _from_state(manifest, arrays)
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # a forged file may be wrong in any way; all of them are the file's fault
        reason = str(error) if isinstance(error, EsadError) else f"its contents do not fit together ({error!r})"
        raise ModelFileError(f"{os.fspath(path)!r} is not a usable esad model: {reason}") from error


def _from_state(manifest: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Detector:
    parameters = manifest["parameters"]
    if not isinstance(parameters, dict):
        raise ModelFileError("its parameters are damaged")
    detector_class = registry.method(str(manifest["method"]))
    detector: Detector = detector_class(**{name: _restored(value) for name, value in parameters.items()})
    groups: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in _GROUPS}
    for name, value in arrays.items():
        group, _, rest = name.partition(".")
        groups[group][rest] = value
    detector.inputs_ = Inputs.from_state(groups["inputs"], manifest["inputs"])
    if groups["cases"]:
        detector.cases_ = Cases.from_state(groups["cases"], detector.inputs_.shape)
    detector._describe_features()
    counts = manifest["label_counts"]
    if not all(isinstance(count, int) and 0 <= count < 2**53 for count in counts.values()) or not any(counts.values()):
        raise ModelFileError("its label counts are damaged")
    detector.label_counts_ = labels.LabelCounts(**counts)
    detector.fingerprint_ = str(manifest["data_fingerprint"])
    detector.notes_ = _checked_notes(manifest.get("notes", {}))
    threshold = manifest["threshold"]
    if not isinstance(threshold, float | int) or isinstance(threshold, bool) or not np.isfinite(threshold):
        raise ModelFileError(f"its threshold must be a number. Got {threshold!r}")
    detector.offset_ = -float(threshold)
    detector.applied_ = Applied.from_json(manifest["applied"]) if "applied" in manifest else None
    detector._restore(groups["model"], manifest["model"])
    detector.calibration_ = None
    if "calibration" in manifest or groups["calibration"]:
        detector.calibration_ = Calibration.from_state(groups["calibration"], manifest["calibration"])
    detector.profile_ = None
    if "profile" in manifest or groups["profile"]:
        names = detector.inputs_.described_names
        detector.profile_ = Profile.from_state(groups["profile"], manifest["profile"], names=names)
    return detector


def _checked_notes(notes: Any) -> dict[str, Any]:
    """What the model's maker noted, such as the name of the id column: plain values or lists of them."""

    def is_plain(value: Any) -> bool:
        return value is None or isinstance(value, str | int | float | bool)

    if not isinstance(notes, dict) or not all(
        is_plain(value) or (isinstance(value, list) and all(map(is_plain, value))) for value in notes.values()
    ):
        raise ModelFileError("its notes are damaged")
    return notes


def _restored(value: Any) -> Any:
    """Undo `_plain`: lists were tuples."""
    return tuple(_restored(item) for item in value) if isinstance(value, list) else value
