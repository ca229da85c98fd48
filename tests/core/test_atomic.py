"""A result is there whole, or the old one is left as it was."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esad.core.atomic import atomic_path, check_writable
from esad.errors import OutputError


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_file_appears_only_after_the_block(tmp_path: Path) -> None:
    target = tmp_path / "model.esad"
    with atomic_path(target) as temporary:
        temporary.write_bytes(b"new")
        assert not target.exists()
        assert temporary.parent == target.parent
        assert temporary.suffix == ".esad"
    assert target.read_bytes() == b"new"
    assert names(tmp_path) == ["model.esad"]


@pytest.mark.parametrize("failure", [ValueError("no"), KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_failure_keeps_the_old_file_and_removes_the_new(tmp_path: Path, failure: BaseException) -> None:
    target = tmp_path / "model.esad"
    target.write_bytes(b"old")
    with pytest.raises(type(failure)), atomic_path(target) as temporary:
        temporary.write_bytes(b"half")
        raise failure
    assert target.read_bytes() == b"old"
    assert names(tmp_path) == ["model.esad"]


def test_ctrl_c_while_writing_leaves_nothing(tmp_path: Path) -> None:
    code = """
        import sys, time
        from esad.core.atomic import atomic_path
        with atomic_path(sys.argv[1]) as temporary:
            temporary.write_bytes(b"half")
            print("ready", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "model.esad")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in stderr
    assert names(tmp_path) == []


def test_permissions_are_those_of_the_user_or_of_the_file_replaced(tmp_path: Path) -> None:
    fresh, old = tmp_path / "fresh", tmp_path / "old"
    old.touch()
    old.chmod(0o640)
    plain = tmp_path / "plain"
    plain.touch()
    for target in (fresh, old):
        with atomic_path(target) as temporary:
            temporary.write_bytes(b"x")
    assert fresh.stat().st_mode == plain.stat().st_mode
    assert old.stat().st_mode & 0o777 == 0o640


def test_symbolic_link_is_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    with atomic_path(link) as temporary:
        temporary.write_bytes(b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_relative_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with atomic_path("scores.csv") as temporary:
        temporary.write_bytes(b"x")
    assert names(tmp_path) == ["scores.csv"]


@pytest.mark.parametrize("check", [check_writable, lambda path: atomic_path(path).__enter__()])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "it is a folder"),
        ("missing/model.esad", "missing' does not exist"),
        ("file/model.esad", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("nul\0l", "null"),
    ],
)
def test_unusable_target_is_one_clear_line(tmp_path: Path, check, name: str, message: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=message) as caught:
        check(f"{tmp_path}/{name}")
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["file"]


def test_device_is_refused_rather_than_replaced() -> None:
    with pytest.raises(OutputError, match="not a regular file"):
        check_writable("/dev/null")
    assert not Path("/dev/null").is_file()


def test_unwritable_folder_and_read_only_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_only = tmp_path / "kept"
    read_only.write_bytes(b"kept")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere, so the answer is made up
    with pytest.raises(OutputError, match="read-only"):
        check_writable(read_only)

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OutputError, match="Permission denied"):
        check_writable(tmp_path / "new")
    assert names(tmp_path) == ["kept"]


def test_full_disk_is_an_output_error(tmp_path: Path) -> None:
    target = tmp_path / "model.esad"
    with (
        pytest.raises(OutputError, match="No space left on device"),
        atomic_path(target),
        open("/dev/full", "wb") as full,
    ):
        full.write(b"x")
    assert names(tmp_path) == []


def test_failure_to_flush_is_an_output_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    target = tmp_path / "model.esad"
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError, match="Input/output error"), atomic_path(target) as temporary:
        temporary.write_bytes(b"x")
    assert names(tmp_path) == []


def test_missing_input_inside_the_block_is_not_blamed_on_the_output(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "scores.csv"):
        (tmp_path / "data.csv").read_bytes()
    assert names(tmp_path) == []


def test_file_removed_by_the_block_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file"), atomic_path(tmp_path / "scores.csv") as temporary:
        temporary.unlink()


@settings(deadline=None)
@given(old=st.binary(max_size=64) | st.none(), new=st.binary(max_size=64), fails=st.booleans())
def test_target_holds_the_old_bytes_or_the_new_never_a_mix(
    tmp_path_factory: pytest.TempPathFactory, old: bytes | None, new: bytes, fails: bool
) -> None:
    target = tmp_path_factory.mktemp("law") / "file"
    if old is not None:
        target.write_bytes(old)
    try:
        with atomic_path(target) as temporary:
            temporary.write_bytes(new)
            if fails:
                raise ValueError
    except ValueError:
        pass
    expected = old if fails else new
    assert (target.read_bytes() if target.exists() else None) == expected
