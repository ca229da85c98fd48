"""`esad labels`: which rows to label next, what more labels would bring, and which labels look wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common, options
from esad.cli.progress import bar
from esad.cli.score import plain_id
from esad.cli.source import load_model, open_source
from esad.cli.training import Reading, check_column, column_labels
from esad.errors import InputError, LabelError, OutputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.advice.audit import Doubt
    from esad.advice.curve import LearningCurve
    from esad.advice.suggest import Suggestion
    from esad.detector import Detector

__all__ = ["EXAMPLE", "labels"]

EXAMPLE = common.example(
    "esad labels payments.esad payments.csv --n 20 --out next.csv",
    "esad labels parts.esad parts.csv -l bad --anomaly-value 1 --normal-value 0",
)
_WORDS = {-1: "anomaly", 1: "normal"}
_DOUBTS_SHOWN = 5


def labels(
    model: options.Model,
    data: options.Data,
    n: Annotated[int, typer.Option("--n", "-n", min=1, metavar="N", help="How many rows to suggest.")] = 10,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="CSV file to write: the rows to label, with an empty label."),
    ] = None,
    label_column: options.LabelColumn = None,
    id_column: options.IdColumn = None,
    anomaly_value: options.AnomalyValue = None,
    normal_value: options.NormalValue = None,
    labels_csv: options.LabelsCsv = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only suggest rows: no learning curve and no audit, which train anew.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Say which rows to label next, what the next labels would bring, and which labels look wrong.

    DATA is what the model was trained on, or newer rows with their labels. The columns for labels and ids are those of
    the training unless others are given.
    """
    if out is not None:
        _check_out(out, [model, data])
    detector = load_model(model)
    rows = _read(data, detector, Reading(label_column, id_column, (), anomaly_value, normal_value, labels_csv))
    found = _advice(detector, rows, n, quick=quick)
    if out is not None:
        _write(out, rows, found.suggestions)
    if as_json:
        common.json_out(found.to_json(rows) | {"out": None if out is None else str(out)})
    else:
        _show(found, rows, out)


@dataclass(frozen=True)
class _Rows:
    """All rows of the file, in memory."""

    X: Any
    y: "NDArray[np.int8]"
    ids: Sequence[Any] | None
    id_name: str

    def name(self, row: int) -> Any:
        """What a row is called: its id or its number."""
        return row if self.ids is None else self.ids[row]


@dataclass(frozen=True)
class _Advice:
    suggestions: "tuple[Suggestion, ...]"
    curve: "LearningCurve | None" = None
    doubts: "tuple[Doubt, ...]" = ()
    reasons: tuple[str, ...] = ()  # why something is left out

    def to_json(self, rows: _Rows) -> dict[str, Any]:
        named = [{rows.id_name: rows.name(one.row)} | one.to_json() for one in self.suggestions]
        doubts = [{rows.id_name: rows.name(one.row)} | one.to_json() for one in self.doubts]
        curve = None if self.curve is None else self.curve.to_json()
        return {"suggestions": named, "curve": curve, "audit": doubts, "left_out": list(self.reasons)}


def _check_out(out: Path, inputs: Sequence[Path]) -> None:
    """Find out before anything takes long whether the file can be written."""
    from esad.atomic import check_writable

    if out.suffix.lower() != ".csv":
        raise OutputError(f"Cannot write the suggestions to {str(out)!r}: its name must end in .csv.")
    common.refuse_same_file(out, inputs)
    check_writable(out)


# ---------------------------------------------------------------------- in


def _read(path: Path, detector: "Detector", reading: Reading) -> _Rows:
    """Rows, labels and ids, checked against the model."""
    import numpy as np

    label_column, id_column = reading.label_column, reading.id_column
    if detector.inputs_.kind == "table" and path.is_file():
        label_column, id_column = _columns(path, detector, reading)
        if label_column is None and (reading.anomaly_value or reading.normal_value) is not None:
            raise InputError("--anomaly-value and --normal-value are about a label column. Give --label-column too.")
    elif label_column is not None:
        raise InputError("--label-column is for a table. Pictures are labelled by sub-folder or --labels-csv.")
    source = open_source(path, detector, id_column=id_column, truth_column=label_column, labels_csv=reading.labels_csv)
    blocks = list(source.blocks)
    ids = [plain_id(cell) for block in blocks for cell in block.ids] if blocks[0].ids is not None else None
    y = np.zeros(sum(block.n_rows for block in blocks), dtype=np.int8)
    if blocks[0].truth is not None:
        words = np.concatenate([np.asarray(block.truth, dtype=object) for block in blocks])
        y = column_labels(words, reading, name=label_column or "sub-folder")
    return _Rows(_joined([block.X for block in blocks]), y, ids, source.id_name or "row")


def _columns(path: Path, detector: "Detector", reading: Reading) -> tuple[str | None, str | None]:
    """The columns of labels and ids: as given, or else those of the training where the file has them."""
    from esad.data.files import column_names

    names = column_names(path)
    check_column(reading.label_column, names, path, "--label-column")
    known = {name: detector.notes_.get(name) for name in ("label_column", "id_column")}
    present = {name: column if column in names else None for name, column in known.items()}
    return reading.label_column or present["label_column"], reading.id_column or present["id_column"]


def _joined(parts: Sequence[Any]) -> Any:
    """Blocks of one table, or of pictures, as one."""
    import numpy as np
    import pyarrow as pa

    return pa.concat_tables(parts) if isinstance(parts[0], pa.Table) else np.concatenate(parts)


# ---------------------------------------------------------------------- advice


def _advice(detector: "Detector", rows: _Rows, n: int, *, quick: bool) -> _Advice:
    """All that can be said; what cannot is left out with the reason."""
    from esad.advice.suggest import suggest_labels

    n_unlabelled = int((rows.y == 0).sum())
    if n > n_unlabelled:
        raise InputError(f"--n must be at most {n_unlabelled:,}, the unlabelled rows there are. Got {n:,}.")
    suggestions = suggest_labels(detector, rows.X, rows.y, n=n)
    if quick:
        return _Advice(suggestions)
    from esad.advice.audit import audit_labels
    from esad.advice.curve import learning_curve

    curve, reasons = None, []
    doubts: tuple[Doubt, ...] = ()
    with bar() as progress:
        task = progress.add_task("the learning curve", total=2)
        try:
            curve = learning_curve(detector, rows.X, rows.y, n_next=n)
        except LabelError as error:
            reasons.append(str(error))
        progress.update(task, description="the audit", completed=1)
        try:
            doubts = audit_labels(detector, rows.X, rows.y)
        except LabelError as error:
            reasons.append(str(error))
    return _Advice(suggestions, curve, doubts, tuple(dict.fromkeys(reasons)))


# ---------------------------------------------------------------------- out


def _write(path: Path, rows: _Rows, suggestions: "Sequence[Suggestion]") -> None:
    """A CSV file to be filled in: id or row number, score, why, and an empty label."""
    import csv

    from esad.atomic import atomic_path

    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([rows.id_name, "score", "why", "label"])
        writer.writerows([rows.name(one.row), repr(one.score), one.why, ""] for one in suggestions)


def _show(found: _Advice, rows: _Rows, out: Path | None) -> None:
    _show_suggestions(found.suggestions, rows)
    if found.curve is not None:
        _show_curve(found.curve)
    if found.doubts:
        _show_doubts(found.doubts, rows)
    for reason in found.reasons:
        common.say(reason)
    if out is not None:
        common.say(f"Rows to label: {out}")


def _show_suggestions(suggestions: "Sequence[Suggestion]", rows: _Rows) -> None:
    cells = [(rows.name(one.row), f"{one.score:.6g}", one.why) for one in suggestions]
    title = f"Label next ({common.counted(len(cells), 'row')})"
    common.show_table(title, [rows.id_name, "score", "why"], cells, right=["score"])


def _show_curve(curve: "LearningCurve") -> None:
    cells = [(p.n_anomaly, p.n_normal, f"{p.auc:.3f} ± {p.spread:.3f}") for p in curve.points]
    heads = ["anomaly labels", "normal labels", "AUC"]
    common.show_table(
        f"What labels brought so far ({common.counted(curve.n_repeats, 'split')})", heads, cells, right=heads
    )
    gain = curve.gain
    common.say(
        f"The next {common.counted(gain.n_next, 'label')}, of the kinds so far: AUC {gain.auc:+.3f} "
        f"(80 % interval {gain.low:+.3f} to {gain.high:+.3f})"
    )
    common.say()


def _show_doubts(doubts: "Sequence[Doubt]", rows: _Rows) -> None:
    cells = [
        (rows.name(one.row), _WORDS[one.label], f"{one.suspicion:.3f}", common.percent(one.rank))
        for one in doubts[:_DOUBTS_SHOWN]
    ]
    heads = [rows.id_name, "label", "suspicion", "unlabelled rows below it"]
    common.show_table("Labels to look at again, most doubtful first", heads, cells, right=heads[2:])
