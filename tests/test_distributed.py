"""Two processes train what one trains: losses and scores of every deep method; kills, errors, one voice."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import distributed_fits
import numpy as np
import pytest
import torch

import esad
from esad.core.processes import BatchShare, Processes
from esad.core.random import MemberRandom
from esad.detectors import streaming
from esad.errors import InputError
from esad.io.files import read_table
from esad.persist import bundle

TOLERANCE = 1e-6  # in float64: what another order of summation leaves after the steps of a training
HERE = Path(__file__).resolve().parent


def launched(*args, n_processes=2, options=(), **kwargs):
    """Run under torch's launcher."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", n_processes, *options, *args]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(
        list(map(str, command)),
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **kwargs,
    )


# ---------------------------------------------------------------------- what one process can tell


@pytest.mark.parametrize("draw", ["normal", "uniform", "integers"])
def test_parts_draw_what_the_whole_draws(draw):
    args = (7,) if draw == "integers" else ()
    whole = getattr(MemberRandom([3, 4]), draw)(*args, 12, 5)
    for index in range(3):
        part = getattr(MemberRandom([3, 4]).for_part(BatchShare(index, 3)), draw)(*args, 4, 5)
        assert torch.equal(part, whole[:, index::3])


def test_rows_that_follow_each_other_are_taken_apart_alike():
    unlabelled, labelled = torch.arange(8)[None], torch.arange(100, 104)[None]
    part = BatchShare(1, 2)
    together = part.of(torch.cat([unlabelled, labelled], dim=1))
    assert torch.equal(together, torch.cat([part.of(unlabelled), part.of(labelled)], dim=1))


def test_without_a_store_the_first_process_speaks():
    assert Processes(0, 2).is_first_to_fail()
    assert not Processes(1, 2).is_first_to_fail()


def test_a_method_without_steps_cannot_be_shared(monkeypatch):
    monkeypatch.setattr("esad.core.processes.current", lambda: Processes(0, 2))
    with pytest.raises(InputError, match="Run it without torchrun"):
        esad.IsolationForest(random_state=0).fit(np.zeros((30, 2)))


# ---------------------------------------------------------------------- what two processes do


@pytest.mark.extra
def test_two_processes_train_as_one(tmp_path):
    with launched(HERE / "distributed_fits.py", tmp_path) as process:
        _, err = process.communicate(timeout=300)
    alone = distributed_fits.fit_all()
    assert process.returncode == 0, err
    with np.load(tmp_path / "found.npz") as found:
        assert set(found) == set(alone)
        for name, expected in alone.items():
            if "in parts" not in name:  # batch norm sees one part at a time, of whichever rows
                np.testing.assert_allclose(found[name], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


@pytest.mark.extra
def test_two_processes_that_read_their_own_parts_train_as_one(tmp_path, monkeypatch):
    """Each surveys every other part; in float64 the scores are those of one process within TOLERANCE."""
    for name in ("N_SLOTS", "N_HELD_OUT"):
        monkeypatch.setattr(streaming, name, getattr(streaming, name))  # set by the fits, and set back
    distributed_fits.write_parts(tmp_path)
    with launched(HERE / "distributed_fits.py", tmp_path) as process:
        _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    alone = distributed_fits.fit_streams(tmp_path)
    with np.load(tmp_path / "found.npz") as found:
        assert set(found) == set(alone)
        for name, expected in alone.items():
            np.testing.assert_allclose(found[name], expected, rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)


def workers(process):
    """Process ids of what the launcher has started."""
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    X, y = distributed_fits.table()
    words = {-1: "anomaly", 0: "", 1: "normal"}
    lines = [",".join([*map(repr, row.tolist()), words[label]]) for row, label in zip(X, y, strict=True)]
    path = tmp_path_factory.mktemp("table") / "table.csv"
    path.write_text("\n".join(["a,b,c,d,e,label", *lines]))
    return path


def long_fit(table, out):
    settings = ("--set", "n_epochs=120", "--set", "hidden=[8]", "--set", "latent=2", "--checkpoint-every", "0.05")
    return "-m", "esad", "fit", table, "-l", "label", "--out", out, "--members", "1", *settings


def scores(model, table):
    return esad.load(model).anomaly_score(read_table(table).drop_columns(["label"]))


@pytest.fixture(scope="module")
def uninterrupted(table):
    out = table.with_name("whole.esad")
    with launched(*long_fit(table, out)) as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return scores(out, table)


@pytest.mark.extra
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_is_started_again_and_the_scores_are_the_same(table, uninterrupted, tmp_path, victim):
    model, checkpoint = tmp_path / "broken.esad", tmp_path / "broken.esad.checkpoint"
    with launched(*long_fit(table, model), options=("--max-restarts", "2")) as process:
        end = time.monotonic() + 60
        while not (checkpoint.exists() and bundle.read(checkpoint)[0]["step"] > 50):
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.01)
        os.kill(workers(process)[victim], signal.SIGKILL)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "resumed at step" in out
    assert not checkpoint.exists()
    np.testing.assert_array_equal(scores(model, table), uninterrupted)


@pytest.mark.extra
def test_a_mistake_is_told_once(table, tmp_path):
    args = ("-m", "esad", "fit", table, "--label-column", "lable", "--out", tmp_path / "m.esad")
    with launched(*args) as process:
        _, err = process.communicate(timeout=120)
    assert err.count("error: ") == 1
    assert "has no column 'lable'" in err
    assert err.count("exitcode  : 2") == 2 or "exitcode: 2" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extra
def test_other_commands_and_methods_without_steps_say_so_in_one_line(table, tmp_path):
    for command, line in (
        (("inspect", table), "torchrun is for esad fit"),
        (("fit", table, "--method", "iforest", "--ignore", "label", "--out", tmp_path / "m.esad"), "without torchrun"),
    ):
        with launched("-m", "esad", *command) as process:
            _, err = process.communicate(timeout=120)
        assert err.count("error: ") == 1
        assert line in err
