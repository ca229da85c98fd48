"""Workers: shards whose worker dies or that another run is at work on; several give what one gives."""

import fcntl
import math
import os
import signal
import time
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
from pyarrow import parquet

from esad import IsolationForest
from esad.core.worker import LostWorker
from esad.io.dialect import Reading
from esad.scale import engines, run, score_shards
from esad.scale.engines import MAX_ATTEMPTS, Engine, run_jobs, start_engine
from esad.scale.run import make_job
from esad.scale.shards import Shard
from esad.scale.work import JobResult, Record, RunSettings, run_job, stamp_file


class Fake(Engine):
    """Answers by a list for each job: a reason for dying, busy, or done."""

    n_slots = 2

    def __init__(self, stories):
        self.stories, self.n_asked = {name: list(story) for name, story in stories.items()}, 0

    def submit(self, job):
        self.n_asked += 1
        story, done = self.stories[job.name].pop(0), Future()
        if story in ("busy", "done"):
            done.set_result(JobResult(story))
        else:
            done.set_exception(LostWorker(story))
        return done


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
    ended = run_jobs(engine, map(Named, stories), is_busy=lambda answer: answer.state == "busy")
    found = {job.name: answer for job, answer in ended}
    assert str(found.pop("c")) == f"It has cost {MAX_ATTEMPTS} workers: killed."
    assert {name: answer.state for name, answer in found.items()} == dict.fromkeys("abd", "done")
    assert engine.n_asked == 17
    assert not any(engine.stories.values())


def test_workers_that_a_job_has_cost_do_not_count_for_a_later_one_in_its_place():
    engine, job = Fake({"a": ["killed"] * 6 + ["done"] * 3}), Named("a")
    engine.n_slots = 1
    assert [answer.state for _, answer in run_jobs(engine, [job] * 3)] == ["done"] * 3


@pytest.mark.parametrize("name", ["local", "threads"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_engine_gives_results_and_raises_what_the_function_raises(name, n_jobs):
    with start_engine(name, math.sqrt, n_jobs=n_jobs) as engine:
        assert dict(run_jobs(engine, range(10))) == {number: math.sqrt(number) for number in range(10)}
        with pytest.raises(ValueError, match="math domain"):
            list(run_jobs(engine, [4.0, -1.0]))


def test_jobs_are_taken_when_a_worker_is_free():
    taken = []
    jobs = (taken.append(number) or number for number in range(10))
    with start_engine("threads", math.sqrt, n_jobs=2) as engine:
        next(run_jobs(engine, jobs))
        assert len(taken) <= 3


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


def test_a_worker_finds_what_another_run_has_done_and_a_model_that_was_exchanged(
    forest, shards, states, tmp_path, monkeypatch
):
    jobs = []
    monkeypatch.setattr(run, "run_jobs", lambda engine, given, **options: jobs.extend(given) or ())
    score_shards(forest[1], shards, tmp_path / "out", n_jobs=1)
    assert [run_job(job).state for job in jobs] == ["done"] * 5
    before = states(tmp_path / "out")
    assert run_job(jobs[0]) == JobResult("done", Record.read(jobs[0].record))
    assert states(tmp_path / "out") == before
    os.utime(shards / "part-0.parquet")
    settings = replace(jobs[0].settings, model_hash="0")
    exchanged = replace(jobs[0], identity="1", stamp=stamp_file(jobs[0].shard.path), settings=settings)
    assert "is not the one that the run began with" in run_job(exchanged).reason


@pytest.mark.parametrize(
    ("said", "identity"),
    [
        ({}, "19e7a1b451f51390a18681ceae8c3a7a"),
        ({"id_column": "id", "last_rank": 3, "decimal": ","}, "7fd7537e95a2b3c8c686cf38b8f2522e"),
    ],
)
def test_scores_that_an_earlier_version_has_made_go_on_counting(tmp_path, said, identity):
    file = tmp_path / "a.csv"
    file.write_text("size\n1\n")
    os.utime(file, ns=(0, 1_700_000_000_000_000_001))
    reading = Reading(decimal=said.pop("decimal", None), max_unpacked=9)  # which says nothing of the scores
    given = {"id_column": None, "last_rank": None} | said
    settings = RunSettings(model="m.esad", model_hash="ab" * 32, drift_level=0.01, reading=reading, **given)
    job = make_job(Shard("a.csv", str(file), str(tmp_path / "scores" / "a.csv")), tmp_path / "scores", settings)
    assert job.identity == identity


def test_two_processes_give_the_bytes_and_warnings_of_one(shards, tmp_path, capfd):
    unnamed = IsolationForest(n_trees=5, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2)))
    unnamed.notes_ = {"id_column": "id"}
    unnamed.save(tmp_path / "unnamed.esad")
    (shards / "part-9.parquet").write_bytes(b"nothing")
    failures = []
    for n_jobs, name in ((1, "one"), (2, "two")):
        with pytest.warns(UserWarning, match="fitted without feature names") as given:
            found = score_shards(tmp_path / "unnamed.esad", shards, tmp_path / name, n_jobs=n_jobs)
        assert (len(given), len(found.records), capfd.readouterr().err) == (1, 5, "")
        failures.append(found.failures)
    assert failures[0] == failures[1] != {}
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
