"""Excel files: a sheet as CSV text, so that all rules for CSV hold for it, and scores as a sheet.

openpyxl reads and writes row by row. The text lies in a file that has lost its name, mapped into memory: it takes no
more of it than is looked at, and goes when nobody reads it, whatever happens.
"""

import collections
import contextlib
import csv
import datetime as dt
import math
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from esad.core.atomic import unnamed_path
from esad.core.machine import require
from esad.core.text import hint, list_text, one_line
from esad.errors import DataFileError, LimitError, OutputError
from esad.table.columns import text_of_number

SUFFIXES = (".xlsx", ".xlsm")
_MAX_ROWS = 1 << 20  # of a sheet
_MAX_LETTERS = 32_767  # of a cell
_TYPES = {
    frozenset({str}): pa.string(),
    frozenset({bool}): pa.bool_(),
    frozenset({int}): pa.int64(),
    frozenset({float}): pa.float64(),
    frozenset({int, float}): pa.float64(),
    frozenset({dt.datetime}): pa.timestamp("us"),
}
_NOT_WRITTEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")  # characters that a sheet cannot hold


def read_sheet(
    path: Path, sheet: str | None = None, *, decimal: str | None = None, max_bytes: int | None = None
) -> tuple[pa.Buffer, dict[int, pa.DataType]]:
    """The text of a sheet, as CSV with tabs: dates with the year first, times of day and durations in seconds.

    With it come the types of the columns, by their numbers, whose cells are all text, numbers, dates or truth values.

    Parameters
    ----------
    path : Path
    sheet : str, optional
        Its name; the first by default.
    decimal : {".", ","}, optional
        What stands before decimals in the text, as in cells of text that spell numbers.
    max_bytes : int, optional
        That the file may take when it is unpacked.
    """
    with _open(path, max_bytes) as book, unnamed_path(path, "rows.tsv", instead="CSV") as target:
        known = book.sheetnames
        if sheet is not None and sheet not in known:
            raise DataFileError(f"{str(path)!r} has no sheet {sheet!r}.{hint(sheet, known)} It has {list_text(known)}.")
        rows = book[known[0] if sheet is None else sheet].iter_rows(values_only=True)
        with target.open("w", encoding="utf-8", newline="") as text:
            types = _write_text(rows, text, decimal or ".")
        if not target.stat().st_size:
            raise DataFileError(
                f"Cannot read {str(path)!r}: its sheet is empty. A line of names and rows are needed."
                f"{sheets_hint(path)}"
            )
        with pa.memory_map(str(target)) as mapped:
            return mapped.read_buffer(), types


def sheet_names(path: Path) -> list[str]:
    """The sheets of a file."""
    with _open(path, None) as book:
        return list(book.sheetnames)


def sheets_hint(path: str | os.PathLike[str]) -> str:
    """A sentence on the sheets of a file, where it is one of Excel and has several."""
    known = sheet_names(Path(path)) if os.fspath(path).lower().endswith(SUFFIXES) else []
    return f" Its sheets are {list_text(known)}: name one with `sheet`, or the first is read." if known[1:] else ""


@contextlib.contextmanager
def _open(path: Path, max_bytes: int | None) -> Iterator[Any]:
    """A file to read from, with the values of formulas; what is wrong inside is one line."""
    openpyxl = require("openpyxl", extra="excel")
    try:
        with zipfile.ZipFile(path) as packed:  # which reads no more of a member than it says to be long
            n_bytes = sum(member.file_size for member in packed.infolist())
        if max_bytes is not None and n_bytes > max_bytes:
            raise LimitError(
                f"{str(path)!r} is refused. Unpacked, this is more than {max_bytes >> 20} MiB. "
                "Allow more (max_unpacked, --max-unpacked) if you trust it."
            )
        with contextlib.closing(openpyxl.load_workbook(path, read_only=True, data_only=True)) as book:
            yield book
    except (DataFileError, LimitError):
        raise
    except Exception as error:  # a damaged file raises a dozen kinds
        raise DataFileError(
            f"Cannot read {str(path)!r}: it is damaged or no Excel file ({one_line(error)})."
        ) from error


def _write_text(rows: Iterable[tuple[Any, ...]], text: Any, decimal: str) -> dict[int, pa.DataType]:
    """Write rows as text; blank ones at the end, and columns without a name and without cells, are left out.

    Gives the types of columns whose cells below the names are all of one kind.
    """
    types: dict[int, set[type]] = collections.defaultdict(set)
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    n_blank, width = 0, 0
    for row in rows:
        cells = [_cell_text(cell, decimal) for cell in row]
        while cells and not cells[-1] and len(cells) > width:
            cells.pop()
        if not any(cells):
            n_blank += bool(width)  # rows before the names are no rows
            continue
        for place, cell in enumerate(row if width else ()):
            types[place].add(type(cell))
        width = width or len(cells)
        writer.writerows([[""] * width] * n_blank)
        n_blank = 0
        writer.writerow(cells + [""] * (width - len(cells)))
    kinds = {place: frozenset(found - {type(None)}) for place, found in types.items()}
    return {place: _TYPES[kind] for place, kind in kinds.items() if kind in _TYPES}


def _cell_text(cell: Any, decimal: str) -> str:
    """What stands in a cell, written as it is in CSV."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, dt.datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    if isinstance(cell, dt.timedelta):
        cell = cell.total_seconds()
    if isinstance(cell, dt.time):
        cell = cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond / 1e6
    if isinstance(cell, int | float):
        return (text_of_number(float(cell)) or "").replace(".", decimal) if isinstance(cell, float) else str(cell)
    return str(cell)


class ExcelSink:
    """Rows as a sheet; text stays text, whatever it begins with."""

    def __init__(self, path: Path, columns: Iterable[str]) -> None:
        openpyxl = require("openpyxl", extra="excel")
        self._path, self._book, self._n_rows = path, openpyxl.Workbook(write_only=True), 0
        self._cell = require("openpyxl.cell", extra="excel").WriteOnlyCell
        self._sheet = self._book.create_sheet("scores")
        self._sheet.freeze_panes = "A2"
        self._append(list(columns))

    def write(self, rows: pa.Table) -> None:
        """Append rows."""
        for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            self._append(row)

    def _append(self, row: Iterable[Any]) -> None:
        self._n_rows += 1
        if self._n_rows > _MAX_ROWS:
            raise OutputError(f"A sheet of Excel holds {_MAX_ROWS:,} rows. Write the scores to .csv or .parquet.")
        self._sheet.append([self._value(cell) for cell in row])

    def _value(self, value: Any) -> Any:
        """What a sheet can hold."""
        if isinstance(value, float) and not math.isfinite(value):
            return None if math.isnan(value) else str(value)
        is_moment = isinstance(value, dt.datetime) and value.tzinfo is None
        value = value.date() if is_moment and value.time() == dt.time() else value
        if value is None or is_moment or isinstance(value, bool | int | float) or type(value) in (dt.date, dt.time):
            return value
        cell = self._cell(self._sheet, _NOT_WRITTEN.sub("", str(value))[:_MAX_LETTERS])
        cell.data_type = "s"  # never a formula
        return cell

    def close(self) -> None:
        """Write the file."""
        self._book.save(self._path)
