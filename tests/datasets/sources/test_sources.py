"""Every family of data sets keeps one contract."""

import importlib

import numpy as np
import pytest

from esad import registry
from esad.datasets.dataset import Dataset
from esad.datasets.sources import builtin, mnist, odds
from esad.errors import InputError

MODULES = sorted(set(registry.data_set_names().values()))
FAMILIES = [importlib.import_module(f"esad.datasets.sources.{name}") for name in MODULES]
FROM_FOLDER = [(family, name) for family in FAMILIES if hasattr(family, "files") for name in family.NAMES]


def check_contract(data, name):
    assert isinstance(data, Dataset)
    assert data.name == name
    assert data.description
    for part in (data, data.test):
        if part is None:
            continue
        assert np.isfinite(part.X).all()
        assert part.X.dtype == (np.uint8 if part.is_images else np.float64)
        if part.truth is None:
            assert part.classes.dtype == np.int64
        else:
            assert part.truth.dtype == np.bool_
            assert 0 < part.truth.mean() < 0.7
    if data.labellable is not None:
        assert data.truth[data.labellable].all()
        assert data.labellable.any()


@pytest.mark.parametrize("name", builtin.NAMES)
def test_builtin_data_sets_keep_the_contract(name):
    check_contract(builtin.load(name), name)


@pytest.mark.parametrize(("family", "name"), FROM_FOLDER, ids=[name for _, name in FROM_FOLDER])
def test_data_sets_of_the_folder_keep_the_contract(data_folder, family, name):
    if not any((data_folder / file).exists() for file in family.files(name)):
        pytest.skip(f"needs {family.files(name)[0]} in the data folder")
    check_contract(family.load(name), name)


def test_names_are_unique_over_all_families():
    names = [name for family in FAMILIES for name in family.NAMES]
    assert len(set(names)) == len(names)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match="Unknown data set 'nothing'") as failure:
        registry.load_data_set("nothing")
    assert all(name in str(failure.value) for family in FAMILIES for name in family.NAMES)


@pytest.mark.parametrize(("family", "name"), FROM_FOLDER, ids=[name for _, name in FROM_FOLDER])
def test_without_data_the_way_to_them_is_told_in_one_line(family, name, tmp_path, monkeypatch):
    monkeypatch.delenv("ESAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match=rf"{tmp_path}/esad.* does not exist\. (Set ESAD_DATA|.*https://)") as failure:
        family.load(name)
    assert "\n" not in str(failure.value)
    if len(family.files(name)) == 1:  # not made from pictures
        assert (f"esad data get {name}" in str(failure.value)) == (name in getattr(family, "GETS", ()))


def test_breast_cancer_takes_malignant_as_anomaly():
    data = builtin.load("breast_cancer")
    assert data.X.shape == (569, 30)
    assert data.truth.sum() == 212
    assert len(data.columns) == 30
    assert data.X[data.truth, 0].mean() > data.X[~data.truth, 0].mean()  # malignant cells are larger


def test_digits_are_pictures_of_the_full_range():
    data = builtin.load("digits")
    assert data.X.shape == (1797, 8, 8)
    assert (data.X.min(), data.X.max()) == (0, 255)
    assert set(data.classes.tolist()) == set(range(10))


def test_files_of_the_right_form_are_read_without_the_real_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    (tmp_path / "odds").mkdir()
    np.savez(
        tmp_path / "odds" / "cardio.npz", X=np.array([[1, 2], [3, 4]], dtype=np.int16), y=np.array([0, 1], np.uint8)
    )
    data = odds.load("cardio")
    assert data.X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert data.truth.tolist() == [False, True]
    pictures = {"train_images": np.ones((3, 28, 28), np.uint8), "test_images": np.zeros((2, 28, 28), np.uint8)}
    np.savez(
        tmp_path / "mnist.npz", **pictures, train_labels=np.array([5, 0, 4], np.uint8), test_labels=np.array([7, 2])
    )
    data = mnist.load("mnist")
    assert data.classes.tolist() == [5, 0, 4]
    assert data.test.classes.tolist() == [7, 2]
    assert data.X.max() == 1
    assert data.test.X.max() == 0
