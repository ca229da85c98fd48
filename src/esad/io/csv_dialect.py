"""How one CSV file is written, judged by its first lines: separator, decimal point, names, codes with leading zeros."""

import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from esad.errors import DataFileError
from esad.io.csv_faults import check_names, not_utf8, one_line

__all__ = ["MISSING", "Dialect", "looks_like_a_row", "sniff"]

_SAMPLE_BYTES = 1 << 18
_MAX_HEADER_BYTES = 1 << 26
_MAX_ROWS = 2000  # looked at
_EXCEL_SEPARATOR = re.compile(r'("?)sep=([,;\t|])\1[,;\t|]*(?:\r\n|\r|\n)')
_NO_HEADER = " Or is the first line a row? Then put a line of names before it."
_ENOUGH_NAMES = 4  # numbers in order: so many are a scale, such as wavelengths; fewer may be chance
_CODE = re.compile(r"0\d+")
_BELOW_THOUSAND = re.compile(r"[+-]?\d{1,3}")
_UNCLEAR = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,500
_MILLIONS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3}){2,}")  # 1,500,000


def _decimal(mark: str, group: str) -> re.Pattern[str]:
    """Numbers in which `mark` can only stand before decimals: 1.5, 0.500, 1,000.500, but not 1.500."""
    forms = (
        rf"\d*[{mark}](?:\d{{1,2}}|\d{{4,}})",
        rf"(?:0?|\d{{4,}})[{mark}]\d+",
        rf"\d{{1,3}}(?:[{group}]\d{{3}})+[{mark}]\d+",
        rf"\d*[{mark}]\d+[eE][+-]?\d+",
    )
    return re.compile(rf"[+-]?(?:{'|'.join(forms)})")


_DECIMAL = {".": _decimal(".", ","), ",": _decimal(",", ".")}
MISSING = (
    *(" " * width for width in range(9)),  # pyarrow does not take blanks for nothing
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "?", "<NA>", "N/A", "NA"),
    *("NAN", "NULL", "NaN", "NaT", "None", "Null", "n/a", "na", "nan", "null"),
)


@dataclass(frozen=True)
class Dialect:
    """How one CSV file is written.

    Parameters
    ----------
    names : tuple of str
        The header.
    delimiter, decimal_point : str
        What stands between fields, and before decimals.
    n_header_bytes : int
        Length of the header line.
    n_lines_before : int
        Lines before the header: 1 where spreadsheets note the separator (`sep=;`), else 0.
    codes : frozenset of str
        Columns with whole numbers such as 007: codes, not quantities.
    unclear : str
        A number such as 1,500 if the decimal comma is only a guess, else nothing.
    """

    names: tuple[str, ...]
    delimiter: str
    decimal_point: str
    n_header_bytes: int
    n_lines_before: int = 0
    codes: frozenset[str] = frozenset()
    unclear: str = ""

    @property
    def n_block_bytes(self) -> int:
        """Bytes read at a time; a line must fit, and few are 16 times as long as the header."""
        return max(1 << 20, 16 * self.n_header_bytes)


def sniff(path: Path) -> Dialect:
    r"""Read the header line, and tell the rest from the lines after it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name;size\nx;1,5\n")
    ...     dialect = sniff(file)
    >>> dialect.names, dialect.delimiter, dialect.decimal_point
    (('name', 'size'), ';', ',')
    """
    sample = _sample(path)
    if b"\0" in sample and sample[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise DataFileError(f"Cannot read {str(path)!r}: it is binary, not CSV text.")
    try:
        text = sample.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    noted = _EXCEL_SEPARATOR.match(text)
    text = (text[noted.end() :] if noted else text).lstrip("\r\n")
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    if not header:
        raise DataFileError(f"Cannot read {str(path)!r}: it is empty. A header line and at least one row are needed.")
    delimiter = noted[2] if noted else max(",;\t|", key=re.sub(r'"[^"]*"', "", header).count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        names = tuple(next(rows))
    except csv.Error as error:
        raise DataFileError(f"Cannot read {str(path)!r}: its first line is not CSV ({error}).") from error
    check_names(path, names, hint=_NO_HEADER if looks_like_a_row(names) else "")
    columns = _columns(rows)
    decimal_point, unclear = (".", "") if delimiter == "," else _decimal_point(columns)
    return Dialect(
        names, delimiter, decimal_point, len(header.encode()), int(bool(noted)), _codes(names, columns), unclear
    )


def looks_like_a_row(names: Iterable[str]) -> bool:
    """Whether a header is more likely the first row of a file without one.

    It is when numbers are among the names, unless they count up: years, positions, wavelengths.

    Examples
    --------
    >>> looks_like_a_row(["5.1", "3.5", "red"]), looks_like_a_row(["site", "2023", "2024"])
    (True, False)
    """
    numbers = []
    for name in names:
        with contextlib.suppress(ValueError):
            numbers.append(float("x" if "_" in name else name))
    rises = all(first < second for first, second in itertools.pairwise(numbers))
    is_scale = len(numbers) >= _ENOUGH_NAMES or all(number >= 0 and number.is_integer() for number in numbers)
    return not (rises and is_scale)


def _columns(rows: Iterator[list[str]]) -> list[list[str]]:
    """Fields of the first rows, column by column, without blanks around them."""
    first: list[list[str]] = []
    with contextlib.suppress(csv.Error):  # a field too long to look at
        first.extend(itertools.islice(rows, _MAX_ROWS))
    return [[text.strip() for text in column] for column in itertools.zip_longest(*first, fillvalue="")]


def _sample(path: Path) -> bytes:
    """First lines of the file, none of them cut."""
    try:
        with pa.input_stream(str(path), compression="detect") as source:
            sample: bytes = source.read(_SAMPLE_BYTES)
            n_wanted = _SAMPLE_BYTES
            while len(sample) == n_wanted and not re.search(rb"[\r\n]", sample) and n_wanted < _MAX_HEADER_BYTES:
                sample += source.read(n_wanted)
                n_wanted *= 2
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"Cannot read {str(path)!r}: {one_line(error)}.") from error
    if len(sample) < n_wanted:
        return sample
    end = max(sample.rfind(b"\n"), sample.rfind(b"\r"))
    if end < 0:
        raise DataFileError(f"Cannot read {str(path)!r}: its first line has no end, so it is no CSV text.")
    return sample[:end]


def _decimal_point(columns: Iterable[Sequence[str]]) -> tuple[str, str]:
    """Point or comma, and a number for which it is a guess; 1.500 beside 1,5 is one and a half thousand."""
    comma, unclear = False, ""
    for column in columns:
        marked = [text for text in column if "," in text or "." in text]
        if any(_DECIMAL["."].fullmatch(text) or _MILLIONS.fullmatch(text) for text in marked):
            return ".", ""
        comma = comma or any(_DECIMAL[","].fullmatch(text) for text in marked)
        example = next((text for text in marked if _UNCLEAR.fullmatch(text)), "")
        if example and not comma and any(_BELOW_THOUSAND.fullmatch(text) for text in column):
            return ".", ""  # 999 beside 1,500: no decimals are meant
        unclear = unclear or example
    return ("," if comma or unclear else "."), ("" if comma else unclear)


def _codes(names: Sequence[str], columns: Sequence[Sequence[str]]) -> frozenset[str]:
    """Columns of whole numbers some of which have leading zeros."""
    return frozenset(
        name
        for name, column in zip(names, columns, strict=False)
        if any(text.startswith("0") and _CODE.fullmatch(text) for text in column)
        and all(text.isdecimal() or text in MISSING for text in column)
    )
