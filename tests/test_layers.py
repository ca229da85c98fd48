"""What import-linter's contracts cannot say: which private modules belong to which method."""

import grimp
import pytest

GRAPH = grimp.build_graph("esad")
METHODS = sorted(GRAPH.find_children("esad.methods"))


@pytest.mark.parametrize("module", METHODS)
def test_methods_never_import_each_other(module):
    """A method is one file; parts split off it are named `_<method>_...` and are for that method alone."""
    stem = module.rpartition(".")[2].removeprefix("_")
    for other in set(METHODS) - {module}:
        if GRAPH.direct_import_exists(importer=module, imported=other, as_packages=True):
            part = other.rpartition(".")[2]
            owner = stem.partition("_")[0] if module.rpartition(".")[2].startswith("_") else stem
            assert part.startswith(f"_{owner}_"), f"{module} imports {other}; share code through train or networks"
