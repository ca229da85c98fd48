"""`esad labels`: which rows to label next, what more labels would bring, and which labels look wrong."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from esad.cli import options, output
from esad.cli.options import command, option
from esad.core.atomic import check_out

if TYPE_CHECKING:
    from esad.advice.audit import Doubt
    from esad.advice.curve import LearningCurve
    from esad.advice.labels import LabelAdvice
    from esad.detectors.training import TrainingData

_LOOKS_WRONG = 0.5  # suspicion from which more speaks against a label than for it
_DOUBTS_SHOWN = 5


@command(
    "esad labels payments.esad payments.csv --n 20 --out next.csv",
    "esad labels parts.esad parts.csv -l bad --anomaly-value 1 --normal-value 0",
)
def labels(
    model: options.Model,
    data: options.Data,
    n: int = option(10, "--n -n N", "How many rows to suggest.", min=1),
    out: Path | None = option(None, "--out -o FILE", "CSV file to write: the rows to label, with an empty label."),
    id_column: options.IdColumn = None,
    quick: bool = option(False, "--quick", "Only suggest rows: no learning curve and no audit, which train anew."),
    *,
    labels: options.LabelOptions,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Say which rows to label next, what the next labels would bring, and which labels look wrong.

    DATA is what the model was trained on, or newer rows with their labels. The columns for labels and ids are those of
    the training unless others are given.
    """
    from esad.advice.labels import advise_on_labels
    from esad.detectors.model_file import load
    from esad.detectors.training import TrainingData

    if out is not None:
        check_out(out, [model, data], [".csv"], "the suggestions")
    detector = load(model)
    rows = TrainingData.for_model(
        data, detector, id_column=id_column, **labels, reading=reading, on_remark=output.remark
    )
    with output.stages(shown=not quick) as on_progress:
        found = advise_on_labels(detector, rows, n=n, quick=quick, on_progress=on_progress)
    if out is not None:
        found.write_csv(out)
    document = found.to_json() | {"out": None if out is None else str(out)}
    output.answer(as_json, document, lambda: _show(found, out))


def _show(found: "LabelAdvice", out: Path | None) -> None:
    rows = found.rows
    heads, names = _name_rows(rows, [one.row for one in found.suggestions])
    cells = [(*name, f"{one.score:.6g}", one.why) for name, one in zip(names, found.suggestions, strict=True)]
    title = f"Label next ({output.count_text(len(cells), 'row')})"
    output.show_table(title, [*heads, "score", "why"], cells, right=["score"])
    if found.curve is not None:
        _show_curve(found.curve)
    if found.doubts:
        _show_doubts(found.doubts, rows)
    for reason in found.left_out:
        output.say(reason)
    if out is not None:
        output.say(f"Rows to label: {out}")


def _name_rows(rows: "TrainingData", numbers: Sequence[int]) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return heads and cells that name rows: by their ids, and also by number where ids are not unique."""
    if rows.ids_tell:
        return [rows.id_name], [(rows.name_of(row),) for row in numbers]
    return [rows.id_name, "row"], [(rows.name_of(row), row) for row in numbers]


def _show_curve(curve: "LearningCurve") -> None:
    cells = [(p.n_anomaly, p.n_normal, f"{p.auc:.3f} ± {p.spread:.3f}") for p in curve.points]
    heads = ["anomaly labels", "normal labels", "AUC"]
    output.show_table(
        f"What labels brought so far ({output.count_text(curve.n_repeats, 'split')})", heads, cells, right=heads
    )
    gain = curve.gain
    output.say(
        f"The next {output.count_text(gain.n_next, 'label')}, of the kinds so far: AUC {gain.auc:+.3f} "
        f"(80 % interval {gain.low:+.3f} to {gain.high:+.3f})"
    )
    output.say()


def _show_doubts(doubts: "Sequence[Doubt]", rows: "TrainingData") -> None:
    doubtful = doubts[:_DOUBTS_SHOWN]
    heads, names = _name_rows(rows, [one.row for one in doubtful])
    cells = [
        (*name, one.to_json()["label"], f"{one.suspicion:.3f}", output.percent(one.rank))
        for name, one in zip(names, doubtful, strict=True)
    ]
    heads += ["label", "suspicion", "unlabelled rows below it"]
    verdict = "Labels to look at again" if doubts[0].suspicion >= _LOOKS_WRONG else "No label looks wrong"
    output.show_table(f"{verdict}, most doubtful first", heads, cells, right=heads[-2:])
