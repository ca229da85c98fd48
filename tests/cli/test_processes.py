"""Real processes: start-up time, Ctrl-C, kills and resuming, pipes, limits, terminals and the shell's completion."""

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time

import pytest

HEAVY = {"torch", "sklearn", "scipy", "pyarrow", "pandas", "polars", "numpy", "safetensors", "PIL", "matplotlib"}
# Long enough to be interrupted; with EVERY_STEP there is a checkpoint all the time.
LONG = ("--members", "1", "--set", "n_epochs=150", "--set", "hidden=[8]", "--set", "latent=2")
EVERY_STEP = ("--checkpoint-every", "0")
ROLES = ("--label-column", "verdict", "--id-column", "serial")


def start(tmp_path, *args, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "esad", *map(str, args)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def wait_for(condition, process, *, seconds=60.0):
    """Wait until something holds while the process still runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen in time")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("args", [("--help",), ("fit", "--help"), ("--version",), ("data",)])
def test_help_loads_nothing_heavy(args):
    script = (
        "import sys; from esad.cli.app import run; code = run(sys.argv[1:]); "
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=True)
    assert "typer" in done.stderr
    allowed = {"numpy"} if args == ("data",) else set()  # its sources say which files they need
    assert (HEAVY - allowed).isdisjoint(done.stderr.split())


def test_help_takes_little_time(tmp_path):
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "esad", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.6


def test_version_and_no_arguments(shell):
    assert shell("--version").out.startswith("esad 0.")
    assert "Usage: esad" in shell().out


def test_mistakes_in_a_real_process(shell, parts):
    missing = shell("fit", "no.csv", "--out", "m.esad")
    assert (missing.code, missing.out) == (2, "")
    assert missing.err == "error: Cannot read 'no.csv': no such file.\n"


@pytest.mark.parametrize(
    ("number", "way"),
    [
        (signal.SIGINT, "--no-stream"),
        (signal.SIGINT, "--stream"),
        pytest.param(signal.SIGTERM, "--no-stream", marks=pytest.mark.extra),
    ],
)
def test_a_training_that_is_stopped_can_be_resumed_to_the_same_bytes(parts, esad, tmp_path, number, way):
    whole = esad("fit", parts, *ROLES, "--out", tmp_path / "whole.esad", "--quiet", way, *LONG)
    assert whole.code == 0, whole.err
    process = start(tmp_path, "fit", parts, *ROLES, "--out", "m.esad", "--quiet", way, *LONG, *EVERY_STEP)
    wait_for((tmp_path / "m.esad.checkpoint").exists, process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("interrupted: no model was written. Go on with: esad fit ")
    assert names(tmp_path) == ["m.esad.checkpoint", "parts.csv", "whole.esad"]
    resumed = esad("fit", parts, *ROLES, "--out", tmp_path / "m.esad", "--resume", "--json", way, *LONG)
    assert resumed.code == 0, resumed.err
    assert 0 < resumed.json["resumed_step"] < 150
    assert (tmp_path / "m.esad").read_bytes() == (tmp_path / "whole.esad").read_bytes()
    assert names(tmp_path) == ["m.esad", "parts.csv", "whole.esad"]


@pytest.mark.extra
def test_a_training_that_is_killed_again_and_again_ends_with_the_same_bytes(parts, shell, tmp_path):
    assert shell("fit", parts, *ROLES, "--out", "whole.esad", "--quiet", *LONG).code == 0
    checkpoint = tmp_path / "m.esad.checkpoint"
    for _ in range(4):
        process = start(tmp_path, "fit", parts, *ROLES, "--out", "m.esad", "--quiet", "--resume", *LONG, *EVERY_STEP)
        seen = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        wait_for(lambda seen=seen: checkpoint.exists() and checkpoint.stat().st_mtime_ns > seen, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (tmp_path / "m.esad").exists()
    resumed = shell("fit", parts, *ROLES, "--out", "m.esad", "--resume", "--json", *LONG)
    assert resumed.json["resumed_step"] > 3
    assert (tmp_path / "m.esad").read_bytes() == (tmp_path / "whole.esad").read_bytes()
    assert not checkpoint.exists()


def test_ctrl_c_while_scoring_leaves_nothing(model, kit, tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    n_rows = 300_000
    columns = {"size": [1.0] * n_rows, "colour": ["red"] * n_rows, "made": ["2024-01-01"] * n_rows}
    columns |= {"checked": [True] * n_rows, "serial": ["x"] * n_rows}
    parquet.write_table(pyarrow.table(columns), tmp_path / "long.parquet")
    process = start(tmp_path, "score", model, "long.parquet", "--out", "scores.csv")
    wait_for(lambda: any(name.startswith(".esad-") for name in names(tmp_path)), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted: no result was written.\n")
    assert names(tmp_path) == ["long.parquet"]


def test_a_disk_that_is_full_is_one_line(model, parts, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))

    process = start(tmp_path, "score", model, parts, "--out", "scores.csv", preexec_fn=limit)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (1, 2)
    assert out == ""
    assert err.startswith("error: ")
    assert "scores.csv" in err
    assert err.count("\n") == 1
    assert names(tmp_path) == ["parts.csv"]


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    command = f"{sys.executable} -m esad data | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.extra
def test_a_terminal_that_knows_only_ascii(shell, kit, tmp_path):
    kit.csv(tmp_path / "d.csv", ["größe", "x"], [[row % 9, row % 5] for row in range(30)])
    done = shell("fit", "d.csv", "--method", "iforest", "--out", "m.esad", PYTHONIOENCODING="ascii")
    assert done.code == 0, done.err
    found = shell("inspect", "m.esad", "--json", PYTHONIOENCODING="ascii")
    assert found.json["columns"][0]["name"] == "größe"


def test_a_bar_is_drawn_on_a_terminal_only(model, parts, tmp_path):
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "esad", "score", str(model), str(parts), "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=writer, text=True) as process:
        os.close(writer)
        drawn = b""
        while True:
            try:
                drawn += os.read(reader, 4096)
            except OSError:  # the other end is closed
                break
        out = process.stdout.read()
    os.close(reader)
    assert b"scoring" in drawn
    assert json.loads(out)["n_rows"] == 60


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("esad ", "evaluate"),
        ("esad fit --la", "--label-column"),
        ("esad fit x.csv --method if", "iforest"),
        ("esad data save brea", "breast_cancer"),
    ],
)
def test_the_shell_completes_commands_options_and_names(shell, words, offered):
    environment = {"_ESAD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    assert offered in shell(**environment).out.split()


def test_ctrl_c_while_the_program_starts_is_no_trace():
    stopping = (
        "import sys\n"
        "class Stopping:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'esad.cli.app':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stopping())\n"
        "from esad.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", stopping], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
