"""The application: every command in one place, every failure as one line and an exit code.

Exit codes: 0 done · 1 training failed, or the system refused (disk, memory) · 2 what was given cannot be used ·
130 interrupted by Ctrl-C, 143 by a request to end.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import esad
from esad.cli import (
    bench,
    calibrate,
    compare,
    data,
    demo,
    evaluate,
    explain,
    export,
    failures,
    fit,
    inspect,
    labels,
    output,
    report,
    review,
    score,
    serve,
    sign,
)
from esad.cli.options import write_epilogue

app = typer.Typer(
    name="esad",
    epilog=write_epilogue("esad demo"),
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        output.say(f"esad {esad.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Find anomalies in a table or a folder of pictures, with a handful of labels."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _add(group: typer.Typer, *commands: Callable[..., None]) -> None:
    for command in commands:
        group.command(command.__name__, epilog=vars(command)["epilog"])(command)


def _add_group(callback: Callable[..., None], *commands: Callable[..., None], **options: Any) -> None:
    group = typer.Typer(invoke_without_command=True, rich_markup_mode="rich", **options)
    group.callback(epilog=vars(callback)["epilog"])(callback)
    _add(group, *commands)
    app.add_typer(group, name=callback.__name__)


_add(app, fit.fit, score.score, calibrate.calibrate, evaluate.evaluate, explain.explain, report.report, review.review)
_add(app, compare.compare, labels.labels, serve.serve, sign.sign, sign.trust, export.export, inspect.inspect)
_add(app, inspect.methods, demo.demo)
_add_group(data.data, data.save, data.get, data.status)
_add_group(bench.bench, bench.run, bench.report, bench.export, bench.merge, cls=bench.DefaultRun)


def run(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; words and JSON go to stdout and stderr.

    Parameters
    ----------
    args : sequence of str, optional
        What follows `esad` on the command line; that of this process by default.

    Examples
    --------
    >>> run(["--version"])
    esad ...
    0
    """
    arguments = list(sys.argv[1:] if args is None else args)
    with failures.raise_on_signals(), failures.show_warnings_as_lines():
        try:
            with failures.silent_unless_first():
                code = app(arguments, prog_name="esad", standalone_mode=False, obj=arguments)
        except (Exception, KeyboardInterrupt) as error:
            return failures.report_failure(error)
    return code if isinstance(code, int) else 0
