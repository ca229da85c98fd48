"""`esad fit`: from a file or folder and a few labels to a model file, with checkpoints and a way back after Ctrl-C."""

import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from esad import registry
from esad.cli import failures, options, output
from esad.cli.options import command, option
from esad.errors import EsadError, InputError, OutputError

if TYPE_CHECKING:
    from esad.advice.search import Search
    from esad.detectors.base import Detector
    from esad.detectors.training import TrainingData
    from esad.persist.checkpoint import Checkpoint
    from esad.score.threshold import Threshold
    from esad.table.table import Column

__all__ = [
    "AUTO",
    "blame_settings",
    "build_detector",
    "build_first_detector",
    "check_model_out",
    "choose_method_for",
    "fit",
]

_THRESHOLD = "Threshold (one of these)"  # where the help shows them
AUTO = "auto"  # what --method says where the data shall decide
_OTHER_SUFFIXES = (
    *(".csv", ".tsv", ".parquet", ".pq", ".gz", ".json", ".npz", ".xlsx", ".html", ".txt"),
    *(".pkl", ".pickle", ".joblib", ".pt", ".pth", ".pt2", ".onnx", ".safetensors", ".h5", ".zip"),
)


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
    resize: Any = option(
        "auto",
        "--resize SIZE",
        "Size that pictures are read at: the most pixels of the longer side, such as 64, or width and height, "
        "such as 128x96; none for as they are. By default at most 128 on a CPU, 256 on a GPU.",
        options.DATA,
        parser=options.parse_size,
    ),
    method: str = option(
        AUTO,
        "--method -m NAME",
        "The method; see: esad methods. auto: the committee for tables, ESAD for pictures.",
        options.TRAINING,
        autocompletion=options.complete_method,
    ),
    members: options.Members = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    settings: options.Settings = None,
    search: bool = option(
        False,
        "--search",
        "Try a few recipes by repeated splits of the labels first; takes about ten times as long.",
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

    check_model_out(out, [data, *([columns["labels_csv"]] if columns["labels_csv"] else [])])
    typed: dict[str, Any] = {"seed": seed, "device": device, "members": members, "contamination": contamination}
    with failures.join_processes():
        detector = build_first_detector(method, settings, **typed)
        with output.stages(shown=not quiet) as on_progress:
            training = TrainingData.from_file(
                data,
                **columns,
                **reading.said(),
                skip_broken=skip_broken,
                resize=resize,
                stream=stream,
                detector=detector,
                on_remark=output.remark,
                on_progress=on_progress,
            )
        reason = ""
        if method == AUTO:
            method, reason = choose_method_for(training, settings or (), search=search)
            detector = build_detector(method, settings, **typed)
        rule = _threshold_rule(contamination, false_alarm_rate, threshold_from_labels, settings or ())
        calibration: dict[str, Any] = {"calibration_ratio": calibration_ratio, "cross_calibration": cross_calibration}
        training.check_rule(rule, detector, **calibration)
        talks = not (quiet or as_json)
        if talks:
            if reason:
                output.say(f"Method: {method}. {reason}")
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
                blame_settings(method, settings),
                output.bar(shown=not quiet) as progress,
                GracefulStop(checkpoint) as stop,
            ):
                watch = output.TrainingBar(progress, f"training {type(detector).__name__}")
                training.fit(
                    detector,
                    rule=rule,
                    callbacks=[checkpoint, watch, stop],
                    on_remark=output.remark,
                    **calibration,
                )
            if not failures.is_first():  # of several processes only the first goes on after the training
                return
            summary = training.summarize(detector)
            detector.save(out, with_cases=keep_cases)
        except KeyboardInterrupt as interrupt:
            if results.written():  # the model took its place right before
                checkpoint.remove()
                raise
            raise output.Interrupted(_tell_way_back(checkpoint.path, context.obj)) from interrupt
        checkpoint.remove()
    summary |= {"seconds": time.perf_counter() - started, "resumed_step": checkpoint.resumed_step}
    if as_json:
        found = {} if searched is None else {"search": searched.to_json()}
        output.json_out({"model": str(out), "method": method, "data": training.to_json()} | found | summary)
    elif talks:
        _show_summary(summary, out)


# ---------------------------------------------------------------------- the detector


def choose_method_for(training: "TrainingData", settings: Sequence[str], *, search: bool = False) -> tuple[str, str]:
    """The method for these data, where --method is auto, and the reason."""
    from esad.advice.choice import choose_method

    if search:
        return "esad", "The search is for a recipe of ESAD."
    names = [_parse_setting(text)[0] for text in settings]
    choice = choose_method(training.kind, training.label_counts(), parameters=names)
    return choice.method, choice.reason


def build_first_detector(method: str, settings: Sequence[str] | None, **typed: Any) -> "Detector":
    """A detector with these settings, before the data is read, to refuse wrong ones; "auto" may take another later."""
    if method == AUTO:
        names = {_parse_setting(text)[0] for text in settings or ()}
        possible = (name for name in ("esad", "committee") if names <= registry.method(name)().get_params().keys())
        method = next(possible, "esad")
    return build_detector(method, settings, **typed)


def build_detector(
    method: str,
    settings: Sequence[str] | None,
    *,
    seed: int,
    device: str,
    members: int | None,
    contamination: float | None = None,
) -> "Detector":
    """An unfitted detector; a parameter that the method does not have, or that has two values, is an error."""
    typed = {
        "random_state": ("--seed", seed or None),
        "n_members": ("--members", members),
        "contamination": ("--contamination", contamination),
        "device": ("--device", None if device == "auto" else device),
    }
    given = {name: (f"{option} {value}", value) for name, (option, value) in typed.items() if value is not None}
    for text in settings or ():
        name, value = _parse_setting(text)
        if name in given:
            raise InputError(f"{given[name][0]} and --set {text} give {name!r} two values. Leave one of them out.")
        given[name] = f"--set {text}", value
    wanted = {"random_state": seed} | {name: value for name, (_, value) in given.items()}
    detector_class: type[Detector] = registry.method(method, parameters=wanted)
    if "device" in wanted:
        from esad.train.runtime import resolve_device

        resolve_device(str(wanted["device"]))
    return detector_class(**wanted)


def _parse_setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where the value is JSON (numbers, true, lists) or else a word."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"--set must be NAME=VALUE, such as n_epochs=50. Got {text!r}.")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value.strip()


@contextmanager
def blame_settings(method: str, settings: Sequence[str] | None) -> Iterator[None]:
    """Blame what was typed after --set for what a method cannot compute with, where it does not say so itself."""
    try:
        yield
    except EsadError:
        raise
    except (TypeError, ValueError) as error:
        if not settings:
            raise
        blamed = [text for text in settings if _is_named(*_parse_setting(text), str(error))] or settings
        one_of = "one of " if len(blamed) > 1 else ""
        raise InputError(
            f"The method {method!r} cannot use {one_of}{', '.join(blamed)}: {str(error).rstrip('.')}."
        ) from error


def _is_named(name: str, value: Any, message: str) -> bool:
    """Whether a message speaks of a parameter or of the value it was given."""
    words = [name, "NoneType" if value is None else repr(value)]
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message) for word in words)


def _threshold_rule(
    contamination: float | None, false_alarm_rate: float | None, from_labels: bool, settings: Sequence[str]
) -> "Threshold | None":
    """The rule that the options say, None for the method's own."""
    from esad.score.threshold import Threshold

    if contamination is not None and not 0 < contamination <= 0.5:
        raise InputError(
            f"--contamination must be a share above 0 and at most 0.5. Got {contamination:g}. For 5 % write 0.05."
        )
    by_setting = contamination is None and any(_parse_setting(text)[0] == "contamination" for text in settings)
    if (contamination is not None) + (false_alarm_rate is not None) + from_labels + by_setting > 1:
        raise InputError("Give one of --contamination, --false-alarm-rate and --threshold-from-labels, not several.")
    if contamination is not None:
        return Threshold("contamination", contamination)
    if false_alarm_rate is not None:
        return Threshold("false_alarm", false_alarm_rate)
    return Threshold("labels") if from_labels else None


def _search(detector: "Detector", training: "TrainingData", *, shown: bool) -> "Search":
    """Try recipes before the training, with a bar."""
    from esad.advice.search import search

    if type(detector).__name__ != "ESAD" or training.schema is None:
        raise InputError("There are recipes for ESAD on tables only. Leave --search out.")
    if training.survey is not None:
        raise InputError("--search needs all rows at hand, and this data is read in parts. Leave --search out.")
    with output.bar(shown=shown) as progress:
        task = progress.add_task("searching", total=None)

        def on_trial(name: str, number: int) -> None:
            progress.update(task, description=f"trying: {name}", completed=number)

        return search(detector, training.X, training.y, on_trial=on_trial)


# ---------------------------------------------------------------------- files


def check_model_out(out: Path, inputs: Sequence[Path]) -> None:
    """Find out before the training whether the model can be written after it."""
    from esad.core.atomic import check_writable
    from esad.io.pictures import SUFFIXES as PICTURES

    # a slip must not replace another file, nor a model pass for one
    if out.suffix.lower() in (*_OTHER_SUFFIXES, *PICTURES):
        raise OutputError(f"Cannot write the model to {str(out)!r}: that is no name for a model. Let it end in .esad.")
    output.refuse_same_file(out, inputs)
    check_writable(out)
    check_writable(_checkpoint_path(out))


def _checkpoint_path(out: Path) -> Path:
    """Where the state of an unfinished training lies."""
    return out.with_name(f"{out.name}.checkpoint")


def _open_checkpoint(out: Path, *, every_seconds: float, resume: bool) -> "Checkpoint":
    """The checkpoint of this training; says what becomes of one that is there already."""
    from esad.persist.checkpoint import Checkpoint

    path = _checkpoint_path(out)
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
    """How the data was read: columns, kinds, missing values, labels."""
    if training.schema is None:
        channels, height, width = training.X.shape[1:]
        colour = "grey" if channels == 1 else "colour"
        pictures = output.count_text(training.n_rows, f"{colour} picture")
        output.say(f"{data}: {pictures} of {width} x {height} pixels")
    else:
        columns = training.schema.columns
        rows = [_column_row(column, training.n_rows) for column in columns]
        n_rows, n_columns = output.count_text(training.n_rows, "row"), output.count_text(len(columns), "column")
        title = f"{data}: {n_rows}, {n_columns} to learn from"
        heads, rest = ["column", "kind", "missing", "distinct", ""], f": {', '.join(_kinds(columns))} in all"
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


def _column_row(column: "Column", n_rows: int) -> tuple[str, ...]:
    missing = output.percent(column.n_missing / n_rows) if column.n_missing else "-"
    distinct = "" if column.n_distinct is None else f"{column.n_distinct:,}"
    remark = "empty" if column.n_missing == n_rows else "constant" if column.is_constant else ""
    return column.name, column.kind, missing, distinct, remark


def _kinds(columns: "tuple[Column, ...]") -> Iterator[str]:
    for kind in dict.fromkeys(column.kind for column in columns):
        yield f"{sum(column.kind == kind for column in columns):,} {kind}"


# ---------------------------------------------------------------------- what came out


def _show_summary(summary: dict[str, Any], out: Path) -> None:
    rows = output.count_text(summary["n_flagged"], "training row")
    if summary["n_sample"] is not None:
        rows = f"{summary['n_flagged']:,} of {summary['n_sample']:,} rows that were held out"
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
    if n_rows := summary["n_calibration"]:
        pairs.append(
            ("calibration", f"{output.count_text(n_rows, 'row')} not trained on: p-values from {1 / (n_rows + 1):.3g}")
        )
    resumed = f", resumed at step {summary['resumed_step']:,}" if summary["resumed_step"] else ""
    output.show_pairs([*pairs, ("time", f"{summary['seconds']:.1f} s{resumed}")])
    output.say()
    output.say(f"Next: {shlex.join(['esad', 'score', str(out), 'NEW_DATA', '--top', '10'])}")
