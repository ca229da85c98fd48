"""Separator, decimal point and header are told from the first lines, and what is a guess is said to be one."""

import datetime as dt
import time

import pytest

from esad import IsolationForest, TrainingData, score_file
from esad.errors import DataFileError, InputError
from esad.io.checks import check_notation
from esad.io.dialect import Reading, looks_like_a_row, sniff
from esad.io.files import TableFiles
from esad.io.notes import Notes


def sniffed(tmp_path, text, encoding="utf-8"):
    file = tmp_path / "t.csv"
    file.write_bytes(text.encode(encoding))
    return sniff(file)


@pytest.mark.parametrize("line", ["sep=;\n", "sep=;\r\n", '"sep=;"\r\n', "sep=;;;\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_the_separator_noted_by_spreadsheets_is_no_header(tmp_path, line, encoding):
    found = sniffed(tmp_path, f"{line}a,b;c\n1;2\n", encoding)
    assert (found.names, found.delimiter, found.n_lines_before) == (("a,b", "c"), ";", 1)


def test_long_words_take_no_time(tmp_path):
    """A column of keys or of encoded pictures has no blank in it."""
    started = time.process_time()
    found = sniffed(tmp_path, "key\n" + f"{'0' * 20_000}\n" * 10 + "ä" * 1000)
    assert time.process_time() - started < 1
    assert found.encoding.example.startswith("ä")
    assert len(found.encoding.example) < 100


@pytest.mark.parametrize("name", ["sep=", "sep=ab", "sep=#", "separator"])
def test_a_column_may_be_called_nearly_so(tmp_path, name):
    assert sniffed(tmp_path, f"{name}\n1\n").names == (name,)


@pytest.mark.parametrize(
    ("numbers", "mark", "is_guess"),
    [
        (["1,5", "2"], ",", False),
        (["1.5", "2"], ".", False),
        (["1.234,5", "2"], ",", False),
        (["1,234.5", "2"], ".", False),
        (["0,125"], ",", False),
        (["1234,125"], ",", False),
        (["1,5e3"], ",", False),
        (["1.500", "2,5"], ",", False),
        (["1,500", "2.5"], ".", False),
        (["1,500", "2,750"], ",", True),
        (["1,500", "999"], ".", False),
        (["1,500", "1,500,000"], ".", False),
        (["1,500", "2,5"], ",", False),
        (["1.500", "2.750"], ".", True),
        (["1.500", "999"], ".", True),
        (["1.500", "2.5"], ".", False),
        (["1.500", "0.500"], ".", False),
        (["word", "3"], ".", False),
    ],
)
def test_the_decimal_mark_is_what_the_numbers_allow(tmp_path, numbers, mark, is_guess):
    found = sniffed(tmp_path, "a;b\n" + "".join(f"{number};x\n" for number in numbers))
    assert (found.decimal.value, bool(found.decimal.unclear)) == (mark, is_guess)


def test_points_that_may_be_thousands_are_asked_about(tmp_path):
    path = tmp_path / "shops.csv"
    path.write_text("a;b\n1.500;x\n999;y\n")
    told = {}
    for decimal in (None, ".", ","):
        reading = Reading(decimal=decimal)
        told[decimal] = list(check_notation(TableFiles([path], reading=reading).dialect, reading))
    [warning] = told[None]
    assert warning.kind == "warning" and "such as 1.500" in warning.text and "`decimal=','`" in warning.text
    assert told["."] == told[","] == []


def test_a_comma_that_separates_is_no_decimal_comma(tmp_path):
    assert sniffed(tmp_path, 'a,b\n"1,5",2\n').decimal.value == "."


def test_whole_numbers_with_leading_zeros_are_codes(tmp_path):
    text = "zip,size,half,word,zero,gap\n007,7,00.5,01,0,01\n120,8,1.5,x,1,NA\n"
    assert sniffed(tmp_path, text).codes == {"zip", "gap"}


@pytest.mark.parametrize(
    ("header", "is_row"),
    [
        ("a,b,c", False),
        ("site,2023,2024", False),
        ("0,1,2", False),
        ("400.5,401,401.5,402", False),
        ("9,7,5,3", True),
        ("5.1,3.5,1.4,0.2,setosa", True),
        ("5.1,red", True),
        ("-1,red", True),
        ("12,7,31", True),
        ("1_000,a", False),
    ],
)
def test_a_header_of_numbers_out_of_order_is_a_row(header, is_row):
    assert looks_like_a_row(header.split(",")) is is_row


DAYS = [dt.datetime(2024, 1, 1) + dt.timedelta(hours=31 * row) for row in range(60)]


def write(file, dates, *, sep=",", encoding="utf-8", number="{:.1f}", word="ann"):
    rows = [sep.join([date, number.format(row % 7 + 0.5), word]) for row, date in enumerate(dates)]
    file.write_bytes("\n".join([sep.join(["when", "size", "who"]), *rows, ""]).encode(encoding))
    return file


def forms(form):
    return [day.strftime(form) for day in DAYS]


@pytest.mark.parametrize("form", ["%m/%d/%Y %I:%M %p", "%d/%m/%Y %H:%M", "%d.%m.%Y %H:%M", "%d-%b-%Y %H:%M"])
def test_dates_as_people_write_them_are_the_dates_they_mean(tmp_path, form):
    read = TrainingData.from_file(write(tmp_path / "t.csv", forms(form)))
    assert read.schema.kinds == ("date", "number", "category")
    detector = read.fit(IsolationForest(random_state=0))
    plain = TrainingData.from_file(write(tmp_path / "iso.csv", forms("%Y-%m-%d %H:%M"))).fit(
        IsolationForest(random_state=0)
    )
    assert detector.training_totals_.tolist() == plain.training_totals_.tolist()
    assert (read.written.date_format or "") == {"m": "month-first", "d": "day-first"}.get(
        form[1] if "/" in form else "", ""
    )


def test_a_file_whose_first_lines_do_not_tell_the_order_is_read_on(tmp_path, monkeypatch):
    monkeypatch.setattr("esad.io.dialect._MAX_ROWS", 5)
    data = TableFiles([write(tmp_path / "t.csv", forms("%d/%m/%Y"))])
    assert (data.dialect.dates.value, data.dialect.dates.unclear) == ("day-first", "")
    assert data.read()["when"].to_pylist()[:2] == [dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)]


def test_an_order_that_no_row_tells_is_asked_about_and_kept(tmp_path):
    file = write(tmp_path / "t.csv", [f"{row % 12 + 1:02}/02/2024" for row in range(40)])
    with pytest.warns(UserWarning, match=r"dates such as 01/02/2024 are read with the month first.*day-first"):
        read = TrainingData.from_file(file)
    assert read.written.date_format == "month-first"
    read = TrainingData.from_file(file, date_format="day-first")
    assert read.X["when"][1].as_py() == dt.datetime(2024, 2, 2)
    assert read.notes["date_format"] == "day-first"


def test_dates_of_the_training_hold_and_a_file_that_contradicts_them_is_refused(tmp_path):
    detector = TrainingData.from_file(write(tmp_path / "us.csv", forms("%m/%d/%Y"))).fit(
        IsolationForest(random_state=0)
    )
    expected = score_file(detector, tmp_path / "us.csv", top=60).worst.ids
    few = write(tmp_path / "few.csv", ["01/02/2024", "2024-01-02"])
    assert score_file(detector, few, top=2).n_rows == 2  # without a word
    other = write(tmp_path / "gb.csv", forms("%d/%m/%Y"))
    with pytest.raises(DataFileError, match=r"the day first, such as 13/01/2024.*training had the month first"):
        score_file(detector, other)
    assert score_file(detector, other, date_format="day-first", top=60).worst.ids == expected
    late = write(tmp_path / "late.csv", [*forms("%m/%d/%Y")[10:15], "31/01/2024"])
    with pytest.raises(DataFileError, match="'31/01/2024' in line 7, which is no date of the form month-first"):
        score_file(detector, late)


def test_a_form_of_dates_is_kept_and_other_plain_dates_are_still_read(tmp_path):
    file = write(tmp_path / "t.csv", forms("%y%m%d"))
    read = TrainingData.from_file(file, date_format="%y%m%d")
    assert read.schema.kinds[0] == "date"
    detector = read.fit(IsolationForest(random_state=0))
    iso = write(tmp_path / "iso.csv", forms("%Y-%m-%d"))
    assert score_file(detector, file, top=60).worst.ids == score_file(detector, iso, top=60).worst.ids


def test_files_of_one_table_agree_on_the_order(tmp_path):
    write(tmp_path / "a.csv", ["01/02/2024", "02/02/2024"])
    write(tmp_path / "b.csv", ["13/02/2024"])
    data = TableFiles([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert [when.month for when in data.read()["when"].to_pylist()] == [2, 2, 2]
    write(tmp_path / "a.csv", ["02/13/2024"])
    with pytest.raises(DataFileError, match=r"day first, such as 13/02/2024, and those of .*a.csv' the month first"):
        TableFiles([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_letters_are_read_as_in_training_where_a_file_does_not_show_them(tmp_path):
    file = write(tmp_path / "pl.csv", forms("%Y-%m-%d"), encoding="cp1250", word="łódź")
    read = TrainingData.from_file(file, encoding="cp1250")
    assert (read.X["who"][0].as_py(), read.notes["encoding"]) == ("łódź", "cp1250")
    noted = Notes.from_json(read.notes).add_reading()
    assert TableFiles([file], reading=noted).read()["who"][0].as_py() == "łódź"
    other = write(tmp_path / "utf8.csv", forms("%Y-%m-%d"), word="łódź")  # shows itself
    assert TableFiles([other], reading=noted).read()["who"][0].as_py() == "łódź"
    with pytest.raises(DataFileError, match="is not UTF-32 text"):
        TableFiles([file], reading=Reading(encoding="utf-32"))


def test_letters_unlike_those_of_the_training_are_warned_about(tmp_path):
    detector = TrainingData.from_file(write(tmp_path / "a.csv", forms("%Y-%m-%d"), word="groß")).fit(
        IsolationForest(random_state=0)
    )
    other = write(tmp_path / "b.csv", forms("%Y-%m-%d"), word="groß", encoding="cp1252")
    with pytest.warns(UserWarning, match=r"not UTF-8, as those of the training were.*read as cp1252: 'groß'"):
        score_file(detector, other)


def test_what_cannot_be_meant_is_refused():
    for wrong in ({"decimal": ";"}, {"date_format": "%d/%m"}, {"date_format": "dmy"}, {"encoding": "hex"}):
        with pytest.raises(InputError, match=f"`{next(iter(wrong))}` must be"):
            Reading(**wrong)


def test_notes_of_a_forged_model_are_passed_over():
    notes = {"decimal_point": "x", "date_format": ["%d"], "encoding": "no such"}
    assert Notes.from_json(notes).add_reading() == Reading()
