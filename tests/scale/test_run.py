"""Runs over shards: nothing lost, nothing doubled, nothing done twice, one bad file no harm to the others."""

import errno
import fcntl
import itertools
import json
import os
import signal
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from esad import IsolationForest
from esad.data.scores import ScoreWriter
from esad.errors import InputError, ModelFileError, OutputError
from esad.scale import engines, run, score_shards
from esad.scale.engines import MAX_ATTEMPTS, Engine, LostWorker, answers
from esad.scale.records import Record
from esad.scale.work import Answer, attempt


def states(folder):
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.glob("part-*")}


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


def test_a_second_run_leaves_everything_as_it_is(forest, shards, tmp_path):
    out = tmp_path / "out"
    first = score_shards(forest[1], shards, out, n_jobs=1)
    before = states(out)
    called = []
    again = score_shards(forest[1], shards, out, n_jobs=1, on_done=lambda name, answer: called.append((name, answer)))
    assert states(out) == before
    assert (again.n_there, again.n_rows, again.n_flagged) == (5, first.n_rows, first.n_flagged)
    assert called == [(f"part-{part}.parquet", None) for part in range(5)]


@pytest.mark.parametrize("damage", ["missing", "cut", "no record", "[]", "{}", '{"name": ', "touched", "changed"])
def test_only_what_is_missing_or_no_longer_true_is_scored_again(forest, shards, check, write, tmp_path, damage):
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
    opened = run.answers

    def change_then_answer(engine, jobs):
        os.utime(shards / "part-4.parquet", ns=(1, 1))
        yield from opened(engine, jobs)

    monkeypatch.setattr(run, "answers", change_then_answer)
    found = score_shards(forest[1], shards, tmp_path / "out", n_jobs=1)
    assert "has changed since the run began" in found.failures["part-4.parquet"]
    assert len(found.records) == 4


def test_a_full_disk_ends_the_run_and_the_next_goes_on(forest, shards, check, tmp_path, monkeypatch):
    out, scored = tmp_path / "out", []

    class Full(engines.InProcess):
        def wait(self):
            scored.append(self._job.name)
            if len(scored) > 2:
                monkeypatch.setattr(ScoreWriter, "write", no_space)
            return super().wait()

    def no_space(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run, "engine_for", lambda *args, **kwargs: Full())
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


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_warnings_of_workers_are_given_once(shards, tmp_path, capfd, n_jobs):
    unnamed = IsolationForest(n_trees=5, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2)))
    unnamed.notes_ = {"id_column": "id"}
    unnamed.save(tmp_path / "unnamed.esad")
    with pytest.warns(UserWarning, match="fitted without feature names") as given:
        found = score_shards(tmp_path / "unnamed.esad", shards, tmp_path / "out", n_jobs=n_jobs)
    assert (len(given), len(found.records), capfd.readouterr().err) == (1, 5, "")


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


# ---------------------------------------------------------------------- workers


class Fake(Engine):
    """Answers by a list for each job: a reason for dying, busy, or done."""

    n_slots = 2

    def __init__(self, stories):
        self.stories, self.running, self.most = {name: list(story) for name, story in stories.items()}, [], 0

    def start(self, job):
        self.running.append(job)
        self.most = max(self.most, len(self.running))

    def wait(self):
        job = self.running.pop(0)
        story = self.stories[job.name].pop(0)
        return job, LostWorker(story) if story not in ("busy", "done") else Answer(story)


class Named:
    def __init__(self, name):
        self.name = name


def test_a_shard_whose_worker_died_is_tried_again_and_set_aside_in_the_end(monkeypatch):
    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.0)
    stories = {
        "a": ["done"],
        "b": ["killed", "killed", "done"],
        "c": ["killed"] * MAX_ATTEMPTS,
        "d": ["busy"] * 9 + ["done"],
    }
    engine = Fake(stories)
    found = {job.name: answer for job, answer in answers(engine, [Named(name) for name in stories])}
    assert {name: answer.state for name, answer in found.items()} == {
        "a": "done",
        "b": "done",
        "c": "failed",
        "d": "done",
    }
    assert found["c"].reason == f"It has cost {MAX_ATTEMPTS} workers: killed."
    assert engine.most == 2
    assert not any(engine.stories.values())


def test_a_shard_that_another_run_is_at_work_on_is_waited_for(forest, shards, check, tmp_path, monkeypatch):
    out, waited = tmp_path / "out", []
    (out / "_esad").mkdir(parents=True)
    other = (out / "_esad" / "part-3.parquet.json.lock").open("a")
    fcntl.flock(other, fcntl.LOCK_EX)

    def sleep(seconds):
        waited.append(seconds)
        assert not (out / "part-3.parquet").exists()
        if len(waited) == 3:
            other.close()

    monkeypatch.setattr(engines.time, "sleep", sleep)
    found = score_shards(forest[1], shards, out, n_jobs=1)
    assert (len(waited), found.failures) == (3, {})
    check(shards, out)


def test_a_worker_finds_what_another_run_has_done_and_a_model_that_was_exchanged(forest, shards, tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(run, "answers", lambda engine, given: jobs.extend(given) or ())
    score_shards(forest[1], shards, tmp_path / "out", n_jobs=1)
    assert [attempt(job).state for job in jobs] == ["done"] * 5
    before = states(tmp_path / "out")
    assert attempt(jobs[0]) == Answer("done", Record.read(jobs[0].record))
    assert states(tmp_path / "out") == before
    os.utime(shards / "part-0.parquet")
    exchanged = type(jobs[0])(**vars(jobs[0]) | {"model_hash": "0", "identity": "1", "stamp": run.stamp(jobs[0].path)})
    assert "is not the one that the run began with" in attempt(exchanged).reason


def test_two_processes_give_the_bytes_of_one(forest, shards, check, tmp_path):
    (shards / "part-9.parquet").write_bytes(b"nothing")
    one = score_shards(forest[1], shards, tmp_path / "one", n_jobs=1)
    two = score_shards(forest[1], shards, tmp_path / "two", n_jobs=2)
    assert two.failures == one.failures
    for path in (tmp_path / "one").glob("*.parquet"):
        assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.extra
def test_killed_at_any_moment_the_same_call_ends_with_every_row_once(forest, shards, check, write, tmp_path):
    """Sixty moments: each child gets a little farther, or is killed before it could."""
    for part in range(40):
        write(shards / f"part-{part:02d}.parquet", 300, seed=part)
    rng = np.random.default_rng(0)
    out = tmp_path / "out"
    n_rounds = n_whole = 0
    for moment in rng.uniform(0.0, 0.12, size=60):
        child = os.fork()
        if child == 0:
            score_shards(forest[1], shards, out, n_jobs=1)
            os._exit(0)
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        n_rounds += os.WIFSIGNALED(status)
        n_whole += os.WIFEXITED(status)
        for path in out.glob("part-*"):
            parquet.read_table(path)  # whole, whenever one looks
    assert n_rounds > 10
    found = score_shards(forest[1], shards, out, n_jobs=1)
    assert found.failures == {}
    for leftover in out.rglob(".esad-*"):  # a hard kill may leave the temporary file, which nobody reads
        leftover.unlink()
    check(shards, out)
