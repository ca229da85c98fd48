"""The store of results: one SQLite file that survives a kill at any moment and that several runs may share.

A cell is one training and its judgement. Its name is a hash of everything that decides the outcome (method, settings,
data, scenario, seed), so two experiments that ask for the same cell share it. A run claims a cell before it starts it;
a claim whose process is gone, or that has not been renewed for a while, is free again.

As text it is one line of JSON for every family of cells that differ in their seed, small enough for a repository. Loss
curves stay in the store; what is read back makes the same tables and figures.
"""

import json
import os
import platform
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from esad.bench.grid import Cell
from esad.core.atomic import transaction
from esad.errors import DataFileError, InputError, OutputError

SCHEMA = """
create table if not exists results (
    cell text primary key,
    description text not null,      -- JSON: method, settings, data, scenario, seed
    auc real not null,
    ap real not null,
    fit_seconds real not null,
    score_seconds real not null,
    n_train integer not null,
    n_test integer not null,
    code text not null,             -- version and hash of the package
    data text not null,             -- hash of the rows and labels that were used
    machine text not null,          -- JSON
    finished text not null,         -- UTC
    curves text not null            -- JSON: loss terms over the training
) strict;
create table if not exists claims (
    cell text primary key,
    host text not null,
    process integer not null,
    renewed real not null
) strict;
"""
FORMAT = 1
STALE_SECONDS = 900.0  # a claim of another machine that was not renewed for so long is free
BUSY_SECONDS = 60.0  # wait for another run's write
SHARED = ("n_train", "n_test", "code", "machine")  # the same for all seeds of one run
BY_SEED = ("auc", "ap", "fit_seconds", "score_seconds", "data", "finished")
FOR_FIGURES = ("test_auc", "map ")  # how curves begin that come along
DIGITS = {"auc": 6, "ap": 6, "fit_seconds": 3, "score_seconds": 3}


@dataclass(frozen=True)
class Result:
    """What came of one cell."""

    cell: str
    description: dict[str, Any]
    auc: float
    ap: float
    fit_seconds: float
    score_seconds: float
    n_train: int
    n_test: int
    code: str
    data: str
    machine: dict[str, Any] = field(default_factory=lambda: this_machine())
    finished: str = ""
    curves: dict[str, list[float]] = field(default_factory=dict)


class ResultStore:
    """Results in a SQLite file.

    Parameters
    ----------
    path : path-like
        Made if it is not there.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, ResultStore(Path(folder) / "results.db") as store:
    ...     store.claim("a"), store.claim("a"), store.finished_cells()
    (True, False, set())
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise OutputError(f"{str(self.path)!r} is a folder. A store of results is one file.")
        try:
            # claims are renewed from a thread of its own; the lock keeps the two from each other's transactions
            self._lock = threading.RLock()
            self._database = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            with self._lock_database():
                self._open()
        except sqlite3.OperationalError as error:
            raise OutputError(f"The store {str(self.path)!r} cannot be opened: {error}.") from error

    def _open(self) -> None:
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = full")
        found = self._database.execute("pragma user_version").fetchone()[0]
        if found > FORMAT:
            raise DataFileError(f"The store {str(self.path)!r} was written by a newer version of esad. Upgrade.")
        self._database.executescript(SCHEMA)
        self._database.execute(f"pragma user_version = {FORMAT}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @property
    def checkpoints(self) -> Path:
        """A folder beside the file for trainings that were cut short."""
        return self.path.with_name(f"{self.path.name}.checkpoints")

    # ------------------------------------------------------------------ results

    def put(self, result: Result) -> None:
        """Keep a result and drop its claim, both or neither; a result that is there already is replaced."""
        values = asdict(result) | {"finished": result.finished or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        for name in ("description", "machine", "curves"):
            values[name] = json.dumps(values[name], sort_keys=True)
        names = ", ".join(values)
        places = ", ".join(f":{name}" for name in values)
        with self._transaction():
            self._database.execute(f"insert or replace into results ({names}) values ({places})", values)
            self._database.execute("delete from claims where cell = ?", (result.cell,))

    def results(self) -> list[Result]:
        """All results, in the order of their cells."""
        with self._lock_database():
            rows = self._database.execute("select * from results order by cell")
            names = [column[0] for column in rows.description]
            found = [dict(zip(names, row, strict=True)) for row in rows]
        return [_parse_row(row) for row in found]

    def finished_cells(self) -> set[str]:
        """Names of the cells that have a result."""
        with self._lock_database():
            return {cell for (cell,) in self._database.execute("select cell from results")}

    def merge(self, results: Iterable[Result]) -> int:
        """Add results of another store that are missing here, and return how many were added."""
        there = self.finished_cells()
        new = [result for result in results if result.cell not in there]
        for result in new:
            self.put(result)
        return len(new)

    # ------------------------------------------------------------------ claims

    def claim(self, cell: str) -> bool:
        """Take a cell for this process, unless it is finished or another living run has it."""
        now, host, process = time.time(), socket.gethostname(), os.getpid()
        with self._transaction():
            if self._database.execute("select 1 from results where cell = ?", (cell,)).fetchone():
                return False
            held = self._database.execute(
                "select host, process, renewed from claims where cell = ?", (cell,)
            ).fetchone()
            if held is not None and _is_alive(*held):
                return False
            self._database.execute("insert or replace into claims values (?, ?, ?, ?)", (cell, host, process, now))
        return True

    def renew(self) -> None:
        """Say that this process is still at work on its cells."""
        with self._transaction():
            self._database.execute(
                "update claims set renewed = ? where host = ? and process = ?",
                (time.time(), socket.gethostname(), os.getpid()),
            )

    def release(self) -> None:
        """Let other runs have what this process has claimed and not finished."""
        with self._transaction():
            self._database.execute(
                "delete from claims where host = ? and process = ?", (socket.gethostname(), os.getpid())
            )

    # ------------------------------------------------------------------ inside

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the block as one transaction: after a kill, all of it is stored or nothing."""
        with self._lock_database(), transaction(self._database):
            yield

    @contextmanager
    def _lock_database(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            has_code = hasattr(error, "sqlite_errorcode")  # none where text in the file cannot be decoded
            if has_code and isinstance(error, sqlite3.OperationalError):
                raise OutputError(f"The store {str(self.path)!r} cannot be used: {error}.") from error
            raise DataFileError(f"{str(self.path)!r} is not a store of results, or is damaged: {error}.") from error


def this_machine() -> dict[str, Any]:
    """Describe this machine: the hardware and versions that running times depend on."""
    import torch

    return {
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processor": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _is_alive(host: str, process: int, renewed: float) -> bool:
    """Whether a claim still holds: its process runs on this machine, or renewed it from another one recently."""
    if host != socket.gethostname():
        return time.time() - renewed < STALE_SECONDS
    try:
        with suppress(PermissionError):  # another user's
            os.kill(process, 0)
        return True
    except ProcessLookupError:
        return False


def _parse_row(row: dict[str, Any]) -> Result:
    try:
        parsed = {name: json.loads(row[name]) for name in ("description", "machine", "curves")}
    except ValueError as error:
        raise InputError(f"The result {row['cell']!r} of the store is damaged: {error}.") from error
    return Result(**row | parsed)


# ---------------------------------------------------------------------- as text


def to_text(results: Iterable[Result]) -> str:
    """All results, sorted, so that the same results give the same text."""
    families: dict[str, dict[str, Any]] = {}
    for result in sorted(results, key=lambda result: (_describe_family(result), result.description["seed"])):
        values = asdict(result)
        line = families.setdefault(_describe_family(result), json.loads(_describe_family(result)) | {"seed": []})
        line["seed"].append(result.description["seed"])
        for name in BY_SEED:
            value = round(values[name], DIGITS[name]) if name in DIGITS else values[name]
            line.setdefault(name, []).append(value)
        line.setdefault("curves", []).append(_select_curves(result))
    for line in families.values():
        if not any(line["curves"]):
            del line["curves"]
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in families.values())


def read_results(path: str | os.PathLike[str]) -> list[Result]:
    """Read results back from the text of `to_text`, which has fewer digits and no loss curves."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return [result for line in lines if line.strip() for result in _parse_line(json.loads(line))]
    except OSError as error:
        raise DataFileError(f"The results {str(path)!r} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataFileError(f"{str(path)!r} does not hold results of esad bench: {error!r}.") from error


def _describe_family(result: Result) -> str:
    """Return a cell's description without the seed and what depends on it."""
    description = {name: value for name, value in result.description.items() if name != "seed"}
    return json.dumps({"description": description} | {name: getattr(result, name) for name in SHARED}, sort_keys=True)


def _select_curves(result: Result) -> dict[str, list[float]]:
    kept = {name: curve for name, curve in result.curves.items() if name.startswith(FOR_FIGURES)}
    return {name: [round(value, 4) for value in curve] for name, curve in kept.items()}


def _parse_line(line: dict[str, Any]) -> list[Result]:
    shared = {name: line[name] for name in SHARED}
    found = []
    for number, seed in enumerate(line["seed"]):
        description = line["description"] | {"seed": seed}
        own = {name: line[name][number] for name in (*BY_SEED, "curves") if name in line}
        found.append(Result(Cell(**description).name, description, **own, **shared))
    return found
