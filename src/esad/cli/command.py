"""What makes a function a command: examples under its help, options that come in groups, a word at Ctrl-C."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esad.cli import failures, output
from esad.errors import InputError

__all__ = ["EPILOGUE", "OptionGroup", "command", "epilogue"]

EPILOGUE = "Example:"


@dataclass(frozen=True)
class OptionGroup:
    """Marks a parameter that is no option itself: a command is given what `make` makes of its own parameters."""

    make: Callable[..., Any]


def epilogue(*examples: str) -> str:
    """The examples under a command's help."""
    return "\n\n".join([EPILOGUE, *(f"  {example}" for example in examples)])


def command(
    *examples: str, files: Callable[[Path], Mapping[str, Path]] | None = None, for_several: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command, with examples of its use.

    Ctrl-C is kept away from typer, which would exit without a word: what was written by then is told. `files` names the
    files of a command whose --out is a folder. Unless `for_several`, it is refused where several processes run: they
    would do the same work several times over, and write to the same place.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        parameters, groups = _expand_groups(function)

        @functools.wraps(function)
        def wrapped(**given: Any) -> None:
            for name, (make, names) in groups.items():
                given[name] = make(**{own: given.pop(own) for own in names})
            paths = [given[name] for name in ("out", "test_out") if given.get(name) is not None]
            results = failures.Results(paths if files is None else files(*paths).values())
            try:
                if not (for_several or failures.is_alone()):
                    raise InputError(f"torchrun is for esad fit. Run esad {function.__name__} by itself.")
                function(**given)
            except KeyboardInterrupt as interrupt:
                raise output.Interrupted(results.describe()) from interrupt

        vars(wrapped).update(__signature__=inspect.Signature(parameters), epilog=epilogue(*examples))
        wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
        return wrapped

    return decorate


def _expand_groups(
    function: Callable[..., None],
) -> tuple[list[inspect.Parameter], dict[str, tuple[Callable[..., Any], list[str]]]]:
    """All options of a command, those of groups in their place; and how the groups are made from which of them."""
    parameters, groups = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        found = [mark for mark in getattr(parameter.annotation, "__metadata__", ()) if isinstance(mark, OptionGroup)]
        own = list(inspect.signature(found[0].make).parameters.values()) if found else [parameter]
        parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        if found:
            groups[name] = found[0].make, [each.name for each in own]
    return parameters, groups
