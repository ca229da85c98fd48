"""The door: one object for a path, read whole, in batches and in parts, with the same rows each time."""

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from in_parts import write_parts

from esad.errors import DataFileError
from esad.io.open import TableFiles, find_tables, open_data, open_tables
from esad.io.reading import Reading


def _rows(tables):
    return pa.concat_tables(tables, promote_options="permissive").to_pydict()


def _of_parts(data, names):
    return _rows([pa.Table.from_batches([batch]) for part in data.parts(names) for batch in part.batches(names, 2)])


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    file = tmp_path / "sizes.csv"
    file.write_text("size;name;when\n1,5;a;2024-01-01\n2;b;2024-01-02\n;c;2024-01-03\n")
    return file


def test_a_file_is_the_same_whole_in_batches_and_in_parts(csv):
    data = open_data(csv)
    assert isinstance(data, TableFiles)
    whole = data.read()
    assert whole.to_pydict() == {
        "size": [1.5, 2.0, None],
        "name": ["a", "b", "c"],
        "when": ["2024-01-01", "2024-01-02", "2024-01-03"],
    }
    assert _of_parts(data, data.names) == whole.to_pydict()
    batches = list(data.batches(["name", "when"], batch_rows=2))
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert _rows(batches) == whole.select(["name", "when"]).to_pydict()


def test_what_is_known_without_reading_rows(csv, tmp_path):
    data = open_tables(csv)
    assert (data.names, data.n_rows) == (("size", "name", "when"), None)
    assert (data.dialect.delimiter, data.dialect.decimal_point) == (";", ",")
    pq.write_table(pa.table({"size": [1.0, 2.0]}), tmp_path / "sizes.parquet")
    parquet = open_tables(tmp_path / "sizes.parquet")
    assert (parquet.n_rows, parquet.dialect, parquet.n_bytes) == (2, None, 16)


def test_decimals_of_the_training_hold_where_a_file_does_not_show_its_own(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("a;b\n50.000;2\n")
    assert TableFiles([file]).notes == {}
    assert TableFiles([file]).read()["a"].to_pylist() == [50.0]
    noted = Reading().with_notes({"decimal_point": ","})
    assert TableFiles([file], reading=noted).read()["a"].to_pylist() == [50_000.0]
    file.write_text("a;b\n50.5;2\n")
    assert TableFiles([file]).notes == {"decimal_point": "."}
    with pytest.raises(DataFileError, match=r"decimal points, such as 50\.5, and those of the training had decimal"):
        TableFiles([file], reading=noted)
    assert (
        TableFiles([file], reading=Reading(decimal=".").with_notes({"decimal_point": ","})).read()["a"][0].as_py()
        == 50.5
    )


def test_several_files_are_one_table(tmp_path):
    (tmp_path / "a.csv").write_text("size,y\n1,anomaly\n")
    (tmp_path / "b.csv").write_text("y,size\n,2.5\n")
    data = open_data(tmp_path)
    assert data.read(label_column="y").to_pydict() == {"size": [1.0, 2.5], "y": ["anomaly", None]}
    assert data.read(["y"]).column_names == ["y"]


def test_a_column_that_a_file_lacks_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("size,y\n1,2\n")
    (tmp_path / "b.csv").write_text("size,z\n1,2\n")
    data = open_tables(tmp_path)
    with pytest.raises(DataFileError, match="no column 'y', which"):
        data.read()
    with pytest.raises(DataFileError, match=r"no column 'w'\. Its columns are 'size', 'y'"):
        data.read(["w"])
    with pytest.warns(UserWarning, match="left out: 'z'"):
        assert data.read(["size"]).num_rows == 2


def test_a_folder_of_pictures_is_opened_alike(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number in range(3):
        image.new("L", (8, 8)).save(tmp_path / f"{number}.png")
    data = open_data(tmp_path)
    assert data.n_rows == 3
    assert data.read().images.shape == (3, 1, 8, 8)
    assert [len(batch.ids) for batch in data.batches(2)] == [2, 1]


@pytest.mark.parametrize("name", ["absent.csv", "notes.txt"])
def test_what_is_no_table_is_refused_at_once(tmp_path, name):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataFileError, match=name), warnings.catch_warnings():
        open_data(tmp_path / name)


def test_folders_patterns_and_files_are_found(tmp_path):
    parts = write_parts(tmp_path / "parts", np.zeros((9, 2)))
    assert [file.name for file in find_tables(parts)] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert len(find_tables(f"{parts}/part-[01].parquet")) == 2
    assert find_tables(parts / "part-0.parquet") == (parts / "part-0.parquet",)
    with pytest.raises(DataFileError, match="no file matches"):
        find_tables(f"{parts}/none-*.parquet")


def test_csv_beside_pictures_is_no_table(tmp_path):
    (tmp_path / "labels.csv").write_text("file,label\n1.png,anomaly\n")
    assert find_tables(tmp_path) == (tmp_path / "labels.csv",)
    (tmp_path / "1.png").write_bytes(b"")
    assert find_tables(tmp_path) == ()
    for name in ("_temporary", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.parquet").write_bytes(b"")
    assert find_tables(tmp_path) == ()
