"""What the documentation site has beside the pages in docs/ (a hook of MkDocs).

A page of reference for every public name, the decisions in the menu, README and its neighbours as pages, links to code
as plain words, and formulas as MathML and drawings as tables, so that nothing is loaded from elsewhere. Pages that a
tool has to write anew stop the build, and so does a page of reference that tells of a builtin type instead of ours.
"""

import builtins
import importlib
import inspect
import posixpath
import re
import runpy
from collections.abc import Iterator
from html import escape, unescape
from pathlib import Path
from types import FunctionType
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
BESIDE = {
    "README.md": "readme",
    "CHANGELOG.md": "changelog",
    "SECURITY.md": "security",
    "CONTRIBUTING.md": "contributing",
    "CITATION.cff": "citation",
}
RETURNED = (  # what public names give back
    "esad.advice.audit.Doubt",
    "esad.advice.compare.Comparison",
    "esad.advice.curve.LearningCurve",
    "esad.advice.labels.LabelAdvice",
    "esad.advice.search.Search",
    "esad.advice.suggest.Suggestion",
    "esad.detectors.scored_file.ScoredFile",
    "esad.explain.reasons.HeatMaps",
    "esad.explain.reasons.Reasons",
    "esad.io.checks.Remark",
    "esad.persist.parity.Parity",
    "esad.report.explained.ExplainedFile",
    "esad.score.drift.Drift",
    "esad.score.drift.DriftMonitor",
    "esad.score.metrics.Evaluation",
    "esad.score.threshold.Forecast",
)
IMPORTED = (  # what the guides import beside public names
    "esad.bench.harness.HarnessDetector",
    "esad.core.processes.join",
    "esad.io.files.read_table",
    "esad.io.stream.open_stream",
    "esad.persist.checkpoint.Checkpoint",
    "esad.report.findings.Findings",
    "esad.report.page.write_page",
    "esad.serve.app.Service",
    "esad.web.server.in_background",
)
MODULES = ("esad.datasets.scenario", "esad.persist.signature", "esad.scale")
GROUPS = ("Detectors", "Beside detectors", "What they return", "Modules", "Within modules")
FOUND_LATER = ("reference", "decisions")  # thirty detectors have the same methods: guides come first, and then
FOUND_BEFORE = ("ESAD", "Committee", "BaggedTrees")  # those that most people want
INSIDE = {  # methods of detectors for those who write one: docs/adding-a-method.md
    "check_stream",
    "decide",
    "inform",
    "member_scores",
    "model_rows",
    "n_leaving_out",
    "network_rows",
    "plain_parameters",
    "recipe_for",
    "rows_of",
    "score_rows",
    "set_calibration",
}
BUILTIN = {  # the first line of what builtin types say of themselves
    escape(inspect.getdoc(one).partition("\n")[0], quote=False): name
    for name, one in vars(builtins).items()
    if inspect.isclass(one) and not issubclass(one, BaseException)
}
FIRST = ("fit", "anomaly_score", "predict", "fit_threshold", "calibrate", "explain", "save")  # on a detector's page
LINK = re.compile(r"\[([^\[\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
DRAWING = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
BOX = re.compile(r'^ *(\w+)\["<b>.*?</b><br/>(.*)"\]$', re.MULTILINE)
ARROW = re.compile(r"^ *(\w+) -->\|(\d+)\| (\w+)$", re.MULTILINE)
AS_SHOWN = {  # browsers let a bar with an exponent sink below its line, and know one double-struck E only
    "<mo>&#x02016;</mo>": '<mo stretchy="false">&#x02016;</mo>',
    '<mi mathvariant="double-struck">E</mi>': "<mi>&#x1D53C;</mi>",
}
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def public_names() -> dict[str, tuple[str, Any]]:
    """Where every public name is defined, and what it is; an error where it or a method says nothing about itself."""
    esad = importlib.import_module("esad")
    values = {name: getattr(esad, name) for name in esad.__all__ if name != "__version__"}
    for module, _, name in (path.rpartition(".") for path in RETURNED + IMPORTED):
        values[name] = getattr(importlib.import_module(module), name)
    values |= {path.removeprefix("esad."): importlib.import_module(path) for path in MODULES}
    for name, value in values.items():
        described = [value, *(getattr(value, member) for member in members_of(value))]
        for silent in (one for one in described if not inspect.getdoc(one)):
            raise PluginError(f"{getattr(silent, '__name__', silent)} on the page {name} has no docstring.")
    return {name: (where(name, value), value) for name, value in values.items()}


def where(name: str, value: Any) -> str:
    """The dotted path of a public name."""
    return value.__name__ if inspect.ismodule(value) else f"{value.__module__}.{name}"


def group_of(path: str, value: Any) -> str:
    """The group of the menu that a public name belongs to."""
    if inspect.ismodule(value):
        return "Modules"
    if path in RETURNED:
        return "What they return"
    if path in IMPORTED:
        return "Within modules"
    return "Detectors" if hasattr(value, "anomaly_score") else "Beside detectors"


def check_written_pages() -> None:
    """An error where a page differs from what its tool would write."""
    for command in ("cli_docs.py", "methods_docs.py", "numbers_docs.py", "walk.py --docs"):
        names = runpy.run_path(str(ROOT / "tools" / command.split()[0]))
        for page in names["PAGES"]:
            text = page.read_text(encoding="utf-8")
            if text != names["render"](text):
                raise PluginError(f"{page.name} is not up to date. Run: python tools/{command}")


def on_config(config: Any) -> None:
    """Put what is not written in mkdocs.yml into the menu."""
    check_written_pages()
    parts = {next(iter(part)): next(iter(part.values())) for part in config.nav}
    groups: dict[str, list[dict[str, str]]] = {group: [] for group in GROUPS}
    for name, (path, value) in sorted(public_names().items()):
        groups[group_of(path, value)].append({name: f"reference/{name}.md"})
    parts["Reference"].append({"Python": [{group: pages} for group, pages in groups.items()]})
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    parts["Explanation"].append({"Decisions": [f"decisions/{path.name}" for path in decisions]})
    beside = {name: path for name, path in BESIDE.items() if (ROOT / name).exists() and path != "readme"}
    config.nav.append({"Project": [{path.capitalize(): f"project/{path}.md"} for path in beside.values()]})


def on_files(files: Files, config: Any) -> None:
    """Add the pages of reference, and those that lie beside docs/."""
    for name, (path, value) in public_names().items():
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(_entries(path, value))))
    for name, page in BESIDE.items():
        if (ROOT / name).exists():
            text = (ROOT / name).read_text(encoding="utf-8")
            if name == "README.md":
                text = text.replace("# esad", "# First steps", 1)  # the page that opens the site is "esad"
            if name.endswith(".cff"):
                text = f"# How to cite\n\n```yaml\n{text}```\n"
            files.append(File.generated(config, f"project/{page}.md", content=_relinked(text, "project")))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links that leave docs/ to the pages of the site, or nowhere; drawings as tables."""
    folder = posixpath.dirname(page.file.src_uri)
    if folder in FOUND_LATER:
        page.meta["search"] = {"boost": 0.4 if page.file.name in FOUND_BEFORE else 0.2}
    markdown = DRAWING.sub(lambda found: _as_table(found[1]), markdown)
    return markdown if folder in ("project", "reference") else _relinked(markdown, posixpath.join("docs", folder))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Formulas as MathML; how a public name is imported, below it."""
    if page.file.src_uri.startswith("reference/"):
        html = _with_import(page.file.name, html)
    return FORMULA.sub(lambda found: _formula(found[2], is_block=found[1] == "div"), html)


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> None:
    """Formulas in the table of contents as plain letters."""
    entries = list(page.toc.items)
    while entries:
        entry = entries.pop()
        entry.title = re.sub(r"\\[()]|\\mathrm|[{}]", "", entry.title)
        entries += entry.children


def members_of(value: Any) -> list[str]:
    """Functions and classes of a module; methods and properties of a class, whose parameters stand in the docstring.

    Not those of a detector that are `INSIDE`.
    """
    if inspect.ismodule(value):
        own = [name for name, one in vars(value).items() if getattr(one, "__module__", "") == value.__name__]
        listed = getattr(value, "__all__", [name for name in own if not name.startswith("_")])
        parts = [(name, getattr(value, name)) for name in listed]
        return [
            name
            for name, one in parts
            if inspect.isfunction(one) or (inspect.isclass(one) and not issubclass(one, tuple))
        ]
    hidden = INSIDE if hasattr(value, "anomaly_score") else set()
    names = [name for name in dir(value) if inspect.isclass(value) and not name.startswith("_") and name not in hidden]
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    kinds = FunctionType | property | classmethod
    return [name for name in names if isinstance(inspect.getattr_static(value, name), kinds)]


def _entries(path: str, value: Any, level: int = 1) -> Iterator[str]:
    """What mkdocstrings shows of a public name: of a module, each of its classes with methods and properties only."""
    members = members_of(value)
    parts = [getattr(value, name) for name in members if inspect.ismodule(value)]
    yield f"::: {path}\n    options:\n      members: {[] if parts else members}\n      heading_level: {level}"
    yield f"      show_root_full_path: {path in IMPORTED}\n"
    for part in parts:
        yield from _entries(f"{path}.{part.__name__}", part, level + 1)


def _with_import(name: str, html: str) -> str:
    """The page of a public name with the line that imports it; an error where it has the docstring of a builtin."""
    for line in (line for line in BUILTIN if f">{line}" in html):
        raise PluginError(f"The page {name} says of a value what Python says of {BUILTIN[line]!r}.")
    path = public_names()[name][0]
    if path in RETURNED:
        return html
    module = "esad" if name in importlib.import_module("esad").__all__ else path.rpartition(".")[0]
    line = f"<p><code>from {module} import {path.rpartition('.')[2] if module != 'esad' else name}</code></p>"
    return html.replace("</h1>", f"</h1>\n{line}", 1)


def _formula(latex: str, *, is_block: bool) -> str:
    mathml = convert(unescape(latex).strip(), display="block" if is_block else "inline")
    for written, shown in AS_SHOWN.items():
        mathml = mathml.replace(written, shown)
    return mathml


def _as_table(drawing: str) -> str:
    """The boxes and arrows of tools/walk.py: browsers would draw them by a script from elsewhere."""
    calls: dict[str, list[str]] = {}
    for room, number, called in ARROW.findall(drawing):
        calls.setdefault(room, []).append(f"{number}\u00a0{called}")
    rows = [
        f"| {room} | {modules.replace('<br/>', ', ')} | {', '.join(calls.get(room, []))} |"
        for room, modules in BOX.findall(drawing)
    ]
    return "\n".join(["| box | modules | arrows to |", "| --- | --- | --- |", *rows])


def _relinked(text: str, folder: str) -> str:
    """Text of a file in a folder of the project ("project": its root), with links as the site has them."""
    here, root = folder.removeprefix("docs").strip("/") or ".", "" if folder == "project" else folder

    def relink(found: re.Match[str]) -> str:
        words, path, anchor = found[1], posixpath.normpath(posixpath.join(root, found[2])), found[3] or ""
        if path in BESIDE:
            path = f"docs/project/{BESIDE[path]}.md"
        if not path.startswith("docs/"):
            return words  # code
        return f"[{words}]({posixpath.relpath(path.removeprefix('docs/'), here)}{anchor})"

    return LINK.sub(relink, text)
