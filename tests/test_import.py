"""`import esad` is quick because it loads nothing heavy, and it offers exactly what it says."""

import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys

import pytest

import esad
from esad import registry

# Packages only group their modules; `esad.__main__` runs on import.
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(esad.__path__, "esad.")
    if not found.ispkg and found.name != "esad.__main__"
)

HEAVY = (
    "numpy",
    "torch",
    "sklearn",
    "scipy",
    "pyarrow",
    "narwhals",
    "pandas",
    "safetensors",
    "typer",
    "rich",
    "PIL",
    "matplotlib",
)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules loaded in a fresh interpreter after `statement`."""
    script = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_loads_nothing_heavy():
    loaded = loaded_by("import esad; dir(esad); esad.__version__")
    assert "esad" in loaded
    assert loaded.isdisjoint(HEAVY)


# Not on every machine that trains models and runs experiments.
SOMETIMES_MISSING = ("clarabel", "fastapi", "polars", "pydantic", "ray", "starlette", "uvicorn")


def test_every_method_and_the_experiments_can_be_imported_without_packages_that_may_be_missing():
    blocked = f"import sys; sys.modules.update(dict.fromkeys({SOMETIMES_MISSING!r}))"  # None: `import` fails
    needed = [name for name in MODULES if name.startswith(("esad.methods.", "esad.bench."))]
    loaded = loaded_by(f"{blocked}; import {', '.join(needed)}")
    assert {"esad", "torch"} <= loaded


def test_versions_agree():
    assert esad.__version__ == importlib.metadata.version("esad")


def test_public_names_are_these():
    """A name added or removed by accident fails here; methods come and go with their files."""
    detectors = {registry.method(name).__name__ for name in registry.method_names()}
    assert "ESAD" in detectors
    assert set(esad.__all__) == detectors | {
        "LabelAwareSplit",
        "Threshold",
        "TrainingData",
        "__version__",
        "advise_on_labels",
        "ap_scorer",
        "audit_labels",
        "auc_scorer",
        "check_columns",
        "compare",
        "errors",
        "discoveries",
        "evaluate",
        "explain_file",
        "export",
        "labels",
        "learning_curve",
        "load",
        "plot",
        "registry",
        "score_file",
        "search",
        "suggest_labels",
    }


def test_public_names_exist_and_are_listed():
    assert [name for name in esad.__all__ if not hasattr(esad, name)] == []
    assert set(esad.__all__) <= set(dir(esad))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = esad.no_such_name


def test_every_public_name_that_a_module_lists_is_there():
    loaded = map(importlib.import_module, MODULES)
    listed = [(module, name) for module in loaded for name in getattr(module, "__all__", ())]
    assert [(module.__name__, name) for module, name in listed if not hasattr(module, name)] == []
