"""Numbers as people write them are read back, and what is not surely a number is not."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.table.parse import parse_dates, read_numerals

GROUPS = {".": [",", " ", "'", "\N{RIGHT SINGLE QUOTATION MARK}", "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"]}
GROUPS[","] = [".", *GROUPS["."][1:]]


def read_numeral(text, decimal_point="."):
    """One number, None if it is none."""
    values, _, bad_row = read_numerals(pa.array([text]), decimal_point=decimal_point)
    return values[0] if bad_row is None else None


def style_of(texts):
    return read_numerals(pa.array(texts, pa.string()))[1]


hundredths = st.integers(-(10**12), 10**12)


@given(hundredths, st.sampled_from([".", ","]), st.data())
def test_grouped_numbers_are_read_back(number, mark, data):
    group = data.draw(st.sampled_from(GROUPS[mark]))
    text = f"{number / 100:,.2f}".replace(",", "\0").replace(".", mark).replace("\0", group)
    assert read_numeral(text, decimal_point=mark) == number / 100


@given(hundredths, st.sampled_from(["${}", "$ {}", "{} €", "{}€"]))
def test_currencies_are_left_out(number, form):
    assert read_numeral(form.format(f"{abs(number) / 100:,.2f}")) == abs(number) / 100


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_plain_numbers_keep_their_value(number):
    assert read_numeral(repr(number)) == number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12.5%", 0.125),
        ("12.5 %", 0.125),
        ("(3.20)", -3.2),
        ("($1,000)", -1000.0),
        ("-$5", -5.0),
        ("$-5", -5.0),
        ("\N{MINUS SIGN}1.5", -1.5),
        ("+1,000", 1000.0),
        ("  7 ", 7.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3", 1000.0),
        ("-Infinity", -math.inf),
        ("0x10", 16.0),
        ("USD 677.48", 677.48),
        ("R$ 677.48", 677.48),
        ("677.48 EUR", 677.48),
        ("-US$1,000", -1000.0),
        ("(CHF 5)", -5.0),
        ("$(1,234.50)", -1234.5),
        ("$ (5)", -5.0),
        ("1,234.50-", -1234.5),
        ("12,34,567.50", 1234567.5),
        ("Rs. 1,23,456", 123456.0),
        ("5 Kč", 5.0),
    ],
)
def test_one_number(text, value):
    assert read_numeral(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "12a", "1,2", "1,23", "12,34", "1,2345", "0,123", "01,234", "1234,567", "1,234 567", "1,234,56"),
        *(
            "10.0.0.1",
            "1.2.3",
            "--5",
            "-$-5",
            "$5€",
            "5%%",
            "(5",
            "5)",
            "1_000",
            "nan",
            "٣",
            "5 kg",
            "2-3",
            "ABC 5",
            "USD",
            "USD 5 EUR",
            "5.-",
            "-5-",
            "-$(5)",
            "12,34,56",
            "123,45,678",
        ),
    ],
)
def test_what_is_not_surely_a_number_is_none(text):
    assert read_numeral(text) is None


@pytest.mark.parametrize("text", ["-", " -- ", ".", "n.a.", "#DIV/0!", "missing", "\\N", "*", " $-   "])
def test_marks_for_no_number_are_missing(text):
    value = read_numeral(text)
    assert value is not None
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("texts", "is_sound"),
    [
        (["1,000", "999", "-"], True),
        (["5 %", "6%"], True),
        (["$5", "0"], True),
        (["$5", "5 €"], False),
        (["5 %", "5"], False),
        (["1,000", "1 000"], False),
        (["-", "n.a."], False),
        ([], False),
    ],
)
def test_a_column_agrees_on_how_numbers_are_written(texts, is_sound):
    style = style_of(texts)
    assert style is not None
    assert style.is_sound is is_sound
    assert style_of([*texts, "x"]) is None


@given(st.lists(st.sampled_from(["1,000", "1 000", "5 %", "$5", "5", "-", "inf"]), max_size=6), st.integers(0, 6))
def test_the_style_of_two_parts_is_that_of_the_whole(texts, cut):
    first, second = style_of(texts[:cut]), style_of(texts[cut:])
    assert first is not None
    assert second is not None
    assert first | second == style_of(texts)


@pytest.mark.parametrize(
    ("text", "date_format", "wanted"),
    [
        ("Sat, 10 Feb 2024 13:55:00 GMT", "", "2024-02-10T13:55"),
        ("Sat, 10 Feb 2024 13:55:00 +0000", "", "2024-02-10T13:55"),
        ("Sat, 10 Feb 2024 13:55:00 +0100", "", "2024-02-10T12:55"),
        ("31 Mar 2024 23:30 -0530 (XYZ)", "", "2024-04-01T05:00"),
        ("Thu, 29 Feb 2023 13:55:00 +0100", "", "NaT"),
        ("Sat, 10 Feb 2024 13:55:00 +9900", "", "NaT"),
        ("Thu Feb  1 13:55:00 2024", "", "2024-02-01T13:55"),
        ("Saturday, 10 February 2024", "", "2024-02-10"),
        ("10.02.24", "day-first", "2024-02-10"),
        ("Sat 10.02.24", "%a %d.%m.%y", "2024-02-10"),
        ("Sat, 31 Feb 2024", "", "NaT"),
    ],
)
def test_dates_of_mails_and_logs_and_with_two_digits_of_the_year_are_read(text, date_format, wanted):
    assert parse_dates(pa.array([text]), date_format)[0][0] == np.datetime64(wanted) or wanted == "NaT"
    assert (parse_dates(pa.array([text]), date_format)[1] == 0) == (wanted == "NaT")
