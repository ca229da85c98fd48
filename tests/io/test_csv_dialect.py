"""Separator, decimal point and header are told from the first lines, and what is a guess is said to be one."""

import pytest

from esad.io.csv_dialect import looks_like_a_row, sniff


def dialect(tmp_path, text, encoding="utf-8"):
    file = tmp_path / "t.csv"
    file.write_bytes(text.encode(encoding))
    return sniff(file)


@pytest.mark.parametrize("line", ["sep=;\n", "sep=;\r\n", '"sep=;"\r\n', "sep=;;;\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_the_separator_noted_by_spreadsheets_is_no_header(tmp_path, line, encoding):
    found = dialect(tmp_path, f"{line}a,b;c\n1;2\n", encoding)
    assert (found.names, found.delimiter, found.n_lines_before) == (("a,b", "c"), ";", 1)


@pytest.mark.parametrize("name", ["sep=", "sep=ab", "sep=#", "separator"])
def test_a_column_may_be_called_nearly_so(tmp_path, name):
    assert dialect(tmp_path, f"{name}\n1\n").names == (name,)


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
        (["1.500", "2.750"], ".", False),
        (["word", "3"], ".", False),
    ],
)
def test_the_decimal_mark_is_what_the_numbers_allow(tmp_path, numbers, mark, is_guess):
    found = dialect(tmp_path, "a;b\n" + "".join(f"{number};x\n" for number in numbers))
    assert (found.decimal_point, bool(found.unclear)) == (mark, is_guess)


def test_a_comma_that_separates_is_no_decimal_comma(tmp_path):
    assert dialect(tmp_path, 'a,b\n"1,5",2\n').decimal_point == "."


def test_whole_numbers_with_leading_zeros_are_codes(tmp_path):
    text = "zip,size,half,word,zero,gap\n007,7,00.5,01,0,01\n120,8,1.5,x,1,NA\n"
    assert dialect(tmp_path, text).codes == {"zip", "gap"}


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
