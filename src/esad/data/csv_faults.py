"""Where a CSV file is wrong, said in one line that names the file, the line and the column."""

import collections
import contextlib
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from esad.errors import DataFileError

__all__ = ["Dialect", "check_closed", "check_names", "explain", "not_utf8", "one_line"]


@dataclass(frozen=True)
class Dialect:
    """How one CSV file is written, judged by its first lines."""

    names: tuple[str, ...]
    delimiter: str
    decimal_point: str
    n_header_bytes: int

    @property
    def n_block_bytes(self) -> int:
        """Bytes read at a time; a line must fit, and few are 16 times as long as the header."""
        return max(1 << 20, 16 * self.n_header_bytes)


def check_names(path: Path, names: tuple[str, ...]) -> None:
    """Refuse doubled column names."""
    if len(set(names)) == len(names):
        return
    doubled = sorted(name for name, count in collections.Counter(names).items() if count > 1)
    shown = ", ".join(repr(name) for name in doubled[:5])
    raise DataFileError(f"Cannot read {str(path)!r}: doubled column names {shown}. Every column needs its own name.")


def check_closed(path: Path, dialect: Dialect, last_value: str | None) -> None:
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


def explain(path: Path, dialect: Dialect, error: Exception) -> DataFileError:
    """One line that names the file, the line, and the column and value if there are any."""
    message = str(error)
    row = re.search(r"Row #(\d+)", message)
    where = f"line {_line_of_record(path, dialect, int(row[1]))}" if row else "a line"
    if ragged := re.search(r"Expected (\d+) columns, got (\d+)", message):
        reason = f"{where} has {ragged[2]} fields, the header has {ragged[1]}. Fix or remove that line"
    elif bad := re.search(
        r"In CSV column #(\d+).*conversion error to double: invalid value '(.*)'", message, re.DOTALL
    ):
        name, value = dialect.names[int(bad[1])], bad[2]
        reason = (
            f"column {name!r} holds {value[:40]!r} in {where}, which is no number, and the column held numbers in "
            "training. Correct the value or leave it empty"
        )
    elif "UTF8" in message:
        return not_utf8(path)
    elif "straddling" in message:
        reason = f"a line is longer than {dialect.n_block_bytes} bytes. Are there quotes that never close?"
    else:
        reason = one_line(error)
    return DataFileError(f"Cannot read {str(path)!r}: {reason.rstrip('.')}{'' if reason.endswith('?') else '.'}")


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


def _records(path: Path, dialect: Dialect, *, strict: bool) -> Iterator[tuple[int, list[str]]]:
    """Records of the file, blank lines left out, each with the line it starts in, counted from 1."""
    with pa.input_stream(str(path), compression="detect") as source:
        text = io.TextIOWrapper(source, encoding="utf-8-sig", errors="replace", newline="")
        rows = csv.reader(text, delimiter=dialect.delimiter, strict=strict)
        start = 1
        for fields in rows:
            if fields:
                yield start, fields
            start = rows.line_num + 1


def _line_of_record(path: Path, dialect: Dialect, record: int) -> int:
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
