"""The pages are true: their examples run, their links lead somewhere, their tables say what was stored.

Fenced blocks of a page run in order, in one namespace and one temporary folder:

- `python`   runs
- `pycon`    runs as a doctest: what it shows is what comes
- `console`  commands `$ esad ...` run through the real command line and exit with 0, or with 2 where the line
  `error: ...` is shown under them; that line must be the one that comes. Other commands are not run.
"""

import doctest
import importlib.util
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from esad import registry
from esad.cli.app import run

ROOT = Path(__file__).resolve().parent.parent
SLOW = {f"docs/{name}.md" for name in ("export", "next-labels", "scoring-at-scale", "search")}  # train again and again
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *PAGES, *sorted((ROOT / "docs").glob("[dg]*/*.md"))]
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


# ---------------------------------------------------------------------- examples


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["kind"], found["text"], text.count("\n", 0, found.start()) + 1) for found in FENCE.finditer(text)
    ]


def runs(block: Block) -> bool:
    return block.kind in ("python", "pycon") or (block.kind == "console" and "$ esad " in block.text)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=named(page), marks=[pytest.mark.extra] if named(page) in SLOW else [])
        for page in PAGES
        if any(map(runs, blocks(page)))
    ],
)
def test_examples_run(page, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ESAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in filter(runs, blocks(page)):
        if block.kind == "python":
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
        elif block.kind == "pycon":
            check_session(block, names, page)
        else:
            check_commands(block, page, capfd)


def check_session(block: Block, names: dict[str, Any], page: Path) -> None:
    session = doctest.DocTestParser().get_doctest(block.text, names, named(page), str(page), block.line)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    found = runner.run(session, out=report.append, clear_globs=False)
    names.update(session.globs)
    assert found.failed == 0, "".join(report)


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each command with what is shown under it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def check_commands(block: Block, page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for command, shown in commands(block):
        words = shlex.split(command, comments=True)
        if words[0] != "esad":
            continue
        capfd.readouterr()
        code = run(words[1:])
        _, complaints = capfd.readouterr()
        expected = [line for line in shown.splitlines() if line.startswith("error: ")]
        assert code == (2 if expected else 0), f"{named(page)}: {command}\n{complaints}"
        missing = [line for line in expected if line not in complaints.splitlines()]
        assert not missing, f"{named(page)}: {command}\nshown: {missing}\ncame: {complaints}"


def test_readme_example_has_eight_lines_and_is_the_default_use():
    first = next(block for block in blocks(ROOT / "README.md") if block.kind == "python")
    lines = [line for line in first.text.splitlines() if line.strip()]
    assert len(lines) == 8
    assert "Committee(random_state=0)" in first.text


# ---------------------------------------------------------------------- links


def anchors(page: Path) -> set[str]:
    """Anchors that a page's headings get on the usual hosts."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    dead = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def test_every_page_is_linked_from_the_index():
    docs = ROOT / "docs"
    text = (docs / "index.md").read_text(encoding="utf-8")
    pages = [page for page in LINKED if page.parent in (docs, docs / "decisions") and page.name != "index.md"]
    wanted = {page.relative_to(docs).as_posix() for page in pages}
    assert wanted <= {link.partition("#")[0] for link in LINK.findall(text)}


# ---------------------------------------------------------------------- results and names


def test_the_readme_has_one_place_for_results():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [text.count(f"<!-- results:{end} -->") for end in ("begin", "end")] == [1, 1]
    assert text.index("<!-- results:begin -->") < text.index("<!-- results:end -->")


@pytest.mark.parametrize("name", registry.method_names())
def test_every_method_is_in_the_readme(name):
    assert registry.method_classes()[name] in (ROOT / "README.md").read_text(encoding="utf-8")


def load_tool(name: str) -> Any:
    specification = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    return tool


@pytest.mark.parametrize(
    ("name", "pages"),
    [
        ("methods_docs", ["docs/methods.md"]),
        ("numbers_docs", ["README.md", "docs/benchmarks.md", "docs/images/labels.svg"]),
    ],
)
def test_the_tables_of_numbers_are_what_the_registry_and_the_stored_runs_say(name, pages):
    tool = load_tool(name)
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text == tool.render(text), f"Run: python tools/{name}.py"


def test_the_page_of_the_architecture_has_the_layers_and_modules_of_today_and_drawings_of_the_walks():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert text == load_tool("walk").render(text, {}), "Run: python tools/walk.py --docs"
    assert min(map(int, re.findall(r"^(\d+) modules\.$", text, re.MULTILINE))) > 20


@pytest.mark.parametrize(
    ("kinds", "store", "name", "target"),
    [
        (("TIMED", "UNTIMED"), "tables", "results", "bench-tables-rest"),
        pytest.param(("PICTURES", "ON_CPU"), "pictures", "results-pictures", "bench-pictures", marks=pytest.mark.extra),
    ],
)
def test_the_results_are_what_the_stored_runs_say(kinds, store, name, target, tmp_path, monkeypatch):
    monkeypatch.delenv("ESAD_DATA", raising=False)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    lists = [re.search(rf"^{kind} := .*,(.*)\)$", makefile, re.MULTILINE)[1] for kind in kinds]
    files = [str(ROOT / "experiments" / f"{experiment}.toml") for experiment in " ".join(lists).split()]
    stored = ROOT / "experiments" / "results" / f"{store}.jsonl"
    page, figures = tmp_path / f"{name}.md", tmp_path / "images" / "results"
    assert run(["bench", "report", *files, "--store", str(stored), "--out", str(page), "--figures", str(figures)]) == 0
    written = page.read_text(encoding="utf-8")
    assert (ROOT / "docs" / page.name).read_text(encoding="utf-8") == written, f"Run: make {target}"
