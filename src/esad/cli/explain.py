"""`esad explain`: why the worst rows are the worst."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import options, output
from esad.cli.options import command, option
from esad.core.atomic import check_out
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.detectors.training import TrainingData
    from esad.report.explained import ExplainedFile

_SUFFIXES = (".csv", ".parquet", ".json")


@command(
    "esad explain payments.esad new.csv --top 5",
    "esad explain payments.esad new.csv --cases payments.csv --out reasons.csv",
    "esad explain pictures.esad new/ --out heat-maps",
)
def explain(
    model: options.Model,
    data: options.Data,
    top: int = option(5, "--top -n N", "Explain the N worst rows.", min=1),
    columns: int = option(5, "--columns N", "Show the N columns with the largest shares.", min=1),
    out: Path | None = option(
        None,
        "--out -o REASONS",
        "Write all columns to a .csv, .parquet or .json file; for pictures, heat maps to a new folder.",
    ),
    id_column: options.IdColumn = None,
    cases: options.CasesFile = None,
    *,
    labels: options.LabelOptions,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Say why rows are anomalous: which columns or pixels, what was expected there, which known case is near.

    Each column's share is what it adds to the score; docs/explain.md says how it is found. Options about labels are
    about --cases.
    """
    from esad.core.atomic import check_new_folder
    from esad.detectors.model_file import load
    from esad.report.explained import explain_file

    detector = load(model)
    if out is not None and detector.inputs_.kind == "table":
        check_out(out, [model, data, *([cases] if cases else [])], _SUFFIXES, "reasons")
    elif out is not None:
        check_new_folder(out)
    known = read_cases(cases, detector, **labels)
    with output.stages(rows=True) as on_progress:
        found = explain_file(
            detector,
            data,
            top=top,
            id_column=id_column,
            cases=known,
            reading=reading,
            on_progress=on_progress,
            on_remark=output.remark,
        )
    if out is not None:
        found.write(out)
    rows = found.to_json()
    document = {"threshold": detector.threshold_, "out": None if out is None else str(out), "rows": rows}
    output.answer(as_json, document, lambda: _show(found, rows, columns))
    if not as_json:
        _show_way_on(detector, known, out, [str(model), str(data)])


def read_cases(path: Path | None, detector: "Detector", **roles: Any) -> "TrainingData | None":
    """Read labelled rows or pictures to compare alarms with, as `esad fit` reads them; None for the model's own."""
    from esad.detectors.training import TrainingData

    if path is None:
        if any(option is not None for option in roles.values()):
            raise InputError("--label-column, --anomaly-value, --normal-value and --labels-csv are about --cases FILE.")
        return None
    if detector.inputs_.kind == "table" and roles["label_column"] is None:
        roles["label_column"] = detector.notes_.get("label_column")
        if roles["label_column"] is None:
            raise InputError(f"Which column of {str(path)!r} holds the labels? Give --label-column NAME.")
    found = TrainingData.for_model(path, detector, on_remark=output.remark, **roles)
    if not found.labels.any():
        output.warn(f"{str(path)!r} holds no label: there are no cases to hold the alarms against.")
    return found


def _show(found: "ExplainedFile", rows: list[dict[str, Any]], n_columns: int) -> None:
    from esad.explain.reasons import Reasons

    reasons = found.reasons
    for number, row in enumerate(rows):
        title = f"{found.name(number)}: score {row['score']:.6g}, {'an alarm' if row['anomaly'] else 'no alarm'}"
        if isinstance(reasons, Reasons):
            heads = ["column", "share", "observed", "expected"]
            output.show_table(title, heads, reasons.lines(number, n_columns), right=["share"])
        else:
            hottest = row["hottest"]
            output.say(title, style="bold")
            output.say(
                f"hottest at x {hottest['x']}, y {hottest['y']}; half as hot or more: "
                f"{output.percent(hottest['share_of_pixels'])} of the picture"
            )
        if near := found.nearest_cases(number):
            output.say(f"nearest labelled: {', '.join(near)}")
        output.say()


def _show_way_on(detector: "Detector", known: "TrainingData | None", out: Path | None, arguments: list[str]) -> None:
    """Say where the reasons were written and, if the model keeps no labelled cases, how to give them."""
    if known is None and not len(getattr(detector, "cases_", ())) and detector.label_counts_.n_anomaly:
        typed = shlex.join(["esad", "explain", *arguments, "--cases"])
        output.say(f"The model keeps no labelled cases. To see the nearest: {typed} TRAINING_DATA")
    if out is not None:
        output.say(f"Reasons: {out}")
