"""The gallery is true: page and notebook say what the source says, and every example runs and shows what it claims."""

import importlib.util
import itertools
import json
import math
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


TEXT = re.compile(r"```text\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"-?\b\d+(?:\.\d+)?")
SHARE, OTHER, RELATIVE = 0.03, 0.6, 0.15  # how far numbers of two machines may be apart: shares, others, or relatively
TIMED = re.compile(r"^.* ms a request$", re.MULTILINE)  # about the machine, and nothing else


def find_stale(shown, came):
    """Lines of text on a page that differ from today's in a word, or in a number by more than the tolerance."""
    texts = ("\n".join(TEXT.findall(TIMED.sub("", page))).splitlines() for page in (shown, came))
    return [pair for pair in itertools.zip_longest(*texts, fillvalue="") if not are_alike(*pair)]


def are_alike(*lines):
    words = [NUMBER.sub(" 0 ", line).split() for line in lines]
    numbers = [map(float, NUMBER.findall(line)) for line in lines]
    return words[0] == words[1] and all(
        math.isclose(*pair, rel_tol=RELATIVE, abs_tol=SHARE if max(map(abs, pair)) < 1 else OTHER)
        for pair in zip(*numbers, strict=True)
    )


def test_stale_text_is_found():
    page = "```text\n{} labels: AUC {}, {} of them\nheat {} h\n{} ms a request\n```"
    shown = page.format(15, 0.91, 16, "-1.5", 5)
    assert not find_stale(shown, page.format(15, 0.93, 17, "-1.4", 50))
    for other in (
        page.format(15, 0.71, 16, "-1.5", 5),
        page.format(15, 0.91, 20, "-1.5", 5),
        shown.replace("heat", "load"),
    ):
        assert len(find_stale(shown, other)) == 1
    assert find_stale(shown, shown.replace("heat -1.5 h\n", ""))


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
    shown = source.with_suffix(".md").read_text(encoding="utf-8")
    assert TEXT.sub("", page) == TEXT.sub("", shown), "Run: make gallery"
    assert find_stale(shown, page) == [], "Run: make gallery"
    assert set(figures) == {path.name for path in (GALLERY.parent / "images" / "gallery").glob(f"{source.stem}-*.png")}
