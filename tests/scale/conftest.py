"""Shards of a small table, and a model that scores them in a moment."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv as pa_csv
from pyarrow import parquet

from esad import IsolationForest


def rows(n_rows, *, seed):
    rng = np.random.default_rng(seed)
    ids = [f"{seed}-{row}" for row in range(n_rows)]
    return pa.table({"id": ids, "size": rng.normal(size=n_rows), "weight": rng.normal(size=n_rows)})


@pytest.fixture(scope="session")
def forest(tmp_path_factory):
    """A fitted detector that knows its id column, and its file."""
    detector = IsolationForest(n_trees=10, random_state=0).fit(rows(200, seed=99).drop_columns("id"))
    detector.notes_ = {"id_column": "id"}
    path = tmp_path_factory.mktemp("model") / "forest.esad"
    detector.save(path)
    return detector, path


@pytest.fixture
def shards(tmp_path):
    """Five Parquet files of unequal length."""
    folder = tmp_path / "in"
    folder.mkdir()
    for part in range(5):
        parquet.write_table(rows(20 + 7 * part, seed=part), folder / f"part-{part}.parquet")
    return folder


@pytest.fixture
def write():
    """Writes so many rows as CSV or Parquet, by the name."""

    def write_rows(path, n_rows=10, *, seed=0):
        table = rows(n_rows, seed=seed)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            parquet.write_table(table, path)
        else:
            delimiter = "\t" if ".tsv" in path.name else ","
            options = pa_csv.WriteOptions(delimiter=delimiter)
            with pa.output_stream(str(path), compression="detect") as file:
                pa_csv.write_csv(table, file, options)
        return path

    return write_rows


@pytest.fixture(scope="session")
def read_scores():
    """Reads scores by id, in the order of the file."""

    def read(path):
        if path.suffix == ".parquet":
            table = parquet.read_table(path)
        else:
            with pa.input_stream(str(path), compression="detect") as file:
                table = pa_csv.read_csv(file)
        return dict(zip(table["id"].to_pylist(), table["score"].to_pylist(), strict=True))

    return read


@pytest.fixture
def check(forest):
    """Holds the scores in a folder against those of the rows in memory: none lost, none doubled."""
    detector, _ = forest

    def check_folder(shards, out):
        files = sorted(path for path in shards.glob("*.parquet"))
        assert sorted(path.name for path in out.glob("*.parquet")) == [path.name for path in files]
        assert not [path.name for path in out.rglob(".esad-*")]
        for path in files:
            table = parquet.read_table(path)
            scores = detector.anomaly_score(table.drop_columns("id"))
            written = parquet.read_table(out / path.name)
            assert written["id"].to_pylist() == table["id"].to_pylist()
            assert written["score"].to_pylist() == scores.tolist()
            assert written["anomaly"].to_pylist() == (scores > detector.threshold_).tolist()

    return check_folder


@pytest.fixture(scope="session")
def states():
    """Which file of scores each one in a folder is, and when it was written."""

    def states_of(folder):
        return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("part-*")}

    return states_of
