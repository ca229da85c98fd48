"""What there is on this machine: optional packages, folders of the user, memory."""

import importlib
import os
from pathlib import Path
from types import ModuleType

from esad.errors import InputError, MissingExtraError

_DATA_SHARE = 0.125  # of the memory; a fit takes several times what its rows take


def require(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"This needs the package {module!r}, which is not installed. Install esad with its extra {extra!r}; "
            f"in a clone of its repository: pip install '.[{extra}]'"
        ) from error


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


def data_limit() -> float:
    """Bytes that rows to learn from may take at once: more are read in parts, or refused.

    Examples
    --------
    >>> data_limit() > 2**20
    True
    """
    try:
        return _DATA_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _DATA_SHARE * 8 * 2**30
