"""`esad explain`: why the worst rows are the worst."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import options, output
from esad.cli.command import command
from esad.cli.options import option
from esad.errors import DataFileError, InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.detectors.scored_file import Worst
    from esad.detectors.training import TrainingData
    from esad.explain.reasons import HeatMaps, Reasons

__all__ = ["explain", "read_cases"]

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
    from esad.detectors.opening import open_source
    from esad.detectors.scored_file import Worst, score_blocks

    detector = load(model)
    if out is not None and detector.inputs_.kind == "table":
        output.check_out(out, [model, data, *([cases] if cases else [])], _SUFFIXES, "reasons")
    elif out is not None:
        check_new_folder(out)
    source = open_source(data, detector, id_column=id_column, reading=reading, on_remark=output.remark)
    known = read_cases(cases, detector, **labels)
    worst = Worst(top)
    with output.stages(rows=True) as on_progress:
        for block, _, scores in score_blocks(detector, source, on_progress):
            worst.add(block, scores)
    found = detector.explain(worst.X, cases=None if known is None else (known.X, known.labels))
    names = None if known is None else known.ids
    rows = _describe(worst, found, names, source.id_name or "row", detector.threshold_)
    if out is not None:
        _write(out, rows, worst, found, source.id_name or "row")
    if as_json:
        output.json_out({"threshold": detector.threshold_, "out": None if out is None else str(out), "rows": rows})
    else:
        _show(rows, found, names, columns)
        _end(detector, known, out, [str(model), str(data)])


def read_cases(path: Path | None, detector: "Detector", **roles: Any) -> "TrainingData | None":
    """Labelled rows or pictures to hold alarms against, read as `esad fit` would have; None for the model's own."""
    from esad.detectors.training import TrainingData

    if path is None:
        if any(option is not None for option in roles.values()):
            raise InputError("--label-column, --anomaly-value, --normal-value and --labels-csv are about --cases FILE.")
        return None
    is_table = detector.inputs_.kind == "table"
    if path.is_dir() == is_table and path.exists():
        wanted = "a table, and --cases a folder" if is_table else "pictures, and --cases a file"
        raise DataFileError(f"The model was trained on {wanted}: {str(path)!r}. Give labelled data of the same kind.")
    if is_table and roles["label_column"] is None:
        roles["label_column"] = detector.notes_.get("label_column")
        if roles["label_column"] is None:
            raise InputError(f"Which column of {str(path)!r} holds the labels? Give --label-column NAME.")
    found = TrainingData.for_model(path, detector, on_remark=output.remark, **roles)
    if not found.labels.any():
        output.warn(f"{str(path)!r} holds no label: there are no cases to hold the alarms against.")
    return found


def _describe(
    worst: "Worst", found: "Reasons | HeatMaps", names: Any, id_name: str, threshold: float
) -> list[dict[str, Any]]:
    """The rows as plain values."""
    rows = []
    for number, (name, score) in enumerate(zip(worst.ids, worst.scores.tolist(), strict=True)):
        reasons = found.to_json(number)
        if names is not None and found.cases:
            for case, plain in zip(found.cases[number], reasons["cases"], strict=True):
                plain["id"] = names[case.row]
        rows.append({id_name: name, "score": score, "anomaly": score > threshold} | reasons)
    return rows


def _write(out: Path, rows: list[dict[str, Any]], worst: "Worst", found: "Reasons | HeatMaps", id_name: str) -> None:
    from esad.core.atomic import new_folder, write_json
    from esad.explain.reasons import HeatMaps
    from esad.io.scores import write_arrow

    if isinstance(found, HeatMaps):
        from esad.explain.drawing import draw, to_png

        with new_folder(out) as beside:
            for number, name in enumerate(worst.ids):
                flat = f"{number + 1:03d}-{str(name).replace('/', '-')}"
                (beside / flat).with_suffix(".png").write_bytes(to_png(draw(found, number)))
    elif out.suffix == ".json":
        write_json(out, rows)
    else:
        write_arrow(out, found.to_frame(worst.ids, id_name=id_name))


def _show(rows: list[dict[str, Any]], found: "Reasons | HeatMaps", names: Any, n_columns: int) -> None:
    from esad.explain.reasons import Reasons

    for number, row in enumerate(rows):
        id_name = next(iter(row))
        name = "" if row[id_name] is None else row[id_name]
        verdict = "an alarm" if row["anomaly"] else "no alarm"
        title = f"{id_name} {name}: score {row['score']:.6g}, {verdict}"
        if isinstance(found, Reasons):
            heads = ["column", "share", "observed", "expected"]
            output.show_table(title, heads, found.lines(number, n_columns), right=["share"])
        else:
            hottest = row["hottest"]
            output.say(title, style="bold")
            output.say(
                f"hottest at x {hottest['x']}, y {hottest['y']}; half as hot or more: "
                f"{output.percent(hottest['share_of_pixels'])} of the picture"
            )
        if found.cases:
            output.say(f"nearest labelled: {', '.join(case.describe(names) for case in found.cases[number])}")
        output.say()


def _end(detector: "Detector", known: "TrainingData | None", out: Path | None, arguments: list[str]) -> None:
    """Where the file is, and how to see what is missing."""
    if known is None and not len(getattr(detector, "cases_", ())) and detector.label_counts_.n_anomaly:
        typed = shlex.join(["esad", "explain", *arguments, "--cases"])
        output.say(f"The model keeps no labelled cases. To see the nearest: {typed} TRAINING_DATA")
    if out is not None:
        output.say(f"Reasons: {out}")
