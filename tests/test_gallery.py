"""The gallery is true: page and notebook say what the source says, and every example runs and shows what it claims."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

GALLERY = Path(__file__).resolve().parents[1] / "docs" / "gallery"
SOURCES = sorted(GALLERY.glob("*.py"))

# What the text of an example says of its numbers, to be true after its last cell.
CLAIMS = {
    "payments": "found[3].precision_at[50] > 0.5 > found[0].precision_at[50]"
    " and found[30].average_precision > found[3].average_precision + 0.1",
    "pictures": "found[15].auc > found[0].auc > 0.8 and found[15].precision_at[30] > 0.5",
    "xrays": "found['with'].auc > found['without'].auc > 0.75",
    "visitors": "found['default'] > search.best_score_",
    "parcels": "list(outcome.failures) == ['day-7.parquet'] and set(summary['drifted']) == {'day-6.parquet'}"
    " and again.n_there == 7 and max(n_alarms) == n_alarms[5]",
    "service": "found.auc > 0.95 and better['model'] != answer['model'] and service.returncode == 0",
    "sensors": "found['with past', 6] > max(found['readings', 6], found['with past', 0]) + 0.1",
}


def cells(source):
    """Cells of a notebook as its source has them."""
    notebook = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]


def commented(text):
    return "\n".join(f"# {line}".rstrip() for line in text.split("\n"))


def squeezed(text):
    return re.sub(r"\n\n+", "\n", text).strip()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebook_and_page_say_what_the_source_says(source):
    text = source.read_text(encoding="utf-8")
    script = re.sub(r"^# %%(?! \[markdown\]).*$", "# %%", text, flags=re.MULTILINE)
    joined = [
        f"# %% [markdown]\n{commented(words)}" if kind == "markdown" else f"# %%\n{words}"
        for kind, words in cells(source)
    ]
    assert squeezed("\n".join(joined)) == squeezed(script), "Run: make gallery"
    page = source.with_suffix(".md").read_text(encoding="utf-8")
    for kind, words in cells(source):
        assert all(part in page for part in words.split("\n\n")), "Run: make gallery"
        assert kind == "markdown" or f"```python\n{words}\n```" in page, "Run: make gallery"
    shown = re.findall(r"!\[[^\]]+\]\((\.\./images/gallery/[^)]+)\)", page)
    assert len(shown) == text.count("plt.show()")
    for figure in shown:
        assert (GALLERY / figure).stat().st_size < 100_000


def test_every_example_is_checked_and_listed():
    assert set(CLAIMS) == {source.stem for source in SOURCES}
    listed = (GALLERY / "index.md").read_text(encoding="utf-8")
    menu = (GALLERY.parents[1] / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"({name}.md)" in listed and f"gallery/{name}.md" in menu for name in CLAIMS)


@pytest.mark.extra
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_an_example_runs_and_shows_what_it_claims(source):
    pytest.importorskip("jupytext", reason="needs the extra docs")
    specification = importlib.util.spec_from_file_location("gallery", GALLERY.parents[1] / "tools" / "gallery.py")
    tool = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(tool)
    notebook = tool.as_notebook(source)
    stored = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert [cell.source for cell in notebook.cells] == ["".join(cell["source"]) for cell in stored["cells"]]
    notebook.cells.append(tool.nbformat.v4.new_code_cell(f"assert {CLAIMS[source.stem]}"))
    tool.execute(notebook)
    del notebook.cells[-1]
    page, figures = tool.as_page(notebook, source.stem)
    numberless = [
        re.sub(r"```text.*?```", "", text, flags=re.DOTALL) for text in (page, source.with_suffix(".md").read_text())
    ]
    assert numberless[0] == numberless[1], "Run: make gallery"
    assert set(figures) == {path.name for path in (GALLERY.parent / "images" / "gallery").glob(f"{source.stem}-*.png")}
