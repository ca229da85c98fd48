"""The report as one HTML file: its sections, each from what was found to a piece of the page."""

import math
from collections.abc import Iterator
from pathlib import Path

from esad import __version__
from esad.core.atomic import write_text
from esad.core.markup import Element, break_at_underscores, new, render, table
from esad.core.text import count_text, percent
from esad.errors import InputError
from esad.explain.reasons import HeatMaps, Reasons, cell_text
from esad.report.explained import ExplainedFile
from esad.report.figures import SvgAxes
from esad.report.findings import Findings
from esad.report.style import CSS
from esad.score.bootstrap import precision_recall, roc
from esad.score.displays import (
    CalibrationDisplay,
    LossDisplay,
    PrecisionRecallDisplay,
    RocCurveDisplay,
    ScoreDistributionDisplay,
)

N_COLUMNS = 5  # of each alarm's reasons
MAX_TEXT = 160  # characters of a cell that are seen at once
MAX_COLUMNS = 60
MAX_SHIFTS = 15


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
    parts = list(_make_sections(found))
    links = (new("li", new("a", heading, href=f"#{name}")) for name, heading, _ in parts)
    made = f"esad {__version__} · {type(found.detector).__name__}"
    return render(
        title,
        CSS,
        new("header", new("h1", title), new("p", made, class_="soft"), new("nav", new("ul", *links))),
        new(
            "main",
            _draw_tiles(found),
            *(new("section", new("h2", heading), *body, id=name) for name, heading, body in parts),
        ),
    )


def save_page(found: Findings, out: Path) -> None:
    """Write the page to a file, whole or not at all."""
    write_text(out, write_page(found))


def _make_sections(found: Findings) -> Iterator[tuple[str, str, list[Element]]]:
    yield "scores", "Scores", _describe_distribution(found)
    yield "truth", "Against the truth", _describe_truth(found)
    if found.kinds:
        yield "kinds", "Kinds of anomalies", _describe_kinds(found)
    yield "alarms", "The worst, with reasons", _describe_alarms(found)
    yield "calibration", "Calibration", _describe_calibration(found)
    yield "drift", "Like the training data?", _describe_drift(found)
    yield "training", "Training", _describe_training(found)
    yield "data", "Data", _describe_data(found)
    yield "about", "What the model is, and is not", _describe_about(found)


def _describe_alarms(found: Findings) -> list[Element]:
    explained = found.explained
    if explained is None:
        return [new("p", "No rows were explained.")]
    words = "A share is what a column adds to the score; expected is what the model makes of the other columns."
    if isinstance(explained.reasons, HeatMaps):
        words = "As given, as the model expects it, and where the score comes from."
        if not explained.reasons.is_rebuilt:
            words = "As given, and where the score comes from."
    worst = range(len(explained.worst.ids))
    return [new("p", words, class_="soft"), *(_describe_alarm(found, explained, number) for number in worst)]


def _describe_alarm(found: Findings, explained: ExplainedFile, number: int) -> Element:
    row, reasons, name = int(explained.worst.rows[number]), explained.reasons, explained.name(number)
    badges = [_draw_badge(found.flagged[row], "alarm", "no alarm")]
    if found.truth is not None:
        badges.append(_draw_badge(found.truth[row], "truth: anomaly", "truth: normal"))
    score = f"score {found.scores[row]:.4g}"
    score += "" if found.p_values is None else f", p-value {found.p_values[row]:.2g}"
    head = new("header", new("h3", name), new("span", score, " ", *badges))
    if isinstance(reasons, HeatMaps):
        body = _draw_heat_map(reasons, number, name)
    else:
        body = _describe_columns(reasons, number)
    cases = explained.nearest_cases(number)
    near = new("p", f"Nearest labelled: {'; '.join(cases)}.", class_="soft") if cases else None
    return new("article", head, body, near, class_="alarm")


def _draw_badge(is_hit: bool, hit: str, other: str) -> Element:
    return new("span", hit if is_hit else other, class_=f"badge {'hit' if is_hit else 'pass'}")


def _describe_columns(reasons: Reasons, row: int) -> Element:
    total, order = reasons.total[row], reasons.order(row)
    largest = float(abs(total).max()) or 1.0
    decimals = max(0, 2 - math.floor(math.log10(largest)))  # of all shares: three digits of the largest

    def write(share: float) -> str:
        text = f"{share:+.{decimals}f}" if decimals <= 8 else f"{share:+.2e}"
        return "0" if float(text) == 0 else text.replace("-", "\N{MINUS SIGN}")

    rows: list[list[Element | str]] = []
    for index in order[:N_COLUMNS]:
        share = float(total[index])
        width = f"width: {100 * abs(share) / largest:.1f}%"
        bar = new("span", "", class_="bar" if share >= 0 else "bar against", style=width)
        observed, expected = reasons.observed[row, index], reasons.expected[row, index]
        cells = _fold_text(cell_text(observed, n_digits=10)), _fold_text(cell_text(expected, n_digits=4))
        rows.append([break_at_underscores(reasons.columns[index]), bar, write(share), *cells])
    rest = order[N_COLUMNS:]
    base = sum(float(values[row]) for values in reasons.base.values())
    if rest:
        rows.append([count_text(len(rest), "other column"), "", write(float(total[rest].sum())), "", ""])
    rows.append(["baseline", "", write(base), "", ""])
    drawn = table(["column", "", "share", "observed", "expected"], rows, numbers=("share",))
    for line in drawn.iter("tr"):
        _, share_cell, _, *values = line
        share_cell.set("class", "share")
        for value in values:
            value.set("class", "value")
    return drawn


def _fold_text(text: str) -> Element | str:
    """The text of a cell: the beginning of a very long one, the rest on demand."""
    if len(text) <= 1.2 * MAX_TEXT:
        return break_at_underscores(text)
    more = new("span", f"{len(text) - MAX_TEXT:,} more characters", class_="soft")
    return new("details", new("summary", f"{text[:MAX_TEXT]} \N{HORIZONTAL ELLIPSIS} ", more), text[MAX_TEXT:])


def _draw_heat_map(maps: HeatMaps, row: int, name: str) -> Element:
    from esad.explain.displays import draw, to_data_uri

    expected = "as expected, " if maps.is_rebuilt else ""
    return new("img", src=to_data_uri(draw(maps, row)), alt=f"{name}: as given, {expected}heat map")


def _draw_tiles(found: Findings) -> Element:
    """The most important figures."""
    n_rows, n_flagged = len(found.scores), int(found.flagged.sum())
    noun = "rows" if found.detector.inputs_.kind == "table" else "pictures"
    entries = [(f"{n_rows:,}", f"{noun} scored"), (f"{n_flagged:,}", f"alarms ({_percent(n_flagged / n_rows)})")]
    if found.evaluation is not None:
        result = found.evaluation
        for name, title in (("auc", "AUC"), ("average_precision", "average precision")):
            low, high = result.intervals[name]
            entries.append(
                (f"{getattr(result, name):.3f}", f"{title}, {_percent(result.level)} {low:.3f} to {high:.3f}")
            )
        assert result.confusion is not None
        entries.append((_percent(result.confusion.recall), "of the anomalies found"))
        entries.append((_percent(result.confusion.precision), "of the alarms are anomalies"))
    else:
        entries.append((f"{found.detector.threshold_:.4g}", "threshold"))
    return new(
        "div", *(new("div", new("b", big), new("span", small), class_="tile") for big, small in entries), class_="tiles"
    )


def _describe_distribution(found: Findings) -> list[Element]:
    """A histogram of the scores with the threshold."""
    axes = SvgAxes("Histogram of the anomaly scores with the threshold")
    display = ScoreDistributionDisplay(found.scores, found.detector.threshold_, found.truth).plot(axes)
    caption = (
        "Rows right of the line raise an alarm. The vertical axis grows with the square root, so that few rows can be "
        "seen beside many."
    )
    if n := display.n_beyond:
        caption += f" {count_text(n, 'higher score')} {'stands' if n == 1 else 'stand'} in the last bar."
    return [axes.to_element(caption)]


def _describe_truth(found: Findings) -> list[Element]:
    """ROC, precision-recall and the alarms at the threshold."""
    if found.evaluation is None or found.truth is None:
        words = "The truth of these rows is not known here, so nothing says how good the alarms are. With a column of "
        how = "esad report MODEL DATA --truth-column NAME --out report.html"
        return [new("p", words, "truth this section shows it:"), new("pre", new("code", how))]
    result = found.evaluation
    drawn = []
    for curve, display in ((roc, RocCurveDisplay), (precision_recall, PrecisionRecallDisplay)):
        key, words = display.figure_name
        low, high = result.intervals[key]
        caption = f"{words[0].upper()}{words[1:]} {getattr(result, key):.3f}, "
        caption += f"between {low:.3f} and {high:.3f} with {_percent(result.level)} confidence."
        axes = SvgAxes(caption, height=360)
        display(curve(found.scores, found.truth), result).plot(axes)
        drawn.append(axes.to_element(caption))
    alarms = result.confusion
    assert alarms is not None
    rows: list[list[Element | str]] = [
        ["anomaly", f"{alarms.true_alarms:,}", f"{alarms.missed:,}"],
        ["normal", f"{alarms.false_alarms:,}", f"{alarms.passed:,}"],
    ]
    counts = table(["truth", "alarm", "no alarm"], rows, numbers=("alarm", "no alarm"))
    shares = f"False alarms: {_percent(alarms.false_alarm_rate)} of the normal rows. "
    n_anomaly = f"{result.n_anomaly:,} of {result.n_rows:,} rows are anomalies."
    return [new("div", *drawn, class_="pair"), counts, new("p", shares, n_anomaly, class_="soft")]


def _describe_kinds(found: Findings) -> list[Element]:
    """Kinds of anomalies, those that training had labels of against those it had not."""
    words = {True: "yes", False: "no", None: "not known"}
    rows: list[list[Element | str]] = []
    for kind in found.kinds:
        low, high = kind.found.intervals["auc"]
        rows.append(
            [
                kind.name,
                words[kind.seen],
                f"{kind.n_rows:,}",
                f"{kind.n_flagged:,} ({_percent(kind.n_flagged / kind.n_rows)})",
                f"{kind.found.auc:.3f} ({low:.3f} to {high:.3f})",
            ]
        )
    heads = ["kind", "labelled in training", "rows", "found", f"AUC ({_percent(0.95)})"]
    parts = [table(heads, rows, numbers=tuple(heads[2:]))]
    for seen, title in ((True, "Kinds with labels in training"), (False, "Kinds without")):
        mine = [kind for kind in found.kinds if kind.seen is seen]
        if mine:
            n_rows, n_flagged = (sum(getattr(kind, name) for kind in mine) for name in ("n_rows", "n_flagged"))
            parts.append(new("p", f"{title}: {n_flagged:,} of {n_rows:,} found ({_percent(n_flagged / n_rows)})."))
    return parts


def _describe_calibration(found: Findings) -> list[Element]:
    """P-values against what they promise, or how to get some."""
    if found.p_values is None:
        words = (
            "This model is not calibrated: its threshold comes with no promise about false alarms. Normal rows that it "
            "was not trained on give it p-values and a false-alarm rate:"
        )
        how = "esad calibrate MODEL NORMAL_DATA --alpha 0.01 --out calibrated.esad"
        return [new("p", words), new("pre", new("code", how))]
    known = found.truth is not None
    chosen = found.p_values if found.truth is None else found.p_values[~found.truth]
    axes = SvgAxes("Share of rows with at most a given p-value", height=360)
    display = CalibrationDisplay(chosen, known).plot(axes)
    caption = f"Calibrated on {found.detector.calibration_}. "
    caption += (
        "On or below the dashed line the p-values keep their promise; the band is what chance allows."
        if known
        else "These rows may hold anomalies, which lift the left end above the dashed line."
    )
    small = [level for level in (0.001, 0.01, 0.05, 0.1) if level * len(chosen) >= 1]
    lines: list[list[Element | str]] = [
        [f"{level:g}", f"{display.share_at(level):.4f}", f"{int((chosen <= level).sum()):,}"] for level in small
    ]
    counts = table(["p-value at most", "share", "rows"], lines, numbers=("share", "rows"))
    return [new("div", axes.to_element(caption), new("div", counts), class_="pair")]


def _describe_drift(found: Findings) -> list[Element]:
    """Whether the rows look like those of training."""
    if found.drift is None:
        return [new("p", "The model file is older than the summary of training rows that this needs. Fit it again.")]
    result = found.drift
    tests = f"{len(result.shifts):,} comparisons, together at a level of {_percent(result.level)}"
    if not result.shifts:
        return [new("p", "There are too few rows to tell.")]
    if not result.drifted:
        return [new("p", f"No difference from the training rows was found ({tests}).")]
    rows: list[list[Element | str]] = [
        [
            break_at_underscores(shift.column or "(the scores)"),
            shift.what,
            shift.test,
            f"{shift.distance:.2f}",
            f"{shift.p_value:.1g}",
        ]
        for shift in result.found[:MAX_SHIFTS]
    ]
    heads = ["column", "what", "test", "distance", "p-value"]
    n_more = len(result.found) - len(rows)
    words = f"{len(result.found):,} differ from the training rows ({tests})."
    words += f" Here are the {len(rows):,} farthest." if n_more else ""
    words += " Scores of rows unlike those of training say less."
    return [new("p", words), table(heads, rows, numbers=("distance", "p-value"))]


def _describe_training(found: Findings) -> list[Element]:
    """Losses over the training."""
    axes = SvgAxes("Terms of the loss over the training")
    try:
        LossDisplay.from_estimator(found.detector, ax=axes)
    except InputError:
        return [new("p", "There are no curves: this method is not one network that is trained step by step.")]
    return [axes.to_element("Each term of the loss, weighted as it is trained on; mean over the members.")]


def _describe_data(found: Findings) -> list[Element]:
    """Columns and labels."""
    counts = found.detector.label_counts_
    labels = (
        f"Trained on {counts.n_anomaly:,} labelled anomalies, {counts.n_normal:,} rows known to be normal and "
        f"{counts.n_unlabelled:,} unlabelled ones."
    )
    schema = found.detector.inputs_.schema
    if schema is None:
        channels, height, width = found.detector.inputs_.shape
        colour = "grey" if channels == 1 else "colour"
        return [new("p", labels), new("p", f"Pictures of {width} x {height} pixels, {colour}.")]
    rows: list[list[Element | str]] = [
        [
            break_at_underscores(column.name),
            column.kind,
            "" if column.n_distinct is None else f"{column.n_distinct:,}",
            _percent(column.n_missing / schema.n_rows) if column.n_missing else "-",
            _percent(found.n_missing[column.name] / len(found.scores)) if found.n_missing.get(column.name) else "-",
        ]
        for column in schema.columns[:MAX_COLUMNS]
    ]
    heads = ["column", "kind", "distinct", "missing in training", "missing here"]
    parts = [new("p", labels), table(heads, rows, numbers=tuple(heads[2:]))]
    if len(schema.columns) > MAX_COLUMNS:
        parts.append(new("p", f"... and {len(schema.columns) - MAX_COLUMNS:,} more columns.", class_="soft"))
    return parts


def _describe_about(found: Findings) -> list[Element]:
    """Describe the model and its limits."""
    detector = found.detector
    parameters = detector.plain_parameters()
    default = type(detector)().plain_parameters()
    changed = ", ".join(f"{name}={value!r}" for name, value in parameters.items() if value != default.get(name))
    facts: list[list[Element | str]] = [
        ["method", f"{type(detector).__name__}: {detector.summary}"],
        ["parameters", changed or "all at their defaults"],
        ["threshold", f"{detector.threshold_:.6g}: rows with a higher score are alarms"],
        ["training data", f"fingerprint {detector.fingerprint_}"],
    ]
    if detector.forecast_ is not None:
        facts[3:3] = [["how it was set", str(detector.applied_)], ["expected", str(detector.forecast_)]]
    if found.n_bytes is not None:
        facts.append(["model file", f"{found.model_name}, {found.n_bytes:,} bytes"])
    limits = (
        "A score says how unlike the training rows a row is. It is no probability, and no proof of a cause.",
        "A reason says what made this score, in this model. Columns that say the same share the blame.",
        "Figures hold for rows like these. Where the data drifts, measure again.",
        "Rows that training has seen look better than new ones. Figures on training rows flatter.",
        "What is rare is not always wrong, and what is wrong is not always rare: look before you act.",
    )
    return [table(["", ""], facts), new("ul", *(new("li", text) for text in limits))]


def _percent(share: float) -> str:
    """Format a share without a line break in it, and as 95 rather than 95.0."""
    return percent(share).replace(".0", "").replace(" ", "\N{NO-BREAK SPACE}")
