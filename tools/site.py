"""What the documentation site has beside the pages in docs/ (a hook of MkDocs).

A page of reference for every public name, the decisions in the menu, README and its neighbours as pages, links to code
as plain words, and formulas as MathML, so that nothing is loaded from elsewhere.
"""

import importlib
import inspect
import posixpath
import re
from html import unescape
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
}
LAST_FOUND = "---\nsearch: { boost: 0.2 }\n---\n"  # thirty detectors have the same methods: guides come first
LINK = re.compile(r"\[([^\[\]]*)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def public_names() -> dict[str, str]:
    """Where every public name is defined; an error where one says nothing about itself."""
    esad, found = importlib.import_module("esad"), {}
    for name in esad.__all__:
        if name == "__version__":
            continue
        value = getattr(esad, name)
        if not inspect.getdoc(value):
            raise PluginError(f"esad.{name} has no docstring.")
        found[name] = value.__name__ if inspect.ismodule(value) else f"{value.__module__}.{name}"
    return found


def on_config(config: Any) -> None:
    """Put what is not written in mkdocs.yml into the menu."""
    parts = {next(iter(part)): next(iter(part.values())) for part in config.nav}
    parts["Reference"].append({"Python": [{name: f"reference/{name}.md"} for name in public_names()]})
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    parts["Explanation"].append({"Decisions": [f"decisions/{path.name}" for path in decisions]})
    beside = {name: path for name, path in BESIDE.items() if (ROOT / name).exists() and path != "readme"}
    config.nav.append({"Project": [{path.capitalize(): f"project/{path}.md"} for path in beside.values()]})


def on_files(files: Files, config: Any) -> None:
    """Add the pages of reference, and those that lie beside docs/."""
    for name, path in public_names().items():
        value = getattr(importlib.import_module("esad"), name)
        options = f"    options:\n      members: {_members(value)}\n" if inspect.isclass(value) else ""
        files.append(File.generated(config, f"reference/{name}.md", content=f"{LAST_FOUND}::: {path}\n{options}"))
    for name, page in BESIDE.items():
        if (ROOT / name).exists():
            text = (ROOT / name).read_text(encoding="utf-8")
            files.append(File.generated(config, f"project/{page}.md", content=_relinked(text, "project")))


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Lead links that leave docs/ to the pages of the site, or nowhere."""
    folder = posixpath.dirname(page.file.src_uri)
    return markdown if folder in ("project", "reference") else _relinked(markdown, posixpath.join("docs", folder))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Formulas as MathML."""
    return FORMULA.sub(lambda found: _formula(found[2], is_block=found[1] == "div"), html)


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> None:
    """Formulas in the table of contents as plain letters."""
    entries = list(page.toc.items)
    while entries:
        entry = entries.pop()
        entry.title = re.sub(r"\\[()]|\\mathrm|[{}]", "", entry.title)
        entries += entry.children


def _members(value: type) -> list[str]:
    """Methods and properties; parameters stand in the docstring."""
    names = (name for name in dir(value) if not name.startswith("_"))
    return [
        name for name in names if isinstance(inspect.getattr_static(value, name), FunctionType | property | classmethod)
    ]


def _formula(latex: str, *, is_block: bool) -> str:
    return convert(unescape(latex).strip(), display="block" if is_block else "inline")


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
