"""The options of `esad fit`; `esad review`, which may train a first model, has some of them."""

from pathlib import Path
from typing import Annotated

import typer

from esad.cli import options

__all__ = [
    "CalibrationRatio",
    "CheckpointEvery",
    "Contamination",
    "CrossCalibration",
    "FalseAlarmRate",
    "FromLabels",
    "KeepCases",
    "Members",
    "Method",
    "Out",
    "Quiet",
    "Resume",
    "Search",
    "Settings",
    "SkipBroken",
    "Stream",
]

_TRAINING, _THRESHOLD, _RUNNING = "Training", "Threshold (one of these)", "Running"

Out = Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Model file to write; its name ends in .esad.")]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME",
        help="The method; see: esad methods.",
        autocompletion=options.complete_method,
        rich_help_panel=_TRAINING,
    ),
]
Members = Annotated[
    int | None,
    typer.Option("--members", min=1, metavar="N", help="Networks trained side by side.", rich_help_panel=_TRAINING),
]
Search = Annotated[
    bool,
    typer.Option(
        "--search",
        help="Try a few recipes by repeated splits of the labels first; takes about ten times as long.",
        rich_help_panel=_TRAINING,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other parameter of the method, such as n_epochs=50; may be repeated. How to compute, of ESAD: "
        "precision=bfloat16 (or float64), compiled=true, accumulate=4 (a batch in parts).",
        rich_help_panel=_TRAINING,
    ),
]
CalibrationRatio = Annotated[
    float | None,
    typer.Option(
        "--calibration-ratio",
        metavar="SHARE",
        help="Hold this share of the unlabelled rows out of the training, for p-values and alarms with a guarantee.",
        rich_help_panel=_TRAINING,
    ),
]
CrossCalibration = Annotated[
    bool,
    typer.Option(
        "--cross-calibration",
        help="Like --calibration-ratio, but no row is lost: each member calibrates with those it left out anyway. For "
        "few rows; the guarantee is weaker.",
        rich_help_panel=_TRAINING,
    ),
]
Contamination = Annotated[
    float | None,
    typer.Option(
        "--contamination", metavar="SHARE", help="Flag this share of the training rows.", rich_help_panel=_THRESHOLD
    ),
]
FalseAlarmRate = Annotated[
    float | None,
    typer.Option(
        "--false-alarm-rate",
        metavar="SHARE",
        help="Flag at most this share of the unlabelled and normal rows.",
        rich_help_panel=_THRESHOLD,
    ),
]
FromLabels = Annotated[
    bool,
    typer.Option(
        "--threshold-from-labels", help="Flag from where the labels are parted best.", rich_help_panel=_THRESHOLD
    ),
]
KeepCases = Annotated[
    bool,
    typer.Option(
        "--keep-cases",
        help="Keep the labelled rows in the model file, for esad explain to name the nearest; whoever has the file "
        "can read them.",
        rich_help_panel=_TRAINING,
    ),
]
Stream = Annotated[
    bool | None,
    typer.Option(
        "--stream/--no-stream",
        help="Read tables or pictures in parts, in bounded memory. By default several files are, and whatever "
        "would fill an eighth of the memory.",
        show_default=False,
        rich_help_panel=_RUNNING,
    ),
]
SkipBroken = Annotated[
    bool,
    typer.Option(
        "--skip-broken", help="Leave out pictures that cannot be read, and say which.", rich_help_panel=_RUNNING
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on from MODEL.checkpoint after a kill or Ctrl-C.", rich_help_panel=_RUNNING),
]
CheckpointEvery = Annotated[
    float,
    typer.Option(
        "--checkpoint-every",
        min=0,
        metavar="SECONDS",
        help="Time between two checkpoints of the training.",
        rich_help_panel=_RUNNING,
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but warnings and errors.", rich_help_panel=_RUNNING)
]
