"""Data sets say what they hold and refuse what does not fit."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from esad.datasets.dataset import Dataset
from esad.datasets.saving import draw_labels
from esad.errors import InputError


def test_a_data_set_cannot_be_changed():
    data = Dataset("one", np.zeros((1, 2)), np.array([True]), "one row")
    assert not data.is_images
    with pytest.raises(FrozenInstanceError):
        data.truth = np.array([False])


def test_a_normal_class_makes_a_truth_for_both_parts():
    test = Dataset("test", np.zeros((3, 2, 2)), None, "", classes=np.array([2, 0, 1]))
    train = Dataset("train", np.zeros((2, 2, 2)), None, "", test=test, classes=np.array([1, 2]))
    chosen = train.with_normal_class(2)
    assert chosen.truth.tolist() == [True, False]
    assert chosen.test.truth.tolist() == [False, True, True]
    assert train.truth is None


@pytest.mark.parametrize("n_labels", [-1, 3])
def test_no_more_anomalies_are_labelled_than_there_are_and_no_fewer_than_none(n_labels):
    data = Dataset("three", np.zeros((3, 2)), np.array([True, False, True]), "three rows")
    with pytest.raises(InputError, match=f"from 0 to 2, .* Got {n_labels}"):
        draw_labels(data, n_labels, seed=0)


def test_an_unknown_normal_class_lists_the_classes():
    data = Dataset("digits", np.zeros((2, 2, 2)), None, "", classes=np.array([1, 2]))
    with pytest.raises(InputError, match=r"one of \[1, 2\]\. Got 3"):
        data.with_normal_class(3)


def test_a_table_has_no_normal_class():
    with pytest.raises(InputError, match="has no classes"):
        Dataset("one", np.zeros((1, 2)), np.array([True]), "").with_normal_class(0)


def test_rows_can_be_taken():
    data = Dataset("four", np.arange(4)[:, None], np.arange(4) > 1, "", classes=np.arange(4))
    taken = data.take(np.array([3, 0]))
    assert taken.X.ravel().tolist() == [3, 0]
    assert taken.truth.tolist() == [True, False]
    assert taken.classes.tolist() == [3, 0]


@pytest.mark.parametrize("known", [{"truth": np.zeros(2, bool)}, {"truth": None, "classes": np.zeros((3, 1), int)}])
def test_a_truth_of_another_length_is_refused(known):
    with pytest.raises(InputError, match="one value per row"):
        Dataset(name="three", X=np.zeros((3, 1)), description="", **known)


def test_a_data_set_needs_a_truth_or_classes():
    with pytest.raises(InputError, match="Got neither"):
        Dataset("one", np.zeros((1, 2)), None, "")


def test_what_may_be_labelled_follows_the_rows():
    data = Dataset("four", np.arange(4)[:, None], np.arange(4) > 1, "", labellable=np.arange(4) > 2)
    assert data.take(np.array([3, 0])).labellable.tolist() == [True, False]
    with pytest.raises(InputError, match="`labellable` must hold one value per row"):
        Dataset("four", np.arange(4)[:, None], np.arange(4) > 1, "", labellable=np.arange(3) > 2)
