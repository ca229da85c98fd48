"""The record of finished files, in the form that sha256sum reads."""

import hashlib

import pytest

from esad.datasets.checksums import digest, record, state
from esad.errors import DataFileError


def test_the_state_follows_the_file(tmp_path):
    file = "odds/cardio.npz"
    assert state(tmp_path, file) == "missing"
    (tmp_path / "odds").mkdir()
    (tmp_path / file).write_bytes(b"one")
    assert state(tmp_path, file) == "unrecorded"
    assert record(tmp_path, file) == hashlib.sha256(b"one").hexdigest()
    assert state(tmp_path, file) == "verified"
    (tmp_path / file).write_bytes(b"two")
    assert state(tmp_path, file) == "damaged"


def test_a_record_keeps_the_others(tmp_path):
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
        record(tmp_path, name)
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert lines == [f"{digest(tmp_path / name)}  {name}" for name in ("a", "b")]


def test_a_record_that_is_none_is_one_error(tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "SHA256SUMS").write_text("nonsense\n")
    with pytest.raises(DataFileError, match="SHA256SUMS"):
        state(tmp_path, "a")
