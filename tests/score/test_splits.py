"""Splits keep labelled anomalies on both sides and the shares of all labels."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.model_selection import GridSearchCV, cross_val_score

from esad.errors import InputError, LabelError
from esad.score.metrics import auc_scorer
from esad.score.splits import LabelAwareSplit, corrected_error

label_lists = st.lists(st.sampled_from([-1, 0, 1]), min_size=2, max_size=80)


@given(label_lists, st.floats(0.01, 0.99), st.integers(1, 4), st.integers(0, 2**32))
def test_every_split_is_a_partition_with_anomalies_on_both_sides(y, test_size, n_splits, seed):
    y = np.array(y)
    assume(np.sum(y == -1) >= 2)
    splits = list(LabelAwareSplit(n_splits, test_size=test_size, random_state=seed).split(y, y))
    assert len(splits) == n_splits
    for train, test in splits:
        np.testing.assert_array_equal(np.sort(np.r_[train, test]), np.arange(len(y)))
        assert (y[train] == -1).any()
        assert (y[test] == -1).any()
        for label in (-1, 0, 1):
            assert abs(np.sum(y[test] == label) - test_size * np.sum(y == label)) <= 1


def test_the_same_seed_gives_the_same_splits_and_another_seed_others():
    y = np.r_[np.full(10, -1), np.zeros(90)]

    def first_test_part(seed):
        return next(iter(LabelAwareSplit(random_state=seed).split(y, y)))[1].tolist()

    assert first_test_part(3) == first_test_part(3)
    assert first_test_part(3) != first_test_part(4)


def test_splits_differ_from_each_other():
    y = np.r_[np.full(10, -1), np.zeros(90)]
    tests = {tuple(test) for _, test in LabelAwareSplit(5, random_state=0).split(y, y)}
    assert len(tests) == 5


@pytest.mark.parametrize("y", [None, [0, 0, 0], [-1, 0, 1]])
def test_fewer_than_two_anomalies_are_refused(y):
    with pytest.raises(LabelError, match=r"needs two labelled anomalies .*Got [01]"):
        list(LabelAwareSplit().split(np.zeros(3), y))


@pytest.mark.parametrize("options", [{"test_size": 0.0}, {"test_size": 1.0}, {"n_splits": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(InputError, match="must be"):
        list(LabelAwareSplit(**options).split([0, 0], [-1, -1]))


class Distance(OutlierMixin, BaseEstimator):
    """The smallest detector that knows about labels: distance from the mean of what is no anomaly."""

    def __init__(self, power=1.0):
        self.power = power

    def fit(self, X, y=None):
        self.centre_ = np.mean(np.asarray(X)[np.asarray(y) != -1], axis=0)
        return self

    def score_samples(self, X):
        return -np.sum(np.abs(np.asarray(X) - self.centre_) ** self.power, axis=1)


def test_scikit_learn_takes_the_splitter_and_the_scorer():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(np.r_[rng.normal(size=(200, 2)), rng.normal(6, 1, size=(4, 2))])
    y = np.r_[np.zeros(200), np.full(4, -1)]
    splitter = LabelAwareSplit(3, random_state=0)
    assert splitter.get_n_splits() == 3
    aucs = cross_val_score(Distance(), X, y, cv=splitter, scoring=auc_scorer)
    assert aucs.shape == (3,)
    assert aucs.min() > 0.95
    search = GridSearchCV(Distance(), {"power": [1.0, 2.0]}, cv=splitter, scoring=auc_scorer).fit(X, y)
    assert search.best_score_ > 0.95


def test_the_error_grows_with_the_share_held_out():
    values = np.array([0.1, 0.4, 0.3])
    assert (
        corrected_error(values, test_size=0.5)
        > corrected_error(values, test_size=0.2)
        > np.std(values, ddof=1) / 3**0.5
    )
    assert corrected_error(values[:1], test_size=0.5) == np.inf
