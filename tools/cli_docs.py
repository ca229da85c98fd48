"""Writes docs/cli.md from the help texts of the commands, so that the two never differ.

Run it after changing an option or a help text: `python tools/cli_docs.py`. A test compares.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from esad.cli.app import app
from esad.cli.options import EPILOGUE

PAGES = (Path(__file__).resolve().parent.parent / "docs" / "cli.md",)

INTRODUCTION = """\
# Command line

<!-- Written by tools/cli_docs.py from the help texts. Change those, then run it. -->

`esad COMMAND --help` shows the same in a terminal; `python -m esad` is the same command. Results go to stdout, progress
(on a terminal only), notes and warnings to stderr. With `--json` stdout holds one JSON document and nothing else.
A file is written beside its place and then renamed, so it is there whole or not at all.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | training failed, memory ran out, or some of many files or trainings failed; the others are done |
| 2 | what was given cannot be used, or a result cannot be written; one line on stderr says what, and what to do |
| 130, 143 | stopped by Ctrl-C or by a request to end |

Completion of commands, options and names in the shell: `esad --install-completion`.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, groups before what they hold."""
    yield from _below("esad", typer.main.get_command(app))


def _below(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _below(f"{path} {name}", child)


def render(_: str = "") -> str:
    """The whole page, whatever it was before."""
    return "\n".join([INTRODUCTION, *(_section(path, command) for path, command in commands())])


def _section(path: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join([path, *(argument.metavar for argument in arguments)])
    usage += "".join(f" {option.opts[0]} {option.metavar}" for option in options if option.required)
    rows = [f"| `{argument.metavar}` | {_meaning(argument)} |" for argument in arguments]
    rows += [f"| {_names(option)} | {_meaning(option)} |" for option in options]
    examples = [line.strip() for line in command.epilog.removeprefix(EPILOGUE).splitlines() if line.strip()]
    paragraphs = [" ".join(paragraph.split()) for paragraph in command.help.split("\n\n")]
    parts = [f"## {path}", *paragraphs, f"    {usage} [OPTIONS]"]
    parts.append("\n".join(["| | |", "| --- | --- |", *rows]))
    parts.append("\n".join(["```sh", *examples, "```"]))
    return "\n\n".join(parts) + "\n"


def _names(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar}"
    long = [name for name in option.opts if name.startswith("--")]
    short = [name for name in option.opts if not name.startswith("--")]
    opposite = option.secondary_opts  # of a switch that is on by itself
    return ", ".join([*(f"`{name}`" for name in short), f"`{long[0]}{value}`", *(f"`{name}`" for name in opposite)])


def _meaning(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    default = parameter.default
    if default is not None and default is not False and not callable(default):
        text += f" Default: {default:g}." if isinstance(default, float) else f" Default: {default}."
    return text


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(render(), encoding="utf-8")
