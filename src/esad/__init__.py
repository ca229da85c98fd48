"""Semi-supervised anomaly detection: many unlabelled rows or pictures, a handful of labels.

Scores point one way everywhere: higher = more anomalous. Labels are -1 anomaly, 0 unlabelled, +1 normal.
Names are loaded on first use, so `import esad` is quick.
"""

import importlib
import os
import sys
from typing import Any

__version__ = "0.2.0"

if "torch" not in sys.modules:  # its threads would spin while they wait: on a busy machine fits take ten times as long
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_NAMES = {
    "LabelAwareSplit": "esad.score.splits",
    "Threshold": "esad.score.threshold",
    "TrainingData": "esad.detectors.training",
    "advise_on_labels": "esad.advice.labels",
    "ap_scorer": "esad.score.metrics",
    "audit_labels": "esad.advice.audit",
    "auc_scorer": "esad.score.metrics",
    "check_columns": "esad.io.checks",
    "compare": "esad.advice.compare",
    "discoveries": "esad.score.conformal",
    "evaluate": "esad.score.metrics",
    "explain_file": "esad.report.explained",
    "export": "esad.detectors.export",
    "learning_curve": "esad.advice.curve",
    "load": "esad.detectors.model_file",
    "score_file": "esad.detectors.scored_file",
    "search": "esad.advice.search",
    "suggest_labels": "esad.advice.suggest",
}
_MODULES = ("errors", "labels", "plot", "registry")


def _detectors() -> dict[str, str]:
    from esad.registry import method_classes

    return {class_name: f"esad.methods.{module}" for module, class_name in method_classes().items()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"esad.{name}")
    if name == "__all__":
        return __dir__()
    if name.startswith("_"):
        raise AttributeError(f"module 'esad' has no attribute {name!r}")
    module = _NAMES.get(name) or _detectors().get(name)
    if module is None:
        raise AttributeError(f"module 'esad' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_NAMES, *_MODULES, *_detectors(), "__version__"])
