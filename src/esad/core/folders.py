"""Folders of this user: one that a variable names, or where the XDG standard puts it."""

import os
from pathlib import Path

from esad.errors import InputError

__all__ = ["user_folder"]


def user_folder(variable: str, kind: str, purpose: str) -> Path:
    """The folder that `variable` names; without one, `esad` in XDG_<KIND>_HOME or in ~/.<kind>.

    Parameters
    ----------
    variable : str
        Such as "ESAD_DATA".
    kind : {"cache", "config"}
    purpose : str
        What it is for, where there is no home folder either.
    """
    if named := os.environ.get(variable):
        return Path(named)
    standard = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
    if os.path.isabs(standard):  # the standard has relative ones ignored
        return Path(standard) / "esad"
    try:
        return Path.home() / f".{kind}" / "esad"
    except RuntimeError as error:
        raise InputError(f"There is no home folder to keep {purpose} in. Set {variable} to a folder.") from error
