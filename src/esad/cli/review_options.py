"""The options of `esad review` that no other command has."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Cold", "ExportLabels", "ImportLabels", "Labels", "Out", "Paths", "Reviewers", "Training"]

_LABELS, _PAGE = "Labels", "Page"

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="[MODEL] DATA",
        help="Model file, which may be left out, and what to judge: a CSV or Parquet file, a folder or quoted pattern "
        "of such files, or a folder of PNG or JPEG pictures.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="MODEL",
        help="Without MODEL: the model file to make, or to go on with. By default DATA with the ending .esad.",
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="File that the judgements are kept in. By default DATA with .labels.db after its name.",
        rich_help_panel=_LABELS,
    ),
]
ExportLabels = Annotated[
    Path | None,
    typer.Option(
        "--export-labels",
        metavar="FILE",
        help="Write the judgements to this CSV file and end.",
        rich_help_panel=_LABELS,
    ),
]
ImportLabels = Annotated[
    Path | None,
    typer.Option(
        "--import-labels",
        metavar="FILE",
        help="Enter the judgements of this CSV file and end.",
        rich_help_panel=_LABELS,
    ),
]
Reviewers = Annotated[
    list[str] | None,
    typer.Option(
        "--reviewer",
        metavar="NAME",
        help="Who judges; may be repeated, each gets a link of their own. By default your user name.",
        rich_help_panel=_PAGE,
    ),
]
Cold = Annotated[
    bool,
    typer.Option("--cold", help="Let refits begin anew, not with the weights of the old model.", rich_help_panel=_PAGE),
]
Training = Annotated[
    Path | None,
    typer.Option(
        "--training",
        metavar="FILE",
        help="What MODEL was trained on, where it is not found at the place noted in MODEL: refits learn from it too.",
        rich_help_panel=_PAGE,
    ),
]
