"""Devices that are here are taken, all others refused in a few words; work side by side."""

import pytest
import torch

from esad.errors import InputError
from esad.train.runtime import compiled, in_parallel, resolve_device


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
        in_parallel(lambda item: seen.__setitem__(item, torch.get_num_threads()), range(50))
        assert seen == dict.fromkeys(range(50), 1)
        assert torch.get_num_threads() == 2
        with pytest.raises(ZeroDivisionError):
            in_parallel(lambda item: 1 // (item - 3), range(10))
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
        compiled(network),
    ):
        raise MissingError("no g++ found.\nMore about it")
    assert "forward" not in vars(network)
    with pytest.raises(ZeroDivisionError), compiled(network):
        raise ZeroDivisionError
