"""A model file to read, damage and forge."""

import pytest
from forging import MANIFEST, TENSORS

from esad.persist import bundle


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def original(folder):
    bundle.write(folder / "original.esad", MANIFEST, TENSORS)
    return (folder / "original.esad").read_bytes()
