"""CSV files as they come are read right, or refused with one line that says where."""

import gzip
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.errors import DataFileError
from esad.io import dialect
from esad.io.files import TableFiles
from esad.table.table import Column, Schema

LONG_LINE = b"2" * 99 + b"\n"  # ten thousand of them fill a block


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def read(path: Path, columns=None, text=()) -> pa.Table:
    """All rows."""
    return TableFiles([path]).read(columns, text=text)


def stream(path: Path, *, types, columns=None) -> list[pa.Table]:
    """All rows in batches, some columns as numbers."""
    schema = Schema(tuple(Column(name, "number", 0, None, False, False) for name in types), named=True, n_rows=1)
    return list(TableFiles([path]).batches(columns, schema=schema))


def in_parts(path: Path) -> pa.Table:
    """All rows in parts."""
    data = TableFiles([path])
    batches = [batch for part in data.parts() for batch in part.batches(data.names, 7)]
    assert max((batch.num_rows for batch in batches), default=0) <= 7
    return pa.concat_tables(batches)


def refusal(path: Path) -> str:
    """Message that reading whole, in batches and in parts agree on."""
    with pytest.raises(DataFileError) as whole:
        read(path)
    for other in (lambda: stream(path, types={}), lambda: in_parts(path)):
        with pytest.raises(DataFileError) as told:
            other()
        assert str(whole.value) == str(told.value)
    assert "\n" not in str(whole.value)
    assert str(path) in str(whole.value)
    return str(whole.value)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_is_told_from_the_header(tmp_path: Path, separator: str) -> None:
    lines = [["name", "size"], ["x", "1.5"], ["y", "2.5"]]
    file = write(tmp_path / "t.csv", "\n".join(separator.join(line) for line in lines))
    assert read(file).to_pydict() == {"name": ["x", "y"], "size": [1.5, 2.5]}


def test_separator_inside_quotes_does_not_count(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", '"a;b;c;d",size\nx,1\n')
    assert dialect.sniff(file).names == ("a;b;c;d", "size")


def test_single_column_needs_no_separator(tmp_path: Path) -> None:
    assert read(write(tmp_path / "t.csv", "size\n1\n2\n")).to_pydict() == {"size": [1, 2]}


def test_decimal_comma_is_read_where_the_separator_is_another(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "a;b\n1,5;1\n-2,25;2\n")
    assert read(file).to_pydict() == {"a": [1.5, -2.25], "b": [1, 2]}
    (batch,) = stream(file, types={"a": pa.float64()}, columns=["a"])
    assert batch.to_pydict() == {"a": [1.5, -2.25]}


def test_decimal_points_win_over_commas_in_text(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "a;b\n1.5;1,2\n2.5;x\n")
    assert read(file).to_pydict() == {"a": [1.5, 2.5], "b": ["1,2", "x"]}


NUMBERS = ("1,234", "999", "-", "", "12,345.5")


def test_numbers_as_people_write_them_are_numbers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [f'"{number}",{index}%,x{index},"1,2"' for index, number in enumerate(NUMBERS)]
    file = write(tmp_path / "t.csv", "money,fee,word,list\n" + "\n".join(rows))
    expected = {"money": [1234.0, 999.0, None, None, 12345.5], "fee": [0.0, 0.01, 0.02, 0.03, 0.04]}
    table = read(file)
    assert table.select(["money", "fee"]).to_pydict() == expected
    assert table.schema.types[2:] == [pa.string(), pa.string()]
    assert caplog.text.endswith("read as numbers, though not written plainly: 'money', 'fee'\n")
    (batch,) = stream(file, types=dict.fromkeys(expected, pa.float64()), columns=["fee", "money"])
    assert batch.to_pydict() == {"fee": expected["fee"], "money": expected["money"]}


CELLS = st.sampled_from(
    [
        "",
        "1",
        "-2",
        "2.5",
        ".5",
        "1e3",
        "inf",
        "0x1F",
        "007",
        "9" * 20,
        "NA",
        "-",
        "n.a.",
        "5%",
        "$5",
        "1 234",
        '"1,234"',
        "x",
        "true",
    ]
)


@given(cells=st.lists(CELLS, min_size=1, max_size=8), separator=st.sampled_from([",", ";"]))
def test_what_training_reads_as_numbers_scoring_reads_as_the_same_numbers(tmp_path_factory, cells, separator) -> None:
    rows = "".join(f"{cell}{separator}z\n" for cell in cells)
    file = write(tmp_path_factory.mktemp("law") / "t.csv", f"a{separator}b\n{rows}")
    trained = read(file)["a"]
    if pa.types.is_integer(trained.type) or pa.types.is_floating(trained.type):
        batches = stream(file, types={"a": pa.float64()}, columns=["a"])
        streamed = [value for batch in batches for value in batch.column("a").to_pylist()]
        assert streamed == [None if value is None else float(value) for value in trained.to_pylist()]


def test_thousands_that_come_late_lose_and_repeat_no_row(tmp_path: Path) -> None:
    n_rows = 400_000  # several blocks
    lines = [f"{row},{row % 1000}" for row in range(n_rows)] + [f'{n_rows},"1,000"', f'"{n_rows + 1:,}",7']
    file = write(tmp_path / "t.csv", "a,b\n" + "\n".join(lines) + "\n")
    batches = stream(file, types={"a": pa.float64(), "b": pa.float64()}, columns=None)
    assert len(batches) > 1
    table = pa.concat_tables(batches)
    assert table["a"].to_numpy().tolist() == list(range(n_rows + 2))
    assert table["b"].to_pylist()[-3:] == [999.0, 1000.0, 7.0]


@pytest.mark.parametrize("before", ["", "sep=,\n"])
def test_text_beside_thousands_is_named_with_its_line(tmp_path: Path, before: str) -> None:
    file = write(tmp_path / "t.csv", before + 'a,b\n1,"1,000"\n2,"x\ny"\n3,heavy\n')
    with pytest.raises(
        DataFileError, match=rf"column 'b' holds 'x\\ny' in line {3 + bool(before)}, which is no number"
    ):
        (stream(file, types={"b": pa.float64()}, columns=["b"]))


def test_thousands_in_points_beside_decimal_commas(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "a;b\n1,5;1.234\n2,5;12.345,5\n")
    assert read(file).to_pydict() == {"a": [1.5, 2.5], "b": [1234.0, 12345.5]}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a;b\n677,48 €;1\n12 €;2\n", [677.48, 12.0]),
        ('a,b\n"677,48 €",1\n12 €,2\n', [677.48, 12.0]),
        ("a,b\nUSD 677.48,1\nUSD 12,2\n", [677.48, 12.0]),
        ('a,b\n"R$ 1,677.48",1\nR$ 12,2\n', [1677.48, 12.0]),
        ('a,b\n"1,5",1\n"2,5",2\n', ["1,5", "2,5"]),
        ("a,b\nUSD 5,1\nEUR 5,2\n", ["USD 5", "EUR 5"]),
    ],
)
def test_amounts_with_a_currency_are_numbers(tmp_path: Path, text: str, wanted: list) -> None:
    assert read(write(tmp_path / "t.csv", text))["a"].to_pylist() == wanted


def test_the_line_that_notes_the_separator_is_no_row(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "\ufeffsep=;\r\na;b\r\n1;2\r\n3;4\r\n")
    assert read(file).to_pydict() == {"a": [1, 3], "b": [2, 4]}
    (batch,) = stream(file, types={"a": pa.float64()}, columns=["a"])
    assert batch.to_pydict() == {"a": [1.0, 3.0]}
    assert "line 4 has 1 fields" in refusal(write(file, "sep=;\na;b\n1;2\n3\n"))


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_byte_order_mark_and_any_line_ending_are_fine(tmp_path: Path, ending: str) -> None:
    text = ending.join(["größe,b", "1,ä", "2,ß", ""])
    file = write(tmp_path / "t.csv", text.encode("utf-8-sig"))
    assert read(file).to_pydict() == {"größe": [1, 2], "b": ["ä", "ß"]}


def test_line_ends_inside_quotes_belong_to_the_value(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", 'a,b\n"x\ny",1\nz,2\n')
    assert read(file).to_pydict() == {"a": ["x\ny", "z"], "b": [1, 2]}


def test_last_value_may_have_several_lines_if_its_quotes_close(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", 'a,b\n1,"x ""y""\nz"\n')
    assert read(file).to_pydict() == {"a": [1], "b": ['x "y"\nz']}
    with pytest.raises(DataFileError, match="ends inside quotes"):  # though the column with the quote is not asked for
        read(write(file, 'a,b\n1,"x\n2,y\n'), columns=["a"])


def test_gzip_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv.gz", gzip.compress(b"a,b\n1,2\n"))
    assert read(file).to_pydict() == {"a": [1], "b": [2]}


def test_column_that_turns_to_text_late_is_text_throughout(tmp_path: Path) -> None:
    n_rows = 400_000  # several blocks
    file = write(tmp_path / "t.csv", "a,b\n" + "1,2.50\n" * n_rows + "x,?\n")
    table = read(file)
    assert table.schema.types == [pa.string(), pa.float64()]
    assert table.column("a")[0].as_py() == "1"
    assert table.column("a")[n_rows].as_py() == "x"
    assert table.column("b")[n_rows].as_py() is None


def test_fixed_types_hold_in_every_block(tmp_path: Path) -> None:
    rows = "007,1\n" * 200_000 + ",\n" * 200_000 + "abc,1e3\n" * 200_000
    file = write(tmp_path / "t.csv", "code,size\n" + rows)
    batches = stream(file, types={"size": pa.float64()}, columns=None)
    assert len(batches) > 1
    assert {tuple(batch.schema.types) for batch in batches} == {(pa.string(), pa.float64())}
    table = pa.concat_tables(batches)
    assert table.num_rows == 600_000
    assert table.column("code")[0].as_py() == "007"
    assert table.column("code").null_count == table.column("size").null_count == 200_000


@pytest.mark.parametrize(
    "word", ["", " ", "   ", "NA", "N/A", "nan", "NaN", "null", "NULL", "None", "?", "#N/A", '"NA"', '""']
)
def test_usual_words_for_nothing_are_missing(tmp_path: Path, word: str) -> None:
    file = write(tmp_path / "t.csv", f"a,b,c\n1,x,1\n{word},{word},2\n")
    assert read(file).to_pydict() == {"a": [1, None], "b": ["x", None], "c": [1, 2]}
    (batch,) = stream(file, types={"a": pa.float64()}, columns=["a", "b"])
    assert batch.to_pydict() == {"a": [1.0, None], "b": ["x", None]}


def test_infinities_and_overlong_numbers_are_numbers(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "a\ninf\n-Infinity\n1e400\n99999999999999999999\n")
    assert read(file).to_pydict() == {"a": [float("inf"), float("-inf"), float("inf"), 1e20]}


def test_dates_times_and_long_texts_stay_text_and_truths_do_not(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "day,clock,moment,flag\n2024-02-29,12:30,2024-02-29T10:00:00Z,true\n")
    assert read(file).to_pylist() == [
        {"day": "2024-02-29", "clock": "12:30", "moment": "2024-02-29T10:00:00Z", "flag": True}
    ]


def test_ones_among_truths_make_text_not_truths(tmp_path: Path) -> None:
    assert read(write(tmp_path / "t.csv", "a,b\ntrue,1\n1,1\n")).to_pydict() == {
        "a": ["true", "1"],
        "b": [1, 1],
    }


def test_a_column_without_any_value_is_text_and_so_takes_whatever_comes_later(tmp_path: Path) -> None:
    assert read(write(tmp_path / "t.csv", "a,b\n,1\n,2\n")).schema.types == [pa.string(), pa.int64()]


def test_columns_are_read_as_text_where_asked(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "zip,size,fee\n001,1,5 %\n002,,6 %\n")
    assert read(file, text=["zip", "fee"]).to_pydict() == {
        "zip": ["001", "002"],
        "size": [1, None],
        "fee": ["5 %", "6 %"],
    }


def test_wide_rows_fit(tmp_path: Path) -> None:
    n_columns = 5000
    header = ",".join(f"a rather long name {index}" for index in range(n_columns))
    file = write(tmp_path / "t.csv", header + "\n" + ",".join(["1" * 250] * n_columns) + "\n")
    assert file.stat().st_size > 1 << 20
    (batch,) = stream(file, types={}, columns=None)
    assert (batch.num_rows, batch.num_columns) == (1, n_columns)


@pytest.mark.parametrize("ragged", ["1", "1,2,3"])
def test_ragged_line_is_named_counting_blank_and_quoted_lines(tmp_path: Path, ragged: str) -> None:
    file = write(tmp_path / "t.csv", 'a,b\n"x\ny",1\n\n3,4\n' + ragged + "\n5,6\n")
    assert f"line 6 has {ragged.count(',') + 1} fields, the header has 2" in refusal(file)


def test_ragged_line_deep_in_the_file_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "a,b\n" + "1,2\n" * 600_000 + "3\n" + "1,2\n" * 600_000)
    assert "line 600002 has 1 fields" in refusal(file)


def test_a_last_line_inside_quotes_is_known_by_them(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", 'a,b\n1,2\n3,4\n"5,6\n')
    assert "ends inside quotes that were opened in line 4" in refusal(file)


def test_a_process_that_ends_upon_a_refusal_is_not_aborted(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "a,b\n1,2\n3,4,5\n")
    script = (
        "import sys, torch\n"  # torch makes the end of Python long
        "from esad.io.files import read_table\n"
        "try: read_table(sys.argv[1])\n"
        "except ValueError as error: sys.kept = error"  # with the frames that hold arrow's reader
    )
    done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_text_in_a_number_column_names_column_value_and_line(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "a,b\n" + "1,2\n" * 600_000 + "3,12abc\n")
    with pytest.raises(DataFileError, match=r"column 'b' holds '12abc' in line 600002, which is no number"):
        (stream(file, types={"b": pa.float64()}, columns=["b"]))


def test_a_line_without_end_in_a_small_packed_file_takes_no_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "t.csv.gz", "wb") as packed:
        packed.write(b"a,b\n")
        for _ in range(200):
            packed.write(b"1" * 2**20)
    tracemalloc.start()
    assert "line 2 is longer than 1048576 bytes" in refusal(tmp_path / "t.csv.gz")
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 2**25


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-32"])
def test_windows_text_is_read(tmp_path: Path, encoding: str) -> None:
    file = write(tmp_path / "t.csv", "größe;b\n1,5;ä\n2;€\n".encode(encoding))
    assert dialect.sniff(file).encoding.value == encoding
    assert read(file).to_pydict() == in_parts(file).to_pydict() == {"größe": [1.5, 2.0], "b": ["ä", "€"]}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("n_rows", [2, 200_000], ids=["among the first lines", "deep in the file"])
def test_a_file_of_wide_letters_that_is_cut_within_one_is_refused(tmp_path: Path, encoding: str, n_rows: int) -> None:
    file = write(tmp_path / "t.csv", ("a,b\n" + "1,2\n" * n_rows).encode(encoding) + b"x")
    assert f"it is not {encoding.upper()} text" in refusal(file)


def test_a_line_of_another_encoding_deep_in_the_file_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", b"a,b\n" + b"1,2\n" * 100_000 + "1,ä\n".encode("latin-1"))
    assert "line 100002 is not UTF-8 text. Say how it is written, such as `encoding='cp1252'`, or save" in refusal(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n\r\n", "empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary"),
        ("a,b\n1,2\n".encode("utf-16-be"), "Or is it UTF-16 without a mark? Then pass `encoding='utf-16-be'`"),
        (b"\xff\xfe" + b"\x00\xd8" * 9, "not UTF-16"),
        (bytes(range(1, 256)) * 10, "not UTF-8"),
        (b"a,b,a,b,c\n1,2,3,4,5\n", "doubled column names 'a', 'b'"),
        (b"a,,\n1,2,3\n", "doubled column names ''"),
        (b"1.5,1.5,x\n2.5,3,y\n", "Or is the first line a row?"),
        (
            "a,b\nk\u016f\u0148,\u0165\n".encode("cp1250"),
            "line 2 is not UTF-8 text. Say how it is written, such as `encoding='cp1250'`",
        ),
        (b"# a title\na,b\n1,2\n", "line 2 has 2 fields, the header has 1. The first line must name every column"),
        (b'a,b\n1,2\n1,"' + b"2\n" * 9, "ends inside quotes that were opened in line 3"),
        (b'a,b\n1,"' + LONG_LINE * 20_000, "ends inside quotes that were opened in line 2"),
        (b'a,b\n1,"' + LONG_LINE * 40_000, "ends inside quotes that were opened in line 2"),
    ],
)
def test_unusable_text_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    assert message in refusal(write(tmp_path / "t.csv", content))


@pytest.mark.parametrize(
    "content", [b"a,b\n1,2\n", gzip.compress(b"a,b\n" + b"1,2\n" * 100_000)[:-60]], ids=["text", "cut"]
)
def test_damaged_gzip_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "t.csv.gz" in refusal(write(tmp_path / "t.csv.gz", content))


# ---------------------------------------------------------------------- in parts

ANY = st.sampled_from(
    [
        *("", "1", "-2", "2.5", "1e3", "true", "False", "NA", "x", "2024-01-02", "12:30:00", '5" pipe', "9" * 20, "ä"),
        *("-", "5%", "$5", "1 234", "inf", "0x1F", "007", " 7"),
    ]
)
QUOTED = st.sampled_from(['"a,b"', '"1,234.5"', '"x\ny"', '"say ""no"""', '""', '"1"', '"x"y', '"\r\n"'])
LINES = st.lists(st.tuples(ANY | QUOTED, ANY | QUOTED, ANY), min_size=1, max_size=30)


@given(lines=LINES, ending=st.sampled_from(["\n", "\r\n", "\r"]), n_bytes=st.integers(64, 400), last=st.booleans())
def test_the_parts_are_the_whole_file(tmp_path_factory, lines, ending, n_bytes, last):
    path = tmp_path_factory.mktemp("parts") / "t.csv"
    text = ending.join(["first,second,third", *map(",".join, lines)]) + (ending if last else "")
    path.write_bytes(text.encode("utf-8-sig" if n_bytes % 2 else "utf-8"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("esad.io.csv.PART_BYTES", n_bytes)
        patched.setattr(dialect.Dialect, "n_block_bytes", max(200, n_bytes))
        found = in_parts(path)
    whole = read(path)
    assert found.schema == whole.schema
    assert found.equals(whole.combine_chunks())


def test_a_column_is_what_its_last_line_leaves_of_it(tmp_path, monkeypatch):
    lines = ["1,1,true,", *["2,2,false,"] * 200, "3.5,x,1,"]
    path = write(tmp_path / "t.csv", "\n".join(["number,text,mixed,empty", *lines]))
    monkeypatch.setattr(dialect.Dialect, "n_block_bytes", 256)
    assert len(TableFiles([path]).parts()) > 5
    found = in_parts(path)
    assert found.schema.types == [pa.float64(), pa.string(), pa.string(), pa.string()]
    assert found["text"].to_pylist()[::201] == ["1", "x"]


def test_files_that_do_not_agree_are_text_as_it_stands(tmp_path):
    for name, cell in (("a.csv", "1.50"), ("b.csv", "none yet")):
        write(tmp_path / name, f"a,b\n{cell},1\n")
    data = TableFiles([tmp_path / "a.csv", tmp_path / "b.csv"])
    wanted = {"a": ["1.50", "none yet"], "b": [1, 1]}
    assert data.read().to_pydict() == wanted
    batches = [batch for part in data.parts() for batch in part.batches(data.names, 9)]
    assert pa.concat_tables(batches).to_pydict() == wanted


def test_nothing_stays_behind_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = write(tmp_path / "t.csv", "a\n1\n")
    parts = TableFiles([path]).parts()
    assert sorted(tmp_path.iterdir()) == [path]
    assert [batch.to_pydict() for part in parts for batch in part.batches(["a"], 9)] == [{"a": [1]}]
