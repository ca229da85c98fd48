"""How CSV files are written: as their first lines show (`sniff`), as a user says (`Reading`)."""

import codecs
import collections
import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from esad.core.text import one_line
from esad.errors import DataFileError, InputError
from esad.table.parse import CASH, DATE_ORDERS, check_date_format, find_date_orders, parse_dates

_SAMPLE_BYTES = 1 << 18
_MAX_HEADER_BYTES = 1 << 26
_MAX_ROWS = 2000  # looked at
_PIECE_BYTES = 1 << 20
_BYTE_ORDER_MARKS = {  # the longer ones first: one of them begins like another
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_HALVES = {"utf-16-le": slice(1, None, 2), "utf-16-be": slice(0, None, 2)}  # where the zeros of ASCII letters are
_EXCEL_SEPARATOR = re.compile(r'("?)sep=([,;\t|])\1[,;\t|]*(?:\r\n|\r|\n)')
_NO_HEADER = " Or is the first line a row? Then put a line of names before it."
_ENOUGH_NAMES = 4  # numbers in order: so many are a scale, such as wavelengths; fewer may be chance
_CODE = re.compile(r"0\d+")
_NUMBER = re.compile(r"[-+]?[\d.,]*\d\s?(%?)")
_UNIT = re.compile(rf"^{CASH}\s?|\s?(?:%|{CASH})$")
_BELOW_THOUSAND = re.compile(r"[+-]?\d{1,3}")
_UNCLEAR = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")  # 1,500
_UNCLEAR_POINT = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")  # 1.500, thousands where decimal commas are usual
_YEAR_LAST = re.compile(r"\d{1,2}([/-])\d{1,2}\1\d{2,4}(?:[T ].*)?")  # 31/01/2024
_NOT_ASCII = re.compile(r"[^\s,;|]{0,20}[^\x00-\x7f][^\s,;|]{0,20}")  # no more: a word may fill the sample
_WIDE = ("utf-16", "utf-32")  # encodings in which ASCII has other bytes
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
class Notation:
    """How numbers, dates or letters are written in a file, and how that is known.

    Parameters
    ----------
    value : str
        Such as ",", "day-first" or "cp1252"; nothing where it does not matter.
    example : str
        What shows it, such as 1,5; nothing where nothing does.
    unclear : str
        What is written so only by a guess, such as 1,500; else nothing.
    """

    value: str = ""
    example: str = ""
    unclear: str = ""

    @property
    def shown(self) -> str | None:
        """The value where something shows it."""
        return self.value if self.example else None

    def settle(self, value: str) -> "Notation":
        """The same with a value that is no guess."""
        return replace(self, value=value, unclear="")


@dataclass(frozen=True)
class Dialect:
    """How one CSV file is written.

    Parameters
    ----------
    names : tuple of str
        The header.
    delimiter : str
        What stands between fields.
    decimal : Notation
        What stands before decimals, "." or ",".
    encoding : Notation
        How its letters are written, as far as the first lines tell: "utf8", "utf-16", "cp1252", or what was said.
    dates : Notation
        The order of dates with slashes or dashes and the year last, "day-first" or "month-first", or a form of dates;
        nothing where there are none.
    date_columns : tuple of str
        Columns of such dates where the first lines do not tell the order.
    n_header_bytes : int
        Length of the header line.
    n_lines_before : int
        Lines before the header: 1 where spreadsheets note the separator (`sep=;`), else 0.
    codes : frozenset of str
        Columns with whole numbers such as 007: codes, not quantities.
    percents : dict of str to bool, optional
        Columns of numbers, and whether these are per cent; None where it is not seen, as in a sheet.
    text : pyarrow.Buffer, optional
        Where the text is, if not in the file itself: of a sheet, with tabs.
    cell_types : dict of str to pyarrow.DataType, optional
        Of a sheet the columns whose cells are all text, numbers, dates or truth values.
    """

    names: tuple[str, ...]
    delimiter: str
    decimal: Notation
    encoding: Notation
    dates: Notation
    date_columns: tuple[str, ...]
    n_header_bytes: int
    n_lines_before: int = 0
    codes: frozenset[str] = frozenset()
    percents: Mapping[str, bool] | None = None
    text: pa.Buffer | None = field(default=None, compare=False, repr=False)
    cell_types: Mapping[str, pa.DataType] | None = None

    @property
    def n_block_bytes(self) -> int:
        """Bytes read at a time; a line must fit, and few are 16 times as long as the header."""
        return max(1 << 20, 16 * self.n_header_bytes)


def sniff(path: Path, *, encoding: str | None = None, is_sure: bool = True, text: pa.Buffer | None = None) -> Dialect:
    r"""Read the header line, and tell the rest from the lines after it.

    Parameters
    ----------
    path : Path
    encoding : str, optional
        How letters are written.
    is_sure : bool
        Whether the user says so; else `encoding` is what to take where the file shows no other.
    text : pyarrow.Buffer, optional
        The text, with tabs, where it is not in the file itself.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name;size\nx;1,5\n")
    ...     dialect = sniff(file)
    >>> dialect.names, dialect.delimiter, dialect.decimal
    (('name', 'size'), ';', Notation(value=',', example='1,5', unclear=''))
    """
    lines, encoding = _decode(path, _read_sample(path, text), encoding, is_sure)
    noted = _EXCEL_SEPARATOR.match(lines)
    lines = (lines[noted.end() :] if noted else lines).lstrip("\r\n")
    header = re.split(r"[\r\n]", lines, maxsplit=1)[0]
    if not header:
        raise DataFileError(f"Cannot read {str(path)!r}: it is empty. A header line and at least one row are needed.")
    delimiter = noted[2] if noted else max(",;\t|", key=re.sub(r'"[^"]*"', "", header).count)
    delimiter = "\t" if text is not None else delimiter
    rows = csv.reader(io.StringIO(lines, newline=""), delimiter=delimiter)
    try:
        names = tuple(next(rows))
    except csv.Error as error:
        raise DataFileError(f"Cannot read {str(path)!r}: its first line is not CSV ({error}).") from error
    check_names(path, names, hint=_NO_HEADER if looks_like_a_row(names) else "")
    columns = _read_columns(rows)
    bare = [_without_units(column, all_cells=delimiter != ",") for column in columns]
    decimal = _find_decimal_notation(bare)
    if delimiter == ",":
        dotted = (cell for column in columns for cell in column if "." in cell)
        point = next((cell for cell in dotted if _DECIMAL["."].fullmatch(cell)), "")
        is_comma = decimal.shown == "," and not point  # quoted amounts such as "677,48 €"
        decimal = decimal if is_comma else Notation(".", point)
    elif delimiter == ";" and decimal == Notation("."):
        dotted = (cell for column in bare for cell in column)
        decimal = Notation(".", unclear=next(filter(_UNCLEAR_POINT.fullmatch, dotted), ""))
    dates, date_columns = _find_date_notation(
        names, columns, "day-first" if delimiter == ";" or decimal.value == "," else "month-first"
    )
    other_letters = None if lines.isascii() else _NOT_ASCII.search(lines)
    return Dialect(
        names,
        delimiter,
        decimal=decimal,
        encoding=Notation(encoding, "" if other_letters is None else other_letters[0]),
        dates=dates,
        date_columns=date_columns,
        n_header_bytes=len(header.encode()),
        n_lines_before=int(bool(noted)),
        codes=_find_codes(names, columns),
        percents=_find_percents(names, columns),
        text=text,
    )


def _find_date_notation(
    names: Sequence[str], columns: Sequence[Sequence[str]], guess: str
) -> tuple[Notation, tuple[str, ...]]:
    """The order of dates with the year last; a guess where none tells it, and the columns to look at further."""
    unclear: dict[str, str] = {}
    for name, column in zip(names, columns, strict=False):
        first = next((cell for cell in column if cell and cell not in MISSING), "")
        if not _YEAR_LAST.fullmatch(first):
            continue
        cells = pa.array([cell for cell in column if cell and cell not in MISSING])
        if found := show_date_order(cells):
            return found, ()
        if find_date_orders(cells):
            unclear[name] = first
    if not unclear:
        return Notation(), ()
    has_halves = any(re.search("(?i)[ap]m$", example) for example in unclear.values())  # as where the month comes first
    order, example = "month-first" if has_halves else guess, next(iter(unclear.values()))
    return Notation(order, unclear=example), tuple(unclear)


def show_date_order(texts: pa.Array) -> Notation | None:
    """The only order that the dates of a column can have, and a date that shows it; None where several are left."""
    orders = find_date_orders(texts)
    if len(orders) != 1:
        return None
    [other] = set(DATE_ORDERS) - set(orders)
    row = parse_dates(texts, other)[1]
    return Notation(orders[0], "" if row is None else texts[row].as_py())


def _open_bytes(path: Path, text: pa.Buffer | None = None) -> pa.NativeFile:
    """The bytes of a file, unpacked if it is compressed."""
    return pa.input_stream(str(path), compression="detect") if text is None else pa.BufferReader(text)


def open_text(path: Path, dialect: Dialect) -> io.TextIOWrapper:
    """The text of a file, line ends as they are; what cannot be read is replaced."""
    codec = "utf-8-sig" if dialect.encoding.value == "utf8" else dialect.encoding.value
    return io.TextIOWrapper(_open_bytes(path, dialect.text), encoding=codec, errors="replace", newline="")


def find_unreadable(path: Path, encoding: str, other: str = "cp1252") -> DataFileError | None:
    """Error that names the first line which is not text of this encoding, and another; None if there is none."""
    other = "cp1250" if encoding == other else other
    decoder, line, piece = codecs.getincrementaldecoder(encoding)(), 1, b"first"
    with pa.input_stream(str(path), compression="detect") as source:
        while piece:  # not line by line: one may have gigabytes
            piece = source.read(_PIECE_BYTES)
            try:
                decoder.decode(piece, final=not piece)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                is_wide = encoding.startswith(_WIDE)  # whose lines cannot be told apart before they are read
                return _not_text_error(path, "it" if is_wide else f"line {line}", encoding, other)
            line += piece.count(b"\n")
    return None


def encoding_name(encoding: str) -> str:
    """What people call an encoding."""
    return {"utf8": "UTF-8", "utf-16": "UTF-16", "utf-32": "UTF-32"}.get(encoding, encoding)


def _not_text_error(path: Path, where: str, encoding: str, other: str) -> DataFileError:
    return DataFileError(
        f"Cannot read {str(path)!r}: {where} is not {encoding_name(encoding)} text. Say how it is written, "
        f"such as `encoding={other!r}`, or save the file as UTF-8."
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


def _decode(path: Path, sample: bytes, encoding: str | None, is_sure: bool) -> tuple[str, str]:
    """The first lines as text, and their encoding: a wide one by its mark, UTF-8, or else that of western Windows."""
    asked = "utf-8" if encoding is None else codecs.lookup(encoding).name
    asked = "utf8" if asked.startswith("utf-8") else asked
    shown = next((name for mark, name in _BYTE_ORDER_MARKS.items() if sample.startswith(mark)), None)
    if shown is not None:
        asked, is_sure = asked if asked.startswith(shown) else shown, True
    elif encoding is None or not is_sure:
        is_sure, asked = False, "utf8" if asked.startswith(_WIDE) else asked
    if b"\0" in sample and not (is_sure and asked.startswith(_WIDE)):
        wide = next((name for name, half in _HALVES.items() if sample[half].count(0) > len(sample) / 4), None)
        hint = f" Or is it UTF-16 without a mark? Then pass `encoding={wide!r}`." if wide else ""
        raise DataFileError(f"Cannot read {str(path)!r}: it is binary, not CSV text.{hint}")
    for codec in (asked,) if is_sure else dict.fromkeys(("utf8", asked, "cp1252")):
        with contextlib.suppress(UnicodeDecodeError):
            decoder = codecs.getincrementaldecoder("utf-8-sig" if codec == "utf8" else codec)()
            text = decoder.decode(sample, final=not codec.startswith(_WIDE))
            return text, asked if text.isascii() and codec == "utf8" else codec
    other = "cp1252" if is_sure else "cp1250"  # the first was tried
    raise find_unreadable(path, asked, other) or _not_text_error(path, "it", asked, other)


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


def _read_columns(rows: Iterator[list[str]]) -> list[list[str]]:
    """Fields of the first rows, column by column, without blanks around them."""
    first: list[list[str]] = []
    with contextlib.suppress(csv.Error):  # a field too long to look at
        first.extend(itertools.islice(rows, _MAX_ROWS))
    return [[text.strip() for text in column] for column in itertools.zip_longest(*first, fillvalue="")]


def _read_sample(path: Path, text: pa.Buffer | None) -> bytes:
    """First lines of the file, none of them cut."""
    try:
        with _open_bytes(path, text) as source:
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


def _find_decimal_notation(columns: Iterable[Sequence[str]]) -> Notation:
    """Point or comma before decimals; 1.500 beside 1,5 is 1500."""
    comma, unclear = "", ""
    for column in columns:
        marked = [text for text in column if "," in text or "." in text]
        point = next((text for text in marked if _DECIMAL["."].fullmatch(text) or _MILLIONS.fullmatch(text)), "")
        if point:
            return Notation(".", point)
        comma = comma or next((text for text in marked if _DECIMAL[","].fullmatch(text)), "")
        example = next((text for text in marked if _UNCLEAR.fullmatch(text)), "")
        if example and not comma and any(_BELOW_THOUSAND.fullmatch(text) for text in column):
            return Notation(".", example)  # 999 beside 1,500: no decimals are meant
        unclear = unclear or example
    return Notation("," if comma or unclear else ".", comma, "" if comma else unclear)


def _find_codes(names: Sequence[str], columns: Sequence[Sequence[str]]) -> frozenset[str]:
    """Columns of whole numbers some of which have leading zeros."""
    return frozenset(
        name
        for name, column in zip(names, columns, strict=False)
        if any(text.startswith("0") and _CODE.fullmatch(text) for text in column)
        and all(text.isdecimal() or text in MISSING for text in column)
    )


def _find_percents(names: Sequence[str], columns: Sequence[Sequence[str]]) -> dict[str, bool]:
    """Columns of numbers that are all per cent, or all not."""
    found = {}
    for name, column in zip(names, columns, strict=False):
        signs = {number[1] for cell in column if cell not in MISSING and (number := _NUMBER.fullmatch(cell))}
        if len(signs) == 1:
            found[name] = signs == {"%"}
    return found


# ---------------------------------------------------------------------- what is said

_DECIMALS = {".": "decimal points", ",": "decimal commas"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is said about files beside what they show.

    Parameters
    ----------
    decimal : {".", ","}, optional
        What stands before decimals. A file that shows the other is refused.
    date_format : str, optional
        "day-first" or "month-first", for dates such as 01/02/2024, or a form such as "%d.%m.%y %H:%M".
    encoding : str, optional
        How letters are written, such as "cp1250". Where it is not said, UTF-8 and UTF-16 are told by the file, and what
        is neither is taken for cp1252.
    sheet : str, optional
        The sheet of an Excel file; the first by default.
    max_unpacked : int, optional
        Bytes that 65,536 rows of a Parquet file, or an Excel file, may take when they are unpacked.
    percents : frozenset of str, optional
        Columns that were in per cent in the training; only a model says so, and old ones do not.
    noted : frozenset of str
        Which of these a model has noted, and nobody said.

    Examples
    --------
    >>> Reading(decimal=";")
    Traceback (most recent call last):
        ...
    esad.errors.InputError: `decimal` must be "." or ",". Got ';'.
    """

    decimal: str | None = None
    date_format: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    max_unpacked: int | None = None
    percents: frozenset[str] | None = None
    noted: frozenset[str] = frozenset()

    def to_arguments(self) -> dict[str, Any]:
        """What the user says, as arguments."""
        return {name: value for name, value in vars(self).items() if name not in ("noted", "percents", *self.noted)}

    def __post_init__(self) -> None:
        if self.decimal not in (None, *_DECIMALS):
            raise InputError(f'`decimal` must be "." or ",". Got {self.decimal!r}.')
        if self.date_format is not None and (wrong := check_date_format(self.date_format)):
            raise InputError(
                f"`date_format` must be {', '.join(DATE_ORDERS)} or a form such as '%d/%m/%Y %H:%M'. "
                f"Got {self.date_format!r}: {wrong}."
            )
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise InputError(f"`encoding` must be one that Python knows, such as cp1250. Got {self.encoding!r}.")

    def with_shown(self, dialects: Iterable[Dialect]) -> "Reading":
        """What is said, and what files show where nothing is."""
        found = self
        for dialect in dialects:
            if dialect.percents is not None:
                percents = {name for name, is_percent in dialect.percents.items() if is_percent}
                found = replace(found, percents=(found.percents or frozenset()) | percents)
            shown = {
                "decimal": dialect.decimal.shown,
                "date_format": dialect.dates.value or None,  # a guess too: the user was told of it
                "encoding": dialect.encoding.shown,
            }
            more: dict[str, Any] = {name: value for name, value in shown.items() if getattr(found, name) is None}
            found = replace(found, **more)
        return found

    def settle(self, file: Path, dialect: Dialect) -> Dialect:
        """How a file is written, with what is said of it; refused where it shows otherwise."""
        if self.decimal is not None:
            shown = dialect.decimal.shown
            if shown not in (None, self.decimal):
                raise DataFileError(
                    f"Cannot read {str(file)!r}: its numbers have {_DECIMALS[shown]}, such as "
                    f"{dialect.decimal.example}, and {self._said('decimal', _DECIMALS[self.decimal])}. Write them "
                    f"alike, or pass `decimal={shown!r}` if this file is meant so."
                )
            dialect = replace(dialect, decimal=dialect.decimal.settle(self.decimal))
        if self.date_format is not None:
            if self.date_format in DATE_ORDERS and dialect.dates.shown not in (None, self.date_format):
                raise self._other_dates_error(file, dialect.dates, self._said("date_format", _words(self.date_format)))
            dialect = replace(dialect, dates=dialect.dates.settle(self.date_format), date_columns=())
        return dialect

    def settle_together(self, dialects: Mapping[Path, Dialect]) -> dict[Path, Dialect]:
        """Files whose numbers and dates are written as some of them show; sheets have numbers of our own writing."""
        found = {file: self.settle(file, dialect) for file, dialect in dialects.items()}
        marks = {mark for dialect in found.values() if (mark := dialect.decimal.shown)}
        if self.decimal is None and len(marks) == 1:
            for file, dialect in found.items():
                if dialect.decimal.shown is None and dialect.text is None:
                    found[file] = replace(dialect, decimal=dialect.decimal.settle(*marks))
        showing = {file: dialect.dates for file, dialect in found.items() if dialect.dates.example}
        if self.date_format is not None or not showing:
            order = next((dialect.dates.value for dialect in found.values() if dialect.dates.value), "")
            return {file: replace(each, dates=replace(each.dates, value=order)) for file, each in found.items()}
        first, order = next((file, dates.value) for file, dates in showing.items())
        for file, dates in showing.items():
            if dates.value != order:
                raise self._other_dates_error(file, dates, f"those of {str(first)!r} {_words(order)}")
        return {file: replace(each, dates=each.dates.settle(order)) for file, each in found.items()}

    def _other_dates_error(self, file: Path, dates: Notation, others: str) -> DataFileError:
        return DataFileError(
            f"Cannot read {str(file)!r}: its dates have {_words(dates.value)}, such as {dates.example}, "
            f"and {others}. Write them alike, or pass `date_format={dates.value!r}` if this file is meant so."
        )

    def _said(self, name: str, what: str) -> str:
        """Who wants it otherwise."""
        return (
            f"those of the training had {what}" if name in self.noted else f"`{name}={getattr(self, name)!r}` is given"
        )


def _words(order: str) -> str:
    return f"the {order.removesuffix('-first')} first"


def _is_encoding(name: str) -> bool:
    """Whether Python decodes text by it."""
    try:
        return isinstance(b"a,b".decode(codecs.lookup(name).name, errors="replace"), str)
    except (LookupError, ValueError):
        return False
