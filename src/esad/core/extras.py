"""The one way optional packages come in."""

import importlib
from types import ModuleType

from esad.errors import MissingExtraError

__all__ = ["require"]


def require(module: str, *, extra: str) -> ModuleType:
    """Import `module`, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"This needs the package {module!r}, which is not installed. Install esad with its extra {extra!r}; "
            f"in a clone of its repository: pip install '.[{extra}]'"
        ) from error
