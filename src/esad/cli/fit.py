"""`esad fit`: from a file or folder and a few labels to a model file, with checkpoints and a way back after Ctrl-C."""

import os
import shlex
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from esad import registry
from esad.cli import failures, options, output
from esad.cli.method import MethodOptions
from esad.cli.options import command, option
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.advice.search import Search
    from esad.detectors.base import Detector
    from esad.detectors.training import TrainingData
    from esad.persist.checkpoint import Checkpoint
    from esad.score.threshold import Threshold
    from esad.table.table import Column

_THRESHOLD = "Threshold (one of these)"  # where the help shows them


@command(
    "esad fit payments.csv --label-column label --out payments.esad",
    "esad fit parts.csv -l bad --anomaly-value 1 --id-column serial --out parts.esad",
    "esad fit pictures/ --out pictures.esad",
    "esad fit 'parts/2024-*.parquet' -l label --out parts.esad",
    for_several=True,
)
def fit(
    context: typer.Context,
    data: options.Data,
    out: options.ModelOut,
    columns: options.ColumnOptions,
    method: MethodOptions,
    resize: Any = option(
        "auto",
        "--resize SIZE",
        "Size that pictures are read at: the most pixels of the longer side, such as 64, or width and height, "
        "such as 128x96; none for as they are. By default at most 128 on a CPU, 256 on a GPU. "
        "Small marks in large photos: see docs/pictures.md.",
        options.DATA,
        parser=options.parse_size,
    ),
    search: bool = option(
        False,
        "--search",
        "Try a few recipes by repeated splits of the labels first; takes as long as twenty to fifty trainings.",
        options.TRAINING,
    ),
    calibration_ratio: float | None = option(
        None,
        "--calibration-ratio SHARE",
        "Hold this share of the unlabelled rows out of the training, for p-values and alarms with a guarantee.",
        options.TRAINING,
    ),
    cross_calibration: bool = option(
        False,
        "--cross-calibration",
        "Like --calibration-ratio, but no row is lost: each member calibrates with those it left out anyway. For "
        "few rows; the guarantee is weaker.",
        options.TRAINING,
    ),
    contamination: float | None = option(
        None, "--contamination SHARE", "Flag this share of the training rows.", _THRESHOLD
    ),
    false_alarm_rate: float | None = option(
        None, "--false-alarm-rate SHARE", "Flag at most this share of the unlabelled and normal rows.", _THRESHOLD
    ),
    threshold_from_labels: bool = option(
        False, "--threshold-from-labels", "Flag from where the labels are parted best.", _THRESHOLD
    ),
    keep_cases: bool = option(
        False,
        "--keep-cases",
        "Keep the labelled rows in the model file, for esad explain to name the nearest; whoever has the file "
        "can read them.",
        options.TRAINING,
    ),
    stream: bool | None = option(
        None,
        "--stream/--no-stream",
        "Read tables or pictures in parts, in bounded memory. By default several files are, and whatever "
        "would fill an eighth of the memory.",
        options.RUNNING,
        show_default=False,
    ),
    skip_broken: options.SkipBroken = False,
    resume: bool = option(False, "--resume", "Go on from MODEL.checkpoint after a kill or Ctrl-C.", options.RUNNING),
    checkpoint_every: float = option(
        20.0, "--checkpoint-every SECONDS", "Time between two checkpoints of the training.", options.RUNNING, min=0
    ),
    quiet: bool = option(False, "--quiet -q", "Print nothing but warnings and errors.", options.RUNNING),
    *,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Learn from a file or folder and a few labels, and write a model.

    Without labels the training is unsupervised. How the data was read is shown before the training starts.
    """
    from esad.detectors.training import TrainingData
    from esad.train.callbacks import GracefulStop

    output.check_model_out(out, [data, *([columns["labels_csv"]] if columns["labels_csv"] else [])])
    with failures.join_processes():
        first = method.make_first(contamination=contamination)
        with output.stages(shown=not quiet) as on_progress:
            training = TrainingData.from_file(
                data,
                **columns,
                **reading.to_arguments(),
                skip_broken=skip_broken,
                resize=resize,
                stream=stream,
                detector=first,
                on_remark=output.remark,
                on_progress=on_progress,
            )
        detector, reason = method.make_for(training, contamination=contamination)
        rule = _parse_threshold_rule(detector, false_alarm_rate, threshold_from_labels)
        calibration: dict[str, Any] = {"calibration_ratio": calibration_ratio, "cross_calibration": cross_calibration}
        training.check_rule(rule, detector, **calibration)
        talks = not (quiet or as_json)
        if talks:
            if reason:
                output.say(f"Method: {registry.method_name(type(detector))}. {reason}")
            _show_reading(data, training)
        searched = _search(detector, training, shown=not quiet) if search else None
        if searched is not None:
            detector = searched.detector
            if talks:
                output.say(f"Recipe: {searched.chosen}. {searched.reason}")
        checkpoint = _open_checkpoint(out, every_seconds=checkpoint_every, resume=resume)
        started, results = time.perf_counter(), failures.Results([out])
        try:  # all that takes long is done before the model is saved: an interruption finds none, or a finished command
            with (
                method.blame_settings(detector),
                output.bar(shown=not quiet) as progress,
                GracefulStop(checkpoint) as stop,
            ):
                watch = output.TrainingBar(progress, f"training {type(detector).__name__}")
                training.fit(
                    detector, rule=rule, callbacks=[checkpoint, watch, stop], on_remark=output.remark, **calibration
                )
            if not failures.is_first():  # of several processes only the first goes on after the training
                return
            summary = training.summarize(detector)
            detector.save(out, with_cases=keep_cases)
        except KeyboardInterrupt as interrupt:
            if results.find_written():  # the model took its place right before
                checkpoint.remove()
                raise
            raise output.Interrupted(_tell_way_back(checkpoint.path, context.obj)) from interrupt
        checkpoint.remove()
    summary |= {"seconds": time.perf_counter() - started, "resumed_step": checkpoint.resumed_step}
    if as_json:
        found = {} if searched is None else {"search": searched.to_json()}
        made = {"model": str(out), "method": registry.method_name(type(detector)), "data": training.to_json()}
        output.print_json(made | found | summary)
    elif talks:
        _show_summary(summary, detector, out)


# ---------------------------------------------------------------------- before the training


def _parse_threshold_rule(
    detector: "Detector", false_alarm_rate: float | None, from_labels: bool
) -> "Threshold | None":
    """Return the threshold rule that the options ask for; None for the method's own."""
    from esad.core.arguments import is_auto
    from esad.score.threshold import Threshold

    if (not is_auto(detector.contamination)) + (false_alarm_rate is not None) + from_labels > 1:
        raise InputError("Give one of --contamination, --false-alarm-rate and --threshold-from-labels, not several.")
    if false_alarm_rate is not None:
        return Threshold("false_alarm", false_alarm_rate)
    return Threshold("labels") if from_labels else None


def _search(detector: "Detector", training: "TrainingData", *, shown: bool) -> "Search":
    """Try recipes before the training, with a bar."""
    from esad.advice.search import search

    if type(detector).__name__ not in ("ESAD", "Committee") or training.schema is None:
        raise InputError("There are recipes for ESAD and the committee on tables only. Leave --search out.")
    if training.survey is not None:
        raise InputError("--search needs all rows at hand, and this data is read in parts. Leave --search out.")
    with output.bar(shown=shown) as progress:
        task = progress.add_task("searching", total=None)

        def on_trial(name: str, number: int) -> None:
            progress.update(task, description=f"trying: {name}", completed=number)

        return search(detector, training.X, training.y, on_trial=on_trial)


# ---------------------------------------------------------------------- files


def _open_checkpoint(out: Path, *, every_seconds: float, resume: bool) -> "Checkpoint":
    """Open the checkpoint of this training; warn if one that exists is not used, or one to resume is missing."""
    from esad.persist.checkpoint import Checkpoint

    path = output.checkpoint_path(out)
    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0  # by the launcher, after a loss
    if resume and not path.exists():
        output.note(f"there is no checkpoint {str(path)!r} to resume from: training from the beginning.")
    if not resume and path.exists():
        output.warn(f"the checkpoint {str(path)!r} of an unfinished training is not used. To go on from it: --resume.")
    return Checkpoint(path, every_seconds=every_seconds, resume=resume)


def _tell_way_back(path: Path, typed: Sequence[str]) -> str:
    if not path.exists():
        return "no model was written."
    arguments = ["esad", *typed, *([] if "--resume" in typed else ["--resume"])]
    launcher = "" if failures.is_alone() else "torchrun ... -m "
    return f"no model was written. Go on with: {launcher}{shlex.join(arguments)}"


# ---------------------------------------------------------------------- what was read


def _show_reading(data: Path, training: "TrainingData") -> None:
    """Show how the data was read: columns, kinds, missing values, labels."""
    if training.schema is None:
        channels, height, width = training.X.shape[1:]
        colour = "grey" if channels == 1 else "colour"
        pictures = output.count_text(training.n_rows, f"{colour} picture")
        output.say(f"{data}: {pictures} of {width} x {height} pixels")
    else:
        columns = training.schema.columns
        rows = [_describe_column(column, training.n_rows) for column in columns]
        n_rows, n_columns = output.count_text(training.n_rows, "row"), output.count_text(len(columns), "column")
        title = f"{data}: {n_rows}, {n_columns} to learn from"
        heads, counts = ["column", "kind", "missing", "distinct", ""], Counter(column.kind for column in columns)
        rest = f": {', '.join(f'{n:,} {kind}' for kind, n in counts.items())} in all"
        output.show_table(title, heads, rows, right=heads[2:4], noun="column", rest=rest)
    for name in training.left_out:
        output.say(f"Left out: {name!r} looks like an id (text, different in every row).")
        output.say(f"          To carry it into the scores, pass --id-column {shlex.quote(name)}.")
    if training.survey is not None:
        output.say("Read in parts: what is not at hand is read again when the training needs it.")
    labels = training.label_counts()
    if training.y is None:
        way = "sub-folders or --labels-csv" if training.schema is None else "--label-column"
        output.say(f"Labels: none, so the training is unsupervised. A few labels make it better: {way}.")
    else:
        output.say(
            f"Labels: {labels.n_anomaly:,} anomaly, {labels.n_normal:,} normal, {labels.n_unlabelled:,} unlabelled"
        )
    output.say()


def _describe_column(column: "Column", n_rows: int) -> tuple[str, ...]:
    missing = output.percent(column.n_missing / n_rows) if column.n_missing else "-"
    distinct = "" if column.n_distinct is None else f"{column.n_distinct:,}"
    remark = "empty" if column.n_missing == n_rows else "constant" if column.is_constant else ""
    return column.name, column.kind, missing, distinct, remark


# ---------------------------------------------------------------------- what came out


def _show_summary(summary: dict[str, Any], detector: "Detector", out: Path) -> None:
    rows = output.count_text(summary["n_flagged"], "training row")
    if summary["n_sample"] is not None:
        n_labelled = int((detector.training_labels_ != 0).sum())
        parts = f"{summary['n_sample'] - n_labelled:,} that were held out, {n_labelled:,} labelled"
        rows = f"{summary['n_flagged']:,} of {summary['n_sample']:,} rows, {parts}"
    flagged = f"{rows} ({output.percent(summary['flagged_ratio'])})"
    if "n_labelled_anomaly" in summary:
        labelled = output.count_text(summary["n_labelled_anomaly"], "labelled anomaly", "labelled anomalies")
        flagged += f", {summary['n_labelled_anomaly_flagged']:,} of the {labelled} among them"
    judges = [("judges", summary["why"])] if summary["why"] else []
    pairs = [
        *judges,
        ("model", f"{out} ({output.size_text(out.stat().st_size)})"),
        ("threshold", f"{summary['threshold']:.6g}: {summary['threshold_rule']}"),
        ("expected", summary["forecast"]["text"]),
        ("flagged", flagged),
    ]
    if detector.calibration_ is not None:
        pairs.append(("calibration", str(detector.calibration_)))
    resumed = f", resumed at step {summary['resumed_step']:,}" if summary["resumed_step"] else ""
    output.show_pairs([*pairs, ("time", f"{summary['seconds']:.1f} s{resumed}")])
    output.say()
    output.say(f"Next: {shlex.join(['esad', 'score', str(out), 'NEW_DATA', '--top', '10'])}")
