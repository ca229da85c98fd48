"""What the tests of the command line share: a way to run it, small files, a model that trains in a second."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from esad.cli.app import run

# As small as a network can be: the command line is tested here, not the method.
TINY = ("--members", "1", "--set", "n_epochs=4", "--set", "hidden=[8]", "--set", "latent=2")
HEADER = ("serial", "size", "colour", "made", "checked", "verdict")
N_ROWS, ANOMALIES = 60, (7, 23, 41)


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    """What tests build their own files with."""
    return SimpleNamespace(
        tiny=TINY, header=HEADER, n_rows=N_ROWS, anomalies=ANOMALIES, rows=rows, csv=write_csv, pictures=write_pictures
    )


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def esad(capfd) -> Callable[..., Result]:
    """Runs a command in this process."""

    def call(*args: object) -> Result:
        capfd.readouterr()
        code = run([str(arg) for arg in args])
        return Result(code, *capfd.readouterr())

    return call


@pytest.fixture
def shell(tmp_path) -> Callable[..., Result]:
    """Runs a command as a user does, in a process of its own whose folder is the test's."""

    def call(*args: object, **environment: str) -> Result:
        command = [sys.executable, "-m", "esad", *map(str, args)]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call


def rows(n_rows: int = N_ROWS, *, seed: int = 0) -> list[list[str]]:
    """A table as people have it: an id, numbers with gaps, words, dates, truth values, a few labels."""
    rng = np.random.default_rng(seed)
    table = []
    for row in range(n_rows):
        bad = row in ANOMALIES
        size = "" if row % 11 == 5 else f"{rng.normal(9 if bad else 1, 0.3):.3f}"
        made = f"2024-0{1 + row % 9}-{1 + row % 28:02d}"
        colour = "black" if bad else str(rng.choice(["red", "green", ""]))
        table.append([f"S{row:03d}", size, colour, made, str(rng.choice(["true", "false"])), "anomaly" if bad else ""])
    return table


def write_csv(path: Path, header: Sequence[str], table: Sequence[Sequence[object]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *table])
    return path


@pytest.fixture
def parts(tmp_path) -> Path:
    """A file to learn from."""
    return write_csv(tmp_path / "parts.csv", HEADER, rows())


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A model of such a file, not to be changed."""
    folder = tmp_path_factory.mktemp("model")
    data = write_csv(folder / "parts.csv", HEADER, rows())
    path = folder / "parts.esad"
    roles = ("--label-column", "verdict", "--id-column", "serial")
    assert run(["fit", str(data), *roles, "--out", str(path), "--quiet", *TINY]) == 0
    return path


def write_pictures(folder: Path, numbers: dict[str, int], *, size: int = 16, seed: int = 0) -> Path:
    """Noise, brighter for anomalies, in sub-folders."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(seed)
    for word, n_pictures in numbers.items():
        (folder / word).mkdir(parents=True, exist_ok=True)
        for number in range(n_pictures):
            pixels = rng.integers(150 if word == "anomaly" else 0, 255 if word == "anomaly" else 100, (size, size))
            image.fromarray(pixels.astype(np.uint8)).save(folder / word / f"{number}.png")
    return folder


@pytest.fixture(autouse=True)
def no_lines_about_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine does not make commands say how far they are."""
    monkeypatch.setattr("esad.cli.output._FIRST_LINE", 1e9)
