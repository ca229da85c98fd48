"""One training from the command line: with a bar, checkpoints, a way out by Ctrl-C and a way back by --resume."""

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import common
from esad.cli.build import Choice
from esad.cli.failures import Results, is_first
from esad.cli.progress import GracefulStop, TrainingBar, bar
from esad.cli.training import TrainingSet
from esad.errors import OutputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.persist.checkpoint import Checkpoint
    from esad.score.threshold import Threshold
    from esad.train.callbacks import Callback

_DATA_SUFFIXES = (".csv", ".tsv", ".parquet", ".pq", ".gz", ".json", ".npz", ".png", ".jpg", ".jpeg")

__all__ = ["check_out", "checkpoint_path", "fit_and_save", "open_checkpoint"]


def checkpoint_path(out: Path) -> Path:
    """Where the state of an unfinished training lies."""
    return out.with_name(f"{out.name}.checkpoint")


def check_out(out: Path, inputs: Sequence[Path]) -> None:
    """Find out before the training whether the model can be written after it."""
    from esad.core.atomic import check_writable

    if out.suffix.lower() in _DATA_SUFFIXES:  # a slip must not replace a data file
        raise OutputError(f"Cannot write the model to {str(out)!r}: that is a name for data. Let it end in .esad.")
    common.refuse_same_file(out, inputs)
    check_writable(out)
    check_writable(checkpoint_path(out))


def open_checkpoint(out: Path, *, every_seconds: float, resume: bool) -> "Checkpoint":
    """The checkpoint of this training; says what becomes of one that is there already."""
    from esad.persist.checkpoint import Checkpoint

    path = checkpoint_path(out)
    resume = resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0  # by the launcher, after a loss
    if resume and not path.exists():
        common.note(f"there is no checkpoint {str(path)!r} to resume from: training from the beginning.")
    if not resume and path.exists():
        common.warn(f"the checkpoint {str(path)!r} of an unfinished training is not used. To go on from it: --resume.")
    return Checkpoint(path, every_seconds=every_seconds, resume=resume)


def fit_and_save(
    detector: "Detector",
    training: TrainingSet,
    *,
    rule: "Threshold | None",
    choice: Choice,
    checkpoint: "Checkpoint",
    out: Path,
    keep_cases: bool,
    command: Sequence[str],
    shown: bool,
) -> dict[str, Any]:
    """Train, set the threshold, save, and only then drop the checkpoint; returns what came out, seconds included.

    Of several processes only the first goes on after the training.
    All that takes long is done before the model is saved: an interruption finds either no model or a finished command.
    """
    started, results = time.perf_counter(), Results([out])
    try:
        with bar(shown=shown) as progress, GracefulStop(checkpoint) as stop:
            callbacks: list[Callback] = [checkpoint, TrainingBar(progress, f"training {type(detector).__name__}"), stop]
            if training.survey is None:
                detector.fit(training.X, training.y, calibration_ratio=choice.calibration_ratio, callbacks=callbacks)
            else:
                detector.fit_stream(training.survey, calibration_ratio=choice.calibration_ratio, callbacks=callbacks)
        if not is_first():
            return {}
        if choice.cross_calibration:
            detector.calibrate()
        if rule is not None and rule.rule == "false_alarm" and detector.calibration_ is not None:
            detector.calibrate(alpha=rule.level)
        elif rule is not None and rule.rule != "contamination":
            detector.fit_threshold(
                false_alarm_rate=rule.level if rule.rule == "false_alarm" else None,
                from_labels=rule.rule == "labels",
            )
        detector.notes_ = training.notes
        _mention_lowered(detector)
        summary = _summary(detector, training)
        detector.save(out, with_cases=keep_cases)
    except KeyboardInterrupt as interrupt:
        if results.written():  # the model took its place right before
            checkpoint.remove()
            raise
        raise common.Interrupted(_way_back(checkpoint.path, command)) from interrupt
    checkpoint.remove()
    return summary | {"seconds": time.perf_counter() - started, "resumed_step": checkpoint.resumed_step}


def _summary(detector: "Detector", training: TrainingSet) -> dict[str, Any]:
    """What the model does on the rows it learned from."""
    flagged = detector.anomaly_score(training.X) > detector.threshold_
    found: dict[str, Any] = {
        "threshold": detector.threshold_,
        "n_flagged": int(flagged.sum()),
        "flagged_ratio": float(flagged.mean()),
    }
    found["n_sample"] = None if training.survey is None else training.n_rows
    found["n_calibration"] = 0 if detector.calibration_ is None else detector.calibration_.n_rows
    if training.y is not None and (training.y < 0).any():
        found["n_labelled_anomaly_flagged"] = int(flagged[training.y < 0].sum())
        found["n_labelled_anomaly"] = int((training.y < 0).sum())
    return found


def _mention_lowered(detector: "Detector") -> None:
    """Say when labels have lowered the automatic threshold."""
    usual = None if detector.applied_ is None else detector.applied_.lowered_from
    if usual is not None:
        anomalies = detector.training_scores_[detector.training_labels_ < 0]
        known = common.counted(len(anomalies), "labelled anomaly", "labelled anomalies")
        common.note(f"the usual threshold would flag {(anomalies > usual).sum():,} of the {known}: they lower it.")


def _way_back(path: Path, command: Sequence[str]) -> str:
    if not path.exists():
        return "no model was written."
    arguments = [*command, *([] if "--resume" in command else ["--resume"])]
    launcher = "torchrun ... -m " if int(os.environ.get("WORLD_SIZE", "1")) > 1 else ""
    return f"no model was written. Go on with: {launcher}{shlex.join(['esad', *arguments])}"
