"""What every command shares: where words, tables and JSON go, and how near misses are named."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad import registry
from esad.core.text import counted, hint, listed
from esad.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "EPILOGUE",
    "Interrupted",
    "check_method",
    "counted",
    "example",
    "fail",
    "hint",
    "interrupted",
    "json_out",
    "listed",
    "note",
    "one_line",
    "percent",
    "printable",
    "refuse_same_file",
    "say",
    "show_pairs",
    "show_table",
    "size_text",
    "stdout",
    "warn",
]

EPILOGUE = "Example:"
_WIDE = 240  # columns when nobody's terminal limits them: tables in files are not cut


class Interrupted(Exception):  # noqa: N818  not an error: the user asked for it
    """Ctrl-C, with what the user should know now."""


def example(*commands: str) -> str:
    """The example under a command's help."""
    return "\n\n".join([EPILOGUE, *(f"  {command}" for command in commands)])


# ---------------------------------------------------------------------- words


def printable(value: object) -> str:
    """Text that can neither break the line nor steer the terminal, whatever a data file holds."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """A message of several lines as one."""
    return " ".join(printable(line.strip()) for line in text.splitlines() if line.strip())


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.1f} %"


def size_text(n_bytes: int) -> str:
    """A file size for people."""
    size, unit = float(n_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"


# ---------------------------------------------------------------------- checks


def check_method(name: str) -> None:
    """Refuse an unknown method and name the nearest."""
    names = registry.method_names()
    if name not in names:
        raise InputError(f"Unknown method {name!r}.{hint(name, names)} There are: {', '.join(names)}.")


def refuse_same_file(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write over what is being read."""
    from esad.errors import OutputError

    for path in inputs:
        if out.exists() and path.exists() and os.path.samefile(out, path):
            raise OutputError(f"Cannot write {str(out)!r}: it is a file being read. Choose another path.")


# ---------------------------------------------------------------------- output


def stdout() -> "Console":
    """Where results go."""
    return _console(stderr=False)


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    on_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=None if on_terminal else _WIDE)


def say(text: str = "", *, style: str | None = None) -> None:
    """One line of result."""
    stdout().print(printable(text), style=style, soft_wrap=True)


def _tell(word: str, text: str, style: str) -> None:
    from rich.text import Text

    console = _console(stderr=True)
    console.print(Text.assemble((f"{word}: ", style), one_line(text)), soft_wrap=True)


def note(text: str) -> None:
    """Something worth knowing, beside the result."""
    _tell("note", text, "cyan")


def warn(text: str) -> None:
    """Something that may be a mistake."""
    _tell("warning", text, "yellow")


def fail(text: str) -> None:
    """Why the command did not do what was asked."""
    _tell("error", text, "bold red")


def interrupted(text: str) -> None:
    """The command was stopped on purpose."""
    _tell("interrupted", text, "yellow")


def json_out(document: Any) -> None:
    """The one JSON document on stdout."""
    escaped = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=escaped) + "\n")


def show_table(
    title: str | None, heads: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()
) -> None:
    """A table; the columns named in `right` hold numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if title is not None:
        say(title, style="bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    numbers = set(right)
    for head in heads:
        table.add_column(head, justify="right" if head in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
    stdout().print(table)


def show_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, Text(printable(value)))
    stdout().print(grid)
