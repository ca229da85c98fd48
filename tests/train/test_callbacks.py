"""Who asks with `verbose=1` sees how far the training is, wherever it runs."""

import logging
import os
import pty
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from esad import DeepSAD

FIT = """
import numpy as np
from esad import DeepSAD
_ = DeepSAD(hidden=(4,), latent=2, n_epochs=3, pretrain_epochs=3, verbose=1, random_state=0).fit(np.eye(40))
"""


def fit(verbose):
    settings = {"hidden": (4,), "latent": 2, "n_epochs": 3, "pretrain_epochs": 3, "random_state": 0}
    return DeepSAD(verbose=verbose, **settings).fit(np.eye(40))


def test_lines_go_to_stderr_where_there_is_no_terminal_and_no_log(capfd):
    fit(1)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "part 1 of 2" in shown.err
    assert "s left: " in shown.err
    assert not logging.getLogger("esad").handlers


def test_nothing_is_shown_unasked(capfd):
    fit(0)
    assert capfd.readouterr().err == ""


def test_a_log_that_is_set_up_gets_the_lines_and_stderr_does_not(capfd, caplog):
    with caplog.at_level(logging.INFO, logger="esad"):
        fit(1)
    assert any("step " in message for message in caplog.messages)
    assert capfd.readouterr().err == ""


def test_a_terminal_shows_a_bar(monkeypatch):
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with ThreadPoolExecutor(1) as pool, os.fdopen(theirs, "w") as terminal:
        drawn = pool.submit(read_to_the_end, ours)
        monkeypatch.setattr(sys, "stderr", terminal)
        fit(1)
        terminal.close()
        assert "training DeepSAD, part 2 of 2" in drawn.result()
        assert "100%" in drawn.result()


def read_to_the_end(terminal):
    drawn = b""
    with os.fdopen(terminal, "rb", buffering=0) as file:
        try:
            while part := file.read(4096):
                drawn += part
        except OSError:  # Linux says so at the end
            pass
    return drawn.decode()


def test_a_notebook_shows_one_bar_that_moves(monkeypatch):
    drawn, moved = [], []
    page = SimpleNamespace(
        HTML=str, display=lambda bar, display_id: drawn.append(bar) or SimpleNamespace(update=moved.append)
    )
    monkeypatch.setitem(sys.modules, "IPython.display", page)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    fit(1)
    assert len(drawn) == 1
    assert_is_the_second_bar(moved[-1])


@pytest.mark.extra
def test_a_real_notebook_shows_one_bar_that_moves():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FIT)])
    nbclient.NotebookClient(notebook, timeout=300).execute()
    [bar] = [output["data"]["text/html"] for output in notebook.cells[0].outputs if "data" in output]
    assert_is_the_second_bar(bar)


def assert_is_the_second_bar(html):
    assert '<progress value="' in html
    assert "part 2 of 2" in html
