"""Write the pages and the notebooks of the gallery: docs/gallery/NAME.py becomes NAME.md and NAME.ipynb.

The sources are scripts in jupytext's percent format. Each is run from its first cell to its last by a real kernel, in
an empty folder; what it prints and draws is put into the page. Notebooks are stored without output.

    python tools/gallery.py [NAME ...]
"""

import base64
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

DOCS = Path(__file__).resolve().parents[1] / "docs"
SOURCES = sorted((DOCS / "gallery").glob("*.py"))
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def as_notebook(source: Path) -> Any:
    """The notebook of a source, without output."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


def execute(notebook: Any) -> None:
    """Run all cells in an empty folder and keep what they print and draw."""
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}})
        client.extra_arguments, client.coalesce_streams = ["--log-level=ERROR"], True
        client.execute()


def as_page(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """The text of the page, and its figures by file name."""
    (title, *rest), figures = notebook.cells, {}
    heading, _, opening = title.source.partition("\n")
    parts = [
        f"<!-- Written by tools/gallery.py from {name}.py. -->",
        heading,
        opening.strip(),
        f"This page as a [notebook]({name}.ipynb) and as a [script]({name}.py).",
    ]
    for cell in rest:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            if output.output_type == "stream":
                if output.name == "stdout":  # what is said on stderr is about this machine
                    parts.append(f"```text\n{output.text.rstrip()}\n```")
            elif "image/png" in output.data:
                figure = f"{name}-{len(figures) + 1}.png"
                figures[figure] = _shrunk(base64.b64decode(output.data["image/png"]))
                parts.append(f"![{cell.metadata['alt']}](../images/gallery/{figure})")
            else:
                parts.append(f"```text\n{output.data['text/plain']}\n```")
    return "\n\n".join(parts) + "\n", figures


def _shrunk(content: bytes) -> bytes:
    """The same figure in 128 colours: a third of the bytes."""
    smaller = io.BytesIO()
    Image.open(io.BytesIO(content)).convert("RGB").quantize(128).save(smaller, "png", optimize=True)
    return smaller.getvalue()


def main(names: list[str]) -> None:
    """Write the pages, figures and notebooks of the examples with these names, or of all."""
    for source in SOURCES:
        if names and source.stem not in names:
            continue
        notebook = as_notebook(source)
        nbformat.write(notebook, source.with_suffix(".ipynb"))
        execute(notebook)
        page, figures = as_page(notebook, source.stem)
        source.with_suffix(".md").write_text(page, encoding="utf-8")
        for old in (DOCS / "images" / "gallery").glob(f"{source.stem}-[0-9].png"):
            old.unlink()
        for figure, content in figures.items():
            (DOCS / "images" / "gallery" / figure).write_bytes(content)
        print(f"{source.stem}: {len(page)} letters, figures of {[len(content) for content in figures.values()]} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
