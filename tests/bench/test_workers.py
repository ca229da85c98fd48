"""Back ends: the same grid by processes or by Ray gives the same results; a worker that dies is told of."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from esad.bench.grid import read
from esad.bench.run import run
from esad.bench.store import Store
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
RAY = pytest.param("ray", marks=pytest.mark.extra)
WORKER = {"loky": "LokyProcess", "ray": "ray::PoolActor"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(EXPERIMENT)
    return path


def command(file, store, backend):
    words = ["--store", str(store), "--jobs", "2", "--backend", backend]
    return [sys.executable, "-m", "esad", "bench", "run", str(file), *words]


def worker_of(process, name):
    """The number of a process below `process` with such a command, by Linux' process table."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                names[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    for number in [number for number, words in names.items() if name in words]:
        above = number
        while above in parents and above != process:
            above = parents[above]
        if above == process:
            return number
    return None


@pytest.mark.extra
@pytest.mark.parametrize("backend", ["loky", "ray"])
def test_two_workers_give_the_results_of_one(backend, file, tmp_path):
    with Store(tmp_path / "one.db") as store:
        run([cell for _, cell in read(file).cells()], store)
        alone = {found.cell: (found.auc, found.ap) for found in store.results()}
    subprocess.run(command(file, tmp_path / "two.db", backend), check=True, capture_output=True, timeout=300)
    with Store(tmp_path / "two.db") as store:
        assert {found.cell: (found.auc, found.ap) for found in store.results()} == alone


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for workers in Linux' process table")
@pytest.mark.parametrize("backend", ["loky", RAY])
def test_after_a_killed_worker_the_same_command_finishes(backend, file, tmp_path):
    file.write_text(EXPERIMENT.replace("seeds = 12", "seeds = 30").replace("n_trees = 40", "n_trees = 100"))
    store = tmp_path / "s.db"
    process = subprocess.Popen(command(file, store, backend), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    worker, deadline = None, time.monotonic() + 120
    while worker is None and time.monotonic() < deadline:
        time.sleep(0.05)
        if store.exists() and Store(store).finished():
            worker = worker_of(process.pid, WORKER[backend])
    os.kill(worker, signal.SIGKILL)
    said, warned = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "could not be run: A worker process died" in warned
    assert "Traceback" not in warned
    assert "The same command goes on." in said
    with Store(store) as opened:
        n_done = len(opened.finished())
        assert 0 < n_done < 30
        assert not opened._database.execute("select * from claims").fetchall()
        outcome = run([cell for _, cell in read(file).cells()], opened)
        assert (outcome.n_done, outcome.failures) == (30 - n_done, [])


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
    monkeypatch.setitem(sys.modules, "ray.util.joblib.ray_backend", SimpleNamespace(RayBackend=object))
    assert esad(["bench", str(file), "--store", str(tmp_path / "s.db"), "--backend", "ray", "--jobs", "2"]) == 2
    shown = capfd.readouterr().err
    assert "Ray cannot be used at head:6379: Could not find any running Ray instance" in shown
    assert shown.count("\n") == 1
