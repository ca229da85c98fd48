"""`esad score`: a score and a verdict for every row of a file or folder, or of many files."""

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import options, output
from esad.cli.options import command, option
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.detectors.scored_file import ScoredFile
    from esad.scale import Outcome
    from esad.scale.work import JobResult
    from esad.score.drift import Drift

_MANY = "Many files"
_MAX_SHIFTS = 5  # named in the warning of drift
_MAX_SHOWN = 8  # files set aside that are shown; all are in the summary
_TOP = 20  # shown when no file is asked for


@command(
    "esad score payments.esad new.csv --out scores.csv",
    "esad score payments.esad new.parquet --top 20",
    "esad score payments.esad new.csv --fdr 0.1 --out scores.csv",
    "esad score payments.esad 'part-*.parquet' --out scores --jobs 8",
)
def score(
    model: options.Model,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="CSV, Parquet or Excel file, or a folder of pictures. Many tables: files, a folder of "
            "them, or a quoted pattern.",
        ),
    ],
    out: Path | None = option(
        None, "--out -o SCORES", "Scores file to write: .csv, .parquet or .xlsx. Of many files: folder."
    ),
    id_column: options.IdColumn = None,
    top: int | None = option(None, "--top -n N", "Print the N worst rows; 20 without --out.", min=0),
    with_data: bool = option(
        False,
        "--with-data",
        "Write all columns of the table along, each row's line in a spreadsheet, and the reasons of alarms.",
    ),
    alpha: float | None = option(
        None, "--alpha SHARE", "Flag rows whose p-value is at most this: the share of false alarms among normal rows."
    ),
    fdr: float | None = option(
        None,
        "--fdr SHARE",
        "Flag rows so that at most this share of those flagged is expected to be false. Reads the data twice.",
    ),
    engine: str | None = option(
        None,
        "--engine NAME",
        "Who scores the files: local, processes of this machine, or ray, tasks of a Ray cluster.",
        _MANY,
    ),
    jobs: int | None = option(
        None, "--jobs -j N", "Files at once, each with one thread; by default as many as there are cores.", _MANY, min=1
    ),
    ray_address: str | None = option(
        None,
        "--ray-address HOST:PORT",
        "Ray cluster that runs already; by default RAY_ADDRESS, or one started here.",
        _MANY,
    ),
    form: str | None = option(
        None, "--format NAME", "Format of the scores, csv, parquet or xlsx; by default that of each file.", _MANY
    ),
    *,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Score every row: the higher, the more anomalous.

    The scores file has the id column (or the row number, from 0), score, anomaly and, if the model is calibrated,
    p_value. Files of any length are read block by block. Many files give a folder with one file of scores each; what
    is there already is not scored again. Files and pictures that cannot be read are set aside, and the exit code is 1.
    """
    from esad.detectors.model_file import load
    from esad.detectors.scored_file import score_file

    detector = load(model)
    workers: dict[str, Any] = {"engine": engine, "n_jobs": jobs, "address": ray_address, "form": form}
    if len(data) > 1 or any(value is not None for value in workers.values()) or _is_many(data[0], detector):
        from esad.detectors.scored_file import AlarmRule

        AlarmRule.of(detector, alpha=alpha, fdr=fdr)  # refuses what cannot be before anything is scored
        if fdr is not None:
            raise InputError("--fdr needs the p-values of all rows together. Give --alpha, or one file.")
        if top is not None or with_data:
            raise InputError(f"{'--top' if top is not None else '--with-data'} is for one file.")
        if out is None:
            raise InputError("Many files are scored into a folder. Give it with --out FOLDER.")
        _score_many(model, data, out, as_json, **workers, id_column=id_column, alpha=alpha, **reading.to_arguments())
        return
    if with_data and out is None:
        raise InputError("--with-data is about the scores file. Name it with --out.")
    with output.stages(rows=True) as on_progress:
        found = score_file(
            detector,
            data[0],
            out,
            inputs=[model],
            id_column=id_column,
            alpha=alpha,
            fdr=fdr,
            with_data=with_data,
            top=top if top is not None else (0 if out else _TOP),
            **reading.to_arguments(),
            on_progress=on_progress,
            on_remark=output.remark,
        )
    if found.drift is not None and found.drift.drifted:
        output.warn(_describe_drift(found.drift))
    output.answer(
        as_json, found.to_json(), lambda: _show(found, "row" if detector.inputs_.kind == "table" else "picture")
    )
    if found.broken:
        raise typer.Exit(1)


# ---------------------------------------------------------------------- one file


def _describe_drift(drift: "Drift") -> str:
    """What differs from the training rows, the farthest first."""
    found = [str(shift) for shift in drift.found]
    more = f"; and {len(found) - _MAX_SHIFTS} more" if len(found) > _MAX_SHIFTS else ""
    tests = f"level {output.percent(drift.level)} over {output.count_text(len(drift.shifts), 'test')}"
    return f"the rows do not look like the training rows ({tests}): {'; '.join(found[:_MAX_SHIFTS])}{more}."


def _show(found: "ScoredFile", noun: str) -> None:
    top_rows = found.worst.to_json(found.rule, found.id_name, row_numbers=found.row_numbers)
    if top_rows:
        names = list(top_rows[0])
        cells = [[_cell(name, row[name]) for name in names] for row in top_rows]
        title = "The worst row" if len(top_rows) == 1 else f"The {len(top_rows)} worst"
        output.show_table(title, names, cells, right=["score", "p_value"])
    flagged = f"{found.n_flagged:,} flagged ({output.percent(found.flagged_ratio)})"
    output.say(f"{output.count_text(found.n_rows, noun)} scored, {flagged} {found.rule.describe(found.n_flagged)}.")
    if found.rule.forecast is not None:
        drifted = found.drift is not None and found.drift.drifted
        output.say(f"Expected{' of rows like the training rows' if drifted else ''}: {found.rule.forecast}.")
    if found.out is not None:
        output.say(f"Scores: {found.out}")
    if found.broken:
        _tell_set_aside(found.broken, "picture", rest="are named with --json")


def _cell(name: str, value: Any) -> object:
    """A value of a top row for people; ids stay as they are."""
    if name == "anomaly":
        return "yes" if value else "no"
    if name in ("score", "p_value"):
        return f"{value:.6g}" if name == "score" else f"{value:.3g}"
    return "" if value is None else value


# ---------------------------------------------------------------------- many files


def _is_many(path: Path, detector: "Detector") -> bool:
    """Whether many files are to be scored into a folder; one without tables is refused as one file is."""
    from esad.io.files import find_tables

    if path.is_dir():
        return detector.inputs_.kind == "table" and bool(find_tables(path))
    return not path.exists() and glob.has_magic(str(path))


def _score_many(
    model: Path,
    data: Sequence[Path],
    out: Path,
    as_json: bool,
    *,
    engine: str | None,
    address: str | None,
    **options: Any,
) -> None:
    from esad.scale import score_shards

    if address is not None and engine not in (None, "ray"):
        raise InputError("--ray-address is for --engine ray.")
    n_done = 0
    try:
        with output.bar(shown=not as_json) as progress:
            task = progress.add_task("scoring", total=None)

            def on_start(n_shards: int) -> None:
                progress.update(task, total=n_shards)

            def on_done(name: str, answer: "JobResult | None") -> None:
                nonlocal n_done
                n_done += answer is None or answer.record is not None
                progress.update(task, advance=1, description=name)

            engine = engine or ("local" if address is None else "ray")
            options |= {"on_start": on_start, "on_done": on_done}
            outcome = score_shards(model, data, out, engine=engine, address=address, **options)
    except KeyboardInterrupt as interrupt:
        files = output.count_text(n_done, "file")
        raise output.Interrupted(f"{files} scored into {str(out)!r}. The same command goes on.") from interrupt
    for found in outcome.remarks():
        output.remark(found)
    output.answer(as_json, outcome.to_json(), lambda: _show_many(outcome))
    if outcome.failures:
        raise typer.Exit(1)


def _show_many(outcome: "Outcome") -> None:
    share = output.percent(outcome.flagged_ratio)
    there = f", {outcome.n_there:,} of them by an earlier run" if outcome.n_there else ""
    output.say(f"{len(outcome.records):,} of {output.count_text(outcome.n_shards, 'file')} scored{there}.")
    output.say(f"{output.count_text(outcome.n_rows, 'row')}, {outcome.n_flagged:,} flagged ({share}).")
    output.say(f"Scores: {outcome.out}")
    if outcome.failures:
        rest = f"are named in {outcome.out}/_esad/summary.json"
        _tell_set_aside(outcome.failures, "file", rest=rest, advice=" The same command tries again.")


def _tell_set_aside(failures: Mapping[str, str], noun: str, *, rest: str, advice: str = "") -> None:
    """Files that could not be scored, and why; `rest` says where those are named that are not shown."""
    for name, reason in sorted(failures.items())[:_MAX_SHOWN]:
        output.warn(f"{name} is set aside: {reason}")
    n_more = len(failures) - _MAX_SHOWN
    more = f" {n_more:,} more {rest}." if n_more > 0 else ""
    output.fail(f"{output.count_text(len(failures), noun)} could not be scored.{more}{advice}")
