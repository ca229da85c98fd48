"""Rows worth a label: never labelled ones, from the top and around the threshold, none like another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tiny

from esad.advice.suggest import farthest, suggest_labels
from esad.errors import InputError, LabelError, SchemaError


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(90, 2)), rng.normal(8, 0.1, size=(9, 2)), [[-9.0, 9.0]]]
    y = np.zeros(100, dtype=int)
    y[90] = -1
    return tiny("iforest").fit(X, y), X, y


@pytest.mark.parametrize("n", [1, 2, 7, 99])
def test_only_unlabelled_rows_are_suggested_each_once(fitted, n):
    detector, X, y = fitted
    found = suggest_labels(detector, X, y, n=n)
    rows = [one.row for one in found]
    assert len(set(rows)) == n
    assert 90 not in rows
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    np.testing.assert_allclose([one.score for one in found], detector.anomaly_score(X)[rows])


def test_the_most_anomalous_row_is_among_them_and_most_are_near_the_threshold(fitted):
    detector, X, y = fitted
    scores = detector.anomaly_score(X)
    found = suggest_labels(detector, X, y, n=10)
    assert found[0].row == np.argmax(np.where(y == 0, scores, -np.inf))
    near = [one for one in found if one.why == "threshold"]
    assert len(near) == 7
    top = {one.row for one in found if one.why == "top"}
    others = [row for row in range(100) if y[row] == 0 and row not in top]
    nearest = sorted(others, key=lambda row: abs(scores[row] - detector.threshold_))[:35]
    assert {one.row for one in near} <= set(nearest)


def test_a_lonely_anomaly_goes_before_copies_of_a_known_one(fitted):
    detector, X, y = fitted
    assert 99 in {one.row for one in suggest_labels(detector, X, y, n=4)}


def test_works_without_labels_and_for_pictures():
    pictures = np.random.default_rng(0).integers(0, 255, (20, 10, 10)).astype(np.uint8)
    assert len(suggest_labels(tiny("iforest").fit(pictures), pictures, n=5)) == 5


@given(st.integers(0, 2**32 - 1), st.integers(1, 8))
def test_each_choice_is_the_farthest_from_all_before(seed, n):
    rng = np.random.default_rng(seed)
    flat = rng.normal(size=(20, 2)).astype(np.float32)
    candidates, taken = np.arange(5, 15), [0, 1]
    for row in farthest(flat, candidates, np.array(taken), n):
        distances = [min(((flat[other] - flat[known]) ** 2).sum() for known in taken) for other in candidates]
        assert min(((flat[row] - flat[known]) ** 2).sum() for known in taken) == pytest.approx(max(distances), rel=1e-5)
        taken.append(row)


def test_rows_that_lie_upon_each_other_are_not_chosen_twice():
    assert sorted(farthest(np.zeros((4, 1), np.float32), np.arange(4), np.array([], int), 4)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("n", "words"), [(0, "1 or more"), (1.5, "whole number"), (100, "at most 99")])
def test_a_wrong_number_is_refused(fitted, n, words):
    detector, X, y = fitted
    with pytest.raises(InputError, match=words):
        suggest_labels(detector, X, y, n=n)


def test_labels_and_rows_must_fit(fitted):
    detector, X, y = fitted
    with pytest.raises(LabelError, match="one label per row"):
        suggest_labels(detector, X, y[:-1])
    with pytest.raises((InputError, SchemaError)):
        suggest_labels(detector, X[:, :1], y)
