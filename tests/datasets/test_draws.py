"""Draws hold the asked ratios, never label and hide the same row, and repeat with their seed."""

from math import floor

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from esad.datasets.scenario import counts, draw, draw_natural, pick_classes, split
from esad.errors import InputError

ratios = st.floats(0.0, 0.3)
seeds = st.integers(0, 2**32)


@pytest.mark.parametrize(("labelled_ratio", "n_labelled"), [(0.0, 0), (0.01, 60), (0.05, 315), (0.1, 666), (0.2, 1500)])
def test_six_thousand_normals_give_the_published_counts(labelled_ratio, n_labelled):
    asked = counts(6000, labelled_ratio=labelled_ratio)
    assert asked == (n_labelled, 0, 0, 6000)


def test_labelled_and_polluted_counts_are_the_published_ones():
    asked = counts(6000, labelled_ratio=0.05, pollution_ratio=0.1)
    assert (asked.n_labelled_anomaly, asked.n_hidden_anomaly) == (350, 666)


def test_whole_counts_survive_rounding():
    assert counts(100, labelled_ratio=0.03, pollution_ratio=0.2).n_hidden_anomaly == 25  # 24.999999999999996 in floats
    assert len(split(np.zeros(90), test_ratio=0.3, seed=0)[0]) == 63


@pytest.mark.parametrize(
    ("n_normal", "n_anomaly", "n_train_normal", "n_labelled"),
    [
        pytest.param(386, 66, 231, 2, id="arrhythmia"),
        pytest.param(1655, 176, 993, 10, id="cardio"),
        pytest.param(4399, 2036, 2639, 26, id="satellite"),
        pytest.param(5732, 71, 3439, 34, id="satimage-2"),
        pytest.param(45586, 3511, 27351, 276, id="shuttle"),
        pytest.param(3679, 93, 2207, 22, id="thyroid"),
    ],
)
def test_odds_sizes_give_the_published_counts(n_normal, n_anomaly, n_train_normal, n_labelled):
    truth = np.arange(n_normal + n_anomaly) < n_anomaly
    train, test = split(truth, seed=0)
    drawn = draw(truth[train], labelled_ratio=0.01, seed=0)
    assert np.sum(drawn.y == 0) == n_train_normal
    assert np.sum(drawn.y == -1) == n_labelled
    assert np.sum(truth[test]) == n_anomaly - floor(0.6 * n_anomaly)


@given(st.integers(1, 10**6), ratios, ratios, ratios)
def test_counts_hold_their_ratios_up_to_truncation(n_normal, labelled, polluted, known_normal):
    asked = counts(n_normal, labelled_ratio=labelled, pollution_ratio=polluted, labelled_normal_ratio=known_normal)
    n_train, n_unlabelled = sum(asked), asked.n_hidden_anomaly + asked.n_unlabelled_normal
    assert asked.n_labelled_normal + asked.n_unlabelled_normal == n_normal
    for count, ratio, total in [
        (asked.n_labelled_anomaly, labelled, n_train),
        (asked.n_labelled_normal, known_normal, n_train),
        (asked.n_hidden_anomaly, polluted, n_unlabelled),
    ]:
        assert abs(count - ratio * total) <= 2  # three truncations, each of less than one row


@given(st.integers(1, 80), st.integers(0, 80), ratios, ratios, ratios, seeds)
def test_a_draw_holds_exactly_the_asked_rows(n_normal, n_anomaly, labelled, polluted, known_normal, seed):
    truth = np.random.default_rng(seed).permutation(np.arange(n_normal + n_anomaly) < n_anomaly)
    options = {"labelled_ratio": labelled, "pollution_ratio": polluted, "labelled_normal_ratio": known_normal}
    asked = counts(n_normal, **options)
    assume(asked.n_labelled_anomaly + asked.n_hidden_anomaly <= n_anomaly)
    rows, y = draw(truth, **options, seed=seed)
    assert len(np.unique(rows)) == len(rows) == len(y)
    assert np.sum(truth[rows] & (y == -1)) == np.sum(y == -1) == asked.n_labelled_anomaly
    assert np.sum(truth[rows] & (y == 0)) == asked.n_hidden_anomaly
    assert np.sum(~truth[rows] & (y == 1)) == np.sum(y == 1) == asked.n_labelled_normal
    assert np.sum(~truth[rows]) == n_normal


@given(st.lists(st.integers(0, 3), min_size=1, max_size=100), st.floats(0.05, 0.95), seeds)
def test_train_and_test_share_no_row_and_keep_every_class(classes, test_ratio, seed):
    classes = np.array(classes)
    train, test = split(classes, test_ratio=test_ratio, seed=seed)
    np.testing.assert_array_equal(np.sort(np.r_[train, test]), np.arange(len(classes)))
    for value in np.unique(classes):
        n_rows = np.sum(classes == value)
        assert -1e-6 <= (1 - test_ratio) * n_rows - np.sum(classes[train] == value) < 1


@given(st.integers(4, 300), st.floats(0.0, 1.0), st.integers(4, 300), st.floats(0.0, 0.2), seeds)
def test_a_natural_draw_keeps_its_pollution(n_rows, anomaly_ratio, max_rows, labelled_ratio, seed):
    truth = np.random.default_rng(seed).random(n_rows) < anomaly_ratio
    rows, y = draw_natural(truth, max_rows=max_rows, labelled_ratio=labelled_ratio, seed=seed)
    n_used, n_available = len(rows), int(truth[rows].sum())
    assert len(np.unique(rows)) == n_used == min(n_rows, max_rows)
    assert truth[rows][y == -1].all()
    assert not (y == 1).any()
    assert np.sum(y == -1) == min(max(3, floor(labelled_ratio * n_used + 1e-9)), n_available)
    assert abs(n_available - truth.mean() * n_used) <= 0.5 or n_available == min(3, truth.sum())


def test_a_rare_anomaly_survives_the_subsample():
    truth = np.arange(57_000) < 18  # 0.9 anomalies among 3,000 rows
    rows, y = draw_natural(truth, max_rows=3000, seed=0)
    assert len(rows) == 3000
    assert np.sum(y == -1) == truth[rows].sum() == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda seed: split(np.arange(50) < 20, seed=seed)[0],
        lambda seed: draw(np.arange(50) < 20, labelled_ratio=0.1, pollution_ratio=0.1, seed=seed).rows,
        lambda seed: draw_natural(np.arange(50) < 20, max_rows=25, seed=seed).rows,
        lambda seed: pick_classes(range(40), normal_class=0, n_classes=9, seed=seed),
    ],
    ids=["split", "draw", "draw_natural", "pick_classes"],
)
def test_the_seed_settles_the_draw(call):
    np.testing.assert_array_equal(call(7), call(7))
    assert any(list(call(7)) != list(call(other)) for other in (8, 9))


def test_only_allowed_anomalies_are_labelled_while_any_may_hide():
    classes = np.repeat([0, 1, 2], 300)
    rows, y = draw(classes != 0, labelled_ratio=0.1, pollution_ratio=0.2, labelled_from=classes == 2, seed=0)
    assert set(classes[rows][y == -1]) == {2}
    assert set(classes[rows][y == 0]) == {0, 1, 2}


def test_fewer_normals_can_be_asked_for():
    rows, y = draw(np.arange(3000) < 500, labelled_ratio=0.05, n_normal=2000, seed=0)
    assert np.sum(y == 0) == 2000
    assert len(rows) == 2105


def test_picked_classes_leave_out_the_normal_one():
    for seed in range(20):
        picked = pick_classes(range(10), normal_class=4, n_classes=5, seed=seed)
        assert len(set(picked)) == 5
        assert 4 not in picked


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labelled_ratio": 0.5}, "needs 10 anomalies to label. There are 5"),
        ({"labelled_ratio": 0.0, "pollution_ratio": 0.5}, "needs 10 anomalies to hide. There are 5"),
        ({"labelled_ratio": 0.25, "pollution_ratio": 0.2}, "needs 2 anomalies to hide. There are 1"),
        ({"labelled_ratio": 0.1, "n_normal": 11}, "needs 11 normal rows. There are 10"),
        ({"labelled_ratio": -0.1}, "Ratios must"),
        ({"labelled_ratio": 0.6, "labelled_normal_ratio": 0.4}, "Ratios must"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        draw(np.arange(15) < 5, **options, seed=0)


@pytest.mark.parametrize("test_ratio", [0.0, 1.0])
def test_an_empty_part_is_refused(test_ratio):
    with pytest.raises(InputError, match="`test_ratio` must be"):
        split([0, 1], test_ratio=test_ratio, seed=0)


@pytest.mark.parametrize("options", [{"max_rows": 3}, {"labelled_ratio": 1.0}, {"min_labelled": -1}])
def test_an_impossible_natural_draw_is_refused(options):
    with pytest.raises(InputError, match="must be"):
        draw_natural([True] * 9, **options, seed=0)


def test_more_classes_than_there_are_cannot_be_picked():
    with pytest.raises(InputError, match=r"needs 3 other classes\. There are 2"):
        pick_classes([0, 1, 2], normal_class=0, n_classes=3, seed=0)
