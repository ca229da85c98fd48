"""Reading the data folder, and what is said when it is not there or damaged."""

import numpy as np
import pytest

from esad.data.folder import read_arrays
from esad.errors import DataFileError, InputError


def test_arrays_come_in_the_order_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    (tmp_path / "odds").mkdir()
    np.savez(tmp_path / "odds" / "small.npz", X=np.eye(2), y=np.array([0, 1]))
    y, X = read_arrays("odds/small.npz", ("y", "X"))
    assert y.tolist() == [0, 1]
    assert X.tolist() == [[1, 0], [0, 1]]


def test_an_unset_folder_says_what_to_set(monkeypatch):
    monkeypatch.delenv("ESAD_DATA", raising=False)
    with pytest.raises(InputError, match="Set ESAD_DATA to the folder that holds mnist"):
        read_arrays("mnist.npz", ("X",))


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
