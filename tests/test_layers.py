"""Who may import whom: the contracts in pyproject.toml."""

import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = Path(__file__).resolve().parent.parent / "pyproject.toml"
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"


@pytest.mark.skipif(not SETTINGS.is_file(), reason="needs the repository")
def test_layers_methods_and_data_sets_import_only_what_they_may():
    # in a process of its own: the linter would silence the loggers of this one
    done = subprocess.run([sys.executable, "-c", LINT, str(SETTINGS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
