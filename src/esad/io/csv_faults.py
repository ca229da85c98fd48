"""Where a CSV file is wrong, said in one line that names the file, the line and the column."""

import collections
import contextlib
import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from esad.errors import DataFileError

if TYPE_CHECKING:
    from esad.io.csv_dialect import Dialect

__all__ = [
    "NumberFault",
    "check_closed",
    "check_names",
    "explain",
    "no_number",
    "not_utf8",
    "number_fault",
    "one_line",
]


class NumberFault(NamedTuple):
    """A value in a number column that pyarrow takes for no number."""

    column: str
    value: str


def check_names(path: Path, names: tuple[str, ...], *, hint: str = "") -> None:
    """Refuse doubled column names."""
    if len(set(names)) == len(names):
        return
    doubled = sorted(name for name, count in collections.Counter(names).items() if count > 1)
    shown = ", ".join(repr(name) for name in doubled[:5])
    raise DataFileError(
        f"Cannot read {str(path)!r}: doubled column names {shown}. Every column needs its own name.{hint}"
    )


def check_closed(path: Path, dialect: "Dialect", last_value: str | None) -> None:
    """Refuse a file that ends inside a quoted value, which pyarrow takes for a value with many lines.

    `last_value` is the last cell of the file. Only when it has several lines is the file read again.
    """
    if last_value is None or not re.search(r"[\r\n]", last_value):
        return
    last_sound = 1
    try:
        for line, _ in _records(path, dialect, strict=True):
            last_sound = line
    except csv.Error as error:
        if re.search("end of data|field limit", str(error)):
            reason = f"it ends inside quotes that were opened after line {last_sound}. Close them"
            raise DataFileError(f"Cannot read {str(path)!r}: {reason}.") from error


def number_fault(dialect: "Dialect", error: Exception) -> NumberFault | None:
    """What pyarrow could not read as a number, if that is what its error says."""
    found = re.search(r"In CSV column #(\d+).*conversion error to double: invalid value '(.*)'", str(error), re.DOTALL)
    return None if found is None else NumberFault(dialect.names[int(found[1])], found[2])


def no_number(path: Path, dialect: "Dialect", fault: NumberFault, *, record: int | None) -> DataFileError:
    """Error that names the column, the value and the line; records count from 1, all lines before the data included."""
    where = "a line" if record is None else f"line {_line_of_record(path, dialect, record)}"
    return DataFileError(
        f"Cannot read {str(path)!r}: column {fault.column!r} holds {fault.value[:40]!r} in {where}, which is no "
        "number, and the column held numbers in training. Correct the value or leave it empty."
    )


def explain(path: Path, dialect: "Dialect", error: Exception) -> DataFileError:
    """One line that names the file, the line, and the column and value if there are any."""
    message = str(error)
    row = re.search(r"Row #(\d+)", message)
    record = int(row[1]) if row else None
    if fault := number_fault(dialect, error):
        return no_number(path, dialect, fault, record=record)
    if "UTF8" in message:
        return not_utf8(path)
    if ragged := re.search(r"Expected (\d+) columns, got (\d+)", message):
        where = "a line" if record is None else f"line {_line_of_record(path, dialect, record)}"
        reason = f"{where} has {ragged[2]} fields, the header has {ragged[1]}. "
        is_first_row = record == dialect.n_lines_before + 2
        if is_first_row and int(ragged[2]) > int(ragged[1]):
            reason += "The first line must name every column; no title may stand before it."
        else:
            reason += "Fix or remove that line."
    elif "straddling" in message:
        reason = f"a line is longer than {dialect.n_block_bytes} bytes. Are there quotes that never close?"
    else:
        reason = f"{one_line(error)}."
    return DataFileError(f"Cannot read {str(path)!r}: {reason}")


def not_utf8(path: Path) -> DataFileError:
    """Error that names the first line which is not UTF-8."""
    with pa.input_stream(str(path), compression="detect") as source:
        lines = enumerate(io.BufferedReader(source), 1)
        where = next((f"line {number}" for number, line in lines if not _is_utf8(line)), "it")
    with pa.input_stream(str(path), compression="detect") as source:
        encoding = "utf-16" if source.read(2) in (b"\xff\xfe", b"\xfe\xff") else "cp1252"
    return DataFileError(
        f"Cannot read {str(path)!r}: {where} is not UTF-8 text. Save the file as UTF-8, for example with: "
        f"iconv -f {encoding} -t utf-8 OLD > NEW"
    )


def one_line(error: Exception) -> str:
    """Message of a foreign error, short and without line ends."""
    return " ".join(str(error).split())[:200].rstrip(".")


def _records(path: Path, dialect: "Dialect", *, strict: bool) -> Iterator[tuple[int, list[str]]]:
    """Records of the file, blank lines left out, each with the line it starts in, counted from 1."""
    with pa.input_stream(str(path), compression="detect") as source:
        text = io.TextIOWrapper(source, encoding="utf-8-sig", errors="replace", newline="")
        rows = csv.reader(text, delimiter=dialect.delimiter, strict=strict)
        start = 1
        for fields in rows:
            if fields:
                yield start, fields
            start = rows.line_num + 1


def _line_of_record(path: Path, dialect: "Dialect", record: int) -> int:
    """Line in which a record starts, where the header is record 1; pyarrow counts records, people count lines."""
    with contextlib.suppress(csv.Error):  # a field too long to look at
        for number, (line, _) in enumerate(_records(path, dialect, strict=False), 1):
            if number == record:
                return line
    return record


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
