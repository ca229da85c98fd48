"""Judgements as CSV: one line per row and reviewer, out for other programs and in from them."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import uuid4

from esad.errors import DataFileError
from esad.review.book import VERDICTS, check_reviewer
from esad.review.store import MAX_NOTE, Store

__all__ = ["read_csv", "write_csv"]

_COLUMNS: Final = ("label", "reviewer", "note", "time")


def write_csv(store: Store, names: Sequence[Any] | None, id_name: str) -> str:
    """All current judgements and notes.

    The first column is the row's name under `id_name`, or its number, from 0, under "row"; then label (anomaly, normal
    or skip, blank for a note alone), reviewer, note and time.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([id_name if names is not None else "row", *_COLUMNS])
    for row in store.book.rows():
        for reviewer, said in store.book.opinions(row).items():
            name = row if names is None else names[row]
            writer.writerow([name, said.verdict or "", reviewer, said.note, said.time])
    return out.getvalue()


def read_csv(text: str, store: Store, names: Sequence[Any] | None, id_name: str, *, reviewer: str) -> int:
    """Enter the judgements of a file; how many were new. All lines are checked before the first is entered.

    The file has the column `id_name` (or "row") and "label"; "reviewer" and "note" may be there. Lines without a
    reviewer are by `reviewer`. What a reviewer has said already is not entered again.
    """
    lines = list(_lines(text, store.n_rows, names, id_name, reviewer))
    n_new = 0
    for row, who, verdict, note in lines:
        said = store.book.opinions(row).get(who)
        if verdict and (said is None or said.verdict != verdict):
            store.judge(str(uuid4()), row, who, verdict)
            n_new += 1
        if note and (said is None or said.note != note):
            store.annotate(str(uuid4()), row, who, note)
    return n_new


def _lines(
    text: str, n_rows: int, names: Sequence[Any] | None, id_name: str, reviewer: str
) -> Iterator[tuple[int, str, str, str]]:
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        heads = [head.strip() for head in next(reader, [])]
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
            line = dict(zip(heads, cells, strict=True))
            verdict = line["label"].strip().casefold()
            if line[column] not in by_name:
                raise DataFileError(f"Line {number}: there is no row {line[column]!r} in the data.")
            if verdict and verdict not in VERDICTS:
                raise DataFileError(f"Line {number}: a label must be anomaly, normal or skip. Got {line['label']!r}.")
            if len(line.get("note", "")) > MAX_NOTE:
                raise DataFileError(f"Line {number}: a note must have at most {MAX_NOTE:,} characters.")
            who = check_reviewer(line.get("reviewer", "").strip() or reviewer)
            yield by_name[line[column]], who, verdict, line.get("note", "").strip()
    except csv.Error as error:
        raise DataFileError(f"The labels cannot be read as CSV: {error}.") from error
