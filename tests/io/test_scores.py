"""The scores file is complete and readable, or it is not there."""

import contextlib
import gzip
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esad.errors import InputError, OutputError
from esad.io.files import read_table
from esad.io.scores import ScoreWriter


def test_csv_has_ids_scores_and_plain_truths(tmp_path: Path) -> None:
    target = tmp_path / "scores.csv"
    with ScoreWriter(target, id_name="patient") as writer:
        writer.write(np.array([0.1, np.inf]), np.array([False, True]), ids=pa.array(["a", 'b,"c"']))
        writer.write([1e-300], [True], ids=pa.array([None], pa.string()))
        assert writer.n_rows == 3
    assert target.read_text() == 'patient,score,anomaly\n"a",0.1,false\n"b,""c""",inf,true\n,1e-300,true\n'
    assert read_table(target).to_pydict() == {
        "patient": ["a", 'b,"c"', None],
        "score": [0.1, np.inf, 1e-300],
        "anomaly": [False, True, True],
    }


def test_rows_are_numbered_on_without_ids(tmp_path: Path) -> None:
    target = tmp_path / "scores.csv"
    with ScoreWriter(target) as writer:
        writer.write([1.5, 2.5], [False, True])
        writer.write([3.5], [True])
    assert target.read_text() == "row,score,anomaly\n0,1.5,false\n1,2.5,true\n2,3.5,true\n"


@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz", "s.parquet", "s.PQ"])
def test_scores_come_back_to_the_last_bit(tmp_path: Path, name: str) -> None:
    scores = np.random.default_rng(0).lognormal(sigma=50, size=1000)
    with ScoreWriter(tmp_path / name, id_name="key") as writer:
        for start in range(0, 1000, 300):
            part = scores[start : start + 300]
            writer.write(part, part > 1, ids=np.arange(start, start + len(part)))
    table = read_table(tmp_path / name)
    assert table.schema.types == [pa.int64(), pa.float64(), pa.bool_()]
    np.testing.assert_array_equal(table.column("score").to_numpy(), scores)
    np.testing.assert_array_equal(table.column("anomaly").to_pylist(), scores > 1)
    assert table.column("key").to_pylist() == list(range(1000))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(
    "ids",
    [
        ["x", "y"],
        np.array(["x", "y"], dtype=object),
        pd.Series(["x", "y"]),
        pd.Series(["x", "y"], dtype="category"),
        pl.Series(["x", "y"]),
        pa.chunked_array([["x"], ["y"]]),
        pa.array(["x", "y"]).dictionary_encode(),
        pa.array(["x", "y"], pa.large_string()),
    ],
)
def test_ids_of_any_library_are_carried(tmp_path: Path, suffix: str, ids: object) -> None:
    target = tmp_path / f"s.{suffix}"
    with ScoreWriter(target, id_name="key") as writer:
        writer.write([1, 2], [False, True], ids=ids)
        writer.write([3], [False], ids=["z"])
    assert read_table(target).column("key").to_pylist() == ["x", "y", "z"]


def test_gzip_output_is_gzip(tmp_path: Path) -> None:
    with ScoreWriter(tmp_path / "s.csv.gz") as writer:
        writer.write([1.0], [True])
    assert gzip.decompress((tmp_path / "s.csv.gz").read_bytes()) == b"row,score,anomaly\n0,1,true\n"


def test_dates_of_the_data_have_no_more_digits_than_they_need(tmp_path: Path) -> None:
    days = ["2024-06-05", None], ["2024-06-05T13:00:00", "2024-06-05"], ["2024-06-05T13:00:00.25", None]
    table = pa.table({name: pa.array(np.array(cells, "M8[us]")) for name, cells in zip("abc", days, strict=True)})
    with ScoreWriter(tmp_path / "s.csv", data=["a", "b", "c"]) as writer:
        writer.write([1.0, 2.0], [False, False], data=table, reasons=[None, None])
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines[1] == "2,2024-06-05,2024-06-05 13:00:00,2024-06-05 13:00:00.250000,1,false,"
    assert lines[2] == "3,,2024-06-05 00:00:00,,2,false,"


def test_no_batch_leaves_a_table_without_rows(tmp_path: Path) -> None:
    for name in ("s.csv", "s.parquet"):
        with ScoreWriter(tmp_path / name, id_name="key"):
            pass
    assert (tmp_path / "s.csv").read_text() == "key,score,anomaly\n"
    assert pq.read_schema(tmp_path / "s.parquet").names == ["key", "score", "anomaly"]


@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz", "s.parquet"])
def test_failure_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), ScoreWriter(target) as writer:
        writer.write([1.0], [True])
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]


def test_input_is_not_overwritten_under_any_of_its_names(tmp_path: Path) -> None:
    data, link = tmp_path / "data.csv", tmp_path / "link.csv"
    data.write_text("a\n1\n")
    link.symlink_to(data)
    for target in (data, link, tmp_path / "." / "data.csv"):
        with pytest.raises(OutputError, match="a file being read"), ScoreWriter(target, inputs=["missing.csv", data]):
            pass
    assert data.read_text() == "a\n1\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [("s.txt", r"must end in one of \.csv"), ("no/s.csv", "does not exist"), ("dir.csv", "it is a folder")],
)
def test_unusable_target_is_refused_in_one_line(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(OutputError, match=message) as caught, ScoreWriter(tmp_path / name):
        pass
    assert "\n" not in str(caught.value)


def test_ids_and_their_name_go_together(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be named 'score'"), ScoreWriter(tmp_path / "s.csv", id_name="score"):
        pass
    with pytest.raises(InputError, match="only if"), ScoreWriter(tmp_path / "s.csv", id_name="key") as writer:
        writer.write([1.0], [True])
    with pytest.raises(InputError, match="only if"), ScoreWriter(tmp_path / "s.csv") as writer:
        writer.write([1.0], [True], ids=[1])
    with pytest.raises(InputError, match=r"must go together\. Got 2, 1, 2"), ScoreWriter(tmp_path / "s.csv") as writer:
        writer.write([1.0, 2.0], [True])
    assert os.listdir(tmp_path) == []


@contextlib.contextmanager
def tiny_disk(folder: Path) -> Iterator[Path]:
    """File system of 64 KiB."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ["s.csv", "s.csv.gz", "s.parquet"])
@pytest.mark.parametrize("n_batches", [1, 40])
def test_full_disk_is_one_clear_line_and_leaves_nothing(tmp_path: Path, name: str, n_batches: int) -> None:
    rng = np.random.default_rng(0)
    with tiny_disk(tmp_path / "disk") as disk:
        (disk / "old").write_bytes(b"old")
        with pytest.raises(OutputError, match="No space left on device") as caught, ScoreWriter(disk / name) as writer:
            for _ in range(n_batches):
                writer.write(rng.normal(size=20_000 // n_batches), np.ones(20_000 // n_batches))
        assert "\n" not in str(caught.value)
        assert os.listdir(disk) == ["old"]


@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_p_values_are_a_fourth_column(tmp_path: Path, name: str) -> None:
    with ScoreWriter(tmp_path / name, id_name="key", p_values=True) as writer:
        writer.write([1.0, 2.0], [False, True], ids=["a", "b"], p_values=[0.5, 0.01])
        with pytest.raises(InputError, match="`p_values` must be given"):
            writer.write([1.0], [False], ids=["c"])
    wanted = {"key": ["a", "b"], "score": [1.0, 2.0], "anomaly": [False, True], "p_value": [0.5, 0.01]}
    assert read_table(tmp_path / name).to_pydict() == wanted


def test_no_batch_leaves_the_column_of_p_values(tmp_path: Path) -> None:
    with ScoreWriter(tmp_path / "s.parquet", p_values=True):
        pass
    assert pq.read_schema(tmp_path / "s.parquet").names == ["row", "score", "anomaly", "p_value"]


@pytest.mark.parametrize("id_name", ["score", "anomaly", "p_value"])
def test_an_id_column_of_a_taken_name_is_refused(tmp_path: Path, id_name: str) -> None:
    with pytest.raises(InputError, match=f"cannot be named '{id_name}'"):
        ScoreWriter(tmp_path / "s.csv", id_name=id_name, p_values=True).__enter__()
    assert not (tmp_path / "s.csv").exists()


@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_names_of_files_that_are_no_text_are_escaped(tmp_path: Path, name: str) -> None:
    ids = [os.fsdecode(b"photo-\xff.png"), os.fsdecode(b"photo-\xfe.png"), "größe.png"]
    with ScoreWriter(tmp_path / name, id_name="file") as writer:
        writer.write([1.5, 2.5, 3.5], [False, True, True], ids=ids)
    assert read_table(tmp_path / name)["file"].to_pylist() == [r"photo-\udcff.png", r"photo-\udcfe.png", "größe.png"]
