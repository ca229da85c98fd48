"""Runs over shards: nothing lost, nothing doubled, nothing done twice, one bad file no harm to the others."""

import errno
import itertools
import json
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from esad.errors import InputError, ModelFileError, OutputError
from esad.io.scores import ScoreWriter
from esad.scale import engines, run, score_shards


def test_every_row_is_scored_once_with_the_score_it_has_in_memory(forest, shards, check, tmp_path):
    found = score_shards(forest[1], shards, tmp_path / "out", n_jobs=1)
    check(shards, tmp_path / "out")
    assert (found.n_shards, found.n_there, found.n_rows, found.failures) == (5, 0, 20 + 27 + 34 + 41 + 48, {})
    summary = json.loads((tmp_path / "out" / "_esad" / "summary.json").read_text())
    assert summary == found.to_json()
    whole = parquet.read_table(tmp_path / "out")  # readers of folders skip what begins with an underscore
    assert (whole.num_rows, sum(whole["anomaly"].to_pylist())) == (found.n_rows, found.n_flagged)


@settings(max_examples=15)
@given(cuts=st.lists(st.integers(0, 40), max_size=4))
def test_how_the_rows_are_cut_into_shards_does_not_matter(forest, read_scores, tmp_path_factory, cuts):
    folder = tmp_path_factory.mktemp("cut")
    detector, model = forest
    X = np.random.default_rng(5).normal(size=(40, 2))
    table = pa.table({"id": np.arange(40), "size": X[:, 0], "weight": X[:, 1]})
    ends = [0, *sorted(cuts), 40]
    for part, (first, last) in enumerate(itertools.pairwise(ends)):
        parquet.write_table(table.slice(first, last - first), folder / f"{part}.parquet")
    found = score_shards(model, folder, folder / "out", n_jobs=1)
    assert (found.n_rows, found.failures) == (40, {})
    scores = [
        score for part in range(len(ends) - 1) for score in read_scores(folder / "out" / f"{part}.parquet").values()
    ]
    assert scores == detector.anomaly_score(table.drop_columns("id")).tolist()


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.tsv", "a.parquet"])
@pytest.mark.parametrize("form", [None, "csv", "parquet"])
def test_every_format_gives_the_same_scores(forest, write, read_scores, tmp_path, name, form):
    write(tmp_path / "in" / name, 30)
    score_shards(forest[1], tmp_path / "in", tmp_path / "out", form=form, n_jobs=1)
    (written,) = (path for path in (tmp_path / "out").iterdir() if path.is_file())
    table = write(tmp_path / "plain.parquet", 30)
    expected = forest[0].anomaly_score(parquet.read_table(table).drop_columns("id"))
    assert list(read_scores(written).values()) == pytest.approx(expected.tolist(), rel=1e-12)


def test_a_second_run_leaves_everything_as_it_is(forest, shards, states, tmp_path):
    out = tmp_path / "out"
    first = score_shards(forest[1], shards, out, n_jobs=1)
    before = states(out)
    called = []
    again = score_shards(forest[1], shards, out, n_jobs=1, on_done=lambda name, answer: called.append((name, answer)))
    assert states(out) == before
    assert (again.n_there, again.n_rows, again.n_flagged) == (5, first.n_rows, first.n_flagged)
    assert called == [(f"part-{part}.parquet", None) for part in range(5)]


@pytest.mark.parametrize("damage", ["missing", "cut", "no record", "[]", "{}", '{"name": ', "touched", "changed"])
def test_only_what_is_missing_or_no_longer_true_is_scored_again(forest, shards, check, write, states, tmp_path, damage):
    out = tmp_path / "out"
    score_shards(forest[1], shards, out, n_jobs=1)
    before = states(out)
    target, record, shard = out / "part-2.parquet", out / "_esad" / "part-2.parquet.json", shards / "part-2.parquet"
    if damage == "missing":
        target.unlink()
    elif damage == "cut":
        os.truncate(target, 100)
    elif damage == "no record":
        record.unlink()
    elif damage[0] in "[{":
        record.write_text(damage)
    elif damage == "touched":
        os.utime(shard, ns=(0, 0))
    else:
        write(shard, 50, seed=77)
    found = score_shards(forest[1], shards, out, n_jobs=1)
    assert found.n_there == 4
    after = states(out)
    assert {name for name in after if after[name] != before[name]} == {"part-2.parquet"}
    check(shards, out)


def test_another_model_or_setting_scores_all_again_and_leaves_no_old_file(forest, shards, tmp_path):
    out = tmp_path / "out"
    score_shards(forest[1], shards, out, n_jobs=1)
    assert score_shards(forest[1], shards, out, n_jobs=1, form="csv").n_there == 0
    assert sorted(path.name for path in out.iterdir()) == ["_esad", *(f"part-{part}.csv" for part in range(5))]
    detector, _ = forest
    other = tmp_path / "other.esad"
    detector.calibrate(pa.table({"size": np.arange(50.0), "weight": np.arange(50.0)})).save(other)
    detector.calibration_ = None
    assert score_shards(other, shards, out, n_jobs=1, form="csv").n_there == 0
    assert score_shards(other, shards, out, n_jobs=1, form="csv").n_there == 5
    assert score_shards(other, shards, out, n_jobs=1, form="csv", alpha=0.2).n_there == 0


def test_alpha_flags_rows_by_their_p_value(forest, shards, tmp_path):
    detector, _ = forest
    rng = np.random.default_rng(3)
    detector.calibrate(pa.table({"size": rng.normal(size=99), "weight": rng.normal(size=99)})).save(tmp_path / "c.esad")
    detector.calibration_ = None
    score_shards(tmp_path / "c.esad", shards, tmp_path / "out", alpha=0.3, n_jobs=1)
    for path in (tmp_path / "out").glob("*.parquet"):
        table = parquet.read_table(path)
        assert table["anomaly"].to_pylist() == [p_value <= 0.3 for p_value in table["p_value"].to_pylist()]
    with pytest.raises(InputError, match="needs p-values"):
        score_shards(forest[1], shards, tmp_path / "x", alpha=0.3, n_jobs=1)


def test_bad_shards_are_set_aside_and_the_others_scored(forest, shards, check, tmp_path, write):
    out = tmp_path / "out"
    good = (shards / "part-1.parquet").read_bytes()
    (shards / "part-1.parquet").write_bytes(good[:-30])
    parquet.write_table(pa.table({"size": [1.0]}), shards / "part-3.parquet")
    found = score_shards(forest[1], shards, out, n_jobs=1)
    assert set(found.records) == {f"part-{part}.parquet" for part in (0, 2, 4)}
    assert "damaged or no Parquet file" in found.failures["part-1.parquet"]
    assert "lacks the column 'weight'" in found.failures["part-3.parquet"]
    assert not (out / "part-1.parquet").exists()
    (shards / "part-1.parquet").write_bytes(good)
    write(shards / "part-3.parquet", 5)
    again = score_shards(forest[1], shards, out, n_jobs=1)
    assert (again.n_there, again.failures) == (3, {})
    check(shards, out)


def test_a_shard_that_fails_leaves_no_scores_of_an_earlier_model(forest, shards, tmp_path):
    out = tmp_path / "out"
    score_shards(forest[1], shards, out, n_jobs=1)
    (shards / "part-0.parquet").write_bytes(b"PAR1 and nothing else")
    found = score_shards(forest[1], shards, out, n_jobs=1)
    assert set(found.failures) == {"part-0.parquet"}
    assert sorted(path.name for path in out.glob("part-*")) == [f"part-{part}.parquet" for part in range(1, 5)]


def test_a_shard_that_changes_while_it_is_read_is_set_aside(forest, shards, tmp_path, monkeypatch):
    opened = run.run_jobs

    def change_then_answer(engine, jobs, **options):
        os.utime(shards / "part-4.parquet", ns=(1, 1))
        yield from opened(engine, jobs, **options)

    monkeypatch.setattr(run, "run_jobs", change_then_answer)
    found = score_shards(forest[1], shards, tmp_path / "out", n_jobs=1)
    assert "has changed since the run began" in found.failures["part-4.parquet"]
    assert len(found.records) == 4


def test_a_full_disk_ends_the_run_and_the_next_goes_on(forest, shards, check, tmp_path, monkeypatch):
    out, scored = tmp_path / "out", []

    class Full(engines.InProcess):
        def submit(self, job):
            scored.append(job.shard.name)
            if len(scored) > 2:
                monkeypatch.setattr(ScoreWriter, "write", no_space)
            return super().submit(job)

    def no_space(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run, "start_engine", lambda name, function, **kwargs: Full(function))
    with pytest.raises(OutputError, match=r"No space left on device\. .*goes on \(2 of 5 files scored\)"):
        score_shards(forest[1], shards, out)
    assert len(scored) == 3
    assert len(list(out.glob("part-*"))) == 2
    monkeypatch.undo()
    assert score_shards(forest[1], shards, out, n_jobs=1).n_there == 2
    check(shards, out)


def test_a_shard_without_rows_gives_scores_without_rows(forest, write, tmp_path):
    write(tmp_path / "in" / "a.parquet", 0)
    (tmp_path / "in" / "b.csv").write_text("id,size,weight\n")
    found = score_shards(forest[1], tmp_path / "in", tmp_path / "out", n_jobs=1)
    assert (found.n_rows, found.failures) == (0, {})
    assert parquet.read_table(tmp_path / "out" / "a.parquet").column_names == ["id", "score", "anomaly"]
    assert (tmp_path / "out" / "b.csv").read_text() == "id,score,anomaly\n"


def test_drift_unknown_columns_and_lost_ids_are_told_per_shard(forest, tmp_path):
    rng = np.random.default_rng(1)
    columns = {"size": rng.normal(size=500), "weight": rng.normal(size=500)}
    (tmp_path / "in").mkdir()
    parquet.write_table(pa.table(columns | {"id": np.arange(500)}), tmp_path / "in" / "a.parquet")
    parquet.write_table(
        pa.table(columns | {"size": columns["size"] + 5, "shift": [1] * 500}), tmp_path / "in" / "b.parquet"
    )
    found = score_shards(forest[1], tmp_path / "in", tmp_path / "out", n_jobs=1)
    assert "size" in found.drifted["b.parquet"]
    assert "a.parquet" not in found.drifted
    assert found.records["b.parquet"].unknown == ("shift",)
    assert (found.records["a.parquet"].lost_id, found.records["b.parquet"].lost_id) == (None, "id")


def test_scores_of_shards_that_are_gone_are_told(forest, shards, tmp_path):
    score_shards(forest[1], shards, tmp_path / "out", n_jobs=1)
    (shards / "part-4.parquet").unlink()
    assert score_shards(forest[1], shards, tmp_path / "out", n_jobs=1).leftovers == ("part-4.parquet",)


def test_what_cannot_be_used_is_refused_before_anything_is_written(forest, shards, tmp_path):
    with pytest.raises(InputError, match=r"one of local, ray\. Got 'dask'"):
        score_shards(forest[1], shards, tmp_path / "out", engine="dask")
    with pytest.raises(ModelFileError):
        score_shards(shards / "part-0.parquet", shards, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="it is a file"):
        score_shards(forest[1], shards, tmp_path / "file")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "part-3.parquet").write_text("mine")
    with pytest.raises(OutputError, match="is not of an earlier run"):
        score_shards(forest[1], shards, tmp_path / "mine")
    assert (tmp_path / "mine" / "part-3.parquet").read_text() == "mine"
