"""`esad fit`: from a file or folder and a few labels to a model file."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from esad.cli import common, failures, job, options
from esad.cli import fit_options as own
from esad.cli.build import Choice, build_detector, settings_checked, threshold_rule
from esad.cli.progress import bar
from esad.cli.streamed import open_parts, survey_parts
from esad.cli.training import Reading, TrainingSet, read_training
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.advice.search import Search
    from esad.detectors.base import Detector
    from esad.table.schema import Column

__all__ = ["EXAMPLE", "fit", "show_reading"]

EXAMPLE = common.example(
    "esad fit payments.csv --label-column label --out payments.esad",
    "esad fit parts.csv -l bad --anomaly-value 1 --id-column serial --out parts.esad",
    "esad fit pictures/ --out pictures.esad",
    "esad fit 'parts/2024-*.parquet' -l label --out parts.esad",
)
_MAX_SHOWN = 30
_FEW_ROWS = 20  # with fewer unlabelled rows no member can leave some out, and the threshold rests on rows trained on


def fit(
    context: typer.Context,
    data: options.Data,
    out: own.Out,
    label_column: options.LabelColumn = None,
    id_column: options.IdColumn = None,
    ignore: options.Ignore = None,
    text: options.Text = None,
    anomaly_value: options.AnomalyValue = None,
    normal_value: options.NormalValue = None,
    labels_csv: options.LabelsCsv = None,
    method: own.Method = "esad",
    members: own.Members = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    settings: own.Settings = None,
    search: own.Search = False,
    calibration_ratio: own.CalibrationRatio = None,
    cross_calibration: own.CrossCalibration = False,
    contamination: own.Contamination = None,
    false_alarm_rate: own.FalseAlarmRate = None,
    threshold_from_labels: own.FromLabels = False,
    keep_cases: own.KeepCases = False,
    stream: own.Stream = None,
    skip_broken: own.SkipBroken = False,
    resume: own.Resume = False,
    checkpoint_every: own.CheckpointEvery = 20.0,
    quiet: own.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Learn from a file or folder and a few labels, and write a model.

    Without labels the training is unsupervised. How the data was read is shown before the training starts.
    """
    reading = Reading(
        label_column=label_column,
        id_column=id_column,
        ignore=tuple(ignore or ()),
        text=tuple(text or ()),
        anomaly_value=anomaly_value,
        normal_value=normal_value,
        labels_csv=labels_csv,
        skip_broken=skip_broken,
    )
    choice = Choice(
        method=method,
        seed=seed,
        device=device,
        members=members,
        settings=tuple(settings or ()),
        contamination=contamination,
        false_alarm_rate=false_alarm_rate,
        from_labels=threshold_from_labels,
        calibration_ratio=calibration_ratio,
        cross_calibration=cross_calibration,
    )
    job.check_out(out, [data, *([labels_csv] if labels_csv else [])])
    common.check_method(method)
    with failures.together():
        detector, training = _opened(data, reading, choice, stream=stream, shown=not quiet)
        rule = threshold_rule(choice, detector, training)
        talks = not (quiet or as_json)
        if talks:
            show_reading(data, training)
        _warn_of_labels(training)
        searched = _searched(detector, training, shown=not quiet) if search else None
        if searched is not None:
            detector = searched.detector
            if talks:
                common.say(f"Recipe: {searched.chosen}. {searched.reason}")
        checkpoint = job.open_checkpoint(out, every_seconds=checkpoint_every, resume=resume)
        with settings_checked(choice):
            summary = job.fit_and_save(
                detector,
                training,
                rule=rule,
                choice=choice,
                checkpoint=checkpoint,
                out=out,
                keep_cases=keep_cases,
                command=context.obj,
                shown=not quiet,
            )
    if not failures.is_first():
        return
    if rule is None and detector.contamination == "auto" and training.labels()["n_anomaly"] < training.n_read:
        _warn_of_misses(summary)
    if as_json:
        found = {} if searched is None else {"search": searched.to_json()}
        common.json_out({"model": str(out), "method": method, "data": training.to_json()} | found | summary)
    elif talks:
        _show_summary(summary, out)


def _opened(
    data: Path, reading: Reading, choice: Choice, *, stream: bool | None, shown: bool
) -> "tuple[Detector, TrainingSet]":
    """The detector, and what it is to learn from: all of it, or what one pass over its parts tells."""
    parts = open_parts(data, reading, wanted=stream, shown=shown)
    detector = build_detector(choice)
    if parts is None:
        return detector, read_training(data, reading)
    detector.check_stream()  # before all is read
    return detector, survey_parts(parts, data, reading, seed=choice.seed, shown=shown)


def _searched(detector: "Detector", training: TrainingSet, *, shown: bool) -> "Search":
    """Try recipes before the training, with a bar."""
    from esad.advice.search import search

    if type(detector).__name__ != "ESAD" or training.schema is None:
        raise InputError("There are recipes for ESAD on tables only. Leave --search out.")
    if training.survey is not None:
        raise InputError("--search needs all rows at hand, and this data is read in parts. Leave --search out.")
    with bar(shown=shown) as progress:
        task = progress.add_task("searching", total=None)
        return search(
            detector,
            training.X,
            training.y,
            on_trial=lambda name, number: progress.update(task, description=f"trying: {name}", completed=number),
        )


def show_reading(data: Path, training: TrainingSet) -> None:
    """How the data was read: columns, kinds, missing values, labels."""
    if training.schema is None:
        channels, height, width = training.X.shape[1:]
        colour = "grey" if channels == 1 else "colour"
        pictures = common.counted(training.n_read, f"{colour} picture")
        common.say(f"{data}: {pictures} of {width} x {height} pixels")
    else:
        columns = training.schema.columns
        rows = [_column_row(column, training.n_read) for column in columns[:_MAX_SHOWN]]
        n_rows, n_columns = common.counted(training.n_read, "row"), common.counted(len(columns), "column")
        title = f"{data}: {n_rows}, {n_columns} to learn from"
        common.show_table(title, ["column", "kind", "missing", "distinct", ""], rows, right=["missing", "distinct"])
        if len(columns) > _MAX_SHOWN:
            more = common.counted(len(columns) - _MAX_SHOWN, "more column")
            common.say(f"... and {more}: {', '.join(_kinds(columns))} in all")
    for name in training.left_out:
        common.say(f"Left out: {name!r} looks like an id (text, different in every row).")
        common.say(f"          To carry it into the scores, pass --id-column {shlex.quote(name)}.")
    if training.survey is not None:
        common.say("Read in parts: what is not at hand is read again when the training needs it.")
    labels = training.labels()
    if training.y is None:
        common.say("Labels: none, so the training is unsupervised." + _how_to_label(training))
    else:
        common.say(
            f"Labels: {labels['n_anomaly']:,} anomaly, {labels['n_normal']:,} normal, "
            f"{labels['n_unlabelled']:,} unlabelled"
        )
    common.say()


def _how_to_label(training: TrainingSet) -> str:
    way = "sub-folders or --labels-csv" if training.schema is None else "--label-column"
    return f" A few labels make it better: {way}."


def _column_row(column: "Column", n_rows: int) -> tuple[str, ...]:
    missing = common.percent(column.n_missing / n_rows) if column.n_missing else "-"
    distinct = "" if column.n_distinct is None else f"{column.n_distinct:,}"
    remark = "empty" if column.n_missing == n_rows else "constant" if column.is_constant else ""
    return column.name, column.kind, missing, distinct, remark


def _kinds(columns: "tuple[Column, ...]") -> Iterator[str]:
    for kind in dict.fromkeys(column.kind for column in columns):
        yield f"{sum(column.kind == kind for column in columns):,} {kind}"


def _calibration(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if n_rows := summary["n_calibration"]:
        yield "calibration", f"{common.counted(n_rows, 'row')} not trained on: p-values from {1 / (n_rows + 1):.3g}"


def _warn_of_labels(training: TrainingSet) -> None:
    """Say what labels and rows leave too little to learn from."""
    n_unlabelled = training.labels()["n_unlabelled"]
    if not n_unlabelled:
        common.warn(
            "every row is labelled, so none is left to learn from what is usual. Leave the label of rows that nobody "
            "looked at blank."
        )
    elif n_unlabelled < _FEW_ROWS:
        rows = common.counted(n_unlabelled, "unlabelled row")
        common.warn(f"{rows} to learn from: alarms among new rows mean little. Give {_FEW_ROWS} or more.")


def _warn_of_misses(summary: dict[str, Any]) -> None:
    """Say when the automatic threshold misses most of what the user knows to be anomalies."""
    n_known, n_flagged = summary.get("n_labelled_anomaly", 0), summary.get("n_labelled_anomaly_flagged", 0)
    if 2 * n_flagged < n_known:
        known = common.counted(n_known, "labelled anomaly", "labelled anomalies")
        common.warn(
            f"the automatic threshold flags {n_flagged:,} of the {known}. To flag more rows, fit with "
            "--threshold-from-labels, or with --contamination and the share to flag."
        )


def _show_summary(summary: dict[str, Any], out: Path) -> None:
    rows = common.counted(summary["n_flagged"], "training row")
    if summary["n_sample"] is not None:
        rows = f"{summary['n_flagged']:,} of {summary['n_sample']:,} rows that were held out"
    flagged = f"{rows} ({common.percent(summary['flagged_ratio'])})"
    if "n_labelled_anomaly" in summary:
        labelled = common.counted(summary["n_labelled_anomaly"], "labelled anomaly", "labelled anomalies")
        flagged += f", {summary['n_labelled_anomaly_flagged']:,} of the {labelled} among them"
    resumed = f", resumed at step {summary['resumed_step']:,}" if summary["resumed_step"] else ""
    size = common.size_text(out.stat().st_size)
    common.show_pairs(
        [
            ("model", f"{out} ({size})"),
            ("threshold", f"{summary['threshold']:.6g}"),
            ("flagged", flagged),
            *_calibration(summary),
            ("time", f"{summary['seconds']:.1f} s{resumed}"),
        ]
    )
    common.say()
    common.say(f"Next: {shlex.join(['esad', 'score', str(out), 'NEW_DATA', '--top', '10'])}")
