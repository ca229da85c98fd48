"""Wheel and sdist, each in an empty environment with each extra; what they need is borrowed from this one."""

import os
import subprocess
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

import esad

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
IMPORTED = {
    "image": "esad.io.pictures",
    "plot": "esad.bench.plots",
    "ray": "esad.scale",
    "web": "esad.serve.app, esad.review.app",
    "sign": "esad.persist.signature",
    "export": "esad.detectors.export",
    "excel": "openpyxl",
    "all": "esad.cli.app",
}

pytestmark = pytest.mark.extra


def run(*command: str | Path, folder: Path) -> str:
    """Run a command as somebody would who has an empty home and nothing of this project on the path."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    words = [str(part) for part in command]
    environment = {**inherited, "HOME": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{words} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def empty_environment(folder: Path) -> Path:
    """The programs of an environment with nothing of its own, in which the packages of this one count as installed."""
    venv.create(folder / "env", symlinks=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "env" / "bin"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist."""
    folder = tmp_path_factory.mktemp("built")
    builder = empty_environment(folder) / "python"
    run(builder, "-m", "pip", "install", "--quiet", "hatchling", folder=folder)
    run(builder, "-m", "hatchling", "build", "-d", folder / "dist", folder=ROOT)
    return {path.suffix: path for path in (folder / "dist").iterdir()}


def check(programs: Path, folder: Path, *extras: str) -> None:
    """The package of the environment, not of this checkout, says its version and imports what the extras are for."""
    assert esad.__version__ in run(programs / "esad", "--version", folder=folder)
    code = f"import esad, {', '.join(IMPORTED[extra] for extra in extras)}; print(esad.__file__)"
    assert Path(run(programs / "python", "-c", code, folder=folder).strip()).is_relative_to(programs.parent)


def test_every_extra_is_checked():
    assert set(IMPORTED) == set(EXTRAS) - {"dev", "docs", "spark"}


def test_a_wheel_with_each_extra(built, tmp_path):
    programs = empty_environment(tmp_path)
    wheel = built[".whl"]
    run(
        programs / "python", "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", wheel, folder=tmp_path
    )
    for extra in IMPORTED:  # without an index: nothing that the extra asks for may be missing here
        named = f"esad[{extra}] @ {wheel.as_uri()}"
        run(programs / "python", "-m", "pip", "install", "--quiet", "--no-index", named, folder=tmp_path)
    check(programs, tmp_path, *IMPORTED)


def test_an_sdist(built, tmp_path):
    with tarfile.open(built[".gz"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "CITATION.cff", "src/esad/__init__.py", "tests/test_dist.py"} <= names
    assert not {name.partition("/")[0] for name in names} & {".venv", "esad-demo", "site"}
    if (ROOT / ".git").exists():  # else this is an unpacked sdist
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert set(tracked.stdout.rstrip("\0").split("\0")) <= names, "tests and pages need them"
    programs = empty_environment(tmp_path)
    run(programs / "python", "-m", "pip", "install", "--quiet", f"{built['.gz']}[all]", folder=tmp_path)
    check(programs, tmp_path, "all")
