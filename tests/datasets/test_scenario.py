"""Whole experiments: nothing leaks from test to training, and the labels are true."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.datasets import scenario
from esad.datasets.dataset import Dataset
from esad.errors import InputError

seeds = st.integers(0, 2**32)


def numbered_table(n_rows=400, n_anomaly=120):
    """A table whose only column is the row number, so that every row can be followed."""
    return Dataset("numbered", np.arange(n_rows)[:, None], np.arange(n_rows) < n_anomaly, "row numbers")


def numbered_pictures(*, with_test):
    """Pictures of one pixel, the picture's number; its class is the last digit."""

    def pictures(first, n):
        number = np.arange(first, first + n)
        return number.reshape(n, 1, 1), number % 10

    X, classes = pictures(0, 1000)
    X_test, test_classes = pictures(1000, 200)
    test = Dataset("test", X_test, None, "numbers", classes=test_classes) if with_test else None
    return Dataset("numbered", X, None, "numbers", classes=classes, test=test)


DRAWS = {
    "table": lambda seed: scenario.table(numbered_table(), labelled_ratio=0.1, pollution_ratio=0.1, seed=seed),
    "natural": lambda seed: scenario.natural(numbered_table(), max_train=150, seed=seed),
    "images": lambda seed: scenario.images(
        numbered_pictures(with_test=False), normal_class=3, labelled_ratio=0.1, pollution_ratio=0.1, seed=seed
    ),
}


@pytest.mark.parametrize("name", DRAWS)
@given(seed=seeds)
def test_train_and_test_share_no_row_and_labels_are_true(name, seed):
    drawn = DRAWS[name](seed)
    train, test = drawn.X_train.ravel(), drawn.X_test.ravel()
    is_anomaly = (lambda number: number % 10 != 3) if name == "images" else (lambda number: number < 120)
    assert not set(train) & set(test)
    assert len(set(train)) == len(train) == len(drawn.y_train)
    assert is_anomaly(train[drawn.y_train == -1]).all()
    assert (drawn.y_train == -1).any()
    np.testing.assert_array_equal(drawn.truth_test, is_anomaly(test))


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_seed_gives_the_same_experiment(name):
    one, same, other = DRAWS[name](1), DRAWS[name](1), DRAWS[name](2)
    np.testing.assert_array_equal(one.X_train, same.X_train)
    np.testing.assert_array_equal(one.y_train, same.y_train)
    np.testing.assert_array_equal(one.X_test, same.X_test)
    assert one.X_test.tolist() != other.X_test.tolist()


def test_the_table_scenario_uses_all_normal_training_rows():
    drawn = scenario.table(numbered_table(), labelled_ratio=0.1, pollution_ratio=0.1, seed=0)
    train = drawn.X_train.ravel()
    assert np.sum(train >= 120) == 168
    assert np.sum(drawn.y_train == -1) == 20  # .1 of 168 / (.9 x .9)
    assert np.sum((train < 120) & (drawn.y_train == 0)) == 18
    assert len(drawn.X_test) == 160


def test_the_natural_scenario_keeps_the_share_of_anomalies():
    drawn = scenario.natural(numbered_table(), max_train=150, labelled_ratio=0.05, seed=0)
    assert len(drawn.X_train) == 150
    assert np.sum(drawn.X_train < 120) == 45
    assert np.sum(drawn.y_train == -1) == 7
    assert len(drawn.X_test) == 160


def test_without_a_limit_all_training_rows_are_used():
    assert len(scenario.natural(numbered_table(), max_train=None, seed=0).X_train) == 240


def test_pictures_with_a_test_part_are_tested_on_all_of_it():
    drawn = scenario.images(
        numbered_pictures(with_test=True),
        normal_class=8,
        labelled_classes=(1,),
        n_normal=60,
        labelled_ratio=0.05,
        pollution_ratio=0.1,
        seed=0,
    )
    digit = drawn.X_train.ravel() % 10
    assert np.sum(digit == 8) == 60
    assert set(digit[drawn.y_train == -1]) == {1}
    assert np.sum(drawn.y_train == -1) == 3
    assert np.sum((digit != 8) & (drawn.y_train == 0)) == 6
    np.testing.assert_array_equal(drawn.X_test.ravel(), np.arange(1000, 1200))
    np.testing.assert_array_equal(drawn.truth_test, drawn.X_test.ravel() % 10 != 8)


@pytest.mark.parametrize("labelled_classes", [(3,), (1, 10)])
def test_labelled_classes_must_be_other_classes(labelled_classes):
    with pytest.raises(InputError, match="`labelled_classes` must be among"):
        scenario.images(
            numbered_pictures(with_test=True),
            normal_class=3,
            labelled_classes=labelled_classes,
            labelled_ratio=0.05,
            seed=0,
        )


def test_data_sets_of_the_other_kind_are_refused_with_the_way_out():
    with pytest.raises(InputError, match="with_normal_class"):
        scenario.table(numbered_pictures(with_test=False), labelled_ratio=0.1, seed=0)
    with pytest.raises(InputError, match="has no classes"):
        scenario.images(numbered_table(), normal_class=0, labelled_ratio=0.1, seed=0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("arrhythmia", (231, 2)),
        ("cardio", (993, 10)),
        ("satellite", (2639, 26)),
        ("satimage-2", (3439, 34)),
        ("shuttle", (27351, 276)),
        ("thyroid", (2207, 22)),
    ],
)
def test_the_real_odds_tables_give_the_published_counts(data_folder, name, expected):
    from esad.datasets.sources.odds import load

    y = scenario.table(load(name), labelled_ratio=0.01, seed=0).y_train
    assert (np.sum(y == 0), np.sum(y == -1)) == expected


def test_fashion_mnist_gives_the_published_counts(data_folder):
    from esad.datasets.sources.mnist import load

    drawn = scenario.images(
        load("fashion_mnist"), normal_class=8, labelled_classes=(0,), labelled_ratio=0.05, pollution_ratio=0.1, seed=0
    )
    assert np.sum(drawn.y_train == -1) == 350
    assert np.sum(drawn.y_train == 0) == 6000 + 666
    assert drawn.truth_test.sum() == 9000


def numbered_parts(*, labellable=None):
    test = Dataset("test", np.arange(1000, 1010)[:, None], np.arange(10) < 4, "")
    return Dataset("train", np.arange(100)[:, None], np.arange(100) < 30, "", test=test, labellable=labellable)


@given(seed=seeds)
def test_a_given_test_part_is_kept_and_only_what_may_be_labelled_is(seed):
    data = numbered_parts(labellable=np.arange(100) < 8)
    drawn = scenario.given(data, labelled_ratio=0.05, pollution_ratio=0.1, n_normal=60, seed=seed)
    rows = drawn.X_train[:, 0]
    assert (drawn.X_test == data.test.X).all()
    assert (drawn.truth_test == data.test.truth).all()
    assert (rows[drawn.y_train == -1] < 8).all()
    hidden = (rows < 30) & (drawn.y_train == 0)
    assert ((drawn.y_train == -1).sum(), hidden.sum(), (rows >= 30).sum()) == (3, 6, 60)
    assert len(set(rows)) == len(rows)


def test_given_needs_a_test_part_and_enough_to_label():
    with pytest.raises(InputError, match="has no test part"):
        scenario.given(numbered_table(), labelled_ratio=0.1, seed=0)
    with pytest.raises(InputError, match=r"needs 7 anomalies to label\. There are 2"):
        scenario.given(numbered_parts(labellable=np.arange(100) < 2), labelled_ratio=0.1, seed=0)


def test_a_leak_is_only_there_when_it_is_asked_for():
    data = Dataset("rows", np.arange(2000.0)[:, None], np.arange(2000) % 10 == 0, "numbered rows")
    clean = scenario.table(data, labelled_ratio=0.01, seed=0)
    leaky = scenario.table(data, labelled_ratio=0.01, leaky=True, seed=0)
    assert np.isin(clean.X_test, clean.X_train).mean() == 0
    np.testing.assert_array_equal(clean.X_train, leaky.X_train)
    normal = ~leaky.truth_test
    assert np.isin(leaky.X_test[normal], leaky.X_train).mean() == pytest.approx(0.6, abs=0.05)
