"""A fitted detector as a `.esad` file, and back, checking everything on the way."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from esad import labels, registry
from esad.core.arrays import Arrays
from esad.errors import EsadError, ModelFileError
from esad.explain.cases import Cases
from esad.io.files import SUFFIXES
from esad.io.notes import Notes
from esad.persist import bundle
from esad.preprocess.inputs import Inputs
from esad.preprocess.sketch import check_sketch
from esad.score.conformal import Calibration
from esad.score.threshold import FittedThreshold
from esad.table.profile import Profile

if TYPE_CHECKING:
    from esad.detectors.base import Detector

_GROUPS = ("inputs", "model", "calibration", "profile", "cases")  # of arrays in a model file


def save(detector: Detector, path: str | os.PathLike[str], *, with_cases: bool = False) -> None:
    """Write a fitted detector; see `Detector.save`."""
    check_is_fitted(detector)
    input_arrays, input_plain = detector.inputs_.state()
    model_arrays, model_plain = detector._state()
    manifest = {
        "method": registry.method_name(type(detector)),
        "parameters": detector.plain_parameters(),
        "inputs": input_plain,
        "model": model_plain,
        "threshold": detector.threshold_,
        "label_counts": asdict(detector.label_counts_),
        "data_fingerprint": detector.fingerprint_,
        "notes": detector.notes_,
    }
    if detector.sketch_:
        manifest["row_sketch"] = detector.sketch_
    if detector.applied_ is not None:
        manifest["applied"] = detector.applied_.to_json()
    arrays = {f"inputs.{name}": value for name, value in input_arrays.items()}
    arrays |= {f"model.{name}": value for name, value in model_arrays.items()}
    if detector.calibration_ is not None:
        own_arrays, manifest["calibration"] = detector.calibration_.state()
        arrays |= {f"calibration.{name}": value for name, value in own_arrays.items()}
    if detector.profile_ is not None:
        own_arrays, manifest["profile"] = detector.profile_.state()
        arrays |= {f"profile.{name}": value for name, value in own_arrays.items()}
    if with_cases and len(getattr(detector, "cases_", ())):
        arrays |= {f"cases.{name}": value for name, value in detector.cases_.state().items()}
    bundle.write(path, manifest, arrays)


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
    return _read(path)[0]


def _read(path: str | os.PathLike[str]) -> tuple[Detector, dict[str, Any], Arrays]:
    """The detector, and the manifest and arrays that it was made from."""
    refuse_data(path)
    manifest, arrays = bundle.read(path)
    try:
        return _from_state(manifest, arrays), manifest, arrays
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # a forged file may be wrong in any way; all of them are the file's fault
        reason = str(error) if isinstance(error, EsadError) else f"its contents do not fit together ({error!r})"
        raise ModelFileError(f"{os.fspath(path)!r} is not a usable esad model: {reason[:400]}") from error


def refuse_data(path: str | os.PathLike[str]) -> None:
    """Name the mistake when data is given where a model is expected."""
    if os.path.isdir(path) or os.fspath(path).lower().endswith(SUFFIXES):
        raise ModelFileError(
            f"{os.fspath(path)!r} is data, and a model is expected here. Give a file written by esad fit."
        )


def _from_state(manifest: dict[str, Any], arrays: Arrays) -> Detector:
    parameters = manifest["parameters"]
    if not isinstance(parameters, dict):
        raise ModelFileError("its parameters are damaged")
    detector_class = registry.method(str(manifest["method"]))
    detector: Detector = detector_class(**{name: _restore_value(value) for name, value in parameters.items()})
    groups: dict[str, Arrays] = {name: {} for name in _GROUPS}
    for name, value in arrays.items():
        group, _, rest = name.partition(".")
        groups[group][rest] = value
    detector.inputs_ = Inputs.from_state(groups["inputs"], manifest["inputs"], estimator=detector_class.__name__)
    if groups["cases"]:
        detector.cases_ = Cases.from_state(groups["cases"], detector.inputs_.shape)
    detector._describe_features()
    counts = manifest["label_counts"]
    if not all(isinstance(count, int) and 0 <= count < 2**53 for count in counts.values()) or not any(counts.values()):
        raise ModelFileError("its label counts are damaged")
    detector.label_counts_ = labels.LabelCounts(**counts)
    detector.fingerprint_ = str(manifest["data_fingerprint"])
    detector.sketch_ = check_sketch(manifest.get("row_sketch", []))
    detector.notes_ = manifest.get("notes", {})
    Notes.from_json(detector.notes_)  # refuses damage
    threshold = manifest["threshold"]
    if not isinstance(threshold, float | int) or isinstance(threshold, bool) or not np.isfinite(threshold):
        raise ModelFileError(f"its threshold must be a number. Got {threshold!r}")
    detector.offset_ = -float(threshold)
    detector.applied_ = FittedThreshold.from_json(manifest["applied"]) if "applied" in manifest else None
    detector._restore(groups["model"], manifest["model"])
    detector.calibration_ = None
    if "calibration" in manifest or groups["calibration"]:
        detector.calibration_ = Calibration.from_state(groups["calibration"], manifest["calibration"])
    detector.profile_ = None
    if "profile" in manifest or groups["profile"]:
        names = detector.inputs_.described_names
        detector.profile_ = Profile.from_state(groups["profile"], manifest["profile"], names=names)
    return detector


def _restore_value(value: Any) -> Any:
    """Undo `_plain`: lists were tuples."""
    return tuple(_restore_value(item) for item in value) if isinstance(value, list) else value


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What a model file holds, as plain values: method, parameters, columns, labels, threshold, notes.

    Parameters
    ----------
    path : str or path-like
        A `.esad` file.
    """
    detector, manifest, tensors = _read(path)
    inputs = detector.inputs_
    schema, calibration = inputs.schema, detector.calibration_
    return {
        "file": os.fspath(path),
        "n_bytes": os.path.getsize(path),
        "method": manifest["method"],
        "esad_version": manifest["esad_version"],
        "format_version": manifest["format_version"],
        "parameters": manifest["parameters"],
        "why": manifest["model"].get("why"),
        "changed_parameters": _find_changed_parameters(detector, manifest["parameters"]),
        "recipe": _recipe_of(manifest["model"]),
        "n_weights": sum(tensor.size for name, tensor in tensors.items() if ".weights." in name),
        "takes": inputs.kind,
        "columns": [] if schema is None else schema.to_json()["columns"],
        "n_training_rows": sum(manifest["label_counts"].values()) if schema is None else schema.n_rows,
        "shape": None if schema is not None else list(inputs.shape),
        "labels": manifest["label_counts"],
        "threshold": detector.threshold_,
        "threshold_rule": _rule_of(detector),
        "forecast": None if detector.forecast_ is None else detector.forecast_.to_json(),
        "calibration": None if calibration is None else str(calibration),
        "notes": detector.notes_,
        "data_fingerprint": detector.fingerprint_,
    }


def _recipe_of(model: dict[str, Any]) -> dict[str, Any]:
    """How a method trained, or those of its judges that have a recipe."""
    recipe: dict[str, Any] = dict(model.get("objective", {}))
    for judge in model.get("judges", {}).values():
        recipe |= _recipe_of(judge["model"])
    return recipe


def _rule_of(detector: Detector) -> str | None:
    """How the threshold was set; None where an older file does not say."""
    applied = detector.applied_
    if applied is None or applied.value == detector.threshold_:
        return None if applied is None else str(applied)
    return "set by hand"


def _find_changed_parameters(detector: Detector, parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters that were given, not left at their defaults."""
    default = type(detector)().plain_parameters()
    return {name: value for name, value in parameters.items() if value != default.get(name)}
