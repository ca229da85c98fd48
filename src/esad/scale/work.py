"""What a worker does: score one shard, block by block, and leave scores and record or nothing.

A worker of this machine is a process of its own that reads jobs from stdin and writes answers to stdout, a line of JSON
each. When the one that started it is gone, it ends after its shard.
"""

import contextlib
import errno
import functools
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self

from esad.detectors.alarms import AlarmRule
from esad.detectors.opening import open_table
from esad.detectors.scored_file import score_source
from esad.errors import DataFileError, EsadError, ModelFileError
from esad.scale.records import Record, file_hash, stamp

if TYPE_CHECKING:
    from esad.detectors.base import Detector

__all__ = ["Answer", "Common", "Job", "attempt", "serve", "use_one_thread"]


@dataclass(frozen=True, kw_only=True)
class Common:
    """What all jobs of a run share.

    Attributes
    ----------
    model, model_hash : str
        The model file, which must be the same on every machine.
    id_column : str or None
    last_rank : int or None
        See `AlarmRule`.
    drift_level : float
    """

    model: str
    model_hash: str
    id_column: str | None
    last_rank: int | None
    drift_level: float


@dataclass(frozen=True, kw_only=True)
class Job(Common):
    """One shard to score, as plain values.

    Attributes
    ----------
    name, path, target : str
        As `Shard` has them.
    record : str
        Where the record goes.
    identity : str
        What the record must say for the scores to count.
    stamp : tuple
        The shard's, when the run began.
    """

    name: str
    path: str
    target: str
    record: str
    identity: str
    stamp: tuple[int, int]

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """Undo `asdict` and JSON."""
        return cls(**plain | {"stamp": tuple(plain["stamp"])})


@dataclass(frozen=True)
class Answer:
    """What came of a job: done, busy (another run is at work on it), failed, with the reason, or full (the disk is)."""

    state: Literal["done", "busy", "failed", "full"]
    record: Record | None = None
    reason: str = ""

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """Undo `asdict` and JSON."""
        record = plain["record"]
        return cls(plain["state"], None if record is None else Record.from_json(record), plain["reason"])


def attempt(job: Job) -> Answer:
    """Score a shard, unless that is done or under way; whatever is wrong with it becomes the answer."""
    try:
        with _claimed(f"{job.record}.lock") as mine:
            if not mine:
                return Answer("busy")
            record = Record.read(job.record)
            if record is None or not record.vouches(job.identity, job.target):
                _remove_stale(job, record)
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always", UserWarning)
                    record = _score(job)
                record = replace(record, warned=tuple(dict.fromkeys(str(each.message) for each in warned)))
                record.write(job.record)
            return Answer("done", record)
    except (EsadError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        is_full = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
        return Answer("full" if is_full else "failed", reason=str(error))
    except MemoryError:
        return Answer("failed", reason="There is not enough memory for it.")
    except Exception as error:  # one shard must not cost the others, whatever is in it
        return Answer("failed", reason=f"{type(error).__name__}: {error}")


def _score(job: Job) -> Record:
    started = time.perf_counter()
    _check_unchanged(job)
    detector = _model(job.model, job.model_hash)
    source = open_table(job.path, detector, id_column=job.id_column, may_be_empty=True)
    found = score_source(
        detector,
        source,
        AlarmRule(detector.threshold_, detector.calibration_, job.last_rank),
        job.target,
        inputs=[job.path, job.model],
        drift_level=job.drift_level,
        before_end=lambda: _check_unchanged(job),
    )
    shifts = () if found.drift is None else found.drift.found
    return Record(
        name=job.name,
        identity=job.identity,
        scores=os.path.basename(job.target),
        n_bytes=os.path.getsize(job.target),
        n_rows=found.n_rows,
        n_flagged=found.n_flagged,
        seconds=round(time.perf_counter() - started, 3),
        drifted=tuple(dict.fromkeys("scores" if shift.column is None else shift.column for shift in shifts)),
        unknown=source.unknown,
        lost_id=source.lost_id,
    )


def _remove_stale(job: Job, record: Record | None) -> None:
    """Remove scores by another model or in another format: if this attempt fails, none are to be there."""
    names = {os.path.basename(job.target)} | (set() if record is None else {record.scores})
    Path(job.record).unlink(missing_ok=True)
    for name in names:
        Path(job.target).with_name(name).unlink(missing_ok=True)


@functools.lru_cache(maxsize=1)
def _model(path: str, expected: str) -> "Detector":
    from esad.detectors.model_file import load

    if file_hash(path) != expected:
        raise ModelFileError(f"The model {path!r} is not the one that the run began with.")
    return load(path)


def _check_unchanged(job: Job) -> None:
    if stamp(job.path) != job.stamp:
        raise DataFileError(f"{job.path!r} has changed since the run began. Score it again.")


@contextlib.contextmanager
def _claimed(path: str) -> Iterator[bool]:
    """Whether nobody else is at work on a shard; the claim of a process that dies ends with it.

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


# ---------------------------------------------------------------------- processes


def use_one_thread() -> None:
    """Leave the other cores to the other workers."""
    import pyarrow as pa
    import torch

    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def serve() -> None:
    """Answer jobs from stdin until it ends."""
    signal.signal(signal.SIGTERM, _end)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print is no answer
    use_one_thread()
    with contextlib.suppress(BrokenPipeError):  # nobody is there to be told
        for line in sys.stdin:
            answer = attempt(Job.from_json(json.loads(line)))
            answers.write(json.dumps(asdict(answer)) + "\n")
            answers.flush()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """A request to end: temporary files are removed on the way out."""
    raise SystemExit(128 + number)
