"""Scores by detectors that have not seen the rows: in a stack or one by one, the same."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tiny

from esad.advice import crossfit
from esad.advice.crossfit import Fold, make_folds, score_held_out, thin_rows
from esad.score.metrics import compute_auc
from esad.score.splits import LabelAwareSplit
from esad.table.table import Table


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(80, 3)), rng.normal(4, 1, size=(8, 3))]
    return X, np.r_[np.zeros(80, np.int8), -np.ones(8, np.int8)]


def parts_of(y, n=3):
    return [Fold(train, y[train], test) for train, test in LabelAwareSplit(n, random_state=0).split(y, y)]


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame, Table.from_any])
def test_a_stack_gives_what_single_fits_give(rows, make, monkeypatch):
    X, y = rows
    detector = tiny("esad", n_members=1, n_epochs=5)
    with monkeypatch.context() as watched:
        watched.setattr(type(detector), "fit", lambda *args, **kwargs: pytest.fail("fitted alone"))
        stacked = score_held_out(detector, make(X), parts_of(y), seed=3)
    monkeypatch.setattr(crossfit, "can_stack", lambda *args: False)
    alone = score_held_out(detector, make(X), parts_of(y), seed=3)
    for one, other in zip(stacked, alone, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


def test_every_part_is_scored_by_a_detector_trained_on_its_training_rows(rows):
    X, y = rows
    found = score_held_out(tiny("iforest"), X, parts_of(y), seed=5)
    for number, (part, scores) in enumerate(zip(parts_of(y), found, strict=True)):
        alone = tiny("iforest", random_state=5 + number).fit(X[part.train], part.y)
        np.testing.assert_array_equal(scores, alone.anomaly_score(X[part.test]))


def test_text_that_is_a_date_but_in_one_cell_stays_text_in_every_part(rows):
    X = pd.DataFrame({"due": ["soon", *["2024-02-29", "2024-03-01"] * 40, *["2024-03-02"] * 7]})
    assert all(np.isfinite(scores).all() for scores in score_held_out(tiny("iforest"), X, parts_of(rows[1]), seed=0))


def test_the_detector_given_is_left_as_it_was(rows):
    detector = tiny("esad", n_members=2)
    score_held_out(detector, rows[0], parts_of(rows[1]), seed=0)
    assert detector.n_members == 2
    assert not hasattr(detector, "offset_")


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 40), st.integers(2, 6))
def test_folds_hold_every_row_out_and_have_equal_shares_of_labels(n_anomaly, n_normal, n_unlabelled, n_folds):
    y = np.repeat(np.array([-1, 1, 0], dtype=np.int8), [n_anomaly, n_normal, n_unlabelled])
    found = list(make_folds(y, n_folds, rng=np.random.default_rng(0)))
    assert set(np.concatenate([part.test for part in found])) == set(range(len(y)))
    assert len({tuple(np.bincount(part.y + 1, minlength=3)) for part in found}) == 1
    for part in found:
        assert np.array_equal(np.sort(np.r_[part.train, part.test]), np.arange(len(y)))
        assert np.array_equal(part.y, y[part.train])


def test_thinning_keeps_labels_and_all_rows_that_fit():
    y = np.array([0] * 50 + [-1, 1], dtype=np.int8)
    kept = thin_rows(y, rng=np.random.default_rng(0), max_rows=10)
    assert len(kept) == 10
    assert {50, 51} <= set(kept.tolist())
    assert len(thin_rows(y, rng=np.random.default_rng(0))) == 52


def test_auc_is_the_share_of_pairs_in_order():
    scores, is_anomaly = np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, True, False, True])
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[is_anomaly] for b in scores[~is_anomaly]]
    assert compute_auc(scores, is_anomaly) == pytest.approx(np.mean(pairs))


def test_a_fitted_committee_stands_back_for_the_judge_with_most_say(rows, monkeypatch):
    X, y = rows
    committee = tiny("committee").fit(X, y)
    leader = committee.judges_[max(committee.weights_, key=committee.weights_.get)]
    expected = score_held_out(leader, X, parts_of(y), seed=3)
    monkeypatch.setattr(type(committee), "fit", None)  # a whole committee would take minutes
    for one, other in zip(score_held_out(committee, X, parts_of(y), seed=3), expected, strict=True):
        np.testing.assert_array_equal(one, other)
