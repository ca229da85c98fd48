"""Devices that are here are taken, all others refused in a few words; work side by side."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from esad import ESAD
from esad.errors import InputError
from esad.train import runtime
from esad.train.runtime import compile_network, free_cores, resolve_device, run_in_parallel


def test_the_cpu_is_always_here():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda")


@pytest.mark.parametrize(
    "device",
    ["gpu", "meta", "xla", "hpu", "mkldnn", "", "CPU", " cpu", "cuda:-1", "cuda:", None, 0, torch.device("cpu")],
)
def test_other_devices_are_refused(device):
    with pytest.raises(InputError, match=r"^`device` must be 'auto', 'cpu', 'cuda' or .* Got .*\.$") as caught:
        resolve_device(device)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(("n_found", "words"), [(0, "no CUDA devices."), (1, "1 CUDA device."), (2, "2 CUDA devices.")])
def test_a_device_that_is_not_here_is_named_with_what_is(monkeypatch, n_found, words):
    def empty(*args, **kwargs):
        raise RuntimeError("CUDA error: invalid device ordinal\nand much more")

    monkeypatch.setattr(torch, "empty", empty)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_found)
    with pytest.raises(InputError, match=f"Got 'cuda:9', which is not here: torch sees {words}$"):
        resolve_device("cuda:9")


def test_items_in_parallel_all_run_with_one_torch_thread_each():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = {}
        run_in_parallel(lambda item: seen.__setitem__(item, torch.get_num_threads()), range(50))
        assert seen == dict.fromkeys(range(50), 1)
        assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError):
            run_in_parallel(lambda item: 1 // (item - 3), range(10))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_what_the_compiler_lacks_is_one_line():
    class MissingError(RuntimeError):
        __module__ = "torch._inductor.exc"

    network = torch.nn.Linear(1, 1)
    with (
        pytest.raises(InputError, match=r"`compiled` cannot be used here: no g\+\+ found\. Leave it out"),
        compile_network(network),
    ):
        raise MissingError("no g++ found.\nMore about it")
    assert "forward" not in vars(network)
    with pytest.raises(ZeroDivisionError), compile_network(network):
        raise ZeroDivisionError


@pytest.mark.parametrize(("first", "wanted"), [("esad", "PASSIVE"), ("torch", "None")])
def test_threads_sleep_while_they_wait_unless_torch_was_there_first(first, wanted):
    script = f"import {first}; import esad, os; print(os.environ.get('OMP_WAIT_POLICY'))"
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=clean)
    assert done.stdout.strip() == wanted


@pytest.mark.skipif(not Path("/proc/loadavg").is_file(), reason="the system does not tell what runs")
def test_busy_cores_are_not_free():
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        deadline = time.monotonic() + 20
        while free_cores() > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert free_cores() == 1
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_a_table_gives_the_same_bits_with_one_thread_and_with_two(rows, monkeypatch):
    monkeypatch.setattr(runtime, "PRODUCTS_PER_THREAD", 1)
    before, scores = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            scores.append(ESAD(n_epochs=3, random_state=0).fit(*rows).anomaly_score(rows[0]))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*scores)
