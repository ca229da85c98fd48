"""The application: every command in one place, every failure as one line and an exit code.

Exit codes: 0 done · 1 training failed, or the system refused (disk, memory) · 2 what was given cannot be used ·
130 interrupted by Ctrl-C, 143 by a request to end.
"""

import functools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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
    methods,
    output,
    report,
    review,
    score,
    serve,
    sign,
)
from esad.errors import InputError

__all__ = ["app", "run"]

app = typer.Typer(
    name="esad",
    epilog=output.example("esad demo"),
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


def _guarded(
    command: Callable[..., None], *, files: Callable[[Path], Mapping[str, Path]] | None = None
) -> Callable[..., None]:
    """Keep Ctrl-C away from typer, which would exit without a word; say what was written by then.

    `files` names the files of a command whose --out is a folder.
    """

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        paths = [kwargs[name] for name in ("out", "test_out") if kwargs.get(name) is not None]
        results = failures.Results(paths if files is None else files(*paths).values())
        try:
            _refuse_several(command)
            command(*args, **kwargs)
        except KeyboardInterrupt as interrupt:
            raise output.Interrupted(results.told()) from interrupt

    return wrapped


def _refuse_several(command: Callable[..., None]) -> None:
    """Other commands would do the same work several times over, and write to the same place."""
    if command is not fit.fit and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(f"torchrun is for esad fit. Run esad {command.__name__} by itself.")


app.command("fit", epilog=fit.EXAMPLE)(_guarded(fit.fit))
app.command("score", epilog=score.EXAMPLE)(_guarded(score.score))
app.command("calibrate", epilog=calibrate.EXAMPLE)(_guarded(calibrate.calibrate))
app.command("evaluate", epilog=evaluate.EXAMPLE)(_guarded(evaluate.evaluate))
app.command("explain", epilog=explain.EXAMPLE)(_guarded(explain.explain))
app.command("report", epilog=report.EXAMPLE)(_guarded(report.report))
app.command("review", epilog=review.EXAMPLE)(_guarded(review.review))
app.command("compare", epilog=compare.EXAMPLE)(_guarded(compare.compare))
app.command("labels", epilog=labels.EXAMPLE)(_guarded(labels.labels))
app.command("serve", epilog=serve.EXAMPLE)(_guarded(serve.serve))
app.command("sign", epilog=sign.EXAMPLE)(_guarded(sign.sign))
app.command("trust", epilog=sign.TRUST_EXAMPLE)(_guarded(sign.trust))
app.command("export", epilog=export.EXAMPLE)(_guarded(export.export))
app.command("inspect", epilog=inspect.EXAMPLE)(_guarded(inspect.inspect))
app.command("methods", epilog=methods.EXAMPLE)(_guarded(methods.methods))
_data = typer.Typer(invoke_without_command=True, rich_markup_mode="rich")
_data.callback(epilog=data.EXAMPLE)(_guarded(data.data))
_data.command("save", epilog=data.SAVE_EXAMPLE)(_guarded(data.save))
_data.command("get", epilog=data.GET_EXAMPLE)(_guarded(data.get))
_data.command("status", epilog=data.STATUS_EXAMPLE)(_guarded(data.status))
app.add_typer(_data, name="data")
_bench = typer.Typer(cls=bench.DefaultRun, invoke_without_command=True, rich_markup_mode="rich")
_bench.callback(epilog=bench.EXAMPLE)(_guarded(bench.bench))
_bench.command("run", epilog=bench.RUN_EXAMPLE)(_guarded(bench.run))
_bench.command("report", epilog=bench.REPORT_EXAMPLE)(_guarded(bench.report))
_bench.command("export", epilog=bench.EXPORT_EXAMPLE)(_guarded(bench.export))
_bench.command("merge", epilog=bench.MERGE_EXAMPLE)(_guarded(bench.merge))
app.add_typer(_bench, name="bench")
app.command("demo", epilog=demo.EXAMPLE)(_guarded(demo.demo, files=demo.result_files))


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
    with failures.signals_raise(), failures.warnings_as_lines():
        try:
            with failures.silent_unless_first():
                code = app(arguments, prog_name="esad", standalone_mode=False, obj=arguments)
        except (Exception, KeyboardInterrupt) as error:
            return failures.report(error)
    return code if isinstance(code, int) else 0
