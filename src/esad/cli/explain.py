"""`esad explain`: why the worst rows are the worst."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common, options, saving
from esad.cli.cases import KnownCases, read_cases
from esad.cli.source import load_model, open_source
from esad.cli.training import Reading
from esad.cli.worst import Worst, worst_rows
from esad.errors import OutputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.explain.reasons import HeatMaps, Reasons

__all__ = ["EXAMPLE", "explain"]

EXAMPLE = common.example(
    "esad explain payments.esad new.csv --top 5",
    "esad explain payments.esad new.csv --cases payments.csv --out reasons.csv",
    "esad explain pictures.esad new/ --out heat-maps",
)
_SUFFIXES = (".csv", ".parquet", ".json")


def explain(
    model: options.Model,
    data: options.Data,
    top: Annotated[int, typer.Option("--top", "-n", min=1, metavar="N", help="Explain the N worst rows.")] = 5,
    columns: Annotated[
        int, typer.Option("--columns", min=1, metavar="N", help="Show the N columns with the largest shares.")
    ] = 5,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="REASONS",
            help="Write all columns to a .csv, .parquet or .json file; for pictures, heat maps to a new folder.",
        ),
    ] = None,
    id_column: options.IdColumn = None,
    cases: options.CasesFile = None,
    label_column: options.LabelColumn = None,
    anomaly_value: options.AnomalyValue = None,
    normal_value: options.NormalValue = None,
    labels_csv: options.LabelsCsv = None,
    as_json: options.Json = False,
) -> None:
    """Say why rows are anomalous: which columns or pixels, what was expected there, which known case is near.

    Each column's share is what it adds to the score; docs/explain.md says how it is found. Options about labels are
    about --cases.
    """
    detector = load_model(model)
    is_table = detector.inputs_.kind == "table"
    if out is not None:
        _check_out(out, [model, data, *([cases] if cases else [])], is_table=is_table)
    source = open_source(data, detector, id_column=id_column)
    reading = Reading(
        label_column=label_column, anomaly_value=anomaly_value, normal_value=normal_value, labels_csv=labels_csv
    )
    known = read_cases(cases, detector, reading)
    worst = worst_rows(detector, source, top)
    found = detector.explain(worst.X, cases=known.given)
    rows = _described(worst, found, known, source.id_name or "row", detector.threshold_)
    if out is not None:
        _write(out, rows, worst, found, source.id_name or "row")
    if as_json:
        common.json_out({"threshold": detector.threshold_, "out": None if out is None else str(out), "rows": rows})
    else:
        _show(rows, worst, found, known, columns)
        _end(detector, known, out, [str(model), str(data)])


def _check_out(out: Path, inputs: list[Path], *, is_table: bool) -> None:
    """Find out before the work whether the result can be written."""
    from esad.core.atomic import check_writable

    if not is_table:
        saving.check_new_folder(out)
        return
    if out.suffix not in _SUFFIXES:
        raise OutputError(f"Cannot write reasons to {str(out)!r}: its name must end in {', '.join(_SUFFIXES)}.")
    common.refuse_same_file(out, inputs)
    check_writable(out)


def _described(
    worst: Worst, found: "Reasons | HeatMaps", known: KnownCases, id_name: str, threshold: float
) -> list[dict[str, Any]]:
    """The rows as plain values."""
    rows = []
    for number, (name, score) in enumerate(zip(worst.ids, worst.scores.tolist(), strict=True)):
        reasons = found.to_json(number)
        named = {"id": known.called} if known.names is not None else {}
        for case, plain in zip(found.cases[number] if found.cases else (), reasons["cases"], strict=True):
            plain.update({key: call(case) for key, call in named.items()})
        rows.append({id_name: name, "score": score, "anomaly": score > threshold} | reasons)
    return rows


def _write(out: Path, rows: list[dict[str, Any]], worst: Worst, found: "Reasons | HeatMaps", id_name: str) -> None:
    from esad.explain.reasons import HeatMaps

    if isinstance(found, HeatMaps):
        from esad.explain.drawing import draw, to_png

        with saving.new_folder(out) as beside:
            for number, name in enumerate(worst.ids):
                flat = f"{number + 1:03d}-{str(name).replace('/', '-')}"
                (beside / flat).with_suffix(".png").write_bytes(to_png(draw(found, number)))
    elif out.suffix == ".json":
        saving.write_json(out, rows)
    else:
        saving.write_arrow(out, found.to_frame(worst.ids, id_name=id_name))


def _show(
    rows: list[dict[str, Any]], worst: Worst, found: "Reasons | HeatMaps", known: KnownCases, n_columns: int
) -> None:
    from esad.explain.reasons import Reasons

    for number, row in enumerate(rows):
        id_name = next(iter(row))
        name = "" if row[id_name] is None else row[id_name]
        verdict = "an alarm" if row["anomaly"] else "no alarm"
        title = f"{id_name} {name}: score {row['score']:.6g}, {verdict}"
        if isinstance(found, Reasons):
            _show_columns(title, found, number, n_columns)
        else:
            hottest = row["hottest"]
            common.say(title, style="bold")
            common.say(
                f"hottest at x {hottest['x']}, y {hottest['y']}; half as hot or more: "
                f"{common.percent(hottest['share_of_pixels'])} of the picture"
            )
        if found.cases:
            common.say(f"nearest labelled: {', '.join(known.text(case) for case in found.cases[number])}")
        common.say()


def _show_columns(title: str, found: "Reasons", row: int, n_columns: int) -> None:
    from esad.explain.reasons import cell_text

    total, order = found.total[row], found.order(row)
    cells = [
        (
            found.columns[index],
            f"{total[index]:+.3g}",
            cell_text(found.observed[row, index]),
            cell_text(found.expected[row, index]),
        )
        for index in order[:n_columns]
    ]
    if len(order) > n_columns:
        rest = order[n_columns:]
        cells.append((f"({common.counted(len(rest), 'other column')})", f"{total[rest].sum():+.3g}", "", ""))
    base = sum(float(base[row]) for base in found.base.values())
    cells.append(("(without any column)", f"{base:+.3g}", "", ""))
    common.show_table(title, ["column", "share", "observed", "expected"], cells, right=["share"])


def _end(detector: "Detector", known: KnownCases, out: Path | None, arguments: list[str]) -> None:
    """Where the file is, and how to see what is missing."""
    if known.given is None and not len(getattr(detector, "cases_", ())) and detector.label_counts_.n_anomaly:
        command = shlex.join(["esad", "explain", *arguments, "--cases"])
        common.say(f"The model keeps no labelled cases. To see the nearest: {command} TRAINING_DATA")
    if out is not None:
        common.say(f"Reasons: {out}")
