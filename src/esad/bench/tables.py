"""From stored results to tables: the paper's figure, ours, the difference and the spread side by side."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from esad.bench.grid import Experiment, Place
from esad.bench.store import Result
from esad.errors import DataFileError

AVERAGED = ("scenario.normal_class", "scenario.labelled_offset")  # axes that a table has the mean over


@dataclass(frozen=True)
class Figure:
    """One place of a table: what was measured there, and what the paper prints.

    Attributes
    ----------
    place : Place
    aucs, aps, seconds : tuple of float
        One value per finished cell, in % and seconds.
    n_cells : int
        How many cells the place has; more than are finished while a run is under way.
    published, published_spread : float or None
        In %.
    n_on_cpu : int
        How many of the finished cells were not trained on a GPU.
    """

    place: Place
    aucs: tuple[float, ...]
    aps: tuple[float, ...]
    seconds: tuple[float, ...]
    n_cells: int
    published: float | None = None
    published_spread: float | None = None
    n_on_cpu: int = 0

    def format_whole(self) -> str:
        """AUC ± standard deviation / AP, the paper's figure and the difference."""
        paper = "" if self.published is None else f"{self.published:.1f}"
        if self.published is not None and self.published_spread is not None:
            paper += f" ± {self.published_spread:.1f}"
        if not self.aucs:
            return f"not run; *{paper}*" if paper else "not run" if self.n_cells else ""
        spread = f" ± {stdev(self.aucs):.1f}" if len(self.aucs) > 1 else ""
        part = f", {len(self.aucs)} of {self.n_cells}" if len(self.aucs) < self.n_cells else ""
        ours = f"**{fmean(self.aucs):.1f}**{spread} / {fmean(self.aps):.1f}, {fmean(self.seconds):.1f} s{part}"
        if self.published is None:
            return ours
        return f"{ours}<br>*{paper}, {fmean(self.aucs) - self.published:+.1f}*"

    def format_brief(self) -> str:
        """Ours (the paper's, the difference)."""
        if not self.aucs:
            return "" if self.published is None else f"- ({self.published:.1f})"
        ours = f"**{fmean(self.aucs):.1f}**"
        if self.published is None:
            return ours
        return f"{ours} ({self.published:.1f}, {fmean(self.aucs) - self.published:+.1f})"

    def format_n_trained(self) -> str:
        """Format how many of the trainings were run, such as "3/5"."""
        return f"{len(self.aucs)}/{self.n_cells}" if self.n_cells else "-"


class PaperFigures:
    """The paper's printed figures, from a JSON file beside the experiments."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._values: list[dict[str, Any]] = []
        if path is None:
            return
        try:
            self._values = json.loads(Path(path).read_text(encoding="utf-8"))["values"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataFileError(f"The published figures {str(path)!r} cannot be read: {error}.") from error

    def find(self, table: str | None, place: Place) -> tuple[float | None, float | None]:
        """Mean and standard deviation printed for a place; None where there is none."""
        for value in self._values:
            fits = (value["table"], value["variant"], value["data"]) == (table, place.variant, place.data)
            if fits and value["axes"] == {name: setting for name, setting in place.axes if name in value["axes"]}:
                return value["mean"], value["std"]
        return None, None

    def find_other_places(self, experiment: Experiment) -> list[Place]:
        """Places for which the paper's table has a figure and the experiment has no variant."""
        known = {variant.name for variant in experiment.variants}
        return [
            Place(value["variant"], value["data"], tuple(value["axes"].items()))
            for value in self._values
            if value["table"] == experiment.published
            and value["variant"] not in known
            and value["data"] in experiment.data
        ]


def collect_figures(experiment: Experiment, results: Iterable[Result], published: PaperFigures) -> list[Figure]:
    """A figure for every place of the experiment, then those of other systems that the paper prints."""
    cells: dict[Place, list[str]] = {}
    for place, cell in experiment.cells():
        cells.setdefault(drop_averaged_axes(place), []).append(cell.name)
    by_cell = {result.cell: result for result in results}
    found = []
    for place, names in cells.items():
        done = [by_cell[name] for name in names if name in by_cell]
        aucs, aps = (tuple(100 * getattr(result, name) for result in done) for name in ("auc", "ap"))
        seconds = tuple(result.fit_seconds for result in done)
        n_on_cpu = sum(not result.machine.get("gpu") for result in done)
        paper = published.find(experiment.published, place)
        found.append(Figure(place, aucs, aps, seconds, len(names), *paper, n_on_cpu=n_on_cpu))
    for place in published.find_other_places(experiment) if experiment.others else ():
        found.append(Figure(place, (), (), (), 0, *published.find(experiment.published, place)))
    return found


def count_run(found: Sequence[Figure]) -> str:
    """Say in words how many of the trainings that the experiments ask for have been run."""
    n_run, n_asked = sum(len(figure.aucs) for figure in found), sum(figure.n_cells for figure in found)
    return f"The tables below ask for {n_asked:,} trainings; {n_run:,} of them were run.\n" if n_asked else ""


def count_printed(found: Iterable[Figure]) -> str:
    """Say in words how many of the paper's printed values have been measured; "" where it prints none."""
    printed = [figure for figure in found if figure.published is not None]
    n_run = sum(bool(figure.aucs) for figure in printed)
    n_whole = sum(0 < figure.n_cells == len(figure.aucs) for figure in printed)
    if not printed:
        return ""
    if n_whole == len(printed):
        return f"The paper prints {n_whole} values for these experiments. All of them were measured here.\n"
    text = f"The paper prints {len(printed)} values for these experiments. {n_run} of them were measured here, "
    text += f"{n_whole} with every training that the experiment asks for"
    n_missing = len(printed) - n_run
    return text + (f"; the other {n_missing} were not measured, and are marked.\n" if n_missing else ".\n")


def name_axis(name: str) -> str:
    """Return the readable name of an axis: "scenario.normal_class" becomes "normal class"."""
    return name.partition(".")[2].replace("_", " ")


def drop_averaged_axes(place: Place) -> Place:
    """The place without the axes that a table averages over, such as the normal class."""
    return Place(place.variant, place.data, tuple(axis for axis in place.axes if axis[0] not in AVERAGED))


def to_markdown(experiment: Experiment, found: Sequence[Figure]) -> str:
    """One table: a row per variant and axis values, a column per data set.

    Of several methods along one axis, a table per data set: a row per method, a column per value of the axis.
    """
    names = {tuple(name for name, _ in figure.place.axes) for figure in found}
    if len(names) == 1 and len(names.pop()) == 1 and len({figure.place.variant for figure in found}) > 2:
        return _to_markdown_by_level(experiment, found)
    heads = dict.fromkeys(figure.place.data for figure in found)
    rows: dict[str, dict[str, str]] = {}
    for figure in found:
        axes = ", ".join(f"{name.partition('.')[2]} {value}" for name, value in figure.place.axes)
        title = _mark_variant(experiment, figure.place.variant) + (f" ({axes})" if axes else "")
        rows.setdefault(title, {})[figure.place.data] = figure.format_whole()
    lines = [f"## {experiment.title}", "", _explain_table(experiment, found), ""]
    lines += ["| | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    lines += [
        f"| {title} | " + " | ".join(cells.get(data, "") for data in heads) + " |" for title, cells in rows.items()
    ]
    return "\n".join(lines) + "\n"


def _to_markdown_by_level(experiment: Experiment, found: Sequence[Figure]) -> str:
    """For every data set the methods over the values of the one axis: ours (the paper's, the difference)."""
    axis = found[0].place.axes[0][0]
    lines = [f"## {experiment.title}", "", _explain_table(experiment, found, brief=True)]
    for data in dict.fromkeys(figure.place.data for figure in found):
        here = [figure for figure in found if figure.place.data == data]
        levels = sorted({figure.place.axes[0][1] for figure in here})
        rows: dict[str, dict[Any, Figure]] = {}
        for figure in here:
            rows.setdefault(figure.place.variant, {})[figure.place.axes[0][1]] = figure
        heads = [f"{name_axis(axis)} {levels[0]}", *map(str, levels[1:]), "trained"]
        lines += ["", f"### {data}", "", "| | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
        for variant, by_level in rows.items():
            cells = [by_level[level].format_brief() if level in by_level else "" for level in levels]
            trained = [by_level[level].format_n_trained() if level in by_level else "-" for level in levels]
            is_run = any(figure.aucs for figure in by_level.values())
            words = (trained[0] if len(set(trained)) == 1 else " · ".join(trained)) if is_run else "not run"
            lines.append(f"| {_mark_variant(experiment, variant)} | " + " | ".join([*cells, words]) + " |")
    return "\n".join(lines) + "\n"


def _mark_variant(experiment: Experiment, name: str) -> str:
    alike = [variant for variant in experiment.variants if variant.name == name]
    marks = " †" if any(variant.choose for variant in alike) else ""
    return name + marks + (" ‡" if any("reference" in variant.settings for variant in alike) else "")


def _explain_table(experiment: Experiment, found: Sequence[Figure], *, brief: bool = False) -> str:
    scenario = ", ".join(f"{name} = {value}" for name, value in experiment.scenario.items() if name != "kind")
    n_seeds = len(experiment.seeds)
    text = f"{n_seeds} seed{'' if n_seeds == 1 else 's'}{'; ' if scenario else ''}{scenario}."
    text += " AUC in %." if brief else " AUC ± standard deviation / AP in %, seconds for one fit."
    averaged = [name_axis(name) for name in experiment.axes if name in AVERAGED]
    if averaged:
        text += f" Over every {' and every '.join(averaged)}."
    if experiment.stack:
        text += " Deep methods train all seeds side by side: their seconds are a share of that."
    if experiment.published and brief:
        text += " Ours in bold, in brackets what the paper prints and ours less that; - was not trained here. The last "
        text += "column has how many of the trainings of each point were run."
    elif experiment.published:
        text += " Below in italics what the paper prints, and ours less that."
    if any(variant.choose for variant in experiment.variants):
        text += " † Arguments chosen on a tenth of the test labels, as the paper did; the other test rows judge."
    references = sorted({str(one.settings["reference"]) for one in experiment.variants if "reference" in one.settings})
    if references:
        text += f" ‡ Learns from {', '.join(references)} besides, a stand-in for ImageNet, which the paper has there."
    n_run, n_on_cpu = Counter[str](), Counter[str]()
    for figure in found:
        n_run[figure.place.variant] += len(figure.aucs)
        n_on_cpu[figure.place.variant] += figure.n_on_cpu
    if experiment.scenario["kind"] in ("images", "given") and n_on_cpu.total():
        counts = [f"{name} ({n} of {n_run[name]})" for name, n in n_on_cpu.items() if n]
        text += f" Trained on a CPU, where automatic networks and steps are smaller: {', '.join(counts)}."
    return f"{text} {experiment.note}".rstrip()


def to_plain(found: Sequence[Figure]) -> list[Mapping[str, Any]]:
    """Figures as plain values, for JSON."""
    return [
        {
            "variant": figure.place.variant,
            "data": figure.place.data,
            "axes": dict(figure.place.axes),
            "auc": fmean(figure.aucs) if figure.aucs else None,
            "auc_spread": stdev(figure.aucs) if len(figure.aucs) > 1 else None,
            "ap": fmean(figure.aps) if figure.aps else None,
            "fit_seconds": fmean(figure.seconds) if figure.seconds else None,
            "n_finished": len(figure.aucs),
            "n_cells": figure.n_cells,
            "published": figure.published,
            "published_spread": figure.published_spread,
        }
        for figure in found
    ]
