"""`esad score` on many files: what is asked for, how far it is, and what came of it."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common
from esad.cli.progress import bar
from esad.cli.source import warn_of_unknown
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.scale import Outcome
    from esad.scale.work import Answer

__all__ = ["Engine", "Format", "Jobs", "RayAddress", "Request", "score_many", "tell_set_aside"]

_PANEL = "Many files"
_MAX_SHOWN = 8  # shards set aside that are shown; all are in the summary

Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Who scores the files: local, processes of this machine, or ray, tasks of a Ray cluster.",
        rich_help_panel=_PANEL,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        metavar="N",
        help="Files at once, each with one thread; by default as many as there are cores.",
        rich_help_panel=_PANEL,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        metavar="HOST:PORT",
        help="Ray cluster that runs already; by default RAY_ADDRESS, or one started here.",
        rich_help_panel=_PANEL,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="Format of the scores, csv or parquet; by default that of each file.",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class Request:
    """What the options ask for that only concerns many files."""

    engine: str | None
    n_jobs: int | None
    address: str | None
    form: str | None

    def is_meant(self, data: Sequence[Path], detector: "Detector") -> bool:
        """Whether many files are to be scored into a folder."""
        if len(data) > 1 or any(value is not None for value in vars(self).values()):
            return True
        (path,) = data
        if path.is_dir():
            return detector.inputs_.kind == "table"
        return not path.exists() and glob.has_magic(str(path))


def score_many(
    model: Path,
    data: Sequence[Path],
    out: Path | None,
    request: Request,
    *,
    id_column: str | None,
    alpha: float | None,
    as_json: bool,
) -> None:
    """Score many files into a folder; exit with 1 when some could not be scored."""
    from esad.scale import score_shards

    if out is None:
        raise InputError("Many files are scored into a folder. Give it with --out FOLDER.")
    if request.address is not None and request.engine not in (None, "ray"):
        raise InputError("--ray-address is for --engine ray.")
    n_done = 0
    try:
        with bar(shown=not as_json) as progress:
            task = progress.add_task("scoring", total=None)

            def on_start(n_shards: int) -> None:
                progress.update(task, total=n_shards)

            def on_done(name: str, answer: "Answer | None") -> None:
                nonlocal n_done
                n_done += answer is None or answer.record is not None
                progress.update(task, advance=1, description=name)

            outcome = score_shards(
                model,
                data,
                out,
                form=request.form,
                id_column=id_column,
                alpha=alpha,
                engine=request.engine or ("local" if request.address is None else "ray"),
                n_jobs=request.n_jobs,
                address=request.address,
                on_start=on_start,
                on_done=on_done,
            )
    except KeyboardInterrupt as interrupt:
        files = common.counted(n_done, "file")
        raise common.Interrupted(f"{files} scored into {str(out)!r}. The same command goes on.") from interrupt
    _mention(outcome)
    if as_json:
        common.json_out(_found(outcome))
    else:
        _show(outcome)
    if outcome.failures:
        raise typer.Exit(1)


def _found(outcome: "Outcome") -> dict[str, Any]:
    return outcome.to_json() | {"flagged_ratio": outcome.n_flagged / max(outcome.n_rows, 1)}


def _mention(outcome: "Outcome") -> None:
    """What was odd about the files, each thing once."""
    warn_of_unknown(dict.fromkeys(name for record in outcome.records.values() for name in record.unknown))
    for name in sorted({record.lost_id for record in outcome.records.values() if record.lost_id is not None}):
        n_lost = sum(record.lost_id == name for record in outcome.records.values())
        common.note(f"{common.counted(n_lost, 'file')} without the id column {name!r}: rows are numbered from 0.")
    if outcome.drifted:
        first, columns = next(iter(outcome.drifted.items()))
        common.warn(
            f"{len(outcome.drifted):,} of {common.counted(len(outcome.records), 'file')} do not look like the training "
            f"rows: {first!r} in {common.listed(columns)}"
            + (f", {len(outcome.drifted) - 1:,} more." if len(outcome.drifted) > 1 else ".")
        )
    if outcome.leftovers:
        common.warn(
            f"the folder also has scores of files that are not among these: {common.listed(outcome.leftovers)}."
        )


def _show(outcome: "Outcome") -> None:
    share = common.percent(outcome.n_flagged / max(outcome.n_rows, 1))
    there = f", {outcome.n_there:,} of them by an earlier run" if outcome.n_there else ""
    common.say(f"{len(outcome.records):,} of {common.counted(outcome.n_shards, 'file')} scored{there}.")
    common.say(f"{common.counted(outcome.n_rows, 'row')}, {outcome.n_flagged:,} flagged ({share}).")
    common.say(f"Scores: {outcome.out}")
    if outcome.failures:
        rest = f"are named in {outcome.out}/_esad/summary.json"
        tell_set_aside(outcome.failures, "file", rest=rest, advice=" The same command tries again.")


def tell_set_aside(failures: Mapping[str, str], noun: str, *, rest: str, advice: str = "") -> None:
    """Files that could not be scored, and why; `rest` says where those are named that are not shown."""
    for name, reason in sorted(failures.items())[:_MAX_SHOWN]:
        common.warn(f"{name} is set aside: {reason}")
    n_more = len(failures) - _MAX_SHOWN
    more = f" {n_more:,} more {rest}." if n_more > 0 else ""
    common.fail(f"{common.counted(len(failures), noun)} could not be scored.{more}{advice}")
