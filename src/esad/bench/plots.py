"""Figures of an experiment, drawn from stored results: curves over an axis, curves over the training, maps of codes."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from esad.bench.execute import draw_rows
from esad.bench.grid import Cell, Experiment, Place
from esad.bench.store import Result
from esad.bench.tables import Figure, drop_averaged_axes, name_axis
from esad.core.atomic import atomic_path
from esad.core.machine import require
from esad.errors import EsadError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

NORMAL, ANOMALY = "#4477aa", "#cc6677"  # Tol's bright colours, told apart by everyone
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#777777")
MORE_COLOURS = (*COLOURS, "#dd7711", "#882255", "#44aa99", "#999933", "#332288")
N_SAMPLES = 8  # pictures of each kind


def draw(experiment: Experiment, results: Iterable[Result], folder: Path) -> list[Path]:
    """Draw every figure that the results of an experiment allow as a PNG file, and return the paths."""
    by_cell = {result.cell: result for result in results}
    cells = [
        (drop_averaged_axes(place), by_cell[cell.name]) for place, cell in experiment.cells() if cell.name in by_cell
    ]
    drawn = {"training": _plot_over_training(cells), "codes": _draw_maps(cells), "samples": _draw_samples(cells)}
    return [_save(drawing, folder / f"{experiment.name}_{name}.png") for name, drawing in drawn.items() if drawing]


def draw_over_axis(name: str, found: Sequence[Figure], folder: Path) -> list[Path]:
    """Draw what was measured and what the paper prints over the one axis of an experiment, or of several about one."""
    drawing = _plot_over_axis(found)
    return [] if drawing is None else [_save(drawing, folder / f"{name}_axis.png")]


def _save(drawing: "Drawing", path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as beside:
        drawing.savefig(beside, format="png", dpi=120)
    return path


def _new_figure(n_rows: int, n_columns: int, *, width: float, height: float) -> tuple["Drawing", Any]:
    """Make a matplotlib figure without pyplot, so that no global state changes."""
    drawing = require("matplotlib.figure", extra="plot").Figure(
        figsize=(width * n_columns, height * n_rows), layout="constrained"
    )
    return drawing, drawing.subplots(n_rows, n_columns, squeeze=False)


# ------------------------------------------------------------------ curves


def _plot_over_axis(found: Sequence[Figure]) -> "Drawing | None":
    """AUC over the one numeric axis, a panel per data set: ours with the spread as a band, the paper's dashed."""
    names = {name for figure in found for name, _ in figure.place.axes}
    values = sorted({figure.place.axes[0][1] for figure in found if figure.place.axes and _is_number_at(figure)})
    known = any(figure.aucs or figure.published is not None for figure in found)
    if len(names) != 1 or not known or not all(map(_is_number_at, found)):
        return None
    panels: dict[str, dict[str, list[Figure]]] = {}
    for figure in found:
        panels.setdefault(figure.place.data, {}).setdefault(figure.place.variant, []).append(figure)
    variants = list(dict.fromkeys(figure.place.variant for figure in found))
    colours = {variant: MORE_COLOURS[number % len(MORE_COLOURS)] for number, variant in enumerate(variants)}
    drawing, (row,) = _new_figure(1, len(panels), width=4.2, height=4)
    name = name_axis(names.pop())
    for axes, (data, by_variant) in zip(row, panels.items(), strict=True):
        for variant, figures in by_variant.items():
            _draw_line(axes, figures, label=variant, colour=colours[variant])
        if len(values) > 2 and values[-1] > 20 * max(values[1], 1e-12):
            axes.set_xscale("symlog", linthresh=min(value for value in values if value > 0))
        axes.set_title(data, fontsize=10)
        axes.set_xlabel(name)
        axes.grid(alpha=0.3)
    with_paper = any(figure.published is not None for figure in found)
    row[0].set_ylabel("AUC %" + (" (dashed: the paper)" if with_paper else ""))
    lines = [pair for axes in row for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    lines.sort(key=lambda pair: pair[0].get_linestyle() == "-")  # a method that was measured gets its full line
    shown = {label: line for line, label in lines}
    words = [label if line.get_linestyle() == "-" else f"{label} (paper alone)" for label, line in shown.items()]
    drawing.legend(shown.values(), words, fontsize=8, loc="outside lower center", ncols=4)
    return drawing


def _is_number_at(figure: Figure) -> bool:
    values = [value for _, value in figure.place.axes]
    return len(values) == 1 and isinstance(values[0], int | float) and not isinstance(values[0], bool)


def _draw_line(axes: "Axes", figures: Sequence[Figure], *, label: str, colour: str) -> None:
    ordered = sorted(figures, key=lambda figure: float(figure.place.axes[0][1]))
    ours = [figure for figure in ordered if figure.aucs]
    paper = [figure for figure in ordered if figure.published is not None]
    if ours:
        x = [float(figure.place.axes[0][1]) for figure in ours]
        mean = np.array([fmean(figure.aucs) for figure in ours])
        spread = np.array([np.std(figure.aucs) for figure in ours])
        axes.plot(x, mean, marker="o", color=colour, label=label)
        axes.fill_between(x, mean - spread, np.minimum(mean + spread, 100.0), color=colour, alpha=0.12, linewidth=0)
    if paper:
        x = [float(figure.place.axes[0][1]) for figure in paper]
        printed = [figure.published or 0.0 for figure in paper]
        axes.plot(x, printed, "--", color=colour, linewidth=1, label=None if ours else label)


def _plot_over_training(cells: Sequence[tuple[Place, Result]]) -> "Drawing | None":
    """Mean test AUC on the way through the training, the last point being the result."""
    lines: dict[str, list[list[float]]] = {}
    for place, result in cells:
        if "test_auc" in result.curves:
            axes_words = "".join(f", {name_axis(name)} {value}" for name, value in place.axes)
            lines.setdefault(f"{place.variant}, {place.data}{axes_words}", []).append(
                [*result.curves["test_auc"], result.auc]
            )
    if not lines:
        return None
    drawing, (row,) = _new_figure(1, 1, width=8, height=4.5)
    axes = row[0]
    for number, (label, curves) in enumerate(lines.items()):
        n_looks = min(map(len, curves))
        mean = 100 * np.mean([curve[-n_looks:] for curve in curves], axis=0)
        style = "-" if number < len(COLOURS) else "--" if number < 2 * len(COLOURS) else ":"
        x = 100 * np.arange(1, n_looks + 1) / n_looks
        axes.plot(x, mean, style, marker=".", color=COLOURS[number % len(COLOURS)], label=label)
    axes.set_xlabel("% of the training")
    axes.set_ylabel("mean test AUC %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawing


# ------------------------------------------------------------------ maps and samples


def _find_maps(cells: Sequence[tuple[Place, Result]]) -> list[tuple[Place, Result]]:
    """One result with a map for every variant and data set."""
    first: dict[tuple[str, str], tuple[Place, Result]] = {}
    for place, result in cells:
        if "map row" in result.curves:
            first.setdefault((place.data, place.variant), (place, result))
    return list(first.values())


def _draw_maps(cells: Sequence[tuple[Place, Result]]) -> "Drawing | None":
    """A row for every data set, a map for every code of every variant."""
    maps: dict[str, list[tuple[str, Result, str]]] = {}
    for place, result in _find_maps(cells):
        for name in result.curves:
            if name.endswith(" x"):
                code = name.removeprefix("map ").removesuffix(" x")
                maps.setdefault(place.data, []).append((place.variant, result, code))
    if not maps:
        return None
    n_columns = max(map(len, maps.values()))
    drawing, all_axes = _new_figure(len(maps), n_columns, width=3.4, height=3.4)
    for row, (data, codes) in zip(all_axes, maps.items(), strict=True):
        for axes in row[len(codes) :]:
            axes.set_axis_off()
        for axes, (variant, result, code) in zip(row, codes, strict=False):
            x, y = (np.array(result.curves[f"map {code} {side}"]) for side in "xy")
            truth = np.array(result.curves["map truth"]) > 0
            for kind, colour, label in ((~truth, NORMAL, "normal"), (truth, ANOMALY, "anomaly")):
                axes.scatter(x[kind], y[kind], s=6, color=colour, label=label, linewidths=0)
            axes.set_title(f"{data}: {variant}'s {code.replace('^', '̂')}", fontsize=9)
            axes.set_xticks([])
            axes.set_yticks([])
    all_axes[0, 0].legend(fontsize=7, markerscale=2)
    return drawing


def _draw_samples(cells: Sequence[tuple[Place, Result]]) -> "Drawing | None":
    """Normal and anomalous test pictures with their scores, as many as there is room for."""
    rows = [
        (place, result, pictures)
        for place, result in _find_maps(cells)
        if (pictures := _load_pictures(result)) is not None
    ]
    if not rows:
        return None
    drawing, all_axes = _new_figure(len(rows), 2 * N_SAMPLES, width=0.75, height=1.0)
    for axes_row, (place, result, pictures) in zip(all_axes, rows, strict=True):
        truth = np.array(result.curves["map truth"]) > 0
        scores = np.array(result.curves["map score"])
        chosen = np.concatenate([_pick_evenly(np.flatnonzero(truth == kind)) for kind in (False, True)])
        for axes in axes_row:
            axes.set_axis_off()
        for axes, number in zip(axes_row, chosen, strict=False):
            axes.imshow(pictures[number], cmap="gray" if pictures.ndim == 3 else None)
            axes.set_title(f"{scores[number]:.1f}", fontsize=7, color=ANOMALY if truth[number] else NORMAL)
        axes_row[0].text(
            -0.3,
            0.5,
            f"{place.variant}\n{place.data}",
            transform=axes_row[0].transAxes,
            ha="right",
            va="center",
            fontsize=6,
        )
    return drawing


def _pick_evenly(rows: Any) -> Any:
    """Pick rows evenly spread over all of them, since neighbouring rows may belong to one patient."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, N_SAMPLES).astype(int))] if len(rows) else rows


def _load_pictures(result: Result) -> Any:
    """The test pictures of a map, if the data set holds pictures and is here."""
    try:
        rows = draw_rows(Cell(**result.description))
    except EsadError:
        return None
    chosen = np.array(result.curves["map row"]).astype(int)
    return rows.X_test[chosen] if rows.X_test.ndim > 2 else None
