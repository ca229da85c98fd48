"""Options and arguments that several commands share, so that a name means the same everywhere."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad import registry
from esad.cli.command import OptionGroup
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.io.dialect import Reading

__all__ = ["complete_data_set", "complete_method", "option", "seconds_of", "shared_option"]


def option(default: Any, names: str, help: str, panel: str | None = None, **rest: Any) -> Any:
    """An option of one command; a default of `...` means that it must be given.

    `names` holds its names and what stands for its value, if it is no switch; `panel` is where the help shows it.
    """
    return _declare([default], names, help, panel, **rest)


def shared_option(names: str, help: str, panel: str | None = None, **rest: Any) -> Any:
    """The same for a type that several commands use, each with a default of its own."""
    return _declare([], names, help, panel, **rest)


def _declare(default: list[Any], names: str, help: str, panel: str | None, **rest: Any) -> Any:
    flags = [word for word in names.split() if word.startswith("-")]
    value = names.removeprefix(" ".join(flags)).strip() or None
    return typer.Option(*default, *flags, metavar=value, help=help, rich_help_panel=panel, **rest)


_DATA, _RUNNING, _ADDRESS, _WRITTEN = "Data", "Running", "Address", "How files are written"
_TRAINING, _THRESHOLD = "Training", "Threshold (one of these)"


def complete_method(incomplete: str) -> list[str]:
    """Names of methods for the shell."""
    return [name for name in registry.method_names() if name.startswith(incomplete)]


def complete_data_set(incomplete: str) -> list[str]:
    """Names of data sets for the shell."""
    return [name for name in registry.data_set_names() if name.startswith(incomplete)]


def seconds_of(budget: str) -> float:
    """Seconds in 90s, 25m or 2h.

    Examples
    --------
    >>> seconds_of("25m")
    1500.0
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", budget.strip())
    if found is None:
        raise InputError(f"--budget must be a time such as 90s, 25m or 2h. Got {budget!r}.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


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


Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV, Parquet or Excel file, or a folder of pictures.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by esad fit.")]
Json = Annotated[bool, shared_option("--json", "Print one JSON document and nothing else.")]
LabelColumn = Annotated[
    str | None,
    shared_option(
        "--label-column -l NAME",
        "Column that holds the few labels: anomaly, normal, or blank for unlabelled; or -1, +1, 0.",
        _DATA,
    ),
]
IdColumn = Annotated[
    str | None,
    shared_option(
        "--id-column -i NAME", "Column that names the rows: never learned from, carried into the scores.", _DATA
    ),
]
Ignore = Annotated[list[str] | None, shared_option("--ignore NAME", "Column to leave out; may be repeated.", _DATA)]
Text = Annotated[
    list[str] | None,
    shared_option("--text NAME", "Column to read as text, such as codes of digits; may be repeated.", _DATA),
]
AnomalyValue = Annotated[
    str | None, shared_option("--anomaly-value VALUE", "Value that marks an anomaly, such as 1, fraud or yes.", _DATA)
]
NormalValue = Annotated[
    str | None, shared_option("--normal-value VALUE", "Value that marks a row known to be normal.", _DATA)
]
Resize = Annotated[
    Any,
    shared_option(
        "--resize SIZE",
        "Size that pictures are read at: the most pixels of the longer side, such as 64, or width and height, "
        "such as 128x96; none for as they are. By default at most 128 on a CPU, 256 on a GPU.",
        _DATA,
        parser=_parse_size,
    ),
]
UnlabelledValue = Annotated[
    str | None,
    shared_option("--unlabelled-value VALUE", "Value of rows that nobody has looked at, beside blanks.", _DATA),
]
CasesFile = Annotated[
    Path | None,
    shared_option(
        "--cases FILE",
        "Labelled rows or pictures to hold the alarms against, such as the training file; for models that were "
        "not trained with --keep-cases.",
        _DATA,
    ),
]
LabelsCsv = Annotated[
    Path | None,
    shared_option(
        "--labels-csv FILE",
        "For a folder of pictures: CSV with the columns file and label, instead of sub-folders.",
        _DATA,
    ),
]
TruthColumn = Annotated[
    str | None,
    shared_option(
        "--truth-column -t NAME",
        "Column with the truth of every row: 1 or anomaly, 0 or normal (or -1, +1). "
        "For pictures the sub-folders anomaly/ and normal/ say it.",
    ),
]
Seed = Annotated[
    int,
    shared_option(
        "--seed N", "The same seed on the same machine gives the same result.", _RUNNING, callback=_check_seed
    ),
]
Device = Annotated[str, shared_option("--device NAME", "Where to compute: auto, cpu, cuda, cuda:1.", _RUNNING)]
Host = Annotated[
    str, shared_option("--host ADDRESS", "Where to listen; 0.0.0.0 is every network of this machine.", _ADDRESS)
]
Port = Annotated[int, shared_option("--port -p N", "Port; 0 takes a free one.", _ADDRESS, min=0, max=65535)]

# ---------------------------------------------------------------------- training

ModelOut = Annotated[Path, shared_option("--out -o MODEL", "Model file to write; its name ends in .esad.")]
Method = Annotated[
    str, shared_option("--method -m NAME", "The method; see: esad methods.", _TRAINING, autocompletion=complete_method)
]
MethodOrAuto = Annotated[
    str,
    shared_option(
        "--method -m NAME",
        "The method; see: esad methods. auto: the committee for tables with labelled anomalies, else ESAD.",
        _TRAINING,
        autocompletion=complete_method,
    ),
]
Members = Annotated[int | None, shared_option("--members N", "Networks trained side by side.", _TRAINING, min=1)]
Search = Annotated[
    bool,
    shared_option(
        "--search",
        "Try a few recipes by repeated splits of the labels first; takes about ten times as long.",
        _TRAINING,
    ),
]
Settings = Annotated[
    list[str] | None,
    shared_option(
        "--set NAME=VALUE",
        "Any other parameter of the method, such as n_epochs=50; may be repeated. How to compute, of ESAD: "
        "precision=bfloat16 (or float64), compiled=true, accumulate=4 (a batch in parts).",
        _TRAINING,
    ),
]
CalibrationRatio = Annotated[
    float | None,
    shared_option(
        "--calibration-ratio SHARE",
        "Hold this share of the unlabelled rows out of the training, for p-values and alarms with a guarantee.",
        _TRAINING,
    ),
]
CrossCalibration = Annotated[
    bool,
    shared_option(
        "--cross-calibration",
        "Like --calibration-ratio, but no row is lost: each member calibrates with those it left out anyway. For "
        "few rows; the guarantee is weaker.",
        _TRAINING,
    ),
]
Contamination = Annotated[
    float | None, shared_option("--contamination SHARE", "Flag this share of the training rows.", _THRESHOLD)
]
FalseAlarmRate = Annotated[
    float | None,
    shared_option("--false-alarm-rate SHARE", "Flag at most this share of the unlabelled and normal rows.", _THRESHOLD),
]
FromLabels = Annotated[
    bool, shared_option("--threshold-from-labels", "Flag from where the labels are parted best.", _THRESHOLD)
]
KeepCases = Annotated[
    bool,
    shared_option(
        "--keep-cases",
        "Keep the labelled rows in the model file, for esad explain to name the nearest; whoever has the file "
        "can read them.",
        _TRAINING,
    ),
]
Stream = Annotated[
    bool | None,
    shared_option(
        "--stream/--no-stream",
        "Read tables or pictures in parts, in bounded memory. By default several files are, and whatever "
        "would fill an eighth of the memory.",
        _RUNNING,
        show_default=False,
    ),
]
SkipBroken = Annotated[
    bool, shared_option("--skip-broken", "Leave out pictures that cannot be read, and say which.", _RUNNING)
]
Resume = Annotated[bool, shared_option("--resume", "Go on from MODEL.checkpoint after a kill or Ctrl-C.", _RUNNING)]
CheckpointEvery = Annotated[
    float, shared_option("--checkpoint-every SECONDS", "Time between two checkpoints of the training.", _RUNNING, min=0)
]
Quiet = Annotated[bool, shared_option("--quiet -q", "Print nothing but warnings and errors.", _RUNNING)]

# ---------------------------------------------------------------------- how files are written


def _read_with(
    decimal: str | None = option(
        None, "--decimal MARK", "What stands before decimals, . or a comma, where the numbers do not show it.", _WRITTEN
    ),
    date_format: str | None = option(
        None,
        "--date-format FORM",
        "How dates such as 01/02/2024 are meant: day-first, month-first, or a form such as '%d.%m.%y %H:%M'.",
        _WRITTEN,
    ),
    encoding: str | None = option(
        None,
        "--encoding NAME",
        "How letters are written, such as cp1250; by default UTF-8, UTF-16 or cp1252, as the file shows.",
        _WRITTEN,
    ),
    sheet: str | None = option(None, "--sheet NAME", "Sheet of an Excel file; by default the first.", _WRITTEN),
    max_unpacked: float = option(
        2.0,
        "--max-unpacked GIB",
        "Refuse a Parquet file of which 65,536 rows become more than this in memory, and an Excel file that does; "
        "0 reads whatever comes.",
        _WRITTEN,
        min=0,
    ),
) -> "Reading":
    from esad.io.dialect import Reading

    n_bytes = int(max_unpacked * 2**30) or None
    return Reading(decimal=decimal, date_format=date_format, encoding=encoding, sheet=sheet, max_unpacked=n_bytes)


def _name_labels(
    label_column: LabelColumn = None,
    anomaly_value: AnomalyValue = None,
    normal_value: NormalValue = None,
    unlabelled_value: UnlabelledValue = None,
    labels_csv: LabelsCsv = None,
) -> dict[str, Any]:
    return locals()


def _name_columns(
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    ignore: Ignore = None,
    text: Text = None,
    anomaly_value: AnomalyValue = None,
    normal_value: NormalValue = None,
    unlabelled_value: UnlabelledValue = None,
    labels_csv: LabelsCsv = None,
) -> dict[str, Any]:
    return locals() | {"ignore": tuple(ignore or ()), "text": tuple(text or ())}


# arguments of `TrainingData.from_file`: which column holds the labels and what they mean; roles of other columns too
LabelOptions = Annotated[dict[str, Any], OptionGroup(_name_labels)]
ColumnOptions = Annotated[dict[str, Any], OptionGroup(_name_columns)]
ReadingOptions = Annotated["Reading", OptionGroup(_read_with)]
