"""The report as one HTML file."""

import base64
from collections.abc import Iterator

from esad import __version__
from esad.core.text import counted
from esad.explain.reasons import HeatMaps, Reasons, cell_text
from esad.report import sections
from esad.report.findings import Alarm, Findings
from esad.report.markup import Element, breakable, new, render, table
from esad.report.style import CSS

__all__ = ["write_page"]

N_COLUMNS = 5  # of each alarm's reasons


def write_page(found: Findings) -> str:
    """The whole page as text.

    Examples
    --------
    >>> import numpy as np
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> forest = IsolationForest(random_state=0).fit(X)
    >>> page = write_page(Findings(detector=forest, model_name="m", data_name="<b>", scores=forest.anomaly_score(X)))
    >>> page.startswith("<!DOCTYPE html>"), "<b>" in page.partition("<body>")[2].partition("tile")[0]
    (True, False)
    """
    title = f"{found.data_name}, scored by {found.model_name}"
    parts = list(_sections(found))
    links = (new("li", new("a", heading, href=f"#{name}")) for name, heading, _ in parts)
    made = f"esad {__version__} · {type(found.detector).__name__}"
    return render(
        title,
        CSS,
        new("header", new("h1", title), new("p", made, class_="soft"), new("nav", new("ul", *links))),
        new(
            "main",
            sections.tiles(found),
            *(new("section", new("h2", heading), *body, id=name) for name, heading, body in parts),
        ),
    )


def _sections(found: Findings) -> Iterator[tuple[str, str, list[Element]]]:
    yield "scores", "Scores", sections.distribution(found)
    yield "truth", "Against the truth", sections.truth(found)
    if found.kinds:
        yield "kinds", "Kinds of anomalies", sections.kinds(found)
    yield "alarms", "The worst, with reasons", _alarms(found)
    yield "calibration", "Calibration", sections.calibration(found)
    yield "drift", "Like the training data?", sections.drift(found)
    yield "training", "Training", sections.training(found)
    yield "data", "Data", sections.data(found)
    yield "about", "What the model is, and is not", sections.about(found)


def _alarms(found: Findings) -> list[Element]:
    if found.reasons is None:
        return [new("p", "No rows were explained.")]
    words = "A share is what a column adds to the score; expected is what the model makes of the other columns."
    if isinstance(found.reasons, HeatMaps):
        words = "As given, as the model expects it, and where the score comes from."
    return [new("p", words, class_="soft"), *(_alarm(found, row, one) for row, one in enumerate(found.alarms))]


def _alarm(found: Findings, row: int, alarm: Alarm) -> Element:
    badges = [
        new("span", "alarm" if alarm.is_alarm else "no alarm", class_=f"badge {'hit' if alarm.is_alarm else 'pass'}")
    ]
    if alarm.is_anomaly is not None:
        kind = "anomaly" if alarm.is_anomaly else "normal"
        badges.append(new("span", f"truth: {kind}", class_=f"badge {'hit' if alarm.is_anomaly else 'pass'}"))
    score = f"score {alarm.score:.4g}" + ("" if alarm.p_value is None else f", p-value {alarm.p_value:.2g}")
    head = new("header", new("h3", alarm.name), new("span", score, " ", *badges))
    reasons = found.reasons
    body = _heat_map(reasons, row, alarm) if isinstance(reasons, HeatMaps) else _columns(reasons, row)  # type: ignore[arg-type]
    near = new("p", f"Nearest labelled: {'; '.join(alarm.cases)}.", class_="soft") if alarm.cases else None
    return new("article", head, body, near, class_="alarm")


def _columns(reasons: Reasons, row: int) -> Element:
    total, order = reasons.total[row], reasons.order(row)
    largest = float(abs(total).max()) or 1.0
    rows: list[list[Element | str]] = []
    for index in order[:N_COLUMNS]:
        share = float(total[index])
        width = f"width: {100 * abs(share) / largest:.1f}%"
        bar = new("span", "", class_="bar" if share >= 0 else "bar against", style=width)
        observed, expected = reasons.observed[row, index], reasons.expected[row, index]
        cells = cell_text(observed), cell_text(expected, n_digits=4)
        rows.append([breakable(reasons.columns[index]), bar, f"{share:+.3g}", *cells])
    rest = order[N_COLUMNS:]
    base = sum(float(values[row]) for values in reasons.base.values())
    if rest:
        rows.append([f"({counted(len(rest), 'other')})", "", f"{float(total[rest].sum()):+.3g}", "", ""])
    rows.append(["(without any column)", "", f"{base:+.3g}", "", ""])
    drawn = table(["column", "", "share", "observed", "expected"], rows, numbers=("share",))
    for line in drawn.iter("tr"):
        _, share_cell, _, *values = line
        share_cell.set("class", "share")
        for value in values:
            value.set("class", "value")
    return drawn


def _heat_map(maps: HeatMaps, row: int, alarm: Alarm) -> Element:
    from esad.explain.drawing import draw, to_png

    encoded = base64.b64encode(to_png(draw(maps, row))).decode()
    return new("img", src=f"data:image/png;base64,{encoded}", alt=f"{alarm.name}: as given, as expected, heat map")
