"""What a worker does with a shard: score it block by block, and write the scores and a record of them, or nothing.

A record is a small JSON file beside the scores, written after them: by which model they were made, from which file,
with what outcome. Scores without their record, or whose record tells of another model, file or setting, do not count.
"""

import contextlib
import functools
import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from esad.core.atomic import DISK_FULL, hash_file, write_text
from esad.detectors.opening import open_source
from esad.detectors.scored_file import AlarmRule, score_source
from esad.errors import DataFileError, EsadError, ModelFileError
from esad.io.dialect import Reading
from esad.scale.shards import Shard

if TYPE_CHECKING:
    from esad.detectors.base import Detector


@dataclass(frozen=True)
class Record:
    """One scored shard.

    Attributes
    ----------
    name : str
        Of the shard.
    identity : str
        Hash of the model, the shard and the settings.
    scores : str
        Name of the file of scores.
    n_bytes : int
        Its size.
    n_rows, n_flagged : int
    seconds : float
        What it took.
    drifted : tuple of str
        Columns that do not look like those of the training rows; "scores" for the scores.
    unknown : tuple of str
        Columns that the model has no use for.
    lost_id : str or None
        The id column of the training file, where the shard lacks it.
    warned : tuple of str
        Warnings that scoring gave.
    """

    name: str
    identity: str
    scores: str
    n_bytes: int
    n_rows: int
    n_flagged: int
    seconds: float
    drifted: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    lost_id: str | None = None
    warned: tuple[str, ...] = ()

    def write(self, path: str) -> None:
        """Write the record to a path."""
        write_text(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> Self | None:
        """The record at a path; None if there is none that can be read."""
        try:
            plain = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls(**plain | {name: tuple(plain[name]) for name in ("drifted", "unknown", "warned")})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def matches(self, identity: str, target: str) -> bool:
        """Whether the scores at `target` are whole and were made from the same model, file and settings."""
        try:
            return self.identity == identity and os.path.getsize(target) == self.n_bytes
        except OSError:
            return False


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The settings that all jobs of a run share.

    Attributes
    ----------
    model, model_hash : str
        The model file, which must be the same on every machine.
    id_column : str or None
    last_rank : int or None
        See `AlarmRule`.
    drift_level : float
    reading : Reading
        What is said about the files.
    """

    model: str
    model_hash: str
    id_column: str | None
    last_rank: int | None
    drift_level: float
    reading: Reading


@dataclass(frozen=True)
class Job:
    """One shard to score.

    Attributes
    ----------
    shard : Shard
        With paths from the root of the file system.
    record : str
        Where the record goes.
    identity : str
        What the record must say for the scores to count.
    stamp : tuple
        The shard's, when the run began.
    settings : RunSettings
    """

    shard: Shard
    record: str
    identity: str
    stamp: tuple[int, int]
    settings: RunSettings


@dataclass(frozen=True)
class JobResult:
    """The result of a job: done, busy (another run works on it), failed (with the reason), or full (the disk)."""

    state: Literal["done", "busy", "failed", "full"]
    record: Record | None = None
    reason: str = ""


def run_job(job: Job) -> JobResult:
    """Score a shard, unless that is done or under way; an error becomes the result."""
    try:
        with _claim_shard(f"{job.record}.lock") as mine:
            if not mine:
                return JobResult("busy")
            record = Record.read(job.record)
            if record is None or not record.matches(job.identity, job.shard.target):
                _remove_stale(job, record)
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always", UserWarning)
                    record = _score(job)
                record = replace(record, warned=tuple(dict.fromkeys(str(each.message) for each in warned)))
                record.write(job.record)
            return JobResult("done", record)
    except (EsadError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        is_full = isinstance(cause, OSError) and cause.errno in DISK_FULL
        return JobResult("full" if is_full else "failed", reason=str(error))
    except MemoryError:
        return JobResult("failed", reason="There is not enough memory for it.")
    except Exception as error:  # one shard must not cost the others, whatever is in it
        return JobResult("failed", reason=f"{type(error).__name__}: {error}")


def _score(job: Job) -> Record:
    started = time.perf_counter()
    _check_unchanged(job)
    shard, settings = job.shard, job.settings
    detector = _load_model(settings.model, settings.model_hash)
    source = open_source(
        shard.path, detector, id_column=settings.id_column, reading=settings.reading, may_be_empty=True, on_remark=None
    )
    found = score_source(
        detector,
        source,
        AlarmRule(detector.threshold_, detector.calibration_, settings.last_rank),
        shard.target,
        inputs=[shard.path, settings.model],
        drift_level=settings.drift_level,
        before_end=lambda: _check_unchanged(job),
    )
    shifts = () if found.drift is None else found.drift.found
    return Record(
        name=shard.name,
        identity=job.identity,
        scores=os.path.basename(shard.target),
        n_bytes=os.path.getsize(shard.target),
        n_rows=found.n_rows,
        n_flagged=found.n_flagged,
        seconds=round(time.perf_counter() - started, 3),
        drifted=tuple(dict.fromkeys("scores" if shift.column is None else shift.column for shift in shifts)),
        unknown=source.unknown,
        lost_id=source.lost_id,
    )


def _remove_stale(job: Job, record: Record | None) -> None:
    """Remove scores by another model or in another format: if this attempt fails, none are to be there."""
    names = {os.path.basename(job.shard.target)} | (set() if record is None else {record.scores})
    Path(job.record).unlink(missing_ok=True)
    for name in names:
        Path(job.shard.target).with_name(name).unlink(missing_ok=True)


@functools.lru_cache(maxsize=1)
def _load_model(path: str, expected: str) -> "Detector":
    from esad.detectors.model_file import load

    if hash_file(path) != expected:
        raise ModelFileError(f"The model {path!r} is not the one that the run began with.")
    return load(path)


def _check_unchanged(job: Job) -> None:
    if stamp_file(job.shard.path) != job.stamp:
        raise DataFileError(f"{job.shard.path!r} has changed since the run began. Score it again.")


@contextlib.contextmanager
def _claim_shard(path: str) -> Iterator[bool]:
    """Claim a shard for this process; yields False where another one works on it. A claim ends with its process.

    It saves work and is not what keeps results whole: where the system has no such locks, two runs write the same.
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # a file system without locks
            yield True
            return
        try:
            yield True
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)


def hash_parts(*parts: object) -> str:
    """A hash of everything that decides the scores of a shard."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def stamp_file(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Size and time of change, by which a file is taken to be the same."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
