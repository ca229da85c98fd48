"""Back ends: the same grid by processes or by Ray gives the same results; a worker that dies is told of."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import worker_of

from esad.bench.grid import read_experiment
from esad.bench.run import _run_group, run
from esad.bench.store import ResultStore
from esad.cli.app import run as esad
from esad.core.worker import LostWorker
from esad.scale import engines

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
    with ResultStore(tmp_path / "one.db") as store:
        run([cell for _, cell in read_experiment(file).cells()], store)
        alone = {found.cell: (found.auc, found.ap) for found in store.results()}
    subprocess.run(command(file, tmp_path / "two.db", backend), check=True, capture_output=True, timeout=300)
    with ResultStore(tmp_path / "two.db") as store:
        assert {found.cell: (found.auc, found.ap) for found in store.results()} == alone


def kill_a_worker(file, store, backend, name):
    """Start a longer run, kill one of its workers after the first result, and let it come to its end."""
    file.write_text(EXPERIMENT.replace("seeds = 12", "seeds = 16").replace("n_trees = 40", "n_trees = 150"))
    process = subprocess.Popen(command(file, store, backend), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    worker, deadline = None, time.monotonic() + 120
    while worker is None and time.monotonic() < deadline:
        time.sleep(0.05)
        if store.exists() and ResultStore(store).finished_cells():
            worker = worker_of(process.pid, name)
    os.kill(worker, signal.SIGKILL)
    said, warned = process.communicate(timeout=120)
    return process.returncode, said, warned


@linux
@pytest.mark.extra
@pytest.mark.parametrize(("backend", "name"), [("loky", "answer_requests"), ("ray", "ray::_call_alone")])
def test_cells_of_a_killed_worker_are_run_again(backend, name, file, tmp_path):
    code, said, warned = kill_a_worker(file, tmp_path / "s.db", backend, name)
    assert code == 0
    assert [line for line in warned.splitlines() if not re.search(r": (\d+ %|under way)", line)] == []  # how far it is
    assert "16 done now" in said
    with ResultStore(tmp_path / "s.db") as opened, ResultStore(tmp_path / "one.db") as alone:
        run([cell for _, cell in read_experiment(file).cells()], alone)
        again, once = ({found.cell: (found.auc, found.ap) for found in store.results()} for store in (opened, alone))
        assert again == once
        assert not opened._database.execute("select * from claims").fetchall()


def test_a_cell_that_costs_several_workers_fails_alone(file, tmp_path, monkeypatch):
    """As threads, which look after worker processes too: how those die and are replaced has tests of its own."""
    monkeypatch.setattr("esad.bench.run._run_group", deadly(_run_group))
    with ResultStore(tmp_path / "s.db") as store:
        outcome = run([cell for _, cell in read_experiment(file).cells()], store, n_jobs=2, backend="threading")
        assert (outcome.n_done, outcome.n_left) == (11, 0)
        assert [failure.cell.seed for failure in outcome.failures] == [3]
        assert outcome.failures[0].reason == f"It has cost {engines.MAX_ATTEMPTS} workers: it was killed."


def deadly(attempt):
    """Workers that die of the cell with seed 3."""

    def attempt_or_die(cells, **options):
        if cells[0].seed == 3:
            raise LostWorker("it was killed")
        return attempt(cells, **options)

    return attempt_or_die


def test_an_unknown_back_end_is_refused(file, tmp_path, capfd):
    assert esad(["bench", str(file), "--store", str(tmp_path / "s.db"), "--backend", "slurm"]) == 2
    shown = capfd.readouterr().err
    assert "must be one of loky, ray, threading. Got 'slurm'" in shown
    assert shown.count("\n") == 1


def test_a_missing_ray_is_told_with_what_to_install(file, tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # importing it fails
    assert esad(["bench", str(file), "--store", str(tmp_path / "s.db"), "--backend", "ray", "--jobs", "2"]) != 0
    assert "pip install '.[ray]'" in capfd.readouterr().err


def test_a_cluster_that_cannot_be_reached_is_told_in_one_line(file, tmp_path, capfd, monkeypatch):
    def init(**options):
        raise ConnectionError("Could not find any running Ray instance\nat length")

    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=init))
    assert esad(["bench", str(file), "--store", str(tmp_path / "s.db"), "--backend", "ray", "--jobs", "2"]) == 2
    shown = capfd.readouterr().err
    assert "Ray cannot be used at head:6379: Could not find any running Ray instance" in shown
    assert shown.count("\n") == 1
