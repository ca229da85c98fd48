"""Reading the data folder, and what is said when it is not there or damaged."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from esad.core.atomic import hash_file
from esad.datasets.folder import (
    data_folder,
    file_state,
    load_arrays,
    read_arrays,
    record_checksum,
    write_arrays,
)
from esad.errors import DataFileError, InputError, OutputError


def test_arrays_come_in_the_order_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    (tmp_path / "odds").mkdir()
    np.savez(tmp_path / "odds" / "small.npz", X=np.eye(2), y=np.array([0, 1]))
    y, X = read_arrays("odds/small.npz", ("y", "X"))
    assert y.tolist() == [0, 1]
    assert X.tolist() == [[1, 0], [0, 1]]


def test_an_unset_folder_says_what_to_set(tmp_path, monkeypatch):
    monkeypatch.delenv("ESAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="Set ESAD_DATA to the folder that holds mnist"):
        read_arrays("mnist.npz", ("X",))


def test_a_file_that_can_be_downloaded_says_how(tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    with pytest.raises(DataFileError, match=r"or run: esad data get mnist$"):
        read_arrays("mnist.npz", ("X",), get="mnist")


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"ESAD_DATA": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"ESAD_DATA": "", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/esad"),
        ({"ESAD_DATA": "", "XDG_CACHE_HOME": "relative", "HOME": "/c"}, "/c/.cache/esad"),
        ({"ESAD_DATA": "", "XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/esad"),
    ],
)
def test_the_folder_is_the_one_named_or_else_in_the_cache(monkeypatch, variables, folder):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert data_folder() == Path(folder)


class Unwritable:
    def __array__(self, dtype=None, copy=None):
        raise TypeError


def test_arrays_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "odds" / "small.npz"
    write_arrays(path, {"X": np.eye(2), "y": np.array([0, 1])})
    with pytest.raises(TypeError):
        write_arrays(path, {"X": np.eye(2), "y": Unwritable()})
    assert load_arrays(path, ("y",))[0].tolist() == [0, 1]
    assert [file.name for file in path.parent.iterdir()] == ["small.npz"]


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Cannot make the folder"):
        write_arrays(tmp_path / "file" / "small.npz", {"X": np.eye(2)})


def test_a_missing_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    with pytest.raises(DataFileError, match=r"mnist\.npz does not exist"):
        read_arrays("mnist.npz", ("X",))


def write_garbage(path):
    path.write_bytes(b"\x00\x01garbage" * 50)


def write_empty(path):
    path.write_bytes(b"")


def write_cut(path):
    np.savez(path, X=np.arange(1000), y=np.arange(10))
    path.write_bytes(path.read_bytes()[:3000])


def write_damaged(path):
    np.savez(path, X=np.arange(1000), y=np.arange(10))
    content = bytearray(path.read_bytes())
    content[1000] ^= 0xFF
    path.write_bytes(bytes(content))


def write_damaged_compressed(path):
    np.savez_compressed(path, X=np.random.default_rng(0).normal(size=1000), y=np.arange(10))
    content = bytearray(path.read_bytes())
    content[60:2000] = bytes(1940)
    path.write_bytes(bytes(content))


def write_pickle(path):
    np.savez(path, X=np.array([{}], dtype=object), y=np.arange(1))


def write_other_names(path):
    np.savez(path, data=np.arange(3))


def write_one_array(path):
    with path.open("wb") as file:
        np.save(file, np.arange(3))


@pytest.mark.parametrize(
    "write",
    [
        write_garbage,
        write_empty,
        write_cut,
        write_damaged,
        write_damaged_compressed,
        write_pickle,
        write_other_names,
        write_one_array,
    ],
)
def test_a_file_that_cannot_be_used_gives_one_error(tmp_path, monkeypatch, write):
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    write(tmp_path / "table.npz")
    with pytest.raises(DataFileError, match=r"table\.npz must be an \.npz file with the arrays X, y"):
        read_arrays("table.npz", ("X", "y"))


# ---------------------------------------------------------------------- checksums


def test_the_state_follows_the_file(tmp_path):
    file = "odds/cardio.npz"
    assert file_state(tmp_path, file) == "missing"
    (tmp_path / "odds").mkdir()
    (tmp_path / file).write_bytes(b"one")
    assert file_state(tmp_path, file) == "unrecorded"
    assert record_checksum(tmp_path, file) == hashlib.sha256(b"one").hexdigest()
    assert file_state(tmp_path, file) == "verified"
    (tmp_path / file).write_bytes(b"two")
    assert file_state(tmp_path, file) == "damaged"


def test_a_record_keeps_the_others(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
        record_checksum(tmp_path, name)
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert lines == [f"{hash_file(tmp_path / name)}  {name}" for name in ("a", "b")]


def test_a_record_that_is_none_is_one_error(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "SHA256SUMS").write_text("nonsense\n")
    with pytest.raises(DataFileError, match="SHA256SUMS"):
        file_state(tmp_path, "a")
