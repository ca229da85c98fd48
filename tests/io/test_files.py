"""The door: one object for a path, read whole, in batches and in parts, with the same rows each time."""

import csv
import os
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_parts import write_parts

from esad.errors import DataFileError
from esad.io.dialect import Reading
from esad.io.files import TableFiles, find_tables, open_data, open_tables, read_table
from esad.io.notes import Notes
from esad.table.table import Schema, Table


def _rows(tables):
    return pa.concat_tables(tables, promote_options="permissive").to_pydict()


def _of_parts(data, names):
    return _rows([rows for part in data.parts(names) for rows in part.batches(names, 2)])


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    file = tmp_path / "sizes.csv"
    file.write_text("size;name;when\n1,5;a;2024-01-01\n2;b;2024-01-02\n;c;2024-01-03\n")
    return file


def test_a_file_is_the_same_whole_in_batches_and_in_parts(sizes):
    data = open_data(sizes)
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


def test_what_is_known_without_reading_rows(sizes, tmp_path):
    data = open_tables(sizes)
    assert (data.names, data.n_rows) == (("size", "name", "when"), None)
    assert (data.dialect.delimiter, data.dialect.decimal.value) == (";", ",")
    pq.write_table(pa.table({"size": [1.0, 2.0]}), tmp_path / "sizes.parquet")
    parquet = open_tables(tmp_path / "sizes.parquet")
    assert (parquet.n_rows, parquet.dialect, parquet.n_bytes) == (2, None, 16)


def test_decimals_of_the_training_hold_where_a_file_does_not_show_its_own(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("a;b\n50.000;2\n")
    assert TableFiles([file]).written.decimal is None
    assert TableFiles([file]).read()["a"].to_pylist() == [50.0]
    noted = Notes.from_json({"decimal_point": ","}).add_reading()
    assert TableFiles([file], reading=noted).read()["a"].to_pylist() == [50_000.0]
    file.write_text("a;b\n50.5;2\n")
    assert TableFiles([file]).written.decimal == "."
    with pytest.raises(DataFileError, match=r"decimal points, such as 50\.5, and those of the training had decimal"):
        TableFiles([file], reading=noted)
    said = Notes.from_json({"decimal_point": ","}).add_reading(Reading(decimal="."))
    assert TableFiles([file], reading=said).read()["a"][0].as_py() == 50.5


def test_several_files_are_one_table(tmp_path):
    (tmp_path / "a.csv").write_text("size,y\n1,anomaly\n")
    (tmp_path / "b.csv").write_text("y,size\n,2.5\n")
    data = open_data(tmp_path)
    assert data.read(label_column="y").to_pydict() == {"size": [1.0, 2.5], "y": ["anomaly", None]}
    assert data.read(["y"]).column_names == ["y"]


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_decimals_that_one_file_shows_hold_in_the_others(tmp_path, names):
    for name, amount in zip(names, ("1.234,50", "50.000"), strict=True):
        (tmp_path / f"{name}.csv").write_text(f"amount;b\n{amount};2\n")
    assert sorted(open_tables(tmp_path).read()["amount"].to_pylist()) == [1234.5, 50_000.0]
    (tmp_path / "c.csv").write_text("amount;b\n5.25;2\n")  # which is no doubt either
    assert open_tables(tmp_path).read()["amount"].to_pylist()[-1] == 5.25


@pytest.mark.parametrize("way", ["read", "parts"])
def test_amounts_in_several_files_are_mentioned_once(tmp_path, caplog, way):
    for number in range(3):
        (tmp_path / f"{number}.csv").write_text(f"fee\n${number}\n")
    getattr(open_tables(tmp_path), way)()
    assert [record.message for record in caplog.records] == ["read as numbers, though not written plainly: 'fee'"]


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


FRAME = {"name": ["x", "y", None], "size": [1.5, None, 2.5], "flag": [True, False, None]}


def open_batches(path, columns=None, **how):
    return TableFiles([path]).batches(columns, **how)


def names_of(path):
    return TableFiles([path]).names


def write(path: Path, columns: Mapping[str, Any]) -> Path:
    if path.suffix in (".parquet", ".pq"):
        pq.write_table(pa.table(columns), path)
    else:
        frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return path


def trained(columns: Mapping[str, Any]) -> Schema:
    return Schema.infer(Table.from_any(pa.table(columns)))


@pytest.mark.parametrize("name", ["t.csv", "t.CSV", "t.csv.gz", "t.tsv", "t.tsv.gz", "t.parquet", "t.pq"])
def test_every_format_gives_the_same_table(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, FRAME)
    assert names_of(file) == ("name", "size", "flag")
    assert read_table(file).to_pydict() == FRAME
    assert read_table(str(file), columns=["flag", "name"]).to_pydict() == {"flag": FRAME["flag"], "name": FRAME["name"]}
    schema = trained(FRAME)
    batches = list(open_batches(file, schema=schema, batch_rows=2))
    assert [batch.num_rows for batch in batches] == [2, 1]
    aligned = schema.align(Table.from_any(pa.concat_tables(batches)))
    np.testing.assert_array_equal(aligned.column(1), [1.5, np.nan, 2.5])
    np.testing.assert_array_equal(aligned.column(2), [1, 0, np.nan])
    assert [batch.column_names for batch in open_batches(file, columns=["size", "name"])] == [["size", "name"]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_batches_have_the_rows_asked_for_and_keep_their_order(tmp_path: Path, suffix: str) -> None:
    values = [float(row) for row in range(100_001)]
    file = write(tmp_path / f"t.{suffix}", {"a": values, "b": values})
    batches = list(open_batches(file, schema=trained({"a": [1.0]}), batch_rows=30_000))
    assert [batch.num_rows for batch in batches] == [30_000, 30_000, 30_000, 10_001]
    assert pa.concat_tables(batches).column("a").to_pylist() == values


def test_small_row_groups_are_joined(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": range(1000)}), file, row_group_size=7)
    assert [batch.num_rows for batch in open_batches(file, batch_rows=300)] == [300, 300, 300, 100]


def test_batches_of_wide_tables_have_fewer_rows(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({f"c{index}": np.zeros(3000) for index in range(2100)}), file)
    assert [batch.num_rows for batch in open_batches(file)] == [1997, 1003]


def test_schema_without_names_types_columns_by_position(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", {"p": [1, 2], "q": ["x", "y"]})
    (batch,) = open_batches(file, schema=Schema.infer(Table.from_any([[0.5, "x"], [1.5, "y"]])))
    assert batch.schema.types == [pa.float64(), pa.string()]


def test_text_in_a_number_column_is_refused_with_its_place(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", {"a": ["1", "12abc"]})
    with pytest.raises(DataFileError, match=r"t\.csv': column 'a' holds '12abc' in line 3, which is no number"):
        list(open_batches(file, schema=trained({"a": [1.0]})))


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_text_in_parquet_that_is_not_utf8_is_damage(tmp_path: Path, type_: pa.DataType) -> None:
    text = pa.array([b"fine", b"not \xff"]).cast(pa.string(), safe=False)
    column = text.dictionary_encode() if pa.types.is_dictionary(type_) else text.cast(type_, safe=False)
    pq.write_table(pa.table({"a": column}), file := tmp_path / "t.parquet")
    data = open_tables(file)
    with pytest.raises(DataFileError, match="damaged"):
        data.read(["a"])
    with pytest.raises(DataFileError, match="damaged"):
        list(data.batches(["a"]))


def test_unnamed_pandas_index_in_parquet_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pd.DataFrame({"a": [1.0, 2.0, 3.0]}).iloc[[2, 0, 1]].to_parquet(file)
    assert "__index_level_0__" in pq.read_schema(file).names
    assert names_of(file) == ("a",)
    assert read_table(file).to_pydict() == {"a": [3.0, 1.0, 2.0]}
    assert [batch.to_pydict() for batch in open_batches(file)] == [{"a": [3.0, 1.0, 2.0]}]


def test_column_names_with_dots_are_not_mixed_up(tmp_path: Path) -> None:
    file = write(tmp_path / "t.parquet", {"a": [1], "a.b": [2]})
    assert read_table(file, columns=["a"]).to_pydict() == {"a": [1]}
    assert [batch.to_pydict() for batch in open_batches(file, columns=["a.b"])] == [{"a.b": [2]}]


def test_iterator_may_be_left_early(tmp_path: Path) -> None:
    for name in ("t.csv", "t.parquet"):
        batches = open_batches(write(tmp_path / name, {"a": [1.0] * 10}), batch_rows=2)
        assert next(batches).num_rows == 2
        del batches


def reading(path: Path) -> list[str]:
    """Messages of every way to read a file that cannot be read."""
    messages = []
    for read in (read_table, names_of, lambda path: list(open_batches(path))):
        with pytest.raises(DataFileError) as caught:
            read(path)
        messages.append(str(caught.value))
        assert "\n" not in messages[-1]
    return messages


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "no such file"),
        ("missing/missing.csv", None, "no such file"),
        ("x" * 300 + ".csv", None, "File name too long"),
        ("a\0.csv", None, "null|no such file"),
        ("t.xlsx", b"PK", "damaged or no Excel file"),
        ("t.ods", b"PK", r"must end in one of \.csv"),
        ("t", b"a,b", r"must end in one of \.csv"),
        ("t.csv", b"", "empty"),
        ("t.parquet", b"", "empty"),
        ("t.parquet", b"a,b\n1,2\n" * 10, "damaged or no Parquet"),
        ("t.parquet", b"PAR1" * 10, "damaged or no Parquet"),
        ("t.csv", b"PAR1\0\0PAR1", "binary"),
    ],
)
def test_unusable_file_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for text in reading(path):
        assert pytest.raises(DataFileError, match=message).matches(DataFileError(text)), text


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_name_that_is_no_text_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / os.fsdecode(b"sizes-\xff.%b" % suffix.encode())
    try:
        file.write_bytes(b"a,b\n1,2\n")
    except OSError:  # a file system that has no such names
        return
    with pytest.raises(DataFileError, match="its name is not UTF-8 text"):
        read_table(file)


def test_very_many_columns_take_no_time(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(30_000)]
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n")
    opened = TableFiles([tmp_path / "wide.csv"])
    started = time.process_time()
    opened.parts(["c0"])
    assert time.process_time() - started < 2


def test_folders_and_pipes_are_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    assert "it is a folder" in reading(tmp_path / "folder.csv")[0]
    assert "not a regular file" in reading(tmp_path / "pipe.csv")[0]


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_table_without_rows_is_refused(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, {"a": [], "b": []})
    for read in (read_table, lambda path: list(open_batches(path))):
        with pytest.raises(DataFileError, match="no rows"):
            read(file)


@pytest.mark.parametrize("header", ["a,b", "a,b\r", "\ufeffa,b", "sep=,\na,b", '"a\n",b', "a,b\r\n\r\n"])
def test_a_header_whose_line_does_not_end_is_a_table_without_rows(tmp_path: Path, header: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(header, encoding="utf-8", newline="")
    for read in (read_table, lambda path: list(open_batches(path))):
        with pytest.raises(DataFileError, match="it has columns but no rows"):
            read(file)


@pytest.mark.parametrize("reason", ["Empty CSV file", "x"])
def test_a_damaged_line_is_refused_whatever_it_says(tmp_path: Path, reason: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"a,b\n1,2\n{reason},1,2\n3,4\n", encoding="utf-8")
    for read in (read_table, lambda path: list(open_batches(path))):
        with pytest.raises(DataFileError, match="line 3 has 3 fields, the header has 2"):
            read(file)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_missing_column_is_named_with_those_there(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, {"a": [1], "b": [2]})
    for read in (read_table, open_batches):
        with pytest.raises(DataFileError, match=r"no column 'c'\. Its columns are 'a', 'b'"):
            read(file, columns=["a", "c"])


def test_doubled_names_in_parquet_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), file)
    assert all("doubled column names 'a'" in message for message in reading(file))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_parquet_is_read_or_refused_never_worse(tmp_path: Path, data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    sound, broken = tmp_path / "sound.parquet", tmp_path / "broken.parquet"
    texts = [f"w{number % 5}" for number in range(200)]
    pq.write_table(pa.table({"a": rng.normal(size=200), "b": texts}), sound, row_group_size=80)
    content = bytearray(sound.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    broken.write_bytes(content[: data.draw(st.integers(1, len(content)))] if data.draw(st.booleans()) else content)
    for read in (read_table, names_of, lambda path: list(open_batches(path))):
        try:
            read(broken)
        except DataFileError as error:
            assert "\n" not in str(error)


CELLS = st.sampled_from(
    [
        "",
        "1",
        "-2.5",
        "1e3",
        "NA",
        "?",
        "true",
        "False",
        "red",
        "1 2",
        "2024-02-29",
        "2024-02-29 10:00",
        "12:30",
        "007",
        "x,y",
        'q"',
    ]
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(CELLS, CELLS, st.integers(0, 9)), min_size=1, max_size=12), n_rows=st.integers(1, 13))
def test_what_training_reads_scoring_reads_alike(tmp_path: Path, rows: list[tuple[str, str, int]], n_rows: int) -> None:
    file = tmp_path / "t.csv"
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows([("p", "q", "count"), *rows])
    table = Table.from_any(read_table(file))
    schema = Schema.infer(table)
    whole = schema.align(table)
    parts = [schema.align(Table.from_any(batch)) for batch in open_batches(file, schema=schema, batch_rows=n_rows)]
    for index in range(3):
        joined = np.concatenate([part.column(index) for part in parts])
        np.testing.assert_array_equal(joined, whole.column(index))


def test_memory_does_not_grow_with_a_row_group(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    values = np.random.default_rng(0).normal(size=(1_000_000, 30))  # 229 MiB in one row group
    pq.write_table(
        pa.table({f"c{index}": values[:, index] for index in range(30)}),
        file,
        row_group_size=1_000_000,
        compression="none",
        use_dictionary=False,
    )
    code = """
        import resource, sys
        from esad.io.files import TableFiles
        peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        before = peak()
        n_rows = sum(batch.num_rows for batch in TableFiles([sys.argv[1]]).batches())
        print(n_rows, (peak() - before) // 1024)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(file)]
    n_rows, n_mib = map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert n_rows == 1_000_000
    assert n_mib < 200
