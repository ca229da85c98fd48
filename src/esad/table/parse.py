"""Text that spells numbers, truth values or dates, read by arrow's kernels: whole columns at a time.

Every function takes an arrow array of text, null where nothing stands, and gives a numpy array and the row of the first
text that spells nothing of the kind (None when all do). Quick casts come first; only where one fails are texts taken
apart by patterns, each different text once.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esad.core.arrays import Floats

BLANKS = "".join(chr(code) for code in range(0x3001) if chr(code).isspace())  # what str.strip takes for blank

_N_TRIED = 100  # texts that tell whether a column is worth parsing as a whole
_FLOAT = r"(?i)^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)$"
_TRUTHS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}

Texts: TypeAlias = pa.Array  # of strings


def trim(texts: Texts) -> Texts:
    """Texts without blanks around them."""
    return pc.utf8_trim(texts, characters=BLANKS)


# ---------------------------------------------------------------------- numbers and truth values


def parse_numbers(texts: Texts) -> tuple[Floats, int | None]:
    """Plain numbers, as Python's `float` reads them.

    Examples
    --------
    >>> parse_numbers(pa.array(["1e3", None, "x"]))
    (array([1000.,   nan,   nan]), 2)
    """
    numbers = _cast(texts, pa.float64())
    return _each_once(texts, _parse_plain_numbers, np.nan) if numbers is None else (_to_floats(numbers), None)


def _cast(texts: Texts, type_: pa.DataType) -> pa.Array | None:
    """Texts as another type, None if one cannot be; the first are tried first, for every failure takes its time."""
    try:
        texts.slice(0, _N_TRIED).cast(type_)
        return texts.cast(type_)
    except pa.ArrowInvalid:
        return None


def _parse_plain_numbers(texts: Texts) -> tuple[Floats, NDArray[np.bool_]]:
    trimmed = trim(texts)
    is_number = pc.match_substring_regex(trimmed, _FLOAT)
    return _to_floats(pc.if_else(is_number, trimmed, None).cast(pa.float64())), _to_mask(is_number)


def parse_booleans(texts: Texts) -> tuple[Floats, int | None]:
    """Truth values: true, false, 1, 0.

    Examples
    --------
    >>> parse_booleans(pa.array(["True", "0", None]))
    (array([ 1.,  0., nan]), None)
    """
    return _each_once(texts, _parse_truth_values, np.nan)


def _parse_truth_values(texts: Texts) -> tuple[Floats, NDArray[np.bool_]]:
    found = pc.index_in(pc.utf8_lower(trim(texts)), value_set=pa.array(list(_TRUTHS)))
    return _to_floats(pa.array(list(_TRUTHS.values())).take(found)), _to_mask(found.is_valid())


def _to_floats(numbers: pa.Array) -> Floats:
    """Numbers with NaN where missing."""
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)


def _to_mask(mask: pa.Array) -> NDArray[np.bool_]:
    """A mask, false where null."""
    return np.asarray(mask.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)


def _each_once(
    texts: Texts, parse: Callable[[Texts], tuple[NDArray[Any], NDArray[np.bool_]]], nothing: Any
) -> tuple[NDArray[Any], int | None]:
    """Parse each different text once; the first texts first, for if these fail the others need no look."""
    for part in (texts.slice(0, _N_TRIED), texts):
        encoded = part.dictionary_encode()
        rows = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        values, is_sound = parse(encoded.dictionary)
        bad = np.flatnonzero(~np.append(is_sound, True)[rows])
        parsed = np.append(values, np.array([nothing], dtype=values.dtype))[rows]
        if len(bad) or len(part) == len(texts):
            break
    if len(part) < len(texts):
        parsed = np.append(parsed, np.full(len(texts) - len(part), nothing, dtype=parsed.dtype))
    return parsed, int(bad[0]) if len(bad) else None


# ---------------------------------------------------------------------- dates

_DAY = 86_400_000_000  # in microseconds
_MAX_FORMS = 8  # in which the dates of one column are written
_NOT_A_DATE = np.iinfo(np.int64).min
DATE_ORDERS = ("day-first", "month-first")
_DIRECTIVES = {
    **dict.fromkeys(("%d", "%m", "%H", "%I"), r"\d{1,2}"),
    **{"%Y": r"\d{4}", "%y": r"\d{2}", "%M": r"\d{2}", "%S": r"\d{2}", "%p": "(?i:[ap]m)"},
    "%a": "(?i:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*)",
    **dict.fromkeys(("%b", "%B"), "(?i:(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*)"),
}
_DAYS = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%Y.%m.%d",
    "%d.%m.%Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d %b %Y",
    "%b %d, %Y",
    "%a, %d %b %Y",
)
_DAYS_IN_ORDER = {
    "": (),
    "day-first": ("%d/%m/%Y", "%d-%m-%Y", "%d/%m/%y", "%d.%m.%y"),
    "month-first": ("%m/%d/%Y", "%m-%d-%Y", "%m/%d/%y"),
}
_TIMES = ("", *(f"{mark}{time}" for mark in "T " for time in ("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")))
_OF_C = "%a %b %d %H:%M:%S %Y"
_OF_MAILS = r"^(?P<local>.*[A-Za-z] +\d{4} .*\d) +(?P<zone>GMT|UTC|[+-]\d{4})(?: \([A-Z]+\))?$"
_YEAR_LAST = {
    "": r"(?P<day_>\d{1,2})\.(?P<month_>\d{1,2})\.(?P<year_>\d{4})",
    "day-first": r"(?P<day_>\d{1,2})[-/.](?P<month_>\d{1,2})[-/.](?P<year_>\d{4})",
    "month-first": r"(?P<month_>\d{1,2})[-/](?P<day_>\d{1,2})[-/](?P<year_>\d{4})",
}
_FIELDS = (
    r"^(?:(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{1,2})(?P<other>[-/.])(?P<day>\d{1,2})|YEAR_LAST)"
    r"(?:[Tt ] *(?P<hour>\d{1,2})(?::?(?P<minute>\d{2})(?::?(?P<second>\d{2})(?:[.,](?P<fraction>\d+))?)?)?"
    r" ?(?P<zone>Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?$"
)
_YEAR_LAST_ONLY = r"^\d{1,2}(?:/\d{1,2}/(?:\d{4}|\d{2})|-\d{1,2}-\d{4})(?:[T ].*)?$"
_ENDS = tuple(np.array(["0001-01-01", "9999-12-31T23:59:59.999999"], dtype="M8[us]").astype(np.int64))


def parse_dates(texts: Texts, date_format: str = "") -> tuple[NDArray[np.datetime64], int | None]:
    """Dates, in UTC: year first, with points day first, or with the month's name; hours of 24, or 12 with AM and PM.

    Dates such as 29/02/2024, which elsewhere are written 02/29/2024, are read only where `date_format` says "day-first"
    or "month-first". It may also be a form of its own for all of them, such as "%d.%m.%y %H:%M".

    Examples
    --------
    >>> parse_dates(pa.array(["29.02.2024", "2024-02-29T12:00:00+02:00"]))[0].astype(str).tolist()
    ['2024-02-29T00:00:00.000000', '2024-02-29T10:00:00.000000']
    >>> parse_dates(pa.array(["2/29/2024 1:05 PM", "29/2/2024"]), "month-first")
    (array(['2024-02-29T13:05:00.000000',                        'NaT'],
          dtype='datetime64[us]'), 1)
    """
    nothing = np.datetime64("NaT", "us")
    if date_format not in _DAYS_IN_ORDER:
        return _each_once(texts, lambda some: _mark_sound(_read_form(trim(some), date_format)[0]), nothing)
    for zone in (None, "UTC"):
        moments = _cast(texts, pa.timestamp("us", zone))
        if moments is not None:
            return _as_dates(moments), None
    return _each_once(texts, lambda some: _mark_sound(_read_spelled_dates(some, date_format)), nothing)


def parse_written_dates(texts: Texts, date_format: str) -> tuple[NDArray[np.datetime64], int | None]:
    """Dates as `date_format` says; beside a form of its own, all may be such as need no word."""
    dates, bad_row = parse_dates(texts, date_format)
    if bad_row is not None and date_format not in DATE_ORDERS:
        plain, bad_plain = parse_dates(texts)
        return (plain, None) if bad_plain is None else (dates, bad_row)
    return dates, bad_row


def find_date_orders(texts: Texts) -> tuple[str, ...]:
    """Which of `DATE_ORDERS` the dates of a column can be read in, where all have slashes or dashes and the year last.

    Examples
    --------
    >>> find_date_orders(pa.array(["01/02/2024", "31/01/2024"])), find_date_orders(pa.array(["2024-01-31"]))
    (('day-first',), ())
    """
    if not pc.all(pc.match_substring_regex(trim(texts), _YEAR_LAST_ONLY)).as_py():
        return ()
    return tuple(order for order in DATE_ORDERS if parse_dates(texts, order)[1] is None)


def check_date_format(date_format: str) -> str:
    """What is wrong with a form of dates; empty if nothing is.

    Examples
    --------
    >>> check_date_format("%d/%m/%Y"), check_date_format("%d/%Q")
    ('', "'%Q' is none of %d, %m, %H, %I, %Y, %y, %M, %S, %p, %a, %b, %B")
    """
    if date_format in DATE_ORDERS:
        return ""
    asked = re.findall("%.?", date_format)
    wrong = [directive for directive in asked if directive not in _DIRECTIVES]
    if wrong:
        return f"{wrong[0]!r} is none of {', '.join(_DIRECTIVES)}"
    has = {"%d": "the day", "%m %b %B": "the month", "%Y %y": "the year"}
    lacking = [what for names, what in has.items() if sum(asked.count(name) for name in names.split()) != 1]
    return f"it must have {lacking[0]} once" if lacking else ""


def _as_dates(moments: pa.Array) -> NDArray[Any]:
    """Arrow's moments in microseconds as numpy's."""
    return np.asarray(moments.cast(pa.int64()).fill_null(_NOT_A_DATE)).astype("M8[us]")


def _mark_sound(dates: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    return dates, ~np.isnat(dates)


def _read_spelled_dates(texts: Texts, order: str) -> NDArray[Any]:
    """Dates of several forms, NaT for other texts: the form of the first, of the first that has another, ..."""
    rest, trimmed = np.arange(len(texts)), trim(texts)
    dates = np.full(len(texts), "NaT", dtype="M8[us]")
    forms = [day + time for day in (*_DAYS, *_DAYS_IN_ORDER[order]) for time in _TIMES]
    forms.append(_OF_C)
    of_mails = pc.extract_regex(trimmed, _OF_MAILS)
    zones = pc.if_else(of_mails.is_valid(), of_mails.field("zone"), "")
    trimmed = pc.if_else(of_mails.is_valid(), of_mails.field("local"), trimmed)
    for _ in range(_MAX_FORMS):
        first = trimmed[0].as_py() if len(trimmed) else ""
        form = next((form for form in forms if re.search(_pattern(form), first, re.ASCII)), None)
        if form is None:
            break
        found, matched = _read_form(trimmed, form)
        dates[rest[_to_mask(matched)]] = found[_to_mask(matched)]
        others = pc.invert(matched)
        rest, trimmed = rest[_to_mask(others)], trimmed.filter(others)
    dates[rest] = _read_fields(pc.extract_regex(trimmed, _FIELDS.replace("YEAR_LAST", _YEAR_LAST[order])))
    return _bring_to_utc(dates, zones)


@cache
def _pattern(form: str, day: str = _DIRECTIVES["%d"]) -> str:
    """What texts of a form look like; `day` is what stands for the day."""
    known = _DIRECTIVES | {"%d": day, " %p": f" ?{_DIRECTIVES['%p']}"}
    return (
        "^"
        + "".join(known.get(part, re.escape(part).replace(r"\ ", " +")) for part in re.split("( ?%p|%.)", form))
        + "$"
    )


def _read_form(texts: Texts, form: str) -> tuple[NDArray[Any], pa.Array]:
    """Dates of one form, and which texts look so; NaT for others, and for days that the calendar does not have."""
    matched = pc.match_substring_regex(texts, _pattern(form))
    found = pc.strptime(pc.if_else(matched, texts, None), format=form, unit="us", error_is_null=True)
    is_late = pc.match_substring_regex(texts, _pattern(form, "(?:29|30|31)"))  # 30 February comes out as one in March
    is_wrong = pc.or_(pc.and_(is_late, pc.less(pc.day(found), 4)), pc.less(pc.year(found), 1))
    return _as_dates(pc.if_else(is_wrong, None, found)), matched


def _read_fields(fields: pa.StructArray) -> NDArray[Any]:
    """Dates that are taken apart: with fractions of seconds and time zones, too; NaT where they are none."""

    def whole(name: str) -> NDArray[np.int64]:
        text = fields.field(name)
        return np.asarray(pc.if_else(pc.equal(text, ""), "0", text).fill_null("0").cast(pa.int64()))

    year, month, day = (whole(name) + whole(f"{name}_") for name in ("year", "month", "day"))
    hour, minute, second = map(whole, ("hour", "minute", "second"))
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    days = months.astype("M8[D]") + (day - 1)
    is_sound = _to_mask(fields.is_valid()) & _to_mask(pc.equal(fields.field("mark"), fields.field("other")))
    is_sound &= (year >= 1) & (month >= 1) & (month <= 12) & (days.astype("M8[M]") == months)
    is_sound &= (hour < 24) & (minute < 60) & (second < 60)
    fraction = pc.utf8_slice_codeunits(fields.field("fraction").fill_null(""), 0, 6)
    local = days.astype("M8[us]").astype(np.int64) + ((hour * 60 + minute) * 60 + second) * 1_000_000
    local += np.asarray(pc.utf8_rpad(fraction, width=6, padding="0").cast(pa.int64()))
    return _bring_to_utc(np.where(is_sound, local, _NOT_A_DATE).astype("M8[us]"), fields.field("zone"))


def _bring_to_utc(dates: NDArray[Any], zones: Texts) -> NDArray[Any]:
    """Dates of time zones such as +02:00, -0530, Z or none; NaT where a zone is a day or more off."""
    zone = pc.replace_substring_regex(zones.fill_null(""), "Z|UTC|GMT|:", "")
    digits = np.asarray(pc.utf8_rpad(pc.utf8_ltrim(zone, "+-"), width=4, padding="0").cast(pa.int64()))
    ahead = np.where(_to_mask(pc.starts_with(zone, "-")), -1, 1) * (digits // 100 * 60 + digits % 100) * 60_000_000
    local = dates.astype(np.int64)
    moments = local - ahead
    beyond = (moments < _ENDS[0]) | (moments > _ENDS[1])  # within hours of the first or last year, or no date at all
    moments[beyond] = local[beyond]
    moments[np.abs(ahead) >= _DAY] = _NOT_A_DATE
    return np.asarray(moments.astype("M8[us]"))


# ---------------------------------------------------------------------- numbers as people write them

# What stands in place of a number that is not there; beside words the same marks may mean something.
NOTHING = (
    *("-", "--", "---", "\N{EN DASH}", "\N{EM DASH}", ".", "..", "*", "\\N", "n.a.", "N.A.", "NONE", "none", "NIL"),
    *("nil", "missing", "Missing", "MISSING", "unknown", "Unknown", "UNKNOWN"),
    *("#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!"),
)
_CURRENCIES = "$€£¥₹₽₩₺฿"
_CODES = (
    "AED|ARS|AUD|BGN|BRL|CAD|CHF|CLP|CNY|COP|CZK|DKK|EGP|EUR|GBP|HKD|HUF|IDR|ILS|INR|JPY|KES|KRW|MXN|MYR|NGN|NOK|NZD|"
    "PEN|PHP|PLN|RMB|RON|RUB|SAR|SEK|SGD|THB|TRY|TWD|UAH|USD|VND|ZAR"
)
CASH = rf"(?:[A-Z]{{0,2}}[{_CURRENCIES}]|{_CODES}|kr|zł|Kč|Ft|Rs\.?|Fr\.)"  # R$, USD, €
_MINUS = "-\N{MINUS SIGN}"
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
_QUOTES = "'\N{RIGHT SINGLE QUOTATION MARK}"


@cache
def _numeral(decimal_point: str) -> str:
    """The pattern of a number: brackets, a sign, a currency or per cent, and digits in groups or none."""
    point, sign, blank = re.escape(decimal_point), f"[{_MINUS}+]", f"[{_SPACES}]"
    groups = [rf"[1-9]\d{{0,2}}(?:{re.escape(mark)}\d{{3}})+" for mark in _group_marks(decimal_point)]
    if decimal_point == ".":
        groups.append(r"[1-9]\d?(?:,\d{2})+,\d{3}")  # 12,34,567 in India
    grouped = rf"(?:{'|'.join(groups)})(?:{point}\d+)?"
    plain = rf"(?:\d+(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?"
    digits = rf"(?:{grouped}|{plain}|0[xX][\da-fA-F]+)"
    signed = rf"{sign}?{blank}?{digits}|{CASH}{blank}?{sign}?{digits}|{sign}{CASH}{blank}?{digits}"
    number = rf"(?:{signed}|{sign}?{blank}?{digits}{blank}?(?:%|{CASH}))"
    behind = rf"(?:{grouped}|\d+(?:{point}\d+)?)[{_MINUS}]"  # as SAP writes them; but 5.- is five
    return rf"^(?:{number}|\({number}\)|{CASH}{blank}?\({digits}\)|{behind})$"


def _group_marks(decimal_point: str) -> str:
    return ("," if decimal_point == "." else ".") + _SPACES + _QUOTES


@dataclass(frozen=True)
class Style:
    """How the numbers of a column are written: what sets groups of digits apart, and which signs stand beside them."""

    groups: frozenset[str] = frozenset()
    units: frozenset[str] = frozenset()  # "" where there is none; nothing at all where there is no number

    def __or__(self, other: "Style") -> "Style":
        """The style of both together."""
        return Style(self.groups | other.groups, self.units | other.units)

    @property
    def is_sound(self) -> bool:
        """Whether there are numbers, all written in one way; 5 beside 5 % may be five or five hundredths.

        Examples
        --------
        >>> Style(units=frozenset({"$", ""})).is_sound, Style(units=frozenset({"%", ""})).is_sound
        (True, False)
        """
        mixed = len(self.groups) > 1 or len(self.units - {""}) > 1 or ("%" in self.units and len(self.units) > 1)
        return bool(self.units) and not mixed


PLAIN = Style(units=frozenset({""}))


def parse_amounts(texts: Texts, decimal_point: str = ".") -> tuple[Floats, int | None]:
    """Numbers, written plainly or as `read_numerals` knows them.

    Examples
    --------
    >>> parse_amounts(pa.array(["950,10 €", "12"]), ",")
    (array([950.1,  12. ]), None)
    """
    if decimal_point == ".":
        values, bad_row = parse_numbers(texts)
    elif not pc.any(pc.match_substring(texts, ".")).as_py():
        values, bad_row = parse_numbers(pc.replace_substring(texts, ",", "."))
    else:
        values, bad_row = np.empty(0), 0
    if bad_row is not None:
        values, _, bad_row = read_numerals(texts, decimal_point=decimal_point)
    return values, bad_row


def read_numerals(texts: Texts, *, decimal_point: str = ".") -> tuple[Floats, Style | None, int | None]:
    """Numbers such as 1,234.50 or 1.234,50, 12.5 %, $5, (3.20), how they are written, and the row of the first other.

    Groups of three digits may be set apart by a comma (a point, where the comma stands before decimals), a blank or an
    apostrophe. Per cent are hundredths, brackets mean minus, a currency (€, R$, USD) is left out. A mark such as - or
    n.a. stands for no number.

    Examples
    --------
    >>> read_numerals(pa.array(["1,234.5", "$5", "(3.20)", "-", None]))[0]
    array([1234.5,    5. ,   -3.2,    nan,    nan])
    >>> read_numerals(pa.array(["1.234,5 €"]), decimal_point=",")[:2]
    (array([1234.5]), Style(groups=frozenset({'.'}), units=frozenset({'€'})))
    >>> read_numerals(pa.array(["12.5 %", "12a"]))[1:]
    (None, 1)
    """
    style = Style()

    def parse(different: Texts) -> tuple[Floats, NDArray[np.bool_]]:
        nonlocal style
        values, is_number, style = _parse_numerals(different, decimal_point)
        return values, is_number

    values, bad_row = _each_once(texts, parse, np.nan)
    return values, (style if bad_row is None else None), bad_row


def _parse_numerals(texts: Texts, decimal_point: str) -> tuple[Floats, NDArray[np.bool_], Style]:
    """Values, which texts are numbers or marks for none, and the style of the numbers."""
    trimmed = trim(texts)
    bare = trim(pc.replace_substring_regex(trimmed, f"^{CASH}", ""))  # "$ -" in a sheet's accounts
    is_nothing = _to_mask(pc.is_in(bare, value_set=pa.array(NOTHING)))
    is_number = _to_mask(pc.match_substring_regex(trimmed, _numeral(decimal_point))) & ~is_nothing
    known = trimmed.filter(pa.array(is_number))
    units = pc.extract_regex(known, f"(?P<unit>%|{CASH})").field("unit").fill_null("")
    known = trim(pc.replace_substring_regex(known, CASH, "", max_replacements=1))
    digits = pc.utf8_trim(known, characters=f"()+%{_MINUS}{_SPACES}")
    groups = set()
    for mark in _group_marks(decimal_point):
        if pc.any(pc.match_substring(digits, mark)).as_py():
            groups.add(mark)
            digits = pc.replace_substring(digits, mark, "")
    numbers = _parse_hexadecimals_too(pc.replace_substring(digits, decimal_point, "."))
    is_minus = _to_mask(pc.match_substring_regex(known, rf"^\(?[{_SPACES}]?[{_MINUS}]|[{_MINUS}]$"))
    numbers = np.where(is_minus != _to_mask(pc.starts_with(known, "(")), -numbers, numbers)
    numbers = np.where(_to_mask(pc.equal(units, "%")), numbers / 100, numbers)
    values = np.full(len(texts), np.nan)
    values[is_number] = numbers
    return values, is_number | is_nothing, Style(frozenset(groups), frozenset(pc.unique(units).to_pylist()))


def _parse_hexadecimals_too(texts: Texts) -> Floats:
    """Plain numbers, among them such as 0x10."""
    is_hexadecimal = pc.match_substring_regex(texts, "^0[xX]")
    if not pc.any(is_hexadecimal).as_py():
        return _to_floats(texts.cast(pa.float64()))
    decimal = pc.if_else(is_hexadecimal, "nan", texts).cast(pa.float64())
    whole = [float(int(text, 16)) for text in texts.filter(is_hexadecimal).to_pylist()]
    return _to_floats(pc.replace_with_mask(decimal, is_hexadecimal, pa.array(whole)))
