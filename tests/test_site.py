"""The documentation site is built of true pages, or not at all."""

import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

import esad
from esad import registry

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.extra
PluginError = pytest.importorskip("mkdocs.exceptions", reason="needs the extra docs").PluginError
pytest.importorskip("latex2mathml", reason="needs the extra docs")


@pytest.fixture
def site(tmp_path):
    """The hook of a copy of what the site is made of."""
    for name in (
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "CITATION.cff",
        "mkdocs.yml",
        "pyproject.toml",
    ):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("docs", "tools", "benchmarks", "experiments", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    specification = importlib.util.spec_from_file_location("site_hook", tmp_path / "tools" / "site.py")
    hook = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(hook)
    return hook


def test_a_page_that_a_tool_would_write_otherwise_stops_it(site):
    site.check_written_pages()
    marks = {"cli": "## esad fit", "methods": "<!-- methods:begin -->", "benchmarks": "<!-- numbers: "}
    marks["architecture"] = "<!-- map -->"
    for name, mark in marks.items():
        path = site.ROOT / "docs" / f"{name}.md"
        text = path.read_text(encoding="utf-8")
        before, _, table = text.partition(mark)
        path.write_text(before + mark + table.replace("`", "`1", 1), encoding="utf-8")
        with pytest.raises(PluginError, match=f"{name}.md is not up to date"):
            site.check_written_pages()
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("owner", "name"), [(esad, "evaluate"), (esad.Threshold, "fit"), (esad.labels, "counts"), (esad, "plot")]
)
def test_a_public_name_without_a_word_about_itself_stops_it(site, monkeypatch, owner, name):
    assert site.public_names()
    monkeypatch.setattr(getattr(owner, name), "__doc__", None)
    with pytest.raises(PluginError, match="has no docstring"):
        site.public_names()


def test_dead_links_and_pages_that_no_menu_names_stop_it(site):
    docs = site.ROOT / "docs"
    with (docs / "report.md").open("a", encoding="utf-8") as page:
        page.write("\n[one](gone.md) and [two](labels.md#gone)\n")
    (docs / "unlisted.md").write_text("# Unlisted\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=site.ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    for words in ("'gone.md'", "#gone", "unlisted.md"):
        assert words in done.stderr


def test_drawings_are_tables_since_nothing_is_loaded_from_elsewhere(site):
    text = (site.ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="architecture.md"))
    drawn = site.on_page_markdown(text, page, None, None)
    assert "flowchart" not in drawn
    (first,) = [line for line in drawn.splitlines() if line.startswith("| cli |")][:1]
    assert first.startswith("| cli | app, ")
    assert "1\u00a0io, " in first
    for boxes, arrows in zip(text.split("```mermaid")[1:], drawn.split("| box |")[1:], strict=True):
        drawing = boxes.partition("```")[0]
        assert drawing.count("<b>") == arrows.partition("<!-- end -->")[0].count("\n| ") - 1
        assert drawing.count("-->") == arrows.partition("<!-- end -->")[0].count("\u00a0")


def test_what_public_functions_return_has_a_page(site):
    functions = filter(inspect.isfunction, (getattr(esad, name) for name in esad.__all__))
    returned = [function.__annotations__["return"] for function in functions]
    classes = [one for kind in returned for one in (kind, *get_args(kind)) if inspect.isclass(one)]
    ours = {one.__name__ for one in classes if one.__module__.startswith("esad.")}
    assert {"Comparison", "Parity", "Remark"} <= ours <= set(site.public_names())


def test_what_the_guides_import_has_a_page(site):
    pages = site.public_names()
    guides = [page for page in (ROOT / "docs").glob("*.md") if page.name != "adding-a-method.md"]  # about our insides
    text = "\n".join(path.read_text(encoding="utf-8") for path in [*guides, *(ROOT / "docs" / "gallery").glob("*.py")])
    imported = re.findall(r"^(?:>>> )?from (esad[\w.]*) import ([\w, ]+)$", text, flags=re.MULTILINE)
    named = {f"{module}.{name}" for module, names in imported for name in names.split(", ")}
    assert {"esad.ESAD", "esad.scale.score_shards", "esad.persist.signature"} <= named
    modules = {path for path, value in pages.values() if inspect.ismodule(value)}
    named = {name for name in named if name.rpartition(".")[0] not in modules}
    assert named <= {path for path, _ in pages.values()} | {f"esad.{name}" for name in pages}


def test_pages_of_reference_are_for_users_and_about_our_own(site):
    built = site.ROOT / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    subprocess.run(command, cwd=site.ROOT, check=True)
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (built / "reference").glob("*.html")}
    assert "class-attribute" not in pages["plot"] + pages["scale"]
    assert 'id="esad.plot.CalibrationDisplay.share_at"' in pages["plot"]
    assert "<code>from esad import Committee</code>" in pages["Committee"]
    assert "<code>from esad.io.stream import open_stream</code>" in pages["open_stream"]
    assert re.search(r"predict_proba.{,60}\(.{,60}X", re.sub("<[^>]+>", "", pages["ESAD"]))
    methods = set(re.findall(r'id="esad\.methods\.esad\.method\.ESAD\.(\w+)"', pages["ESAD"]))
    assert {"fit", "anomaly_score", "predict_proba", "save"} <= methods
    assert not methods & site.INSIDE
    start = {"index": "esad", "project/readme": "First steps", "project/citation": "How to cite"}
    for page, title in start.items():
        assert re.search(r"<h1[^>]*>(.*?)<", (built / f"{page}.html").read_text(encoding="utf-8"))[1] == title


def test_methods_that_the_reference_leaves_out_are_there_and_told_elsewhere(site):
    text = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
    there = {name for method in registry.method_names() for name in dir(registry.method(method))}
    assert there >= site.INSIDE
    assert all(f"`{name}`" in text for name in site.INSIDE)


@pytest.mark.parametrize("value", [False, 1, 0.5, "", (), [], {}, None])
def test_what_python_says_of_a_value_stops_it(site, value):
    if said := type(value).__doc__:
        with pytest.raises(PluginError, match="what Python says"):
            site._with_import("ESAD", f"<h1>ESAD</h1><p>{escape(said, quote=False)}</p>")


def test_the_search_finds_guides_first_and_then_the_methods_that_most_people_want(site):
    boosts = []
    for name in ("labels.md", "reference/ESAD.md", "reference/OCGAN.md"):
        page = SimpleNamespace(file=SimpleNamespace(src_uri=name, name=Path(name).stem), meta={})
        site.on_page_markdown("", page, None, None)
        boosts.append(page.meta.get("search", {"boost": 1})["boost"])
    assert boosts == sorted(set(boosts), reverse=True)


def test_formulas_are_mathml_as_browsers_show_it(site):
    text = r'<span class="arithmatex">\(\mathbb E \lVert Z \rVert^2\)</span>'
    page = SimpleNamespace(file=SimpleNamespace(src_uri="method.md"))
    assert site.on_page_content(text, page, None, None).partition("<mrow>")[2] == (
        '<mi>&#x1D53C;</mi><mo stretchy="false">&#x02016;</mo><mi>Z</mi>'
        '<msup><mo stretchy="false">&#x02016;</mo><mn>2</mn></msup></mrow></math>'
    )
