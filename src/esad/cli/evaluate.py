"""`esad evaluate`: how good a model is where the truth is known."""

from typing import TYPE_CHECKING

from esad.cli import options, output
from esad.cli.options import command, option
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.score.metrics import Evaluation


@command(
    "esad evaluate payments.esad checked.csv --truth-column truth",
    "esad evaluate parts.esad checked.csv --truth-column verdict --anomaly-value broken",
    "esad evaluate pictures.esad checked/",
)
def evaluate(
    model: options.Model,
    data: options.Data,
    truth_column: options.TruthColumn = None,
    anomaly_value: options.AnomalyValue = None,
    labels_csv: options.LabelsCsv = None,
    k: list[int] | None = option(None, "--k K", "Precision among the K worst; may be repeated. [10, 50, 100]", min=1),
    intervals: bool = option(
        True, "--intervals/--no-intervals", "Whether AUC and average precision come with intervals."
    ),
    resamples: int | None = option(None, "--resamples N", "Deprecated: 0 is --no-intervals, others do nothing.", min=0),
    seed: int | None = option(None, "--seed N", "Deprecated: nothing is drawn any more."),
    *,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Measure a model against the truth: AUC, average precision, precision at k, alarms at the threshold.

    Use rows that the model was not trained on: on its own training rows any model looks better than it is.
    """
    from esad.detectors.model_file import load
    from esad.detectors.opening import open_source
    from esad.detectors.scored_file import score_all
    from esad.labels import truth
    from esad.score.metrics import evaluate as measure

    for name, value in (("--resamples", resamples), ("--seed", seed)):
        if value is not None:
            output.note(f"{name} will be removed, as nothing is drawn any more. For no intervals: --no-intervals.")
    detector = load(model)
    if detector.inputs_.kind == "table" and truth_column is None:
        raise InputError("Which column holds the truth? Give --truth-column NAME.")
    source = open_source(
        data, detector, truth_column=truth_column, labels_csv=labels_csv, reading=reading, on_remark=output.remark
    )
    with output.stages(rows=True) as on_progress:
        scores, words = score_all(detector, source, on_progress)
    if words is None:
        raise InputError("The pictures have no sub-folders. Put them into anomaly/ and normal/, or give --labels-csv.")
    name = truth_column or ("sub-folder" if labels_csv is None else "label")
    found = measure(
        scores,
        truth(words, anomaly_value=anomaly_value, name=name),
        threshold=detector.threshold_,
        ks=tuple(sorted(set(k or (10, 50, 100)))),
        intervals=intervals and resamples != 0,
    )
    if truth_column is not None and truth_column == detector.notes_.get("label_column"):
        output.warn(f"column {truth_column!r} held the labels in training: on training rows the figures flatter.")
    output.answer(as_json, found.to_json(), lambda: _show(found))


def _show(found: "Evaluation") -> None:
    """The figures for people."""
    level = f"{100 * found.level:.0f} % interval"
    rows = []
    for name, title in (("auc", "AUC"), ("average_precision", "average precision")):
        interval = " to ".join(f"{limit:.4f}" for limit in found.intervals.get(name, ()))
        rows.append((title, f"{getattr(found, name):.4f}", interval))
    rows += [(f"precision at {k}", f"{value:.4f}", "") for k, value in found.precision_at.items()]
    title = f"{output.count_text(found.n_rows, 'row')}, {found.n_anomaly:,} of them anomalies"
    output.show_table(title, ["", "value", level], rows, right=["value"])
    alarms = found.confusion
    if alarms is None:
        return
    rows = [
        ("anomaly", f"{alarms.true_alarms:,}", f"{alarms.missed:,}"),
        ("normal", f"{alarms.false_alarms:,}", f"{alarms.passed:,}"),
    ]
    title = f"At the threshold {alarms.threshold:.6g}"
    output.show_table(title, ["truth", "flagged", "passed"], rows, right=["flagged", "passed"])
    output.say(
        f"precision {output.percent(alarms.precision)}, recall {output.percent(alarms.recall)}, "
        f"false alarms {output.percent(alarms.false_alarm_rate)} of the normal rows"
    )
