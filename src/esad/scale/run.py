"""A run over shards: scores that exist stay, missing ones are made, and shards that fail are set aside."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from esad.core.atomic import hash_file, write_json
from esad.core.text import count_text, list_text
from esad.core.worker import LostWorker
from esad.detectors.opening import check_unknown
from esad.detectors.scored_file import AlarmRule
from esad.errors import InputError, OutputError
from esad.io.checks import Remark
from esad.io.dialect import Reading
from esad.scale.engines import run_jobs, start_engine
from esad.scale.shards import RECORDS_FOLDER, Shard, plan_shards
from esad.scale.work import Job, JobResult, Record, RunSettings, hash_parts, run_job, stamp_file


@dataclass
class Outcome:
    """The counts and the problems of a run.

    Attributes
    ----------
    out : str
        Folder of the scores.
    n_shards : int
    n_there : int
        Scored by an earlier run.
    records : dict of str to Record
        The shards that are scored, by name.
    failures : dict of str to str
        Those that are not, and why.
    leftovers : tuple of str
        Shards that the folder has scores of and that are not among these.
    """

    out: str
    n_shards: int
    n_there: int = 0
    records: dict[str, Record] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Rows of all shards that are scored."""
        return sum(record.n_rows for record in self.records.values())

    @property
    def n_flagged(self) -> int:
        """Alarms among them."""
        return sum(record.n_flagged for record in self.records.values())

    @property
    def flagged_ratio(self) -> float:
        """Share of the rows that are alarms."""
        return self.n_flagged / max(self.n_rows, 1)

    @property
    def drifted(self) -> dict[str, tuple[str, ...]]:
        """Shards that do not look like the training rows, with the columns that differ."""
        return {name: record.drifted for name, record in sorted(self.records.items()) if record.drifted}

    def remarks(self) -> Iterator[Remark]:
        """Return the remarks about the files, each once."""
        records = self.records.values()
        yield from check_unknown(dict.fromkeys(name for record in records for name in record.unknown))
        for name in sorted({record.lost_id for record in records if record.lost_id is not None}):
            n_lost = sum(record.lost_id == name for record in records)
            yield Remark(
                "note", f"{count_text(n_lost, 'file')} without the id column {name!r}: rows are numbered from 0."
            )
        if self.drifted:
            first, columns = next(iter(self.drifted.items()))
            more = f", {len(self.drifted) - 1:,} more." if len(self.drifted) > 1 else "."
            yield Remark(
                "warning",
                f"{len(self.drifted):,} of {count_text(len(records), 'file')} do not look like the training rows: "
                f"{first!r} in {list_text(columns)}{more}",
            )
        if self.leftovers:
            left = list_text(self.leftovers)
            yield Remark("warning", f"the folder also has scores of files that are not among these: {left}.")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "out": self.out,
            "n_shards": self.n_shards,
            "n_scored": len(self.records),
            "n_there": self.n_there,
            "n_rows": self.n_rows,
            "n_flagged": self.n_flagged,
            "flagged_ratio": self.flagged_ratio,
            "failures": [{"shard": name, "reason": reason} for name, reason in sorted(self.failures.items())],
            "drifted": {name: list(columns) for name, columns in self.drifted.items()},
            "leftovers": list(self.leftovers),
        }


def score_shards(
    model: str | os.PathLike[str],
    data: Iterable[str | os.PathLike[str]] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    form: str | None = None,
    id_column: str | None = None,
    alpha: float | None = None,
    engine: str = "local",
    n_jobs: int | None = None,
    address: str | None = None,
    decimal: str | None = None,
    date_format: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    max_unpacked: int | None = None,
    on_start: Callable[[int], None] | None = None,
    on_done: Callable[[str, JobResult | None], None] | None = None,
) -> Outcome:
    r"""Score every table of many into a folder, one file of scores for each.

    Scores appear whole or not at all. A shard whose scores are there, made by the same model from the same file, is not
    scored again; one that cannot be scored is set aside, and the others go on; only a full disk ends the run. Runs may
    overlap: each shard is scored by one of them.

    Parameters
    ----------
    model : str or path-like
        Model file, of tables.
    data : path-like or iterable of them
        Files, folders and patterns such as "part-\*.parquet".
    out : str or path-like
        Folder to write to; made if it is not there.
    form : {"csv", "parquet", "xlsx"}, optional
        Format of the scores; that of each shard by default.
    id_column : str, optional
        Column that names the rows; that of the training by default.
    alpha : float, optional
        Flag rows whose p-value is at most this. None: those above the threshold.
    engine : {"local", "ray"}
        Processes of this machine, or tasks of a Ray cluster.
    n_jobs : int, optional
        Workers; by default one for each core. One alone is this process.
    address : str, optional
        Of the Ray cluster; by default RAY_ADDRESS, or one that is started here.
    decimal, date_format, encoding, sheet, max_unpacked
        How the files are to be read; as for `esad.score_file`.
    on_start : callable, optional
        Called with the number of shards.
    on_done : callable, optional
        Called with the name of each shard and its answer, None for those that were there.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, pyarrow as pa, pyarrow.parquet as pq
    >>> from esad import IsolationForest
    >>> rows = lambda seed: pa.table({"size": np.random.default_rng(seed).normal(size=50)})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     IsolationForest(random_state=0).fit(rows(0)).save(f"{folder}/model.esad")
    ...     for part in range(3):
    ...         pq.write_table(rows(part), f"{folder}/part-{part}.parquet")
    ...     found = score_shards(f"{folder}/model.esad", f"{folder}/part-*.parquet", f"{folder}/scores", n_jobs=1)
    >>> found.n_shards, found.n_rows, found.failures
    (3, 150, {})
    """
    if engine not in ("local", "ray"):
        raise InputError(f"The engine must be one of local, ray. Got {engine!r}.")
    folder = Path(out)
    reading = Reading(
        decimal=decimal, date_format=date_format, encoding=encoding, sheet=sheet, max_unpacked=max_unpacked
    )
    settings = make_settings(model, id_column, alpha, reading)
    shards = plan_shards([data] if isinstance(data, str | os.PathLike) else data, folder, form=form)
    settings = replace(settings, drift_level=settings.drift_level / len(shards))  # one for all together
    _make_folders(folder, shards)
    outcome = Outcome(str(folder), len(shards), leftovers=_find_leftovers(folder, shards))
    if on_start is not None:
        on_start(len(shards))
    jobs = []
    for shard in shards:
        try:
            job = make_job(shard, folder, settings)
        except OSError as error:
            outcome.failures[shard.name] = f"Cannot read {shard.path!r}: {error.strerror}."
            continue
        record = Record.read(job.record)
        if record is None or not record.matches(job.identity, job.shard.target):
            jobs.append(job)
            continue
        outcome.records[shard.name] = record
        outcome.n_there += 1
        if on_done is not None:
            on_done(shard.name, None)
    if jobs:
        with start_engine(engine, run_job, n_jobs=n_jobs, address=address, n_most=len(jobs)) as workers:
            for job, found in run_jobs(workers, jobs, is_busy=lambda answer: answer.state == "busy"):
                answer = JobResult("failed", reason=str(found)) if isinstance(found, LostWorker) else found
                if answer.state == "full":
                    told = f"{len(outcome.records)} of {count_text(len(shards), 'file')} scored"
                    raise OutputError(f"{answer.reason} Free some space; the same command goes on ({told}).")
                if answer.record is None:
                    outcome.failures[job.shard.name] = answer.reason
                else:
                    outcome.records[job.shard.name] = answer.record
                if on_done is not None:
                    on_done(job.shard.name, answer)
    for text in dict.fromkeys(text for record in outcome.records.values() for text in record.warned):
        warnings.warn(text, UserWarning, stacklevel=2)
    write_json(folder / RECORDS_FOLDER / "summary.json", outcome.to_json())
    return outcome


def make_settings(
    model: str | os.PathLike[str], id_column: str | None, alpha: float | None, reading: Reading
) -> RunSettings:
    """Check the model and the options, and give what is the same in all jobs of a run."""
    from esad.detectors.model_file import load
    from esad.score.drift import LEVEL

    detector = load(model)
    if detector.inputs_.kind != "table":
        raise InputError("Shards are tables, and the model was trained on pictures. Score its folders one by one.")
    return RunSettings(
        model=os.path.abspath(model),
        model_hash=hash_file(model),
        id_column=id_column,
        last_rank=AlarmRule.of(detector, alpha=alpha).last_rank,
        drift_level=LEVEL,
        reading=reading,
    )


def make_job(shard: Shard, folder: Path, settings: RunSettings) -> Job:
    """The job of one shard; its identity is all that decides the scores."""
    stamp = stamp_file(shard.path)
    said = settings.reading.to_arguments().items()
    told = {name: value for name, value in said if value is not None and name != "max_unpacked"}
    decisive = [settings.model_hash, stamp, settings.id_column, settings.last_rank, os.path.basename(shard.target)]
    return Job(
        Shard(shard.name, os.path.abspath(shard.path), os.path.abspath(shard.target)),
        os.path.abspath(_record_path(folder, shard.name)),
        hash_parts(*decisive, *([told] if told else [])),
        stamp,
        settings,
    )


def _record_path(folder: Path, name: str) -> Path:
    return folder / RECORDS_FOLDER / f"{name}.json"


def _make_folders(folder: Path, shards: Sequence[Shard]) -> None:
    """Make what is missing; refuse a folder that holds files of others where scores shall go."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"Cannot write to {str(folder)!r}: it is a file. Scores of shards need a folder.")
    if not (folder / RECORDS_FOLDER).is_dir():
        foreign = [shard.target for shard in shards if os.path.lexists(shard.target)]
        if foreign:
            raise OutputError(f"{foreign[0]!r} exists and is not of an earlier run. Choose another folder.")
    try:
        paths = (path for shard in shards for path in (Path(shard.target), _record_path(folder, shard.name)))
        for place in {path.parent for path in paths}:
            place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"Cannot write to {str(folder)!r}: {error.strerror}.") from error


def _find_leftovers(folder: Path, shards: Sequence[Shard]) -> tuple[str, ...]:
    """Shards of earlier runs that are not among these."""
    records = folder / RECORDS_FOLDER
    known = {f"{shard.name}.json" for shard in shards} | {"summary.json"}
    there = {path.relative_to(records).as_posix() for path in records.rglob("*.json")}
    return tuple(sorted(name.removesuffix(".json") for name in there - known))
