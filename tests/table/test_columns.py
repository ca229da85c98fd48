"""A column of loose Python objects is read as what its cells are."""

import datetime as dt
import enum
import math
import uuid
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.errors import InputError
from esad.table.columns import CellError, Values, as_texts, read_array, read_cells, text_of, text_of_number
from esad.table.parse import parse_booleans, parse_dates, parse_numbers

NOON = dt.datetime(2024, 2, 29, 12)
BERLIN = dt.timezone(dt.timedelta(hours=1))


class Size(enum.Enum):
    SMALL = 1


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        ([1, 2.5, None], "number", [1.0, 2.5, np.nan]),
        ([Decimal("1.5"), Fraction(1, 4), np.float32(2)], "number", [1.5, 0.25, 2.0]),
        ([10**400, -(10**400), 1], "number", [np.inf, -np.inf, 1.0]),
        ([1.0, pd.NA, 10**400], "number", [1.0, np.nan, np.inf]),
        ([Decimal("sNaN"), 1], "number", [np.nan, 1.0]),
        ([True, np.False_, None], "boolean", [1.0, 0.0, np.nan]),
        ([True, 2], "number", [1.0, 2.0]),
        ([dt.timedelta(seconds=1.5), np.timedelta64(2, "m"), None, pd.NaT], "number", [1.5, 120.0, np.nan, np.nan]),
        ([dt.time(1, 2, 3, 500_000), None], "number", [3723.5, np.nan]),
    ],
)
def test_numbers_truths_and_durations_become_floats(cells, kind, expected):
    values = read_cells(cells, name="a")
    assert values.kind == kind
    assert values.array.dtype == np.float64
    np.testing.assert_array_equal(values.array, expected)


def test_dates_come_out_in_utc():
    cells = [
        dt.date(2024, 2, 29),
        NOON,
        NOON.replace(tzinfo=BERLIN),
        np.datetime64("2024-02"),
        pd.Timestamp(NOON),
        pd.NaT,
    ]
    values = read_cells([*cells, None, math.nan], name="a")
    assert values.kind == "date"
    assert values.array.dtype == np.dtype("M8[us]")
    noon = np.datetime64("2024-02-29T12:00:00")
    expected = [np.datetime64("2024-02-29"), noon, noon - np.timedelta64(1, "h"), np.datetime64("2024-02-01"), noon]
    np.testing.assert_array_equal(values.array, np.array([*expected, *["NaT"] * 3], dtype="M8[us]"))


def test_dates_at_the_end_of_the_calendar_are_kept():
    last = dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5)))
    assert read_cells([last], name="a").array[0] == np.datetime64(dt.datetime.max)


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("red", "red"),
        (" red ", " red "),
        ("  ", None),
        (np.str_("red"), "red"),
        (b"red", "red"),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
        (3, "3"),
        (3.0, "3"),
        (np.float32(0.5), "0.5"),
        (2**60, "1152921504606846976"),
        pytest.param(10**5000, "inf", id="too long to spell"),
        (Decimal("3.00"), "3"),
        (True, "True"),
        (np.bool_(False), "False"),
        (math.nan, None),
        (Decimal("nan"), None),
        (Decimal("sNaN"), None),
        (pd.NA, None),
        (pd.NaT, None),
        (np.datetime64("NaT"), None),
        (dt.date(2024, 2, 29), "2024-02-29"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Size.SMALL, "Size.SMALL"),
        (pd.Interval(0, 1), "(0, 1]"),
    ],
)
def test_cells_of_a_mixed_column_become_their_text(cell, text):
    assert text_of(cell) == text
    values = read_cells(["other", 1, cell], name="a")
    assert values.kind == "category"
    assert values.to_numpy().tolist() == ["other", "1", text]


def test_a_column_without_any_value_is_a_category():
    values = read_cells([None, pd.NA], name="a")
    assert values.kind == "category"
    assert values.to_numpy().tolist() == [None, None]


@pytest.mark.parametrize("cell", [{"foo": "bar"}, [1], (1, 2), {1}, np.zeros(2), object()])
def test_a_cell_that_is_no_value_is_refused_with_its_column(cell):
    with pytest.raises(
        CellError, match=r"Column 'a' holds a \w+: a cell argument must be a string or a number"
    ) as error:
        read_cells([1.0, cell], name="a")
    assert isinstance(error.value, TypeError) and isinstance(error.value, InputError)


def test_complex_cells_are_refused():
    with pytest.raises(InputError, match="Complex data not supported"):
        read_cells([1.0, 1j], name="a")


@given(st.floats(allow_nan=False))
def test_the_text_of_a_number_spells_that_number(value):
    text = text_of_number(value)
    assert text is not None
    assert float(text) == value


@given(st.lists(st.none() | st.datetimes() | st.datetimes(timezones=st.just(BERLIN)) | st.dates(), min_size=1))
def test_dates_survive_as_iso_text(cells):
    values = read_cells(cells, name="a")
    parsed, bad_row = parse_dates(pa.array([cell if cell is None else cell.isoformat() for cell in cells], pa.string()))
    assert bad_row is None
    if values.kind == "date":
        np.testing.assert_array_equal(parsed, values.array)


@pytest.mark.parametrize(
    "text",
    [
        "20240229",
        "2024-02-30",
        "2024-2-30",
        "29/02/2024",
        "30.02.2024",
        "29.02.24",
        "2024-02.29",
        "2024-02-29x",
        "2024-W09-4",
        "12:00",
        "2024-02-290",
    ],
)
def test_text_that_is_no_certain_date_is_told_by_row(text):
    assert parse_dates(pa.array([None, "2024-02-29", text]))[1] == 2


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2024-2-9", "2024-02-09"),
        ("2024/02/09", "2024-02-09"),
        ("2024.2.9", "2024-02-09"),
        ("09.02.2024", "2024-02-09"),
        (" 9.2.2024 7:05 ", "2024-02-09T07:05"),
        ("09.02.2024 17:05:06.5", "2024-02-09T17:05:06.500000"),
        ("2024/2/9T17:05+02:00", "2024-02-09T15:05"),
        ("2024-02-09 17:05:06 UTC", "2024-02-09T17:05:06"),
        ("9-Feb-24", "2024-02-09"),
    ],
)
def test_dates_are_read_year_first_or_with_points_or_a_month_by_name_day_first(text, iso):
    parsed, bad_row = parse_dates(pa.array([text, None]))
    assert bad_row is None
    np.testing.assert_array_equal(parsed, np.array([iso, "NaT"], dtype="M8[us]"))


@pytest.mark.parametrize("text", ["1_000", "1,5", "one", "0x10", "1 2"])
def test_text_that_is_no_number_is_told_by_row(text):
    assert parse_numbers(pa.array([" 1.5 ", text]))[1] == 1


def test_truths_are_read_from_the_usual_texts():
    parsed, bad_row = parse_booleans(pa.array(["true", "FALSE", "0", "1", "1.0", None]))
    assert bad_row is None
    np.testing.assert_array_equal(parsed, [1, 0, 0, 1, 1, np.nan])
    assert parse_booleans(pa.array(["true", "maybe"]))[1] == 1


@pytest.mark.parametrize("wanted", ["number", "boolean", "category", "date"])
@pytest.mark.parametrize(
    ("came", "array"),
    [
        ("number", np.full(2, np.nan)),
        ("boolean", np.full(2, np.nan)),
        ("category", as_texts([None, " "])),
        ("date", np.full(2, "NaT", dtype="M8[us]")),
    ],
)
def test_a_column_that_is_all_missing_is_of_any_kind(came, array, wanted):
    converted, bad_row = Values(came, array).as_kind(wanted)
    assert bad_row is None
    assert converted.as_kind("category")[0].to_numpy().tolist() == [None, None]


def test_whole_numbers_beyond_floats_keep_their_text():
    assert read_array(np.array([2**60 + 1]), "a").as_kind("category")[0].to_numpy().tolist() == [str(2**60 + 1)]


def test_half_a_surrogate_pair_becomes_a_question_mark():
    assert read_array(np.array(["\ud800", "b"], dtype=object), "a").to_numpy().tolist() == ["?", "b"]


@given(st.lists(st.none() | st.sampled_from(["red", "blue", "", " ", "\u3000"]), max_size=8))
def test_each_different_text_is_there_once_and_blanks_are_missing(texts):
    rows, different = Values("category", pa.array(texts, pa.string())).encoded
    assert len(set(different.to_pylist())) == len(different)
    wanted = [None if text is None or not text.strip() else text for text in texts]
    assert [[*different.to_pylist(), None][row] for row in rows] == wanted
