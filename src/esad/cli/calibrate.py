"""`esad calibrate`: p-values and a false-alarm rate for a model, from normal rows that it was not trained on."""

from pathlib import Path
from typing import Any

from esad.cli import options, output
from esad.cli.options import command, option


@command(
    "esad calibrate payments.esad normal.csv --alpha 0.01 --out calibrated.esad",
    "esad calibrate parts.esad checked.csv --label-column verdict --anomaly-value broken --out calibrated.esad",
)
def calibrate(
    model: options.Model,
    data: options.Data,
    out: Path = option(..., "--out -o MODEL", "Model file to write; may be the one that is read."),
    alpha: float | None = option(
        None, "--alpha SHARE", "Set the threshold so that at most this share of normal rows is flagged; else it stays."
    ),
    pollution_ratio: float = option(
        0.0,
        "--pollution-ratio SHARE",
        "Cut off this share of the highest scores: hidden anomalies that you are sure are there.",
    ),
    *,
    labels: options.LabelOptions,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Give a model p-values, and a threshold with a false-alarm rate, from normal rows.

    The rows must be normal, or presumed so, and must not have been trained on: the training file is refused. Rows
    labelled as anomalies are left out; the label column is that of the training unless another is given.
    """
    from esad.detectors.model_file import load
    from esad.detectors.scored_file import calibrate_on_file
    from esad.io.notes import Roles

    detector = load(model)
    labels_csv = labels.pop("labels_csv")
    output.check_model_out(out, [data, *([labels_csv] if labels_csv else [])])
    with output.stages(rows=True) as on_progress:
        n_rows, n_left_out = calibrate_on_file(
            detector,
            data,
            alpha=alpha,
            pollution_ratio=pollution_ratio,
            roles=Roles(**labels),
            labels_csv=labels_csv,
            reading=reading,
            on_progress=on_progress,
            on_remark=output.remark,
        )
    detector.save(out)
    calibration = detector.calibration_
    assert calibration is not None
    found: dict[str, Any] = {"model": str(out), "n_rows": n_rows, "n_left_out": n_left_out}
    found |= {"n_calibration": calibration.n_rows, "alpha": alpha, "threshold": detector.threshold_}

    def show() -> None:
        left_out = f"; {n_left_out:,} known anomalies left out" if n_left_out else ""
        rate = "" if alpha is None else f": at most {output.percent(alpha)} of normal rows are flagged"
        output.show_pairs(
            [
                ("model", out),
                ("calibration", f"{calibration}{left_out}"),
                ("threshold", f"{detector.threshold_:.6g}{rate}"),
            ]
        )

    output.answer(as_json, found, show)
