"""How one CSV file is written, judged by its first lines: separator, decimal point, names, codes with leading zeros."""

import collections
import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from esad.core.text import one_line
from esad.errors import DataFileError
from esad.table.parse import CASH

__all__ = ["MISSING", "Dialect", "check_names", "looks_like_a_row", "not_readable", "open_text", "sniff"]

_SAMPLE_BYTES = 1 << 18
_MAX_HEADER_BYTES = 1 << 26
_MAX_ROWS = 2000  # looked at
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16
_EXCEL_SEPARATOR = re.compile(r'("?)sep=([,;\t|])\1[,;\t|]*(?:\r\n|\r|\n)')
_NO_HEADER = " Or is the first line a row? Then put a line of names before it."
_ENOUGH_NAMES = 4  # numbers in order: so many are a scale, such as wavelengths; fewer may be chance
_CODE = re.compile(r"0\d+")
_UNIT = re.compile(rf"^{CASH}\s?|\s?(?:%|{CASH})$")
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
    decimal_example : str
        A number that shows the decimal point, such as 1.5; nothing where no number tells.
    encoding : {"utf8", "utf-16", "cp1252"}
        How its letters are written, as far as the first lines tell.
    """

    names: tuple[str, ...]
    delimiter: str
    decimal_point: str
    n_header_bytes: int
    n_lines_before: int = 0
    codes: frozenset[str] = frozenset()
    unclear: str = ""
    decimal_example: str = ""
    encoding: str = "utf8"

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
    text, encoding = _decoded(path, _sample(path))
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
    bare = [_without_units(column, all_cells=delimiter != ",") for column in columns]
    decimal_point, unclear, example = _decimal_point(bare)
    if delimiter == ",":
        dotted = (text for column in columns for text in column if "." in text)
        point = next((text for text in dotted if _DECIMAL["."].fullmatch(text)), "")
        is_comma = decimal_point == "," and not unclear and not point  # quoted amounts such as "677,48 €"
        decimal_point, unclear, example = (",", "", example) if is_comma else (".", "", point)
    return Dialect(
        names,
        delimiter,
        decimal_point,
        n_header_bytes=len(header.encode()),
        n_lines_before=int(bool(noted)),
        codes=_codes(names, columns),
        unclear=unclear,
        decimal_example=example,
        encoding=encoding,
    )


def open_text(path: Path, encoding: str) -> io.TextIOWrapper:
    """The text of a file, unpacked if it is compressed, line ends as they are; what cannot be read is replaced."""
    source = pa.input_stream(str(path), compression="detect")
    codec = "utf-8-sig" if encoding == "utf8" else encoding
    return io.TextIOWrapper(source, encoding=codec, errors="replace", newline="")


def not_readable(path: Path, encoding: str) -> DataFileError | None:
    """Error that names the first line which is not text of this encoding; None if there is none."""
    if encoding == "utf-16":  # whose lines cannot be told apart before they are read
        return None
    with pa.input_stream(str(path), compression="detect") as source:
        for number, line in enumerate(io.BufferedReader(source), 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return _not_text(path, f"line {number}", encoding)
    return None


def _not_text(path: Path, where: str, encoding: str) -> DataFileError:
    name = {"utf8": "UTF-8", "cp1252": "cp1252", "utf-16": "UTF-16"}[encoding]
    return DataFileError(
        f"Cannot read {str(path)!r}: {where} is not {name} text. Save the file as UTF-8, for example with: "
        "iconv -f cp1252 -t utf-8 OLD > NEW"
    )


def check_names(path: Path, names: tuple[str, ...], *, hint: str = "") -> None:
    """Refuse doubled column names."""
    if len(set(names)) == len(names):
        return
    doubled = sorted(name for name, count in collections.Counter(names).items() if count > 1)
    shown = ", ".join(repr(name) for name in doubled[:5])
    raise DataFileError(
        f"Cannot read {str(path)!r}: doubled column names {shown}. Every column needs its own name.{hint}"
    )


def _decoded(path: Path, sample: bytes) -> tuple[str, str]:
    """The first lines as text, and their encoding: UTF-16 by its mark, UTF-8, or else that of western Windows."""
    if sample[:2] in _BYTE_ORDER_MARKS:
        with contextlib.suppress(UnicodeDecodeError):
            return sample[: len(sample) // 2 * 2].decode("utf-16"), "utf-16"
        raise _not_text(path, "it", "utf-16")
    if b"\0" in sample:
        raise DataFileError(f"Cannot read {str(path)!r}: it is binary, not CSV text.")
    for codec, encoding in (("utf-8-sig", "utf8"), ("cp1252", "cp1252")):
        with contextlib.suppress(UnicodeDecodeError):
            return sample.decode(codec), encoding
    raise not_readable(path, "utf8") or _not_text(path, "it", "utf8")


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


def _without_units(column: Sequence[str], *, all_cells: bool) -> list[str]:
    """Cells without a currency or per cent beside them; only those that had one, and a comma, unless all are wanted."""
    if all_cells:
        return [text if text[-1:].isdigit() and text[0].isdigit() else _UNIT.sub("", text) for text in column]
    return [_UNIT.sub("", text) for text in column if "," in text and _UNIT.search(text)]


def _decimal_point(columns: Iterable[Sequence[str]]) -> tuple[str, str, str]:
    """Point or comma, a number for which it is a guess, and one that shows it; 1.500 beside 1,5 is 1500."""
    comma, unclear = "", ""
    for column in columns:
        marked = [text for text in column if "," in text or "." in text]
        point = next((text for text in marked if _DECIMAL["."].fullmatch(text) or _MILLIONS.fullmatch(text)), "")
        if point:
            return ".", "", point
        comma = comma or next((text for text in marked if _DECIMAL[","].fullmatch(text)), "")
        example = next((text for text in marked if _UNCLEAR.fullmatch(text)), "")
        if example and not comma and any(_BELOW_THOUSAND.fullmatch(text) for text in column):
            return ".", "", example  # 999 beside 1,500: no decimals are meant
        unclear = unclear or example
    return ("," if comma or unclear else "."), ("" if comma else unclear), comma


def _codes(names: Sequence[str], columns: Sequence[Sequence[str]]) -> frozenset[str]:
    """Columns of whole numbers some of which have leading zeros."""
    return frozenset(
        name
        for name, column in zip(names, columns, strict=False)
        if any(text.startswith("0") and _CODE.fullmatch(text) for text in column)
        and all(text.isdecimal() or text in MISSING for text in column)
    )
