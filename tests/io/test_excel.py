"""Excel files in and out, by the rules of CSV."""

import datetime as dt
import zipfile

import openpyxl
import pytest

from esad import IsolationForest, TrainingData, score_file
from esad.errors import DataFileError, InputError, LimitError
from esad.io.dialect import Reading
from esad.io.files import TableFiles, find_tables
from esad.io.notes import Notes
from esad.io.scores import ScoreWriter


@pytest.fixture
def book(tmp_path):
    made = openpyxl.Workbook()
    sheet = made.active
    sheet.append(["name", "when", "size", "code", "paid", "note, long", None])
    start = dt.datetime(2024, 1, 1)
    for row in range(30):
        size = None if row == 4 else 1.25 * row
        sheet.append(
            [f"S{row}", start + dt.timedelta(hours=12 * row), size, f"00{row}", row % 2 == 0, "x" if row else "a\tb"]
        )
    sheet.append([None] * 6)
    made.create_sheet("other").append(["x"])
    made["other"].append([dt.time(1, 0)])
    made.save(tmp_path / "t.xlsx")
    return tmp_path / "t.xlsx"


def test_a_sheet_is_read_like_csv(book):
    data = TableFiles([book])
    table = data.read()
    assert data.names == ("name", "when", "size", "code", "paid", "note, long")
    assert table["size"].to_pylist()[3:6] == [3.75, None, 6.25]
    assert table["when"].to_pylist()[:2] == ["2024-01-01", "2024-01-01 12:00:00"]
    assert (table["paid"][0].as_py(), table["note, long"][0].as_py()) == (True, "a\tb")
    assert table.num_rows == 30  # the blank one at the end is none
    assert data.dialect.codes == {"code"}
    assert data.written == Reading()  # how numbers look in it is our own writing
    assert find_tables(book.parent) == (book,)


def test_another_sheet_is_named(book):
    assert TableFiles([book], reading=Reading(sheet="other")).read().to_pydict() == {"x": [3600]}
    with pytest.raises(DataFileError, match=r"no sheet 'othr'\. Did you mean 'other'\? It has 'Sheet', 'other'"):
        TableFiles([book], reading=Reading(sheet="othr"))
    assert TableFiles([book], reading=Notes.from_json({"sheet": "gone"}).add_reading()).names[0] == "name"


def test_a_model_of_csv_with_decimal_commas_scores_a_sheet(book, tmp_path):
    lines = ["when;size", *(f"2024-01-{row % 28 + 1:02};{row},25" for row in range(40))]
    (tmp_path / "de.csv").write_text("\n".join(lines))
    detector = TrainingData.from_file(tmp_path / "de.csv").fit(IsolationForest(random_state=0))
    with pytest.warns(UserWarning, match="not in training"):
        assert score_file(detector, book).n_rows == 30


def test_what_is_wrong_is_one_line(book, tmp_path):
    detector = TrainingData.from_file(book, id_column="name").fit(IsolationForest(random_state=0))
    made = openpyxl.load_workbook(book)
    made.active["C7"] = "many"
    made.save(tmp_path / "odd.xlsx")
    with pytest.raises(DataFileError, match="column 'size' holds 'many' in line 7"):
        score_file(detector, tmp_path / "odd.xlsx")
    (tmp_path / "damaged.xlsx").write_bytes(book.read_bytes()[:900])
    with pytest.raises(DataFileError, match="damaged or no Excel file"):
        TableFiles([tmp_path / "damaged.xlsx"])
    (tmp_path / "old.xls").write_bytes(b"x")
    with pytest.raises(DataFileError, match=r"Save the sheet as \.xlsx or CSV"):
        TableFiles([tmp_path / "old.xls"])


def test_a_bomb_is_refused_before_it_is_unpacked(book, tmp_path):
    bomb = tmp_path / "bomb.xlsx"
    with zipfile.ZipFile(book) as old, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        new.writestr("xl/sharedStrings.xml", b" " * 2**24)
    assert bomb.stat().st_size < 2**16
    with pytest.raises(LimitError, match="more than 8 MiB"):
        TableFiles([bomb], reading=Reading(max_unpacked=2**23))


def test_scores_with_the_data_as_a_sheet(book, tmp_path):
    detector = TrainingData.from_file(book, id_column="name").fit(IsolationForest(random_state=0))
    score_file(detector, book, tmp_path / "scores.xlsx", with_data=True)
    rows = list(openpyxl.load_workbook(tmp_path / "scores.xlsx").active.values)
    assert rows[0][:3] == ("line", "name", "when") and rows[0][-3:] == ("score", "anomaly", "reasons")
    assert rows[30][:2] == (31, "S29")
    assert isinstance(rows[1][-3], float) and rows[1][-2] in (True, False)


def test_cells_of_the_sheet_stay_what_they_are_beside_the_scores(tmp_path):
    made = openpyxl.Workbook()
    made.active.append(["key", "zip", "size", "day", "paid"])
    rows = [
        (7000 + row, f"0{row}77", row % 9 + 0.5, dt.datetime(2024, 2, row % 28 + 1), row % 2 > 0) for row in range(30)
    ]
    for row in rows:
        made.active.append(row)
    made.save(tmp_path / "t.xlsx")
    detector = TrainingData.from_file(tmp_path / "t.xlsx", id_column="key").fit(IsolationForest(random_state=0))
    score_file(detector, tmp_path / "t.xlsx", tmp_path / "s.xlsx", with_data=True)
    _, *written = openpyxl.load_workbook(tmp_path / "s.xlsx").active.values
    assert [row[1:6] for row in written] == rows


def test_what_the_first_of_several_sheets_lacks_names_the_others(book, tmp_path):
    detector = TrainingData.from_file(book, id_column="name").fit(IsolationForest(random_state=0))
    made = openpyxl.load_workbook(book)
    made.create_sheet("Info", 0).append(["About"])
    made["Info"].append(["these rows"])
    made.save(tmp_path / "two.xlsx")
    sheets = f"Its sheets are 'Info', '{made.sheetnames[1]}'"
    for refused in (
        lambda: TrainingData.from_file(tmp_path / "two.xlsx"),
        lambda: TrainingData.from_file(tmp_path / "two.xlsx", id_column="name"),
        lambda: score_file(detector, tmp_path / "two.xlsx"),
    ):
        with pytest.raises(InputError, match=sheets):
            assert refused()
    with pytest.raises(InputError, match="Its first line holds 'About'"):
        score_file(detector, tmp_path / "two.xlsx")
    for n_rows in (1, 0):  # a title, and nothing at all
        made["Info"].delete_rows(n_rows + 1)
        made.save(tmp_path / "two.xlsx")
        with pytest.raises(InputError, match=sheets):
            TrainingData.from_file(tmp_path / "two.xlsx")


def test_text_never_becomes_a_formula(tmp_path):
    with ScoreWriter(tmp_path / "s.xlsx", id_name="name") as writer:
        writer.write([1.0, 2.0], [False, True], ids=["=1+1", "a\x01b"])
    cells = [cell for cell, *_ in openpyxl.load_workbook(tmp_path / "s.xlsx").active.iter_rows(min_row=2)]
    assert [(cell.value, cell.data_type) for cell in cells] == [("=1+1", "s"), ("ab", "s")]


def test_a_sheet_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("esad.io.excel._MAX_ROWS", 3)
    with (
        pytest.raises(Exception, match=r"holds 3 rows\. Write the scores to \.csv"),
        ScoreWriter(tmp_path / "s.xlsx") as writer,
    ):
        writer.write([1.0] * 4, [False] * 4)
    assert not (tmp_path / "s.xlsx").exists()
