"""`esad evaluate`: how good a model is where the truth is known."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common, options
from esad.cli.source import Source, load_model, open_source, scored
from esad.errors import InputError, LabelError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.score.metrics import Evaluation

__all__ = ["EXAMPLE", "TruthColumn", "evaluate", "read_truth", "show_evaluation"]

EXAMPLE = common.example(
    "esad evaluate payments.esad checked.csv --truth-column truth",
    "esad evaluate parts.esad checked.csv --truth-column verdict --anomaly-value broken",
    "esad evaluate pictures.esad checked/",
)

TruthColumn = Annotated[
    str | None,
    typer.Option(
        "--truth-column",
        "-t",
        metavar="NAME",
        help="Column with the truth of every row: 1 or anomaly, 0 or normal (or -1, +1). "
        "For pictures the sub-folders anomaly/ and normal/ say it.",
    ),
]


def evaluate(
    model: options.Model,
    data: options.Data,
    truth_column: TruthColumn = None,
    anomaly_value: options.AnomalyValue = None,
    labels_csv: options.LabelsCsv = None,
    k: Annotated[
        list[int] | None,
        typer.Option("--k", min=1, metavar="K", help="Precision among the K worst; may be repeated. [10, 50, 100]"),
    ] = None,
    resamples: Annotated[
        int, typer.Option("--resamples", min=0, metavar="N", help="Bootstrap resamples behind the intervals.")
    ] = 1000,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Measure a model against the truth: AUC, average precision, precision at k, alarms at the threshold.

    Use rows that the model was not trained on: on its own training rows any model looks better than it is.
    """
    from esad.score.metrics import evaluate as measure

    detector = load_model(model)
    if detector.inputs_.kind == "table" and truth_column is None:
        raise InputError("Which column holds the truth? Give --truth-column NAME.")
    source = open_source(data, detector, truth_column=truth_column, labels_csv=labels_csv)
    name = truth_column or ("sub-folder" if labels_csv is None else "label")
    scores, truth = _collect(detector, source, anomaly_value, name)
    found = measure(
        scores,
        truth,
        threshold=detector.threshold_,
        ks=tuple(sorted(set(k or (10, 50, 100)))),
        n_bootstrap=resamples,
        random_state=seed,
    )
    if truth_column is not None and truth_column == detector.notes_.get("label_column"):
        common.warn(f"column {truth_column!r} held the labels in training: on training rows the figures flatter.")
    if as_json:
        common.json_out(found.to_json())
    else:
        show_evaluation(found)


def _collect(detector: Any, source: Source, anomaly_value: str | None, name: str) -> tuple[Any, Any]:
    """Scores and truth of all rows."""
    import numpy as np

    scores, values = [], []
    for block, block_scores in scored(detector, source):
        if block.truth is None:
            raise InputError("The pictures lie in no sub-folders. Put them into anomaly/ and normal/, or --labels-csv.")
        scores.append(block_scores)
        values.append(np.asarray(block.truth, dtype=object))
    return np.concatenate(scores), read_truth(np.concatenate(values), anomaly_value, name)


def read_truth(values: "NDArray[np.object_]", anomaly_value: str | None, name: str) -> "NDArray[np.bool_]":
    """Which rows are anomalies; what cannot be read names the option that helps."""
    from esad.labels import truth

    try:
        return truth(values, anomaly_value=anomaly_value, name=name)
    except LabelError as error:
        blanks = "must be known for every row" in str(error)
        raise LabelError(str(error) if blanks else f"{error} Option: --anomaly-value.") from error


def show_evaluation(found: "Evaluation") -> None:
    """The figures for people."""
    level = f"{100 * found.level:.0f} % interval"
    rows = []
    for name, title in (("auc", "AUC"), ("average_precision", "average precision")):
        interval = found.intervals.get(name)
        rows.append((title, f"{getattr(found, name):.4f}", "" if interval is None else _interval(interval)))
    rows += [(f"precision at {k}", f"{value:.4f}", "") for k, value in found.precision_at.items()]
    title = f"{common.counted(found.n_rows, 'row')}, {found.n_anomaly:,} of them anomalies"
    common.show_table(title, ["", "value", level], rows, right=["value"])
    alarms = found.confusion
    if alarms is None:
        return
    rows = [
        ("anomaly", f"{alarms.true_alarms:,}", f"{alarms.missed:,}"),
        ("normal", f"{alarms.false_alarms:,}", f"{alarms.passed:,}"),
    ]
    title = f"At the threshold {alarms.threshold:.6g}"
    common.show_table(title, ["truth", "flagged", "passed"], rows, right=["flagged", "passed"])
    common.say(
        f"precision {common.percent(alarms.precision)}, recall {common.percent(alarms.recall)}, "
        f"false alarms {common.percent(alarms.false_alarm_rate)} of the normal rows"
    )


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.4f} to {interval[1]:.4f}"
