"""Prints which modules of esad a run visits, in the order of their first call: the way of the data through the code.

    python tools/walk.py fit train.csv --label-column label --out model.esad
    python tools/walk.py --python example.py
    python tools/walk.py --mermaid score model.esad new.csv
    python tools/walk.py --docs

A module is visited when a function of it is called; importing it is no visit. `--docs` runs the three walks of
docs/architecture.md on the demo's data and writes their drawings, the layers and the map of modules into that page.
"""

import argparse
import ast
import contextlib
import io
import os
import re
import runpy
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "architecture.md",)
SOURCE = str(ROOT / "src" / "esad") + os.sep
sys.path.insert(0, str(ROOT / "src"))  # the code beside this tool, whatever else is installed
PYTHON_WALK = """\
import numpy as np
from esad import ESAD
rng = np.random.default_rng(0)
y = np.zeros(200, dtype=int)
y[:5] = -1
ESAD(random_state=0, n_epochs=2).fit(rng.normal(size=(200, 4)), y)
"""


@dataclass
class Walk:
    """What was called, by module in the order of the first call; and which room called which."""

    calls: dict[str, Counter[str]] = field(default_factory=dict)
    steps: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def n_modules(self) -> int:
        """How many modules were visited."""
        return len(self.calls)

    def table(self) -> Iterator[str]:
        """One line for each module."""
        for number, (module, functions) in enumerate(self.calls.items(), 1):
            yield f"{number:3d}  {module:40s} {len(functions):4d} functions {sum(functions.values()):7,d} calls"
        functions, calls = (sum(map(count, self.calls.values())) for count in (len, Counter.total))
        yield f"{self.n_modules} modules, {functions} functions, {calls:,} calls"

    def mermaid(self) -> Iterator[str]:
        """The rooms as a drawing: boxes with the modules that were visited, arrows in the order of the first call."""
        rooms: dict[str, list[str]] = {}
        for module in self.calls:
            rooms.setdefault(room_of(module), []).append(module.rpartition(".")[2])
        yield "flowchart TD"
        for room, modules in rooms.items():
            lines = "<br/>".join(", ".join(modules[i : i + 4]) for i in range(0, len(modules), 4))
            yield f'  {room}["<b>{room}</b><br/>{lines}"]'
        for number, (caller, called) in enumerate(self.steps, 1):
            yield f"  {caller} -->|{number}| {called}"


def room_of(module: str) -> str:
    """The package that a module lies in; modules of the root are the room esad."""
    parts = module.split(".")
    return parts[1] if len(parts) > 2 else "esad"


def walk(action: Callable[[], Any]) -> Walk:
    """Run something and keep what it calls in esad, threads apart."""
    found = Walk()
    names: dict[str, str | None] = {}

    def name_of(file: str) -> str | None:
        if file not in names:
            inside = file.startswith(SOURCE)
            names[file] = (
                ".".join(["esad", *Path(file[len(SOURCE) :]).with_suffix("").parts]).removesuffix(".__init__")
                if inside
                else None
            )
        return names[file]

    def caller_of(frame: FrameType | None) -> str | None:
        """The module of esad that called, "import" where it was being imported; None for others."""
        while frame is not None:
            module = name_of(frame.f_code.co_filename)
            if module is not None:
                return "import" if frame.f_code.co_name == "<module>" or is_class_body(frame) else module
            frame = frame.f_back
        return None

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call":
            return
        module = name_of(frame.f_code.co_filename)
        if module is None or frame.f_code.co_name in ("<module>", "<lambda>") or is_class_body(frame):
            return
        caller = caller_of(frame.f_back)
        if caller == "import":
            return
        found.calls.setdefault(module, Counter())[frame.f_code.co_qualname] += 1
        step = None if caller is None else (room_of(caller), room_of(module))
        if step is not None and step[0] != step[1]:
            found.steps[step] = found.steps.get(step, 0) + 1

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return found


def is_class_body(frame: FrameType) -> bool:
    """Whether a frame is that of a class statement, which runs when its module is imported."""
    return "__qualname__" in frame.f_code.co_names and "__module__" in frame.f_code.co_names


def command(arguments: list[str]) -> Callable[[], None]:
    """An esad command, as the terminal runs it."""

    def action() -> None:
        from esad.cli.app import run

        code = run(arguments)
        if code:
            sys.exit(code)

    return action


def documented_walks() -> dict[str, Walk]:
    """The three walks of the page."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        train, model, script = f"{folder}/train.csv", f"{folder}/model.esad", Path(folder, "walk.py")
        script.write_text(PYTHON_WALK, encoding="utf-8")
        command(["data", "save", "breast_cancer", "--out", train])()
        quick = ["--set", "n_epochs=2", "--ignore", "truth", "--label-column", "label"]
        return {
            "esad fit": walk(command(["fit", train, "--out", model, *quick])),
            "esad score": walk(command(["score", model, train, "--out", f"{folder}/scores.csv"])),
            "ESAD().fit": walk(lambda: runpy.run_path(str(script))),
        }


def layers() -> Iterator[str]:
    """The lines of the first contract, the highest first."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    yield "```"
    for layer in next(contract["layers"] for contract in contracts if contract["type"] == "layers"):
        yield layer.strip("()").replace(" : ", "  ")
    yield "```"


def modules() -> Iterator[str]:
    """Every module with the first line of its docstring, room by room."""
    files = sorted(Path(SOURCE).rglob("*.py"), key=lambda file: (file.parent != Path(SOURCE), file.parent, file))
    room = None
    for file in files:
        document = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
        line = document.partition("\n")[0]
        folder = file.parent.relative_to(Path(SOURCE).parent).as_posix()
        if folder != room:
            room = folder
            yield f"\n### {folder}/\n"
        if file.name != "__init__.py" or len(document.splitlines()) > 1:
            yield f"- `{file.name}`: {line}"


def put(page: str, mark: str, text: str) -> str:
    """The page with other text between a mark and its end."""
    new = f"<!-- {mark} -->\n{text.strip()}\n<!-- end -->"
    return re.sub(rf"<!-- {re.escape(mark)} -->.*?<!-- end -->", lambda _: new, page, flags=re.DOTALL)


def render(page: str, walks: dict[str, Walk] | None = None) -> str:
    """The page with these walks, and with the layers and modules of today."""
    for name, found in (walks or {}).items():
        drawing = "\n".join(found.mermaid())
        page = put(page, f"walk: {name}", f"{found.n_modules} modules.\n\n```mermaid\n{drawing}\n```")
    return put(put(page, "layers", "\n".join(layers())), "map", "\n".join(modules()))


def main() -> None:
    """Walk as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mermaid", action="store_true", help="print a drawing for a Markdown page")
    parser.add_argument("--functions", action="store_true", help="print the functions of each module too")
    parser.add_argument("--python", metavar="FILE", help="run this script instead of a command")
    parser.add_argument("--docs", action="store_true", help="write the drawings of docs/architecture.md")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    if asked.docs:
        (page,) = PAGES
        page.write_text(render(page.read_text(encoding="utf-8"), documented_walks()), encoding="utf-8")
        return
    script = asked.python
    found = walk(command(asked.command) if script is None else lambda: runpy.run_path(script, run_name="__main__"))
    print("\n".join(found.mermaid() if asked.mermaid else found.table()))
    if asked.functions:
        for module, functions in found.calls.items():
            print(module, *(f"{name} x{number}" for name, number in functions.items()), sep="\n  ")


if __name__ == "__main__":
    main()
