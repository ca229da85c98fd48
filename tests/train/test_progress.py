"""Who asks with `verbose=1` sees how far the training is, wherever it runs."""

import logging
import os
import pty
import subprocess
import sys

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


def test_a_terminal_shows_a_bar():
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", FIT], stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        drawn = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux says so at the end
                break
            if not part:
                break
            drawn += part
    os.close(ours)
    assert process.returncode == 0
    assert "training DeepSAD, part 2 of 2" in drawn.decode()
    assert "100%" in drawn.decode()


def test_a_notebook_shows_a_bar_that_moves(tmp_path):
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(FIT)])
    nbclient.NotebookClient(notebook, timeout=300).execute()
    bars = [output["data"]["text/html"] for output in notebook.cells[0].outputs if "data" in output]
    assert len(bars) == 1
    assert '<progress value="' in bars[0]
    assert "part 2 of 2" in bars[0]
