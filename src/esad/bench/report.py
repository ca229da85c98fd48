"""The page of results: a table for every experiment, the paper's figures beside ours, and drawings where wanted."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from esad.bench import plots, tables
from esad.bench.grid import Experiment
from esad.bench.store import Result
from esad.bench.tables import Figure
from esad.core.atomic import atomic_path

_HEAD = "# Results\n\n<!-- Written by esad bench report. -->\n"


@dataclass
class ResultsPage:
    """What `make_page` made.

    Attributes
    ----------
    tables : list of str
        Markdown, one table an experiment.
    plain : dict
        The same by the name of the experiment, for JSON.
    figures : list of Figure
        All places of all tables.
    """

    tables: list[str] = field(default_factory=list)
    plain: dict[str, Any] = field(default_factory=dict)
    figures: list[Figure] = field(default_factory=list)

    def write(self, out: Path) -> None:
        """Write the whole page: how much was trained, and how much of what the paper prints is measured; the tables."""
        count = tables.count_run(self.figures) + tables.count_printed(self.figures)
        with atomic_path(out) as beside:
            beside.write_text("\n".join([_HEAD, *([count] if count else []), *self.tables]), encoding="utf-8")


def make_page(
    experiments: Sequence[tuple[Path, Experiment]],
    results: Sequence[Result],
    *,
    published: Path | None = None,
    figures: Path | None = None,
    out: Path | None = None,
) -> ResultsPage:
    """Tables of experiments from stored results.

    Parameters
    ----------
    experiments : sequence of (Path, Experiment)
        Each with the file that it was read from.
    results : sequence of Result
    published : Path, optional
        The paper's figures; by default published.json beside each experiment, where there is one.
    figures : Path, optional
        Folder to draw figures into, which the page then shows.
    out : Path, optional
        Where the page will lie, so that its links hold.
    """
    page = ResultsPage()
    together: dict[str, list[Figure]] = {}  # experiments about one table of the paper are one figure
    about = [experiment.published for _, experiment in experiments]
    for number, (path, experiment) in enumerate(experiments):
        paper = published or path.with_name("published.json")
        found = tables.collect_figures(experiment, results, tables.PaperFigures(paper if paper.exists() else None))
        page.tables.append(tables.to_markdown(experiment, found))
        page.plain[experiment.name] = tables.to_plain(found)
        page.figures += found
        if figures is None:
            continue
        name = experiment.name
        if experiment.published and about.count(experiment.published) > 1:
            name = experiment.published
        together.setdefault(name, []).extend(found)
        drawn = plots.draw(experiment, results, figures)
        if name not in about[number + 1 :]:
            drawn = plots.draw_over_axis(name, together[name], figures) + drawn
        page.tables[-1] += "".join(f"\n![{experiment.title}]({_link(path, out)})\n" for path in drawn)
    return page


def _link(path: Path, page: Path | None) -> str:
    """Return the link from a page to a file."""
    return path.as_posix() if page is None else Path(os.path.relpath(path, page.parent)).as_posix()
