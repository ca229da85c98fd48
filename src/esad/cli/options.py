"""Options and arguments that several commands share, so that a name means the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

from esad import registry

__all__ = [
    "AnomalyValue",
    "CasesFile",
    "Data",
    "Device",
    "Host",
    "IdColumn",
    "Ignore",
    "Json",
    "LabelColumn",
    "LabelsCsv",
    "Model",
    "NormalValue",
    "Port",
    "Seed",
    "Text",
    "complete_data_set",
    "complete_method",
]

_DATA, _RUNNING, _ADDRESS = "Data", "Running", "Address"


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


Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV or Parquet file, or a folder of PNG or JPEG pictures.")]
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
        "--normal-value",
        metavar="VALUE",
        help="Value that marks a row known to be normal.",
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
        "--device",
        metavar="NAME",
        help="Where to compute: auto, cpu, cuda, cuda:1.",
        rich_help_panel=_RUNNING,
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
