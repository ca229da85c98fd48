"""Numbers as people write them: 1,234.50 or 1.234,50, 12.5 %, $5, (3.20)."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["PLAIN", "Style", "read_numeral"]

# What stands in place of a number that is not there; beside words the same marks may mean something.
_NOTHING = frozenset(
    (
        *(
            "-",
            "--",
            "---",
            "\N{EN DASH}",
            "\N{EM DASH}",
            ".",
            "..",
            "*",
            "\\N",
            "n.a.",
            "N.A.",
            "NONE",
            "none",
            "NIL",
            "nil",
        ),
        *("missing", "Missing", "MISSING", "unknown", "Unknown", "UNKNOWN"),
        *("#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!"),
    )
)
_CURRENCIES = "$€£¥₹₽₩₺฿"
_MINUS = "-\N{MINUS SIGN}"
_SPACES = " \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"
_QUOTES = "'\N{RIGHT SINGLE QUOTATION MARK}"


def _pattern(decimal_point: str) -> re.Pattern[str]:
    point = re.escape(decimal_point)
    groups = ("," if decimal_point == "." else ".") + _SPACES + _QUOTES
    plain = (
        rf"(?:\d+(?:{point}\d*)?|{point}\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?|0[xX][\da-fA-F]+"
    )
    grouped = rf"[1-9]\d{{0,2}}(?P<group>[{groups}])\d{{3}}(?:(?P=group)\d{{3}})*(?:{point}\d+)?"
    return re.compile(
        rf"\s*(?P<owed>\()?(?P<sign>[{_MINUS}+]?)(?P<before>[{_CURRENCIES}]?)[{_SPACES}]?(?P<inner>[{_MINUS}+]?)"
        rf"(?P<digits>{grouped}|{plain})[{_SPACES}]?(?P<after>[%{_CURRENCIES}]?)(?(owed)\))\s*",
        re.ASCII,
    )


_PATTERNS = {mark: _pattern(mark) for mark in ".,"}


def read_numeral(text: str, *, decimal_point: str = ".") -> float | None:
    """Value of one number, NaN if a mark such as - or n.a. stands in its place, None if it is neither.

    Groups of three digits may be set apart by a comma (a point, where the comma stands before decimals), a blank or an
    apostrophe. Per cent are hundredths, brackets mean minus, a currency sign is left out.

    Examples
    --------
    >>> read_numeral("1,234.5"), read_numeral("1.234,5", decimal_point=","), read_numeral("12.5 %"), read_numeral("12a")
    (1234.5, 1234.5, 0.125, None)
    """
    if text.strip() in _NOTHING:
        return math.nan
    found = _PATTERNS[decimal_point].fullmatch(text)
    return None if found is None else _value(found, decimal_point)


class Style(NamedTuple):
    """How the numbers of a column are written: what sets groups of digits apart, and which signs stand beside them."""

    groups: frozenset[str] = frozenset()
    units: frozenset[str] = frozenset()  # "" where there is none; nothing at all where there is no number

    @staticmethod
    def of(texts: Iterable[str], *, decimal_point: str = ".") -> "Style | None":
        """The style of some texts, None if one is neither a number nor a mark in its place.

        Examples
        --------
        >>> Style.of(["$5", "-"]), Style.of(["$5", "x"])
        (Style(groups=frozenset(), units=frozenset({'$'})), None)
        """
        groups, units = set(), set()
        for text in texts:
            if text.strip() in _NOTHING:
                continue
            found = _PATTERNS[decimal_point].fullmatch(text)
            if found is None or _value(found, decimal_point) is None:
                return None
            groups.add(found["group"])
            units.add(found["before"] or found["after"] or "")
        return Style(frozenset(groups - {None}), frozenset(units))

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


def _value(found: re.Match[str], decimal_point: str) -> float | None:
    if (found["before"] and found["after"]) or (found["sign"] and found["inner"]):
        return None
    digits = found["digits"] if found["group"] is None else found["digits"].replace(found["group"], "")
    value = float(int(digits, 16)) if digits[:2] in ("0x", "0X") else float(digits.replace(decimal_point, "."))
    negative = (found["sign"] or found["inner"]) in tuple(_MINUS)
    value = -value if negative != (found["owed"] is not None) else value
    return value / 100 if found["after"] == "%" else value
