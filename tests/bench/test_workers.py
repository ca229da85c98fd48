"""Back ends: the same grid by processes or by Ray gives the same results; a worker that dies is told of."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from joblib import delayed
from support import worker_of

from esad.bench.grid import read
from esad.bench.run import run
from esad.bench.store import Store
from esad.bench.workers import MAX_ATTEMPTS, _RayTasks
from esad.cli.app import run as esad

EXPERIMENT = """
name = "tiny"
title = "A tiny experiment"
data = ["wine"]
seeds = 12

[scenario]
kind = "table"
labelled_ratio = 0.05

[[variants]]
name = "Forest"
method = "iforest"
settings = { n_trees = 40 }
"""


linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for workers in Linux' process table")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(EXPERIMENT)
    return path


def command(file, store, backend):
    words = ["--store", str(store), "--jobs", "2", "--backend", backend]
    return [sys.executable, "-m", "esad", "bench", "run", str(file), *words]


@pytest.mark.extra
@pytest.mark.parametrize("backend", ["loky", "ray"])
def test_two_workers_give_the_results_of_one(backend, file, tmp_path):
    with Store(tmp_path / "one.db") as store:
        run([cell for _, cell in read(file).cells()], store)
        alone = {found.cell: (found.auc, found.ap) for found in store.results()}
    subprocess.run(command(file, tmp_path / "two.db", backend), check=True, capture_output=True, timeout=300)
    with Store(tmp_path / "two.db") as store:
        assert {found.cell: (found.auc, found.ap) for found in store.results()} == alone


def kill_a_worker(file, store, backend, name):
    """Start a longer run, kill one of its workers after the first result, and let it come to its end."""
    file.write_text(EXPERIMENT.replace("seeds = 12", "seeds = 30").replace("n_trees = 40", "n_trees = 100"))
    process = subprocess.Popen(command(file, store, backend), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    worker, deadline = None, time.monotonic() + 120
    while worker is None and time.monotonic() < deadline:
        time.sleep(0.05)
        if store.exists() and Store(store).finished():
            worker = worker_of(process.pid, name)
    os.kill(worker, signal.SIGKILL)
    said, warned = process.communicate(timeout=120)
    return process.returncode, said, warned


@linux
def test_after_a_killed_worker_the_same_command_finishes(file, tmp_path):
    store = tmp_path / "s.db"
    code, said, warned = kill_a_worker(file, store, "loky", "LokyProcess")
    assert code == 1
    assert "could not be run: A worker process died" in warned
    assert "Traceback" not in warned
    assert "The same command goes on." in said
    with Store(store) as opened:
        n_done = len(opened.finished())
        assert 0 < n_done < 30
        assert not opened._database.execute("select * from claims").fetchall()
        outcome = run([cell for _, cell in read(file).cells()], opened)
        assert (outcome.n_done, outcome.failures) == (30 - n_done, [])


@linux
@pytest.mark.extra
def test_cells_of_a_killed_ray_worker_are_run_again(file, tmp_path):
    code, said, warned = kill_a_worker(file, tmp_path / "s.db", "ray", "ray::_attempt")
    assert (code, warned) == (0, "")
    assert "30 done now" in said
    with Store(tmp_path / "s.db") as opened, Store(tmp_path / "one.db") as alone:
        run([cell for _, cell in read(file).cells()], alone)
        again, once = ({found.cell: (found.auc, found.ap) for found in store.results()} for store in (opened, alone))
        assert again == once
        assert not opened._database.execute("select * from claims").fetchall()


class WorkerDiedError(Exception):
    """As Ray says that a worker is gone."""


class FakeRay:
    """Runs a task when it is waited for; workers die on the tasks named, so many times each."""

    exceptions = SimpleNamespace(RayError=WorkerDiedError, RayTaskError=KeyError)

    def __init__(self, deaths):
        self.deaths = dict(deaths)

    def remote(self, **options):
        assert options == {"num_cpus": 1, "max_retries": 0}
        return lambda function: SimpleNamespace(remote=lambda *args: (function, args, object()))

    def wait(self, references, num_returns):
        return references[:1], references[1:]

    def get(self, reference):
        function, args, _ = reference
        if self.deaths.get(args, 0) > 0:
            self.deaths[args] -= 1
            raise WorkerDiedError("the worker is gone\nat length")
        return function(*args)


def test_a_task_that_costs_its_worker_is_run_again_and_given_up_in_the_end():
    def lost(reason, number):
        return reason, number

    ray = FakeRay({(2,): MAX_ATTEMPTS - 1, (3,): MAX_ATTEMPTS})
    found = list(_RayTasks(ray, 2, lost)(delayed(abs)(number) for number in range(6)))
    reason = f"It has cost {MAX_ATTEMPTS} workers: the worker is gone"
    assert sorted(found, key=str) == [(reason, 3), 0, 1, 2, 4, 5]


def test_an_unknown_back_end_is_refused(file, tmp_path, capfd):
    assert esad(["bench", str(file), "--store", str(tmp_path / "s.db"), "--backend", "slurm"]) == 2
    shown = capfd.readouterr().err
    assert "must be one of loky, ray, threading. Got 'slurm'" in shown
    assert shown.count("\n") == 1


def test_a_missing_ray_is_told_with_what_to_install(file, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    assert esad(["bench", str(file), "--store", str(tmp_path / "s.db"), "--backend", "ray", "--jobs", "2"]) != 0
    assert "pip install 'esad[ray]'" in capfd.readouterr().err


def test_a_cluster_that_cannot_be_reached_is_told_in_one_line(file, tmp_path, capfd, monkeypatch):
    def init(**options):
        raise ConnectionError("Could not find any running Ray instance\nat length")

    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    assert esad(["bench", str(file), "--store", str(tmp_path / "s.db"), "--backend", "ray", "--jobs", "2"]) == 2
    shown = capfd.readouterr().err
    assert "Ray cannot be used at head:6379: Could not find any running Ray instance" in shown
    assert shown.count("\n") == 1
