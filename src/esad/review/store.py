"""The journal of judgements: one SQLite file in which every key press is a committed row, undo included.

What a reviewer thinks of a row follows from the journal: the last verdict that was not undone. Nothing is ever changed
or deleted in it, so two reviewers cannot overwrite each other, and a kill at any moment leaves every entry that was
acknowledged. An entry carries an id made by whoever sent it: the same entry sent again is the same entry.
"""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from esad import labels
from esad.atomic import transaction
from esad.errors import DataFileError, InputError, OutputError

__all__ = ["MAX_NOTE", "VERDICTS", "Entry", "Opinion", "Store", "check_reviewer"]

VERDICTS: Final = {"anomaly": labels.ANOMALY, "normal": labels.NORMAL, "skip": labels.UNLABELLED}
MAX_NOTE: Final = 2000  # characters
MAX_NAME: Final = 60
MAX_REQUEST: Final = 80
FORMAT: Final = 1
APPLICATION: Final = 0x65736164  # "esad": says that the SQLite file is ours
SCHEMA: Final = """
create table if not exists about (name text primary key, value text not null) strict;
create table if not exists journal (
    number integer primary key,
    request text not null unique,   -- made by the sender: a request that is sent twice is entered once
    item integer not null,          -- number of the row or picture, from 0
    reviewer text not null,
    entry text not null check (entry in ('anomaly', 'normal', 'skip', 'note', 'undo')),
    note text not null,
    undoes integer references journal (number),
    time text not null              -- UTC
) strict;
create table if not exists fits (
    model text primary key,         -- fingerprint of the training
    known text not null             -- JSON: the labels it was trained with, by row
) strict;
"""


@dataclass(frozen=True)
class Entry:
    """One line of the journal.

    Attributes
    ----------
    number : int
        Counts the entries, from 1.
    row : int
        The row or picture it is about, from 0.
    reviewer, entry, note, time : str
        Who; a verdict, "note" or "undo"; the words of a note; when (UTC).
    undoes : int or None
        The number of the entry that an "undo" takes back.
    """

    number: int
    row: int
    reviewer: str
    entry: str
    note: str
    undoes: int | None
    time: str


@dataclass(frozen=True)
class Opinion:
    """What one reviewer thinks of one row now: the verdict (None: a note alone), the note, and when."""

    verdict: str | None = None
    note: str = ""
    time: str = ""


class Store:
    """The journal in a file, and what follows from it.

    Parameters
    ----------
    path : path-like
        Made if it is not there.
    fingerprint : str
        Of the data that is judged; a store of other data is refused.
    n_rows : int
        How many rows the data has.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "a.db", fingerprint="f", n_rows=9) as store:
    ...     _ = store.judge("r1", 4, "ann", "anomaly"), store.judge("r2", 5, "ann", "normal")
    ...     _ = store.judge("r1", 4, "ann", "anomaly")  # sent again: nothing new
    ...     _ = store.undo("r3", "ann")
    ...     len(store), store.labels()
    (3, array([ 0,  0,  0,  0, -1,  0,  0,  0,  0], dtype=int8))
    """

    def __init__(self, path: str | os.PathLike[str], *, fingerprint: str, n_rows: int) -> None:
        self.path, self.n_rows = Path(path), n_rows
        self._lock = threading.RLock()  # requests come in threads; one transaction at a time
        self._opinions: dict[int, dict[str, list[Entry]]] = {}  # by row and reviewer: verdicts that were not undone
        self._notes: dict[int, dict[str, Entry]] = {}  # by row and reviewer
        self._order: dict[str, list[Entry]] = {}  # by reviewer: the same verdicts, oldest first
        if self.path.is_dir():
            raise OutputError(f"{str(self.path)!r} is a folder. The labels are kept in one file.")
        is_new = not self.path.exists()
        try:
            self._database = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise OutputError(f"The labels {str(self.path)!r} cannot be opened: {error}.") from error
        try:
            with self._guarded():
                self._open(fingerprint, is_new)
        except BaseException:
            self._database.close()
            raise

    def _open(self, fingerprint: str, is_new: bool) -> None:
        database = self._database
        if not is_new and self._pragma("application_id") != APPLICATION:
            raise DataFileError(f"{str(self.path)!r} is a database of something else. Name another file with --labels.")
        database.execute("pragma locking_mode = exclusive")  # two pages over one journal would not know of each other
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = full")  # an entry is on the disk before it is acknowledged
        if self._pragma("user_version") > FORMAT:
            raise DataFileError(f"The labels {str(self.path)!r} were written by a newer version of esad. Upgrade.")
        if (fault := database.execute("pragma quick_check").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(fault)
        with self._writing():
            for statement in SCHEMA.split(";\n"):
                database.execute(statement)
            database.execute(f"pragma application_id = {APPLICATION}")
            database.execute(f"pragma user_version = {FORMAT}")
            about = {"fingerprint": fingerprint, "n_rows": str(self.n_rows)}
            database.executemany("insert or ignore into about values (?, ?)", about.items())
            found = dict(database.execute("select name, value from about").fetchall())
        if found != about:
            rows = f"{found.get('n_rows', '?')} rows" if found.get("n_rows") != about["n_rows"] else "other cells"
            raise DataFileError(
                f"The labels {str(self.path)!r} belong to other data ({rows}). Name another file with --labels."
            )
        for row in database.execute("select * from journal order by number"):
            self._replay(_entry(row))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        with self._guarded():
            return int(self._database.execute("select count(*) from journal").fetchone()[0])

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._database.close()

    # ------------------------------------------------------------------ entries

    def judge(self, request: str, row: int, reviewer: str, verdict: str) -> Entry:
        """Enter a verdict: anomaly, normal or skip. It is on the disk when this returns."""
        if verdict not in VERDICTS:
            raise InputError(f"A verdict must be one of {', '.join(VERDICTS)}. Got {verdict!r}.")
        return self._enter(request, row, reviewer, verdict)

    def annotate(self, request: str, row: int, reviewer: str, note: str) -> Entry:
        """Enter a note, in place of the one before; an empty note takes it away."""
        if len(note) > MAX_NOTE:
            raise InputError(f"A note must have at most {MAX_NOTE:,} characters. Got {len(note):,}.")
        return self._enter(request, row, reviewer, "note", note=note.strip())

    def undo(self, request: str, reviewer: str) -> Entry | None:
        """Take the reviewer's last verdict back: the entry that says so, None where there is nothing to undo."""
        with self._lock:
            known = self._known(request)
            if known is not None:
                return self._same(known, reviewer=reviewer, entry="undo")
            last = self._order.get(check_reviewer(reviewer), [])
            if not last:
                return None
            return self._enter(request, last[-1].row, reviewer, "undo", undoes=last[-1].number)

    def _enter(
        self, request: str, row: int, reviewer: str, entry: str, *, note: str = "", undoes: int | None = None
    ) -> Entry:
        check_reviewer(reviewer)
        if not 0 <= row < self.n_rows:
            raise InputError(f"A row must be between 0 and {self.n_rows - 1}. Got {row}.")
        if not 1 <= len(request) <= MAX_REQUEST:
            raise InputError(f"The id of a request must have 1 to {MAX_REQUEST} characters. Got {len(request)}.")
        with self._lock:
            if (known := self._known(request)) is not None:
                return self._same(known, row=row, reviewer=reviewer, entry=entry, note=note)
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            with self._writing():
                cursor = self._database.execute(
                    "insert into journal (request, item, reviewer, entry, note, undoes, time) values (?,?,?,?,?,?,?)",
                    (request, row, reviewer, entry, note, undoes, when),
                )
            made = Entry(int(cursor.lastrowid or 0), row, reviewer, entry, note, undoes, when)
            self._replay(made)
            return made

    def _known(self, request: str) -> Entry | None:
        with self._guarded():
            found = self._database.execute("select * from journal where request = ?", (request,)).fetchone()
        return None if found is None else _entry(found)

    @staticmethod
    def _same(known: Entry, **asked: object) -> Entry:
        """The entry that a request made before; the id of one request is no id for another."""
        if any(getattr(known, name) != value for name, value in asked.items()):
            raise InputError("This request id was used before, for something else. Every request needs its own.")
        return known

    def _replay(self, entry: Entry) -> None:
        """What an entry changes."""
        mine, order = self._opinions.setdefault(entry.row, {}), self._order.setdefault(entry.reviewer, [])
        if entry.entry == "note":
            self._notes.setdefault(entry.row, {})[entry.reviewer] = entry
        elif entry.entry == "undo":
            order[:] = [one for one in order if one.number != entry.undoes]
            mine[entry.reviewer] = [one for one in mine.get(entry.reviewer, []) if one.number != entry.undoes]
        else:
            order.append(entry)
            mine.setdefault(entry.reviewer, []).append(entry)

    # ------------------------------------------------------------------ what follows

    def rows(self) -> list[int]:
        """Rows that somebody has said something about."""
        with self._lock:
            return sorted(self._opinions.keys() | self._notes.keys())

    def opinions(self, row: int) -> dict[str, Opinion]:
        """What every reviewer who said something thinks of a row now."""
        with self._lock:
            found = {name: said[-1] for name, said in self._opinions.get(row, {}).items() if said}
            notes = {name: one for name, one in self._notes.get(row, {}).items() if one.note}
            return {
                name: Opinion(
                    found[name].entry if name in found else None,
                    notes[name].note if name in notes else "",
                    max(one.time for one in (found.get(name), notes.get(name)) if one is not None),
                )
                for name in sorted(found.keys() | notes.keys())
            }

    def verdicts(self) -> dict[int, dict[str, str]]:
        """The verdict of every reviewer on every row that has one, skips included."""
        with self._lock:
            found = (
                (row, {name: said[-1].entry for name, said in by.items() if said}) for row, by in self._opinions.items()
            )
            return {row: verdicts for row, verdicts in found if verdicts}

    def labels(self, known: NDArray[np.int8] | None = None) -> NDArray[np.int8]:
        """Labels to train with: what the reviewers agree on.

        A row on which they disagree is unlabelled, whoever they are and however many: somebody has to look again.
        Where nobody said anomaly or normal, `known` stands, the labels that came with the data.
        """
        found = np.zeros(self.n_rows, dtype=np.int8) if known is None else known.copy()
        for row, verdicts in self.verdicts().items():
            said = {VERDICTS[verdict] for verdict in verdicts.values() if verdict != "skip"}
            if said:
                found[row] = said.pop() if len(said) == 1 else labels.UNLABELLED
        return found

    def disagreements(self) -> list[int]:
        """Rows that one reviewer finds normal and another an anomaly."""
        return sorted(row for row, said in self.verdicts().items() if {"anomaly", "normal"} <= set(said.values()))

    def recent(self, reviewer: str, n: int) -> list[Entry]:
        """The reviewer's last verdicts that were not undone, the newest first."""
        with self._lock:
            return self._order.get(reviewer, [])[-n:][::-1]

    def reviewers(self) -> list[str]:
        """Everybody who has said something."""
        with self._lock:
            return sorted(self._order.keys() | {name for notes in self._notes.values() for name in notes})

    # ------------------------------------------------------------------ what models were trained with

    def remember_fit(self, model: str, known: NDArray[np.int8]) -> None:
        """Keep the labels that a model was trained with, under the fingerprint of its training."""
        given = {str(row): int(known[row]) for row in np.flatnonzero(known)}
        with self._writing():
            self._database.execute("insert or replace into fits values (?, ?)", (model, json.dumps(given)))

    def known_to(self, model: str) -> NDArray[np.int8] | None:
        """The labels that a model was trained with; None where it was not trained here."""
        with self._guarded():
            found = self._database.execute("select known from fits where model = ?", (model,)).fetchone()
        if found is None:
            return None
        given: Mapping[str, int] = json.loads(found[0])
        known = np.zeros(self.n_rows, dtype=np.int8)
        known[[int(row) for row in given]] = list(given.values())
        return known

    # ------------------------------------------------------------------ inside

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"pragma {name}").fetchone()[0])

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: after a kill it was made whole or not at all."""
        with self._guarded(), transaction(self._database):
            yield

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise OutputError(
                    f"The labels {str(self.path)!r} are in use by another esad review. End it."
                ) from error
            raise OutputError(f"The labels {str(self.path)!r} cannot be used: {error}.") from error
        except sqlite3.DatabaseError as error:
            raise DataFileError(f"The labels {str(self.path)!r} are damaged or something else: {error}.") from error


def check_reviewer(name: str) -> str:
    """The name, if it can be one.

    Examples
    --------
    >>> check_reviewer("ann")
    'ann'
    """
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable() or name != name.strip():
        raise InputError(f"The name of a reviewer must be 1 to {MAX_NAME} printable characters. Got {name[:80]!r}.")
    return name


def _entry(row: tuple[int, str, int, str, str, str, int | None, str]) -> Entry:
    number, _, item, reviewer, entry, note, undoes, when = row
    return Entry(number, item, reviewer, entry, note, undoes, when)
