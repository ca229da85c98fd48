"""`esad fit` on data in parts: several files as one table, what does not go together as one line."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from in_parts import tumours, write_parts

import esad
from esad.cli.app import run
from esad.io.stream import open_stream


@pytest.fixture(scope="module")
def drawn():
    return tumours()


@pytest.fixture
def parts(tmp_path, drawn):
    return write_parts(tmp_path / "parts", drawn.X_train, drawn.y_train)


def part(n_rows=40, **changes):
    """A small table with a few labels; `changes` are other columns, None to leave one out."""
    rng = np.random.default_rng(n_rows)
    columns = {"size": rng.normal(size=n_rows), "count": rng.integers(9, size=n_rows)}
    columns |= {"kind": rng.choice(["a", "b"], n_rows), "when": pa.array(np.arange(n_rows) * 10**6, pa.timestamp("us"))}
    columns |= {"label": pa.array((["anomaly"] * 2 + [None] * n_rows)[:n_rows], pa.string())} | changes
    return pa.table({name: column for name, column in columns.items() if column is not None})


def fitted(folder, *tables, args=("-l", "label")):
    """Exit code of a fit on some files: tables, or the bytes of one."""
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        file = folder / f"part-{number}.parquet"
        file.write_bytes(table) if isinstance(table, bytes) else pq.write_table(table, file)
    model = folder.with_suffix(".esad")
    quick = [
        "--set",
        "n_epochs=1",
        "--members",
        "1",
        "--contamination",
        "0.1",
        "-q",
    ]  # one epoch finds no anomaly by itself
    code = run(["fit", str(folder), *args, "--out", str(model), *quick])
    assert model.exists() == (code == 0)
    return code


@pytest.mark.parametrize(
    "second",
    [
        part(0),
        part().select(["label", "when", "kind", "count", "size"]),
        part(count=np.arange(40) / 2, size=pa.array(np.arange(40, dtype="f4"))),
        part(count=pa.array(range(40)).cast(pa.decimal128(22, 2))),
        part(kind=pa.array(["a", "c"] * 20).dictionary_encode()),
        part(kind=pa.array(["a", "c"] * 20, pa.large_string()), size=pa.nulls(40)),
        part(when=pa.array(np.arange(40) * 10**9, pa.timestamp("ns", "UTC"))),
        part(when=pa.array(list(range(40)), pa.date32())),
        part(label=pa.nulls(40)),
        part(label=[np.nan] * 40),  # as pandas writes a column without any label
    ],
)
def test_files_that_say_the_same_in_other_words_are_one_table(tmp_path, capsys, second):
    for number, tables in enumerate([(part(), second), (second, part())]):
        assert fitted(tmp_path / f"parts-{number}", *tables) == 0, capsys.readouterr().err
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("second", "line"),
    [
        (part(count=None), "part-1.parquet' has no column 'count', which"),
        (part(label=None), "part-1.parquet' has no column 'label', which"),
        (part(kind=range(40)), "'kind' holds text in"),
        (part(size=["1"] * 40), "'size' holds numbers in"),
        (part(when=["2024-01-01"] * 40), "'when' holds dates in"),
        (part(count=[True] * 40), "and bool in"),
        (part(label=["anomly"] * 40), "anomly"),
        (pa.Table.from_arrays([part()["size"]] * 2, names=["size", "size"]), "part-1.parquet': doubled column names"),
        (b"", "part-1.parquet': it is empty"),
        (b"PAR1" + b"x" * 300 + b"PAR1", "part-1.parquet': it is damaged"),
    ],
)
def test_files_that_do_not_go_together_are_one_line(tmp_path, capsys, second, line):
    assert fitted(tmp_path / "parts", part(), second) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and line in said


def test_a_column_of_lists_is_refused_with_its_file(tmp_path, capsys):
    odd = part(kind=[[1, 2]] * 40)
    assert fitted(tmp_path / "parts", odd, odd) == 2
    assert "part-0.parquet': Column 'kind' holds a" in capsys.readouterr().err


def test_columns_that_only_some_files_have_are_left_out_with_a_warning(tmp_path, capsys):
    assert fitted(tmp_path / "parts", part(), part(more=[1] * 40, most=[2] * 40)) == 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "'more' of" in said and "and 1 more" in said


def test_files_without_rows_or_labels(tmp_path, capsys):
    assert fitted(tmp_path / "empty", part(0), part(0)) == 2
    assert "columns but no rows" in capsys.readouterr().err
    assert fitted(tmp_path / "few", part(5), part(4)) == 2
    assert "10 unlabelled rows or more. Got 5 of 9" in capsys.readouterr().err
    assert fitted(tmp_path / "none", part(label=None), part(label=None), args=()) == 0
    assert fitted(tmp_path / "all", part(), part(), args=("-l", "label", "--calibration-ratio", "0.95")) == 2
    assert "leaves 72 rows to calibrate with and 0 to train on" in capsys.readouterr().err


def test_several_files_are_one_table_on_the_command_line(parts, tmp_path, capsys):
    out = tmp_path / "m.esad"
    fast = ["--set", "n_epochs=2", "--members", "1"]
    assert run(["fit", f"{parts}/*.parquet", "-l", "label", "--out", str(out), "--json", *fast]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["data"]["n_rows"] == open_stream(parts).n_rows
    assert said["data"]["labels"]["n_unlabelled"] > said["n_sample"] > 0
    assert np.isfinite(esad.load(out).threshold_)


def test_labelled_rows_are_not_said_to_be_held_out(drawn, parts, tmp_path, capsys):
    quick = ["--method", "bagged_trees", "--set", "n_trees=10"]
    assert run(["fit", str(parts), "-l", "label", "--out", str(tmp_path / "m.esad"), *quick]) == 0
    n_labelled = int((drawn.y_train != 0).sum())
    said = " ".join(capsys.readouterr().out.split())
    found = re.search(r"flagged [\d,]+ of (\d+) rows, (\d+) that were held out, (\d+) labelled \(", said)
    assert int(found[3]) == n_labelled
    assert int(found[1]) == int(found[2]) + n_labelled


def test_csv_is_streamed_on_the_command_line_with_the_columns_of_the_whole_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("esad.io.csv.PART_BYTES", 300)
    rng = np.random.default_rng(0)
    lines = [
        f"{size:.3f},{count % 7},{count % 2 == 0},," for size, count in zip(rng.normal(size=90), range(90), strict=True)
    ]
    lines[-1] = "0.5,many,True,2.5,anomaly"  # settles three columns, and is the only label
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["size,count,even,late,label", *lines]))
    args = ["--out", str(tmp_path / "m.esad"), "-l", "label", "--json", "--set", "n_epochs=1", "--members", "1"]
    assert run(["fit", str(file), "--stream", *args]) == 0
    streamed = json.loads(capsys.readouterr().out)
    assert run(["fit", str(file), *args]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert streamed["n_sample"] is not None and whole["n_sample"] is None
    assert streamed["data"] == whole["data"]
    kinds = {column["name"]: column["kind"] for column in whole["data"]["columns"]}
    assert kinds == {"size": "number", "count": "category", "even": "boolean", "late": "number"}
    assert whole["data"]["labels"]["n_anomaly"] == 1


def test_several_files_are_read_whole_where_asked(parts, tmp_path, capsys):
    args = ["fit", str(parts), "-l", "label", "--out", str(tmp_path / "m.esad"), "--json", "--method", "iforest"]
    assert run([*args, "--no-stream"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["n_sample"], said["data"]["n_rows"]) == (None, open_stream(parts).n_rows)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_a_large_csv_is_streamed_without_being_asked(drawn, tmp_path, capsys, monkeypatch, suffix):
    monkeypatch.setattr("esad.io.csv.PART_BYTES", 8000)
    monkeypatch.setattr("esad.detectors.training.data_limit", lambda: 125.0)
    folder = write_parts(tmp_path / "csv", drawn.X_train, drawn.y_train, suffix=suffix)
    file = str(next(folder.iterdir()))
    args = ["fit", file, "--ignore", "label", "--out", str(tmp_path / "m.esad"), "--json", "--set", "n_epochs=1"]
    assert run(args) == 0
    assert json.loads(capsys.readouterr().out)["n_sample"] is not None


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--method", "iforest"], "cannot learn from a stream"),
        (["--search"], "Leave --search out"),
        (["--cross-calibration"], "Take --calibration-ratio"),
        (["--false-alarm-rate", "0.0001"], "false"),
        (["--calibration-ratio", "2"], "--calibration-ratio"),
    ],
)
def test_what_does_not_go_together_is_one_line(parts, tmp_path, capsys, args, line):
    assert run(["fit", str(parts), "-l", "label", "--out", str(tmp_path / "m.esad"), *args]) == 2
    errors = [text for text in capsys.readouterr().err.splitlines() if text.startswith("error: ")]
    assert len(errors) == 1 and line in errors[0]
    assert not (tmp_path / "m.esad").exists()


def test_large_data_is_read_in_parts_without_being_asked(parts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("esad.detectors.training.data_limit", lambda: 125.0)
    out = str(tmp_path / "m.esad")
    file = str(parts / "part-0.parquet")
    args = ["fit", file, "-l", "label", "--out", out, "--json", "--set", "n_epochs=1", "--members", "1"]
    assert run(args) == 0
    assert json.loads(capsys.readouterr().out)["n_sample"] is not None
    assert run([*args, "--no-stream"]) == 0
    assert json.loads(capsys.readouterr().out)["n_sample"] is None
