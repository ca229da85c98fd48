"""Real processes: workers and drivers that are killed, two drivers at once, on both engines."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import worker_of

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for workers in Linux' process table"),
]
WORKER = {"local": "answer_requests", "ray": "ray::_call_alone"}
N_SHARDS = 16


@pytest.fixture
def long(shards, write):
    """Enough rows that a worker can be caught at work."""
    for path in shards.iterdir():
        path.unlink()
    for part in range(N_SHARDS):
        write(shards / f"part-{part:02d}.parquet", 60_000, seed=part)
    return shards


def start(model, shards, out, *words):
    command = [sys.executable, "-m", "esad", "score", str(model), str(shards), "--out", str(out), "--json", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(condition, process):
    end = time.monotonic() + 300  # Ray on a busy machine
    while not (found := condition()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def n_written(out):
    return len(list(out.glob("part-*")))


def without_leftovers(out):
    for leftover in out.rglob(".esad-*"):  # of the killed; nobody reads them
        leftover.unlink()


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_after_a_killed_worker_and_a_killed_driver_every_row_is_there_once(engine, forest, long, check, tmp_path):
    out = tmp_path / "out"
    words = ("--engine", engine, "--jobs", "2")
    process = start(forest[1], long, out, *words)
    wait_for(lambda: n_written(out) >= 2, process)
    os.kill(wait_for(lambda: worker_of(process.pid, WORKER[engine]), process), signal.SIGKILL)
    n_then = n_written(out)
    wait_for(lambda: n_written(out) >= n_then + 3, process)  # the run goes on without it
    process.kill()
    process.communicate()
    assert 0 < n_written(out) < N_SHARDS
    again = start(forest[1], long, out, *words)
    said, warned = again.communicate(timeout=300)
    assert again.returncode == 0, warned
    assert f'"n_scored": {N_SHARDS}' in said
    without_leftovers(out)
    check(long, out)


def test_two_drivers_at_once_share_the_work(forest, long, check, tmp_path):
    out = tmp_path / "out"
    drivers = [start(forest[1], long, out, "--engine", "local", "--jobs", "2") for _ in range(2)]
    for driver in drivers:
        _, warned = driver.communicate(timeout=180)
        assert driver.returncode == 0, warned
    check(long, out)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_driver_that_is_asked_to_end_leaves_no_worker_and_nothing_half_written(number, forest, long, tmp_path):
    out = tmp_path / "out"
    process = start(forest[1], long, out, "--engine", "local", "--jobs", "2")
    wait_for(lambda: n_written(out) >= 2, process)
    worker = worker_of(process.pid, WORKER["local"])
    process.send_signal(number)
    said, warned = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + number, "")
    assert warned.startswith("interrupted: ")
    assert warned.endswith("The same command goes on.\n")
    assert warned.count("\n") == 1
    assert not Path("/proc", str(worker)).exists()
    assert not list(out.rglob(".esad-*"))
