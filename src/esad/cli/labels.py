"""`esad labels`: which rows to label next, what more labels would bring, and which labels look wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import options, output
from esad.cli.command import command
from esad.cli.options import option
from esad.errors import InputError, LabelError

if TYPE_CHECKING:
    from esad.advice.audit import Doubt
    from esad.advice.curve import LearningCurve
    from esad.advice.suggest import Suggestion
    from esad.detectors.base import Detector
    from esad.detectors.training import TrainingData

__all__ = ["labels"]

_WORDS = {-1: "anomaly", 1: "normal"}
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
    from esad.detectors.model_file import load
    from esad.detectors.training import TrainingData

    if out is not None:
        output.check_out(out, [model, data], [".csv"], "the suggestions")
    detector = load(model)
    rows = TrainingData.for_model(
        data, detector, id_column=id_column, **labels, reading=reading, on_remark=output.remark
    )
    found = _advice(detector, rows, n, quick=quick)
    if out is not None:
        _write(out, rows, found.suggestions)
    if as_json:
        output.json_out(found.to_json(rows) | {"out": None if out is None else str(out)})
    else:
        _show(found, rows, out)


@dataclass(frozen=True)
class _Advice:
    suggestions: "tuple[Suggestion, ...]"
    curve: "LearningCurve | None" = None
    doubts: "tuple[Doubt, ...]" = ()
    reasons: tuple[str, ...] = ()  # why something is left out

    def to_json(self, rows: "TrainingData") -> dict[str, Any]:
        named = [{rows.id_name: rows.name_of(one.row)} | one.to_json() for one in self.suggestions]
        doubts = [{rows.id_name: rows.name_of(one.row)} | one.to_json() for one in self.doubts]
        curve = None if self.curve is None else self.curve.to_json()
        return {"suggestions": named, "curve": curve, "audit": doubts, "left_out": list(self.reasons)}


# ---------------------------------------------------------------------- advice


def _advice(detector: "Detector", rows: "TrainingData", n: int, *, quick: bool) -> _Advice:
    """All that can be said; what cannot is left out with the reason."""
    from esad.advice.suggest import suggest_labels

    n_unlabelled = rows.label_counts().n_unlabelled
    if not n_unlabelled:
        raise InputError("Every row is labelled: there is none to suggest.")
    if n > n_unlabelled:
        raise InputError(f"--n must be at most {n_unlabelled:,}, the unlabelled rows there are. Got {n:,}.")
    suggestions = suggest_labels(detector, rows.X, rows.labels, n=n)
    if quick:
        return _Advice(suggestions)
    from esad.advice.audit import audit_labels
    from esad.advice.curve import learning_curve

    curve, reasons = None, []
    doubts: tuple[Doubt, ...] = ()
    with output.bar() as progress:
        task = progress.add_task("the learning curve", total=2)
        try:
            curve = learning_curve(detector, rows.X, rows.labels, n_next=n)
        except LabelError as error:
            reasons.append(str(error))
        progress.update(task, description="the audit", completed=1)
        try:
            doubts = audit_labels(detector, rows.X, rows.labels)
        except LabelError as error:
            reasons.append(str(error))
    return _Advice(suggestions, curve, doubts, tuple(dict.fromkeys(reasons)))


# ---------------------------------------------------------------------- out


def _write(path: Path, rows: "TrainingData", suggestions: "Sequence[Suggestion]") -> None:
    """A CSV file to be filled in: id or row number, score, why, and an empty label."""
    import csv

    from esad.core.atomic import atomic_path

    with atomic_path(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([rows.id_name, "score", "why", "label"])
        writer.writerows([rows.name_of(one.row), repr(one.score), one.why, ""] for one in suggestions)


def _show(found: _Advice, rows: "TrainingData", out: Path | None) -> None:
    _show_suggestions(found.suggestions, rows)
    if found.curve is not None:
        _show_curve(found.curve)
    if found.doubts:
        _show_doubts(found.doubts, rows)
    for reason in found.reasons:
        output.say(reason)
    if out is not None:
        output.say(f"Rows to label: {out}")


def _show_suggestions(suggestions: "Sequence[Suggestion]", rows: "TrainingData") -> None:
    cells = [(rows.name_of(one.row), f"{one.score:.6g}", one.why) for one in suggestions]
    title = f"Label next ({output.counted(len(cells), 'row')})"
    output.show_table(title, [rows.id_name, "score", "why"], cells, right=["score"])


def _show_curve(curve: "LearningCurve") -> None:
    cells = [(p.n_anomaly, p.n_normal, f"{p.auc:.3f} ± {p.spread:.3f}") for p in curve.points]
    heads = ["anomaly labels", "normal labels", "AUC"]
    output.show_table(
        f"What labels brought so far ({output.counted(curve.n_repeats, 'split')})", heads, cells, right=heads
    )
    gain = curve.gain
    output.say(
        f"The next {output.counted(gain.n_next, 'label')}, of the kinds so far: AUC {gain.auc:+.3f} "
        f"(80 % interval {gain.low:+.3f} to {gain.high:+.3f})"
    )
    output.say()


def _show_doubts(doubts: "Sequence[Doubt]", rows: "TrainingData") -> None:
    cells = [
        (rows.name_of(one.row), _WORDS[one.label], f"{one.suspicion:.3f}", output.percent(one.rank))
        for one in doubts[:_DOUBTS_SHOWN]
    ]
    heads = [rows.id_name, "label", "suspicion", "unlabelled rows below it"]
    verdict = "Labels to look at again" if doubts[0].suspicion >= _LOOKS_WRONG else "No label looks wrong"
    output.show_table(f"{verdict}, most doubtful first", heads, cells, right=heads[2:])
