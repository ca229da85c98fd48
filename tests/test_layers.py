"""Who may import whom: the contracts in pyproject.toml."""

from pathlib import Path

import pytest
from importlinter.cli import lint_imports

SETTINGS = Path(__file__).resolve().parent.parent / "pyproject.toml"


@pytest.mark.skipif(not SETTINGS.is_file(), reason="needs the repository")
def test_layers_methods_and_data_sets_import_only_what_they_may(capsys):
    assert lint_imports(config_filename=str(SETTINGS), no_cache=True) == 0, capsys.readouterr().out
