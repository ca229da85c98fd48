"""A model file to read, damage and forge; one model of a table with every kind of column, and its exported files."""

import pytest
from exported import FRAME
from forging import MANIFEST, TENSORS

import esad
from esad import ESAD
from esad.persist import bundle


@pytest.fixture(autouse=True)
def quick_writes(monkeypatch):
    """Thousands of files are written here; none of them has to outlive a loss of power."""
    monkeypatch.setattr("os.fsync", lambda _: None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def original(folder):
    bundle.write(folder / "original.esad", MANIFEST, TENSORS)
    return (folder / "original.esad").read_bytes()


@pytest.fixture(scope="package")
def detector():
    return ESAD(n_members=3, n_epochs=20, random_state=0).fit(FRAME).calibrate(alpha=0.1)


@pytest.fixture(scope="package")
def onnx_file(detector, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "table.onnx"
    assert esad.export(detector, path, X=FRAME).holds
    return path


@pytest.fixture(scope="package")
def torch_file(detector, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "table.pt2"
    assert esad.export(detector, path, format="torch", X=FRAME).holds
    return path
