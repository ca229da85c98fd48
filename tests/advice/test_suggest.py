"""Rows worth a label: never labelled ones, from the top and around the threshold, none like another."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tiny

from esad.advice.suggest import choose_typical, find_border, suggest_labels
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


def test_most_are_from_the_top_and_some_from_around_the_border(fitted):
    detector, X, y = fitted
    scores = detector.anomaly_score(X)
    found = suggest_labels(detector, X, y, n=10)
    unlabelled = np.flatnonzero(y == 0)
    top = {one.row for one in found if one.why == "top"}
    assert len(top) == 7
    assert top <= set(unlabelled[np.argsort(-scores[unlabelled])][:35].tolist())
    middle = (np.median(scores[y == -1]) + detector.threshold_) / 2
    where = min(middle, np.sort(scores[unlabelled])[-10])
    others = [row for row in unlabelled.tolist() if row not in top]
    nearest = sorted(others, key=lambda row: abs(scores[row] - where))[:15]
    assert {one.row for one in found if one.why == "border"} <= set(nearest)


@given(st.integers(0, 2**32 - 1))
def test_the_border_lies_among_the_upper_half_of_the_unlabelled_rows(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=40)
    y = rng.choice(np.array([-1, 0, 0, 0, 1], dtype=np.int8), 40)
    y[:5] = [-1, 0, 0, 0, 0]
    found = find_border(scores, y, threshold=0.5, n=3)
    assert np.median(scores[y == 0]) <= found <= np.sort(scores[y == 0])[-3]
    assert find_border(scores, np.abs(y), threshold=0.5, n=3) is None


def test_while_no_anomaly_is_known_all_rows_are_from_the_top():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    detector = tiny("iforest").fit(X)
    found = suggest_labels(detector, X, n=10)
    assert {one.why for one in found} == {"top"}
    highest = np.argsort(-detector.anomaly_score(X), kind="stable")
    rows = {one.row for one in found}
    assert rows <= set(highest[:100].tolist())
    assert not rows <= set(highest[:10].tolist())


def test_works_without_labels_and_for_pictures():
    pictures = np.random.default_rng(0).integers(0, 255, (20, 10, 10)).astype(np.uint8)
    assert len(suggest_labels(tiny("iforest").fit(pictures), pictures, n=5)) == 5


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_typical_rows_are_candidates_each_once(seed, n):
    rng = np.random.default_rng(seed)
    flat = rng.integers(0, 3, size=(20, 2)).astype(np.float32)  # many rows lie upon each other
    candidates = rng.permutation(20)[:12]
    found = choose_typical(flat.__getitem__, candidates, n)
    assert len(set(found.tolist())) == n
    assert set(found.tolist()) <= set(candidates.tolist())


def test_each_cloud_gives_its_middle_row():
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [50, 0], [0, 50]])
    flat = (np.repeat(centres, 11, axis=0) + rng.normal(size=(33, 2))).astype(np.float32)
    flat[[0, 11, 22]] = centres  # moved towards their clouds' means below
    for first in (0, 11, 22):
        flat[first] = flat[first + 1 : first + 11].mean(axis=0)
    assert sorted(choose_typical(flat.__getitem__, np.arange(33), 3).tolist()) == [0, 11, 22]


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
