"""The built wheel runs in a clean environment that has the core dependencies and nothing else."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import esad

ROOT = Path(__file__).parents[1]
OPTIONAL = {"pillow", "matplotlib", "ray", "pandas", "polars", "pytest", "hypothesis"}

pytestmark = pytest.mark.extra


def run(*command: str | Path, folder: Path) -> str:
    """Run a command as a user with an empty home and nothing of this environment would."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**inherited, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, folder=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_bin(wheel, tmp_path_factory):
    """The programs of a fresh environment into which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", folder / "env", folder=folder)
    programs = folder / "env" / "bin"
    run(programs / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel, folder=folder)
    yield programs
    shutil.rmtree(folder)  # hundreds of megabytes


def test_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = {name.partition("/")[0] for name in names}
    assert top == {"esad", f"esad-{esad.__version__}.dist-info"}
    rooms = ROOT / "src" / "esad"
    files = [file for folder in ("static", "templates", "pages") for file in rooms.glob(f"*/{folder}/*")]
    shipped = {file.relative_to(rooms.parent).as_posix() for file in files}
    assert {"esad/review/templates/page.html", "esad/review/static/review.js", "esad/web/static/basics.js"} <= shipped
    assert {"esad/py.typed", "esad/methods/__init__.py"} | shipped <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_wheel_needs_no_extra(clean_bin, tmp_path):
    listed = run(clean_bin / "pip", "list", "--format", "freeze", folder=tmp_path)
    assert OPTIONAL.isdisjoint(line.partition("==")[0].lower() for line in listed.splitlines())


def test_command_says_its_version(clean_bin, tmp_path):
    assert esad.__version__ in run(clean_bin / "esad", "--version", folder=tmp_path)
    assert esad.__version__ in run(clean_bin / "python", "-m", "esad", "--version", folder=tmp_path)
