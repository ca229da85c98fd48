"""`esad bench`: experiments from a file, results in a store, tables from it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from esad.cli import options, output
from esad.cli.options import command, option, shared_option
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.bench.grid import Experiment
    from esad.bench.run import CellFailure, RunSummary
    from esad.bench.store import Result

_STORE = Path("bench.db")

Experiments = Annotated[list[Path], typer.Argument(metavar="EXPERIMENT...", help="Experiment files (TOML).")]
StorePath = Annotated[Path, shared_option("--store -s FILE", "Store of results; made if it is not there.")]
Subset = Annotated[
    list[str] | None,
    shared_option(
        "--subset NAME=A,B",
        "Only these values of data, variant, seed or an axis; or settings.NAME=VALUE for all. May be repeated.",
    ),
]


class DefaultRun(TyperGroup):
    """`esad bench FILE` is `esad bench run FILE`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Take what is no command for the first experiment."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["run", *args]
        return super().resolve_command(ctx, args)


@command("esad bench experiments/classic.toml", "esad bench report experiments/classic.toml")
def bench(context: typer.Context) -> None:
    """Run experiments, keep every result, make tables of them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@command(
    "esad bench run experiments/classic.toml --jobs 2 --budget 25m",
    "esad bench run experiments/classic.toml --subset data=cardio,thyroid --subset seed=0",
)
def run(
    experiments: Experiments,
    store: StorePath = _STORE,
    subset: Subset = None,
    jobs: int = option(1, "--jobs -j N", "Processes side by side.", min=1),
    backend: str = option(
        "loky",
        "--backend NAME",
        "loky: processes. threading: threads. ray: the Ray cluster at RAY_ADDRESS, or one started here.",
    ),
    budget: str | None = option(None, "--budget TIME", "Start nothing new after this long, such as 90s, 25m or 2h."),
    as_json: options.Json = False,
) -> None:
    """Run what the store does not have yet; after a kill the same command goes on.

    Several runs, on one machine or on several that see the same file, may share a store: each takes cells that nobody
    else is at work on.
    """
    from esad.bench.run import run as run_cells
    from esad.bench.store import ResultStore

    chosen = [_read_experiment(path, subset) for path in experiments]
    cells = [cell for experiment in chosen for _, cell in experiment.cells()]
    seconds = None if budget is None else options.seconds_of(budget)
    with ResultStore(store) as results, output.bar(bursts=True, shown=not as_json) as progress:
        names = {cell.name for cell in cells}
        n_there = len(names & results.finished_cells())
        task = progress.add_task("running", total=len(names), completed=n_there, before=n_there, limit=seconds)

        def on_done(done: "Result | CellFailure") -> None:
            progress.update(task, advance=1, description=_describe_result(done))

        try:
            outcome = run_cells(cells, results, n_jobs=jobs, backend=backend, budget=seconds, on_done=on_done)
        except KeyboardInterrupt as interrupt:
            n_done = output.count_text(len(names & results.finished_cells()), "cell")
            raise output.Interrupted(f"{n_done} of {len(names):,} done. The same command goes on.") from interrupt
    _show(outcome, len(names), n_there, store, as_json=as_json)


@command("esad bench report experiments/classic.toml --out results.md")
def report(
    experiments: Experiments,
    store: StorePath = _STORE,
    out: Path | None = option(None, "--out -o FILE", "Markdown file to write."),
    published: Path | None = option(
        None, "--published FILE", "The paper's figures; published.json beside the experiment by default."
    ),
    figures: Path | None = option(None, "--figures FOLDER", "Draw figures into this folder, as PNG."),
    subset: Subset = None,
    as_json: options.Json = False,
) -> None:
    """Show the stored results as tables, beside what the paper prints, and as figures."""
    from esad.bench.report import make_page

    read = [(path, _read_experiment(path, subset)) for path in experiments]
    page = make_page(read, _load_results(store), published=published, figures=figures, out=out)
    if out is not None:
        page.write(out)

    def show() -> None:
        if out is not None:
            output.say(f"{out}: {output.count_text(len(page.tables), 'table')}")
            return
        for line in "\n".join(page.tables).splitlines():
            output.say(line)

    output.answer(as_json, {"experiments": page.plain}, show)


@command("esad bench merge bench.db other-machine.db")
def merge(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store that takes the results.")],
    others: Annotated[list[Path], typer.Argument(metavar="OTHER...", help="Stores of other machines.")],
    as_json: options.Json = False,
) -> None:
    """Take over results of other stores that this one does not have."""
    from esad.bench.store import ResultStore

    with ResultStore(store) as results:
        taken = {str(path): results.merge(_load_results(path)) for path in others}
    if as_json:
        output.print_json({"taken": taken})
        return
    for name, n_taken in taken.items():
        output.say(f"{name}: {output.count_text(n_taken, 'new result')}")


@command("esad bench export bench.db --out results.jsonl")
def export(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Store of results.")],
    out: Path = option(..., "--out -o FILE", "Text file to write (.jsonl)."),
    as_json: options.Json = False,
) -> None:
    """Write the results as a small text file, for a repository; report and merge read it too."""
    from esad.bench.store import to_text
    from esad.core.atomic import write_text

    if out.suffix != ".jsonl":
        raise InputError(f"--out must end in .jsonl. Got {str(out)!r}.")
    results = _load_results(store)
    write_text(out, to_text(results))
    document = {"out": str(out), "n_results": len(results)}
    output.answer(as_json, document, lambda: output.say(f"{out}: {output.count_text(len(results), 'result')}"))


def _load_results(path: Path) -> "list[Result]":
    """All results of a store, or of its text export."""
    from esad.bench.store import ResultStore, read_results

    if not path.exists():
        raise InputError(f"There is no store {str(path)!r}. Run the experiments first, or name it by --store.")
    if path.suffix == ".jsonl":
        return read_results(path)
    with ResultStore(path) as store:
        return store.results()


def _read_experiment(path: Path, subset: list[str] | None) -> "Experiment":
    from esad.bench import grid

    chosen: dict[str, list[str]] = {}
    for text in subset or ():
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise InputError(f"--subset must be NAME=VALUE, such as seed=0,1. Got {text!r}.")
        chosen.setdefault(name.strip(), []).extend(value.strip() for value in values.split(","))
    return grid.read_experiment(path).subset(chosen)


def _describe_result(done: "Result | CellFailure") -> str:
    from esad.bench.run import CellFailure

    if isinstance(done, CellFailure):
        return f"{done.cell.method} on {done.cell.data} failed"
    return f"{done.description['method']} on {done.description['data']}: AUC {100 * done.auc:.1f}"


def _show(outcome: "RunSummary", n_cells: int, n_there: int, store: Path, *, as_json: bool) -> None:
    failures = [{**failure.cell.describe(), "reason": failure.reason} for failure in outcome.failures]
    if as_json:
        counts = {"cells": n_cells, "already_there": n_there, "done": outcome.n_done, "left": outcome.n_left}
        output.print_json(counts | {"elsewhere": outcome.n_elsewhere, "failures": failures, "store": str(store)})
    else:
        output.say(f"{n_cells:,} cells: {n_there:,} were there, {outcome.n_done:,} done now. Store: {store}")
        if outcome.n_elsewhere:
            output.say(f"{outcome.n_elsewhere:,} are with another run.")
        if outcome.n_left:
            why = "" if failures else ": the budget is spent"
            output.say(f"{outcome.n_left:,} are left{why}. The same command goes on.")
    for reason in dict.fromkeys(failure["reason"] for failure in failures):
        n_failed = sum(failure["reason"] == reason for failure in failures)
        output.warn(f"{output.count_text(n_failed, 'cell')} could not be run: {reason}")
    if failures:
        raise typer.Exit(1)
