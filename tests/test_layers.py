"""What import-linter's contracts cannot say: which private modules belong to which method."""

import grimp
import pytest

GRAPH = grimp.build_graph("esad")
MODULES = sorted(module.rpartition(".")[2] for module in GRAPH.find_children("esad.methods"))
METHODS = [name for name in MODULES if not name.startswith("_")]


def owner(name: str) -> str | None:
    """The method itself, or the one that a part `_<method>_...` was split off from."""
    if name in METHODS:
        return name
    return max((method for method in METHODS if name.startswith(f"_{method}_")), key=len, default=None)


def test_methods_are_found():
    assert "esad" in METHODS


@pytest.mark.parametrize("name", MODULES)
def test_methods_never_import_each_other(name):
    """What two methods share lives in train or networks; a part split off a method is for that method alone."""
    assert owner(name), f"{name} is named after no method"
    imported = {
        other.removeprefix("esad.methods.") for other in GRAPH.find_modules_directly_imported_by(f"esad.methods.{name}")
    }
    for other in imported & set(MODULES):
        assert other.startswith("_"), f"{name} imports the method {other}"
        assert owner(other) == owner(name), f"{name} imports a part of another method, {other}"
