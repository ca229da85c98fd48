"""What becomes of a request to end that comes at a bad moment."""

import os
import signal
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from esad.cli import failures


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_to_end_waits_for_the_import_of_torch(monkeypatch, number):
    half = ModuleType("torch")
    half.__spec__ = SimpleNamespace(_initializing=True)
    monkeypatch.setitem(sys.modules, "torch", half)
    kept = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    loaded = False
    with pytest.raises(KeyboardInterrupt), failures.raise_on_signals():
        os.kill(os.getpid(), number)
        time.sleep(0.12)
        loaded, half.__spec__ = True, None
        time.sleep(5)
    assert loaded
    assert {name: signal.getsignal(name) for name in kept} == kept
