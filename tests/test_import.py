"""`import esad` is quick because it loads nothing heavy, and it offers exactly what it says."""

import importlib.metadata
import subprocess
import sys

import esad

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


def test_versions_agree():
    assert esad.__version__ == importlib.metadata.version("esad")
