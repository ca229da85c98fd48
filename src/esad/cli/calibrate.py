"""`esad calibrate`: p-values and a false-alarm rate for a model, from normal rows that it was not trained on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common, job, options
from esad.cli.source import Source, load_model, open_source, scored
from esad.cli.training import Reading, column_labels
from esad.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detectors.base import Detector

__all__ = ["EXAMPLE", "calibrate"]

EXAMPLE = common.example(
    "esad calibrate payments.esad normal.csv --alpha 0.01 --out calibrated.esad",
    "esad calibrate parts.esad checked.csv --label-column verdict --anomaly-value broken --out calibrated.esad",
)


def calibrate(
    model: options.Model,
    data: options.Data,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="MODEL", help="Model file to write; may be the one that is read.")
    ],
    alpha: Annotated[
        float | None,
        typer.Option(
            "--alpha",
            metavar="SHARE",
            help="Set the threshold so that at most this share of normal rows is flagged; else it stays.",
        ),
    ] = None,
    pollution_ratio: Annotated[
        float,
        typer.Option(
            "--pollution-ratio",
            metavar="SHARE",
            help="Cut off this share of the highest scores: hidden anomalies that you are sure are there.",
        ),
    ] = 0.0,
    label_column: options.LabelColumn = None,
    anomaly_value: options.AnomalyValue = None,
    normal_value: options.NormalValue = None,
    labels_csv: options.LabelsCsv = None,
    as_json: options.Json = False,
) -> None:
    """Give a model p-values, and a threshold with a false-alarm rate, from normal rows.

    The rows must be normal, or presumed so, and must not have been trained on. Rows labelled as anomalies are left out.
    """
    from esad.score.conformal import Calibration

    detector = load_model(model)
    job.check_out(out, [data, *([labels_csv] if labels_csv else [])])
    reading = Reading(
        label_column=label_column, anomaly_value=anomaly_value, normal_value=normal_value, labels_csv=labels_csv
    )
    if detector.inputs_.kind == "table" and label_column is None and (anomaly_value or normal_value) is not None:
        raise InputError("--anomaly-value and --normal-value are about a label column. Give --label-column too.")
    source = open_source(data, detector, truth_column=label_column, labels_csv=labels_csv)
    scores, is_anomaly = _collect(
        detector, source, reading, name=label_column or ("sub-folder" if labels_csv is None else "label")
    )
    calibration = Calibration.of([scores[~is_anomaly]], "given", pollution_ratio=pollution_ratio)
    detector.set_calibration(calibration, alpha=alpha)
    detector.save(out)
    found: dict[str, Any] = {"model": str(out), "n_rows": len(scores), "n_left_out": int(is_anomaly.sum())}
    found |= {"n_calibration": calibration.n_rows, "alpha": alpha, "threshold": detector.threshold_}
    if as_json:
        common.json_out(found)
    else:
        _show(found)


def _collect(
    detector: "Detector", source: Source, reading: Reading, *, name: str
) -> "tuple[NDArray[np.float64], NDArray[np.bool_]]":
    """Scores of all rows, and which of them are known anomalies."""
    import numpy as np

    scores, words = [], []
    for block, block_scores in scored(detector, source, word="calibrating"):
        scores.append(block_scores)
        if block.truth is not None:
            words.append(np.asarray(block.truth, dtype=object))
    together = np.concatenate(scores)
    if not words:
        return together, np.zeros(len(together), dtype=bool)
    return together, column_labels(np.concatenate(words), reading, name=name) < 0


def _show(found: dict[str, Any]) -> None:
    rows = common.counted(found["n_calibration"], "row")
    left_out = f", {found['n_left_out']:,} known anomalies left out" if found["n_left_out"] else ""
    rate = "" if found["alpha"] is None else f": at most {common.percent(found['alpha'])} of normal rows are flagged"
    common.show_pairs(
        [
            ("model", found["model"]),
            ("calibration", f"{rows}{left_out}: p-values from {1 / (found['n_calibration'] + 1):.3g}"),
            ("threshold", f"{found['threshold']:.6g}{rate}"),
        ]
    )
