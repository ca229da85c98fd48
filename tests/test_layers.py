"""No private name of one room is used in another; who may import whom, `make test` asks import-linter."""

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "esad"


def package_of(file: Path) -> str:
    """The room that a module lies in; modules of the root are rooms of their own."""
    return file.relative_to(SOURCE).parts[0]


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_no_private_name_of_one_package_is_used_in_another():
    nodes = {file: list(ast.walk(ast.parse(file.read_text(encoding="utf-8")))) for file in SOURCE.rglob("*.py")}
    homes: dict[str, set[str]] = {}  # packages that define private functions, classes and attributes of self
    for file, found in nodes.items():
        for node in found:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and private(node.name):
                homes.setdefault(node.name, set()).add(package_of(file))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and private(node.attr):
                homes.setdefault(node.attr, set()).add(package_of(file))
    wrong = []
    for file, found in nodes.items():
        own = package_of(file)
        for node in found:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("esad."):
                other = node.module.split(".")[1]
                names = [*node.module.split(".")[2:], *(alias.name for alias in node.names)]
                wrong += [f"{file}:{node.lineno}: {name}" for name in names if private(name) and other != own]
            elif isinstance(node, ast.Attribute) and own not in homes.get(node.attr, {own}):
                is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls", "os")  # os._exit
                wrong += [] if is_own else [f"{file}:{node.lineno}: .{node.attr} of {sorted(homes[node.attr])}"]
    assert not wrong, "\n".join(wrong)
