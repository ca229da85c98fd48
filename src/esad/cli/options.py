"""Options and arguments that several commands share, so that a name means the same everywhere."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from esad import registry

__all__ = [
    "AnomalyValue",
    "CalibrationRatio",
    "CasesFile",
    "CheckpointEvery",
    "Contamination",
    "CrossCalibration",
    "Data",
    "Device",
    "FalseAlarmRate",
    "FromLabels",
    "Host",
    "IdColumn",
    "Ignore",
    "Json",
    "KeepCases",
    "LabelColumn",
    "LabelsCsv",
    "Members",
    "Method",
    "Model",
    "ModelOut",
    "NormalValue",
    "Port",
    "Quiet",
    "Resize",
    "Resume",
    "Search",
    "Seed",
    "Settings",
    "SkipBroken",
    "Stream",
    "Text",
    "TruthColumn",
    "UnlabelledValue",
    "complete_data_set",
    "complete_method",
]

_DATA, _RUNNING, _ADDRESS = "Data", "Running", "Address"
_TRAINING, _THRESHOLD = "Training", "Threshold (one of these)"


def complete_method(incomplete: str) -> list[str]:
    """Names of methods for the shell."""
    return [name for name in registry.method_names() if name.startswith(incomplete)]


def complete_data_set(incomplete: str) -> list[str]:
    """Names of data sets for the shell."""
    return [name for name in registry.data_set_names() if name.startswith(incomplete)]


def _check_seed(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise typer.BadParameter(f"{seed} is not between 0 and 4294967295.")
    return seed


def _parse_size(text: str) -> Any:
    """What `TrainingData.from_file` takes as `resize`."""
    word = text.strip().lower()
    if word in ("auto", "none"):
        return None if word == "none" else word
    found = re.fullmatch(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?", word)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size. Give auto, none, a number of pixels, or such as 128x96.")
    return int(found[1]) if found[2] is None else (int(found[1]), int(found[2]))


Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet file, or a folder of pictures.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by esad fit.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
LabelColumn = Annotated[
    str | None,
    typer.Option(
        "--label-column",
        "-l",
        metavar="NAME",
        help="Column that holds the few labels: anomaly, normal, or blank for unlabelled; or -1, +1, 0.",
        rich_help_panel=_DATA,
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        "--id-column",
        "-i",
        metavar="NAME",
        help="Column that names the rows: never learned from, carried into the scores.",
        rich_help_panel=_DATA,
    ),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="NAME", help="Column to leave out; may be repeated.", rich_help_panel=_DATA),
]
Text = Annotated[
    list[str] | None,
    typer.Option(
        "--text",
        metavar="NAME",
        help="Column to read as text, such as codes of digits; may be repeated.",
        rich_help_panel=_DATA,
    ),
]
AnomalyValue = Annotated[
    str | None,
    typer.Option(
        "--anomaly-value",
        metavar="VALUE",
        help="Value that marks an anomaly, such as 1, fraud or yes.",
        rich_help_panel=_DATA,
    ),
]
NormalValue = Annotated[
    str | None,
    typer.Option(
        "--normal-value", metavar="VALUE", help="Value that marks a row known to be normal.", rich_help_panel=_DATA
    ),
]
Resize = Annotated[
    Any,
    typer.Option(
        "--resize",
        metavar="SIZE",
        parser=_parse_size,
        help="Size that pictures are read at: the most pixels of the longer side, such as 64, or width and height, "
        "such as 128x96; none for as they are. By default at most 128 on a CPU, 256 on a GPU.",
        rich_help_panel=_DATA,
    ),
]
UnlabelledValue = Annotated[
    str | None,
    typer.Option(
        "--unlabelled-value",
        metavar="VALUE",
        help="Value of rows that nobody has looked at, beside blanks.",
        rich_help_panel=_DATA,
    ),
]
CasesFile = Annotated[
    Path | None,
    typer.Option(
        "--cases",
        metavar="FILE",
        help="Labelled rows or pictures to hold the alarms against, such as the training file; for models that were "
        "not trained with --keep-cases.",
        rich_help_panel=_DATA,
    ),
]
LabelsCsv = Annotated[
    Path | None,
    typer.Option(
        "--labels-csv",
        metavar="FILE",
        help="For a folder of pictures: CSV with the columns file and label, instead of sub-folders.",
        rich_help_panel=_DATA,
    ),
]
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
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        callback=_check_seed,
        help="The same seed on the same machine gives the same result.",
        rich_help_panel=_RUNNING,
    ),
]
Device = Annotated[
    str,
    typer.Option(
        "--device", metavar="NAME", help="Where to compute: auto, cpu, cuda, cuda:1.", rich_help_panel=_RUNNING
    ),
]
Host = Annotated[
    str,
    typer.Option(
        "--host",
        metavar="ADDRESS",
        help="Where to listen; 0.0.0.0 is every network of this machine.",
        rich_help_panel=_ADDRESS,
    ),
]
Port = Annotated[
    int,
    typer.Option(
        "--port", "-p", min=0, max=65535, metavar="N", help="Port; 0 takes a free one.", rich_help_panel=_ADDRESS
    ),
]

# ---------------------------------------------------------------------- training

ModelOut = Annotated[
    Path, typer.Option("--out", "-o", metavar="MODEL", help="Model file to write; its name ends in .esad.")
]
Method = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME",
        help="The method; see: esad methods.",
        autocompletion=complete_method,
        rich_help_panel=_TRAINING,
    ),
]
MethodOrAuto = Annotated[
    str,
    typer.Option(
        "--method",
        "-m",
        metavar="NAME",
        help="The method; see: esad methods. auto: the committee for tables with labelled anomalies, else ESAD.",
        autocompletion=complete_method,
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
    bool, typer.Option("--resume", help="Go on from MODEL.checkpoint after a kill or Ctrl-C.", rich_help_panel=_RUNNING)
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
