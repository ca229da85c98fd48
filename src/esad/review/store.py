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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Self
from uuid import uuid4

import numpy as np

from esad.core.arrays import Labels
from esad.core.atomic import transaction
from esad.errors import DataFileError, InputError, OutputError
from esad.review.dataset import ReviewDataset
from esad.review.judgements import (
    MAX_NOTE,
    VERDICTS,
    Entry,
    ImportCounts,
    ImportedLine,
    Judgements,
    Opinion,
    check_reviewer,
)

MAX_REQUEST: Final = 80
TELL_EVERY: Final = 500  # lines of an import
FORMAT: Final = 2  # 1 had no imported_by
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
    time text not null,             -- UTC
    imported_by text not null default ''
) strict;
create table if not exists fits (
    model text primary key,         -- fingerprint of the training
    known text not null             -- JSON: the labels it was trained with, by row
) strict;
create table if not exists identity (
    name text not null              -- of this journal: pages know by it whose judgements they hold
) strict;
"""
_INSERT: Final = f"insert into journal values ({', '.join('?' * 9)})"


class JudgementStore:
    """The journal in a file; `judgements` has what follows from it.

    Parameters
    ----------
    path : path-like
        Made if it is not there.
    fingerprint : str
        Of the data that is judged; a store of other data is refused.
    n_rows : int
        How many rows the data has.

    Attributes
    ----------
    name : str
        Of this journal alone, made once. That of a journal from before there were names begins with those characters of
        the fingerprint by which pages knew it, and a dash.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with folder, JudgementStore(Path(folder.name) / "a.db", fingerprint="f", n_rows=9) as store:
    ...     _ = store.judge("r1", 4, "ann", "anomaly"), store.judge("r2", 5, "ann", "normal")
    ...     _ = store.judge("r1", 4, "ann", "anomaly")  # sent again: nothing new
    ...     _ = store.undo("r3", "ann")
    ...     len(store), store.judgements.labels()
    (3, array([ 0,  0,  0,  0, -1,  0,  0,  0,  0], dtype=int8))
    """

    @classmethod
    def of(cls, path: str | os.PathLike[str], dataset: ReviewDataset) -> Self:
        """The judgements of this very data."""
        return cls(path, fingerprint=dataset.fingerprint(), n_rows=dataset.n_rows)

    def __init__(self, path: str | os.PathLike[str], *, fingerprint: str, n_rows: int) -> None:
        self.path, self.n_rows, self.fingerprint = Path(path), n_rows, fingerprint
        self._lock = threading.RLock()  # requests come in threads; one transaction at a time
        self._is_open = False
        self.judgements = Judgements(n_rows)
        if self.path.is_dir():
            raise OutputError(f"{str(self.path)!r} is a folder. The labels are kept in one file.")
        try:
            self._database = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as error:
            raise OutputError(f"The labels {str(self.path)!r} cannot be opened: {error}.") from error
        try:
            with self._name_errors():
                self._open(fingerprint)
            self._is_open = True
        except BaseException:
            self._database.close()
            raise

    def _open(self, fingerprint: str) -> None:
        database = self._database
        is_new = database.execute("select count(*) from sqlite_schema").fetchone() == (0,)  # or its making was cut off
        if not is_new and self._pragma("application_id") != APPLICATION:
            raise DataFileError(f"{str(self.path)!r} is a database of something else. Name another file with --labels.")
        database.execute("pragma locking_mode = exclusive")  # two pages over one journal would not know of each other
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = full")  # an entry is on the disk before it is acknowledged
        if self._pragma("user_version") > FORMAT:
            raise DataFileError(f"The labels {str(self.path)!r} were written by a newer version of esad. Upgrade.")
        if (fault := database.execute("pragma quick_check").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(fault)
        with self._transaction():
            for statement in SCHEMA.split(";\n"):
                database.execute(statement)
            if not any(column[1] == "imported_by" for column in database.execute("pragma table_info(journal)")):
                database.execute("alter table journal add column imported_by text not null default ''")
            database.execute(f"pragma application_id = {APPLICATION}")
            database.execute(f"pragma user_version = {FORMAT}")
            about = {"fingerprint": fingerprint, "n_rows": str(self.n_rows)}
            database.executemany("insert or ignore into about values (?, ?)", about.items())
            name = uuid4().hex if is_new else f"{fingerprint[:16]}-{uuid4().hex}"
            database.execute("insert into identity select ? where not exists (select * from identity)", (name,))
            (self.name,) = database.execute("select name from identity").fetchone()
            found = dict(database.execute("select name, value from about").fetchall())
        if found != about:
            rows = f"{found.get('n_rows', '?')} rows" if found.get("n_rows") != about["n_rows"] else "other cells"
            raise DataFileError(
                f"The labels {str(self.path)!r} belong to other data ({rows}). Name another file with --labels."
            )
        for row in database.execute("select * from journal order by number"):
            self.judgements.enter(_to_entry(row))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __len__(self) -> int:
        with self._name_errors():
            return int(self._database.execute("select count(*) from journal").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
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

    def undo(self, request: str, reviewer: str, *, of: str | None = None) -> Entry | None:
        """Take a verdict of the reviewer back: the verdict, None where there is nothing to undo.

        `of` is the request that entered it; by default it is the last one.
        """
        with self._lock:
            if (known := self._find_entry(request)) is not None:
                self._check_same(known, reviewer=reviewer, entry="undo")
                return self._find_entry(known.undoes, "number")
            found = next(iter(self.judgements.recent(reviewer, 1)), None) if of is None else self._find_entry(of)
            if found is None or not self.judgements.stands(found, reviewer):
                return None
            self._enter(request, found.row, reviewer, "undo", undoes=found.number)
            return found

    def import_lines(
        self, lines: Sequence[ImportedLine], *, importer: str, tell: Callable[[int], None] = lambda n_done: None
    ) -> ImportCounts:
        """Enter the judgements of a file, all or none of them.

        What a reviewer has said already is not entered again, and what one has said or taken back here stands whatever
        somebody else imports. `tell` is called with the number of lines done.
        """
        check_reviewer(importer, is_new=False)
        when, request = _now(), uuid4().hex
        entries: list[Entry] = []
        latest: dict[tuple[int, str], Opinion] = {}
        n_left = 0

        def write(first: int) -> Iterator[tuple[object, ...]]:
            nonlocal n_left
            for n_done, (row, reviewer, verdict, note) in enumerate(lines, start=1):
                opinion = latest.get((row, reviewer)) or self.judgements.opinions(row).get(reviewer, Opinion())
                by = "" if reviewer == importer else importer
                is_new = verdict != "" and verdict != opinion.verdict
                has_new_note = note != "" and note != opinion.note
                keeps = by and self.judgements.spoke_in_person(row, reviewer, is_note=False)
                keeps_note = by and self.judgements.spoke_in_person(row, reviewer, is_note=True)
                n_left += bool((is_new and keeps) or (has_new_note and keeps_note))
                new = []
                if is_new and not keeps:
                    new.append((verdict, ""))
                    opinion = replace(opinion, verdict=verdict, imported_by=by)
                if has_new_note and not keeps_note:
                    new.append(("note", note))
                    opinion = replace(opinion, note=note, note_imported_by=by)
                for said, words in new:
                    made = Entry(first + len(entries), row, reviewer, said, words, None, when, by)
                    entries.append(made)
                    yield made.number, f"{request}-{made.number}", *made[1:]
                latest[row, reviewer] = opinion
                if n_done % TELL_EVERY == 0:
                    tell(n_done)

        with self._lock:
            with self._transaction():
                (last,) = self._database.execute("select ifnull(max(number), 0) from journal").fetchone()
                self._database.executemany(_INSERT, write(last + 1))
            self.judgements.enter(*entries)
        return ImportCounts(sum(one.entry != "note" for one in entries), n_left)

    def _enter(
        self, request: str, row: int, reviewer: str, entry: str, *, note: str = "", undoes: int | None = None
    ) -> Entry:
        check_reviewer(reviewer, is_new=False)
        if not 0 <= row < self.n_rows:
            raise InputError(f"A row must be between 0 and {self.n_rows - 1}. Got {row}.")
        if not 1 <= len(request) <= MAX_REQUEST:
            raise InputError(f"The id of a request must have 1 to {MAX_REQUEST} characters. Got {len(request)}.")
        with self._lock:
            if (known := self._find_entry(request)) is not None:
                return self._check_same(known, row=row, reviewer=reviewer, entry=entry, note=note)
            when = _now()
            with self._transaction():
                cells = (None, request, row, reviewer, entry, note, undoes, when, "")
                cursor = self._database.execute(_INSERT, cells)
            made = Entry(int(cursor.lastrowid or 0), row, reviewer, entry, note, undoes, when)
            self.judgements.enter(made)
            return made

    def _find_entry(self, value: str | int | None, column: str = "request") -> Entry | None:
        with self._name_errors():
            found = self._database.execute(f"select * from journal where {column} = ?", (value,)).fetchone()
        return None if found is None else _to_entry(found)

    @staticmethod
    def _check_same(known: Entry, **asked: object) -> Entry:
        """Return the entry that this request made before; refuse an id that another request has used."""
        if any(getattr(known, name) != value for name, value in asked.items()):
            raise InputError("This request id was used before, for something else. Every request needs its own.")
        return known

    # ------------------------------------------------------------------ what models were trained with

    def remember_fit(self, model: str, known: Labels) -> None:
        """Keep the labels that a model was trained with, under the fingerprint of its training."""
        given = {str(row): int(known[row]) for row in np.flatnonzero(known)}
        with self._transaction():
            self._database.execute("insert or replace into fits values (?, ?)", (model, json.dumps(given)))

    def labels_of_fit(self, model: str) -> Labels | None:
        """The labels that a model was trained with; None if it was not trained in this review."""
        with self._name_errors():
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
    def _transaction(self) -> Iterator[None]:
        """Run the block as one transaction: after a kill, all of it is stored or nothing."""
        with self._name_errors(), transaction(self._database):
            yield

    @contextmanager
    def _name_errors(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            code = getattr(error, "sqlite_errorcode", None)  # none where text in the file cannot be decoded
            if code is not None and code & 0xFF == sqlite3.SQLITE_BUSY:
                raise OutputError(
                    f"The labels {str(self.path)!r} are in use by another esad review. End it."
                ) from error
            if self._is_open or (code is not None and isinstance(error, sqlite3.OperationalError)):
                raise OutputError(f"The labels {str(self.path)!r} cannot be used: {error}.") from error
            raise DataFileError(f"The labels {str(self.path)!r} are damaged or something else: {error}.") from error


def _to_entry(cells: tuple[int, str, int, str, str, str, int | None, str, str]) -> Entry:
    return Entry(cells[0], *cells[2:])


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
