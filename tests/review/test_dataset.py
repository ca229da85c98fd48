"""What is judged: names, cells, search, and a fingerprint that notices every change."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad import IsolationForest, TrainingData
from esad.review.dataset import ReviewDataset

CELLS = pa.table({"size": [1.5, None, 3.0], "word": ["Red", "", "b%lue"], "day": pa.array([0, 1, None], pa.date32())})


def made(cells=CELLS, names=("a", "b", "c")):
    return ReviewDataset(title="t", X=cells, known=np.zeros(3, np.int8), names=names, id_name="id", cells=cells)


def test_cells_are_text_and_missing_ones_are_empty():
    assert made().cells_of(0) == [("size", "1.5"), ("word", "Red"), ("day", "1970-01-01")]
    assert made().cells_of(1) == [("size", ""), ("word", ""), ("day", "1970-01-02")]


@pytest.mark.parametrize(
    ("query", "rows"), [("red", [0]), ("%", [2]), ("1970", [0, 1]), ("B", [1, 2]), ("3", [2]), ("zzz", []), ("(", [])]
)
def test_search_is_for_plain_text_in_any_cell_or_name(query, rows):
    assert np.flatnonzero(made().search(query)).tolist() == rows


def test_rows_without_names_are_called_by_their_number():
    rows = made(names=None)
    assert rows.name_of(2) == "row 2"
    assert rows.search("row 1").tolist() == [False, True, False]


def test_rows_are_called_by_their_title_and_keep_their_number():
    titled = ReviewDataset(
        title="t",
        X=CELLS,
        known=np.zeros(3, np.int8),
        names=None,
        id_name="row",
        cells=CELLS,
        titles=["Alien", None, "Brazil"],
    )
    assert [titled.name_of(row) for row in range(3)] == ["Alien", "row 1", "Brazil"]
    assert titled.search("row 2").tolist() == [False, False, True]


@given(row=st.integers(0, 2), column=st.sampled_from(["size", "word"]))
def test_a_fingerprint_notices_every_cell(row, column):
    changed = CELLS[column].to_pylist()
    changed[row] = "other" if column == "word" else 99.0
    other = CELLS.set_column(CELLS.column_names.index(column), column, pa.array(changed))
    assert made(other).fingerprint() != made().fingerprint()
    assert made(CELLS.combine_chunks()).fingerprint() == made().fingerprint()


def test_a_fingerprint_notices_names_of_columns_and_moved_text():
    assert made(CELLS.rename_columns(["a", "word", "day"])).fingerprint() != made().fingerprint()
    one, two = (
        pa.table({"a": a, "b": b}) for a, b in ((["x", "", "z"], ["", "y", ""]), (["x", "y", "z"], ["", "", ""]))
    )
    assert made(one).fingerprint() != made(two).fingerprint()


def test_a_fingerprint_notices_every_pixel(kit):
    first, second = kit.pictures(), kit.pictures()
    assert first.fingerprint() == second.fingerprint()
    second.X[5, 0, 3, 3] ^= 1
    assert first.fingerprint() != second.fingerprint()


@pytest.mark.parametrize(
    ("ignored", "name"), [(["title"], "t0"), (None, "row 0"), ("title", "row 0"), ([None], "row 0")]
)
def test_notes_of_a_model_that_somebody_has_changed_are_read_with_care(tmp_path, ignored, name):
    rows = "".join(f"{row / 7},t{row}\n" for row in range(30))
    (tmp_path / "data.csv").write_text(f"size,title\n{rows}")
    detector = IsolationForest(n_trees=5, random_state=0).fit(pa.table({"size": np.arange(30) / 7}))
    detector.notes_ = {"ignored_columns": ignored}
    assert ReviewDataset.from_file(tmp_path / "data.csv", detector, on_remark=lambda remark: None).name_of(0) == name


def test_a_title_is_the_beginning_of_a_long_text(tmp_path):
    stories = [f"{number} {'once upon a time ' * 100}" for number in range(40)]
    lines = ["story,size", *(f"{story},{number % 7}.5" for number, story in enumerate(stories))]
    (tmp_path / "tales.csv").write_text("\n".join(lines) + "\n")
    detector = TrainingData.from_file(tmp_path / "tales.csv", ignore=["story"], on_remark=lambda found: None).fit(
        IsolationForest(random_state=0)
    )
    rows = ReviewDataset.from_file(tmp_path / "tales.csv", detector, on_remark=lambda found: None)
    assert rows.name_of(3) == stories[3][:200]
    assert ("story", stories[3].strip()) in [(name, text.strip()) for name, text in rows.cells_of(3)]
