"""Judgements of reviewers: who thinks what of a row, which labels that gives, and all of it as CSV, out and in."""

import csv
import io
import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from esad import labels
from esad.core.arrays import Labels
from esad.errors import DataFileError, InputError
from esad.review.dataset import ReviewDataset

VERDICTS: Final = {"anomaly": labels.ANOMALY, "normal": labels.NORMAL, "skip": labels.UNLABELLED}
MAX_NAME: Final = 60  # characters
MAX_NOTE: Final = 2000
_FILLERS: Final = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"


class Entry(NamedTuple):
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
    imported_by : str
        Who brought it in from a file; empty where the reviewer said it here.
    """

    number: int
    row: int
    reviewer: str
    entry: str
    note: str
    undoes: int | None
    time: str
    imported_by: str = ""


@dataclass(frozen=True)
class Opinion:
    """What one reviewer thinks of one row now.

    Attributes
    ----------
    verdict : str or None
        None: a note alone.
    note : str
        Empty where there is none.
    time, imported_by : str
        When the verdict was given, and who brought it in from a file; of a note alone those of the note.
    note_imported_by : str
        Who brought the note in.
    """

    verdict: str | None = None
    note: str = ""
    time: str = ""
    imported_by: str = ""
    note_imported_by: str = ""


class Judgements:
    """The judgements in memory, entered one after the other.

    Parameters
    ----------
    n_rows : int
        How many rows the data has.

    Examples
    --------
    >>> judgements = Judgements(4)
    >>> judgements.enter(Entry(1, 2, "ann", "anomaly", "", None, ""))
    >>> judgements.enter(Entry(2, 2, "bob", "normal", "", None, ""))
    >>> judgements.disagreements(), judgements.labels().tolist()
    ([2], [0, 0, 0, 0])
    """

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self._lock = threading.RLock()
        self._said: dict[str, list[Entry]] = {}  # by reviewer: verdicts that were not undone, oldest first
        self._latest: dict[int, dict[str, Entry]] = {}  # by row and reviewer: the last of them
        self._notes: dict[int, dict[str, Entry]] = {}  # by row and reviewer
        self._in_person: dict[tuple[int, str, bool], bool] = {}  # by row, reviewer and whether it is a note
        self._verdicts: dict[int, dict[str, str]] | None = None  # as `verdicts` gave them, while they are so

    def enter(self, *entries: Entry) -> None:
        """Take entries in."""
        with self._lock:
            self._verdicts = None
            for entry in entries:
                self._enter(entry)

    def _enter(self, entry: Entry) -> None:
        said, latest = self._said.setdefault(entry.reviewer, []), self._latest.setdefault(entry.row, {})
        self._in_person[entry.row, entry.reviewer, entry.entry == "note"] = not entry.imported_by
        if entry.entry == "note":
            self._notes.setdefault(entry.row, {})[entry.reviewer] = entry
        elif entry.entry == "undo":
            said[:] = [one for one in said if one.number != entry.undoes]
            latest.pop(entry.reviewer, None)
            if before := next((one for one in reversed(said) if one.row == entry.row), None):
                latest[entry.reviewer] = before
        else:
            said.append(entry)
            latest[entry.reviewer] = entry

    def rows(self) -> list[int]:
        """Rows that somebody has said something about."""
        with self._lock:
            return sorted(self._latest.keys() | self._notes.keys())

    def opinions(self, row: int) -> dict[str, Opinion]:
        """Return the current opinion of every reviewer who judged a row or wrote about it."""
        with self._lock:
            found = self._latest.get(row, {})
            notes = {name: one for name, one in self._notes.get(row, {}).items() if one.note}
            opinions = {}
            for name in sorted(found.keys() | notes.keys()):
                verdict, note = found.get(name), notes.get(name)
                main = verdict or note
                assert main is not None
                entry = None if verdict is None else verdict.entry
                words, brought_by = ("", "") if note is None else (note.note, note.imported_by)
                opinions[name] = Opinion(entry, words, main.time, main.imported_by, brought_by)
            return opinions

    def spoke_in_person(self, row: int, reviewer: str, *, is_note: bool) -> bool:
        """Whether the reviewer gave the verdict or wrote the note on a row here, or took it away here."""
        with self._lock:
            return self._in_person.get((row, reviewer, is_note), False)

    def verdicts(self) -> dict[int, dict[str, str]]:
        """The verdict of every reviewer on every row that has one, skips included; not to be changed."""
        with self._lock:
            if self._verdicts is None:
                self._verdicts = {
                    row: {name: one.entry for name, one in latest.items()}
                    for row, latest in self._latest.items()
                    if latest
                }
            return self._verdicts

    def labels(self, known: Labels | None = None) -> Labels:
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
        return sorted(row for row, said in self.verdicts().items() if is_disputed(said))

    def recent(self, reviewer: str, n: int) -> list[Entry]:
        """The reviewer's last verdicts that were not undone, the newest first."""
        with self._lock:
            return self._said.get(reviewer, [])[-n:][::-1]

    def stands(self, entry: Entry, reviewer: str) -> bool:
        """Whether the reviewer entered this verdict and has not undone it."""
        with self._lock:
            return any(one.number == entry.number for one in self._said.get(reviewer, ()))

    def reviewers(self) -> list[str]:
        """Everybody who has said something."""
        with self._lock:
            return sorted(self._said)


def is_decided(said: Mapping[str, str]) -> bool:
    """Whether one of these verdicts, by reviewer, is more than a skip."""
    return any(verdict != "skip" for verdict in said.values())


def is_disputed(said: Mapping[str, str]) -> bool:
    """Whether one reviewer says anomaly and another normal."""
    return {"anomaly", "normal"} <= set(said.values())


def check_reviewer(name: str, *, is_new: bool = True) -> str:
    """The name, if it can be one; older journals have names with invisible characters, which no new one may have.

    Examples
    --------
    >>> check_reviewer("ann")
    'ann'
    """
    is_seen = name.isprintable() and name == name.strip() and not (is_new and any(map(_is_invisible, name)))
    if not 1 <= len(name) <= MAX_NAME or not is_seen:
        raise InputError(
            f"The name of a reviewer must be 1 to {MAX_NAME} printable characters, without invisible ones. "
            f"Got {name[:80]!a}."
        )
    return name


def _is_invisible(letter: str) -> bool:
    """Whether a character counts as printable but shows nothing: a filler, a joiner or a variation selector."""
    return letter in _FILLERS or 0xFE00 <= ord(letter) <= 0xFE0F or 0xE0100 <= ord(letter) <= 0xE01EF


def is_same_name(one: str, other: str) -> bool:
    """Whether two names of reviewers look alike: other letters of the same form, large or small.

    Examples
    --------
    >>> is_same_name("Ann", "\N{FULLWIDTH LATIN SMALL LETTER A}nn")
    True
    """
    return _plain_name(one) == _plain_name(other)


def _plain_name(name: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


# ---------------------------------------------------------------------- CSV

_COLUMNS: Final = ("label", "reviewer", "note", "time", "imported_by")
_FORMULA: Final = re.compile(r"'*[=+\-@\t\r]")  # what a spreadsheet takes for a formula, quoted or not
_NUMBER: Final = re.compile(r"[+-]?[\d.,]+([eE][+-]?\d+)?")


class ImportCounts(NamedTuple):
    """Counts of an import: new judgements, and lines left out because their reviewer has judged otherwise here."""

    n_new: int
    n_left: int


class ImportedLine(NamedTuple):
    """One line of a file of labels: the row, who judged it, the verdict ("" for a note alone), the note ("": none)."""

    row: int
    reviewer: str
    verdict: str
    note: str


def write_csv(judgements: Judgements, dataset: ReviewDataset) -> str:
    """All current judgements and notes.

    The first column is the row's name under the dataset's `id_name`, or its number, from 0, under "row"; then label
    (anomaly, normal or skip, blank for a note alone), reviewer, note, time and who imported it. Text that a spreadsheet
    would run as a formula has an apostrophe before it, which `parse_csv` takes away again.
    """
    names = dataset.names
    lines = [[dataset.id_name if names is not None else "row", *_COLUMNS]]
    for row in judgements.rows():
        for reviewer, opinion in judgements.opinions(row).items():
            name = row if names is None else names[row]
            cells = [name, opinion.verdict or "", reviewer, opinion.note, opinion.time, opinion.imported_by]
            lines.append([_quote_formula(str(cell)) for cell in cells])
    return "".join(f"{','.join(map(_quote_cell, line))}\n" for line in lines)


def _quote_cell(text: str) -> str:
    """Quote a cell so that no program splits it, whether it separates by commas, semicolons or tabs."""
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if re.search(r'[,;\t"\r\n]', text) else text


def _quote_formula(text: str) -> str:
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _unquote_formula(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def parse_csv(text: str, dataset: ReviewDataset, *, reviewer: str) -> list[ImportedLine]:
    """The lines of a file of labels, every one of them checked.

    The file has the dataset's `id_name` (or "row") and "label" as columns; "reviewer" and "note" may be there. Lines
    without a reviewer are by `reviewer`.
    """
    try:
        return list(_parse_lines(text, dataset, reviewer))
    except csv.Error as error:
        raise DataFileError(f"The labels cannot be read as CSV: {error}.") from error


def _parse_lines(text: str, dataset: ReviewDataset, reviewer: str) -> Iterator[ImportedLine]:
    names, id_name, n_rows = dataset.names, dataset.id_name, dataset.n_rows
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    heads = [head.strip() for head in next(reader, [])]
    if twice := [head for head in ("row", "label", "reviewer", "note", id_name) if heads.count(head) > 1]:
        raise DataFileError(f"A file of labels must have one column {twice[0]!r}. Got {heads.count(twice[0])}.")
    column = id_name if names is not None and id_name in heads else "row"
    if column not in heads or "label" not in heads:
        wanted = f"{id_name!r} or 'row'" if names is not None else "'row'"
        raise DataFileError(f"A file of labels needs the columns {wanted} and 'label'. Got {heads[:8]}.")
    by_name = {str(row if column == "row" or names is None else names[row]): row for row in range(n_rows)}
    if len(by_name) < n_rows:
        raise DataFileError(f"The names in {column!r} are not different, so labels cannot be told apart by them.")
    for number, cells in enumerate(reader, start=2):
        if not cells:
            continue
        if len(cells) != len(heads):
            raise DataFileError(f"Line {number} has {len(cells)} cells, and the first line {len(heads)}.")
        line = dict(zip(heads, map(_unquote_formula, cells), strict=True))
        verdict = line["label"].strip().casefold()
        if line[column] not in by_name:
            raise DataFileError(f"Line {number}: there is no row {line[column]!r} in the data.")
        if verdict and verdict not in VERDICTS:
            raise DataFileError(f"Line {number}: a label must be anomaly, normal or skip. Got {line['label']!r}.")
        if len(line.get("note", "")) > MAX_NOTE:
            raise DataFileError(f"Line {number}: a note must have at most {MAX_NOTE:,} characters.")
        who = check_reviewer(line.get("reviewer", "").strip() or reviewer, is_new=False)
        yield ImportedLine(by_name[line[column]], who, verdict, line.get("note", "").strip())
