"""The four threshold rules: what they promise, on any scores."""

import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from esad.errors import InputError, LabelError
from esad.score.threshold import FittedThreshold, Threshold

any_scores = hnp.arrays(
    np.float64, st.integers(1, 60), elements=st.floats(allow_nan=False, allow_infinity=False, width=64)
)
levels = st.floats(0.001, 0.5)


def fitted(rule, level, scores, y):
    try:
        return Threshold(rule, level).fit(scores, y)
    except InputError:
        return None


@given(any_scores, levels, st.data())
def test_every_rule_gives_a_finite_value_or_says_why_not(scores, level, data):
    y = data.draw(hnp.arrays(np.int8, len(scores), elements=st.sampled_from([-1, 0, 1])))
    for rule, given_level in [("auto", None), ("contamination", level), ("false_alarm", level), ("labels", None)]:
        value = fitted(rule, given_level, scores, y)
        assert value is None or np.isfinite(value)
    assert fitted("auto", None, scores, y) is not None
    assert fitted("contamination", level, scores, y) is not None


@given(any_scores, levels, levels, st.sampled_from(["contamination", "false_alarm"]))
def test_a_higher_level_never_raises_the_threshold(scores, one, other, rule):
    low, high = (fitted(rule, level, scores, None) for level in sorted((one, other)))
    assume(low is not None and high is not None)
    assert high <= low


@given(any_scores, levels)
def test_contamination_flags_the_asked_share_up_to_ties(scores, level):
    n_flagged = np.count_nonzero(scores > Threshold("contamination", level).fit(scores))
    assert n_flagged <= np.ceil(level * len(scores))
    if len(np.unique(scores)) == len(scores):
        assert n_flagged >= np.floor(level * (len(scores) - 1))


def test_contamination_flags_the_rows_that_scikit_learn_flags():
    rng = np.random.default_rng(0)
    for n_rows in (10, 99, 1000):
        scores = rng.normal(size=n_rows)
        offset = np.percentile(-scores, 100 * 0.1)
        np.testing.assert_array_equal(scores > Threshold("contamination", 0.1).fit(scores), -scores < offset)


@given(any_scores, levels, st.data())
def test_false_alarms_stay_below_the_level_on_the_rows_given(scores, level, data):
    y = data.draw(hnp.arrays(np.int8, len(scores), elements=st.sampled_from([-1, 0, 1])))
    value = fitted("false_alarm", level, scores, y)
    rest = scores[y != -1]
    if value is None:
        assert (len(rest) + 1) * level < 1
    else:
        assert np.count_nonzero(rest > value) <= level * (len(rest) + 1) - 1 + 1e-6


@pytest.mark.parametrize(("level", "n_needed"), [(0.1, 9), (0.01, 99), (0.05, 19), (0.3, 3), (0.001, 999)])
def test_false_alarm_needs_enough_rows_and_says_how_many(level, n_needed):
    assert np.isfinite(Threshold("false_alarm", level).fit(np.arange(n_needed)))
    with pytest.raises(InputError, match=rf"at least {n_needed} unlabelled or normal rows\. Got {n_needed - 1}"):
        Threshold("false_alarm", level).fit(np.arange(n_needed - 1))


def test_false_alarm_holds_on_further_rows():
    rng = np.random.default_rng(1)
    rates = [
        np.mean(rng.normal(size=2000) > Threshold("false_alarm", 0.05).fit(rng.normal(size=59))) for _ in range(300)
    ]
    assert 0.04 < np.mean(rates) < 0.055  # 3 of 60 ranks; standard error about 0.0017


def test_false_alarm_ignores_labelled_anomalies():
    scores = np.r_[np.arange(99.0), 1e6 + np.arange(50)]
    y = np.r_[np.zeros(99), -np.ones(50)]
    assert Threshold("false_alarm", 0.1).fit(scores, y) == 89.0


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 50))
def test_auto_flags_nothing_when_all_scores_are_equal(constant, n_rows):
    scores = np.full(n_rows, constant)
    assert not (scores > Threshold().fit(scores)).any()


def test_auto_is_three_sigmas_above_the_median_whatever_the_upper_tail():
    clean = np.random.default_rng(2).normal(size=100_000)
    polluted = clean.copy()
    polluted[clean > 1.5] += 1e6  # seven rows in a hundred
    assert Threshold("auto").fit(clean) == pytest.approx(3.0, abs=0.03)
    assert Threshold("auto").fit(polluted) == Threshold("auto").fit(clean)


def test_auto_flags_a_tenth_at_most_where_no_label_speaks_for_more():
    skewed = np.random.default_rng(2).lognormal(sigma=2.0, size=2000)  # the rule alone would flag a third
    assert np.mean(skewed > Threshold().fit(skewed)) == pytest.approx(0.1, abs=0.001)
    tied = np.r_[np.linspace(0.0, 1.0, 70), np.full(30, 9.0)]  # a tenth of these cannot be told from the others
    assert np.mean(tied > Threshold().fit(tied)) == 0.3


def test_auto_does_not_flag_all_above_a_common_score():
    scores = np.r_[np.zeros(60), np.linspace(0.5, 1.5, 40)]
    assert np.count_nonzero(scores > Threshold("auto").fit(scores)) <= 10


def test_auto_looks_at_unlabelled_rows_then_normals_then_all():
    scores = np.r_[np.arange(10.0), 100 + np.arange(10.0)]
    seen = np.zeros(20, dtype=bool)
    few = np.r_[np.zeros(18), -1, -1]  # too few to have a say
    assert Threshold().fit(scores, few) == Threshold().fit(scores[:18])
    assert Threshold().fit(scores, np.where(few == 0, 1, -1)) == Threshold().fit(scores[:18])
    assert Threshold().fit(scores, np.full(20, -1)) == Threshold().fit(scores)
    assert 8 < Threshold().apply(scores, np.repeat([0, -1], 10), unseen=seen).value < 100


@given(any_scores, st.data())
def test_labels_that_were_trained_on_lower_auto_only_where_they_contradict_it(scores, data):
    y = data.draw(hnp.arrays(np.int8, len(scores), elements=st.sampled_from([-1, 0])))
    assume((y == 0).any() and (y < 0).sum() < 10)
    anomalies, others = scores[y == -1], scores[y == 0]
    without = Threshold().fit(others)
    applied = Threshold().apply(scores, y, unseen=np.zeros(len(y), dtype=bool))
    value = applied.value
    assert value <= without == applied.usual
    assert applied.chosen_by == ("missed anomalies" if value < without else "unlabelled")
    if len(anomalies) < 3 or np.mean(anomalies > without) >= 0.5:
        assert value == without
    if value < without:
        assert np.count_nonzero(others > value) <= np.ceil(0.2 * len(others))
        assert np.count_nonzero(anomalies > value) >= np.count_nonzero(anomalies > without)


def test_auto_goes_down_to_the_labelled_anomalies_it_would_miss():
    rng = np.random.default_rng(3)
    scores = np.r_[rng.normal(size=500), np.linspace(1.9, 2.6, 8)]  # hidden ones above 3 would not change this
    y = np.r_[np.zeros(500), -np.ones(8)]
    assert not (scores[y == -1] > Threshold().fit(scores[:500])).any()
    for unseen in (np.ones(508, dtype=bool), np.zeros(508, dtype=bool)):
        assert (scores[y == -1] > Threshold().apply(scores, y, unseen=unseen).value).mean() >= 0.75
    deep = np.r_[scores[:500], np.full(3, -1.0)]  # three slips: a fifth of the rows are flagged at most
    applied = Threshold().apply(deep, y[:503], unseen=np.zeros(503, dtype=bool))
    assert np.mean(scores[:500] > applied.value) == pytest.approx(0.2, abs=0.002)


@pytest.mark.parametrize("anomaly_ratio", [0.005, 0.05, 0.3])
def test_labels_that_were_not_trained_on_find_the_anomalies_nobody_labelled(anomaly_ratio):
    rng = np.random.default_rng(4)
    n_odd = int(2000 * anomaly_ratio)
    scores = np.r_[rng.lognormal(sigma=2.0, size=2000 - n_odd), 4000 + 100 * rng.normal(size=n_odd + 12)]
    y = np.r_[np.zeros(2000), -np.ones(12)]
    applied = Threshold().apply(scores, y)
    assert applied.chosen_by == "unseen anomalies"
    alarms, truth = scores[:2000] > applied.value, np.arange(2000) >= 2000 - n_odd
    assert alarms[truth].mean() > 0.8
    assert alarms[~truth].mean() < 0.01


@given(any_scores, st.data())
def test_labels_never_flag_more_than_can_be_defended(scores, data):
    y = data.draw(hnp.arrays(np.int8, len(scores), elements=st.sampled_from([-1, 0])))
    applied = Threshold().apply(scores, y)
    if applied.chosen_by == "unseen anomalies":
        believed = max(0.2, ((y < 0).sum() + 1) / len(y))
        assert np.mean(scores > applied.value) <= believed + 0.1 + 1e-9
        assert (scores[y < 0] > applied.value).any()


def test_few_labels_that_were_trained_on_do_not_raise_the_threshold():
    rng = np.random.default_rng(5)
    scores = np.r_[rng.normal(size=300), np.full(5, 50.0)]  # learned by heart: far above all others
    y = np.r_[np.zeros(300), -np.ones(5)]
    seen = np.zeros(305, dtype=bool)
    assert Threshold().apply(scores, y, unseen=seen).value == Threshold().fit(scores[:300])
    assert (scores[:300] > Threshold().apply(scores, y, unseen=~seen).value).sum() <= 1


def test_a_few_held_out_rows_stand_for_all_and_none_of_them_is_flagged_for_nothing():
    scores = np.r_[np.arange(30.0), np.full(10, 1000.0)]  # 30 of 300 unlabelled rows, and labels learned by heart
    y, seen = np.r_[np.zeros(30), -np.ones(10)], np.zeros(40, dtype=bool)
    value = Threshold().apply(scores, y, unseen=seen, n_unlabelled=300).value
    assert 29 < value < 500  # nearer to the unlabelled: new anomalies score less than those that were trained on
    assert value < Threshold().apply(scores, y, n_unlabelled=300).value


def test_without_unlabelled_rows_a_forecast_counts_the_known_normal_ones_and_never_anomalies():
    scores, y = np.arange(100.0), np.repeat([1, -1], [60, 40])
    found = Threshold("false_alarm", 0.05).apply(scores, y).forecast
    assert (found.n_rows, found.n_alarms, found.n_anomalies, found.n_found) == (60, 2, 40, 40)
    alone = Threshold("contamination", 0.1).apply(scores[60:], y[60:]).forecast
    assert (alone.n_rows, alone.n_anomalies) == (0, 40)


def test_a_forecast_counts_what_was_not_trained_on():
    scores = np.r_[np.arange(100.0), 95.0, 200.0, 200.0, 300.0]
    y, unseen = np.r_[np.zeros(100), -np.ones(4)], np.r_[np.ones(102, dtype=bool), False, False]
    found = Threshold("contamination", 0.1).apply(scores, y, unseen=unseen).forecast
    assert (found.n_rows, found.n_anomalies, found.n_found) == (100, 2, 2)
    assert found.n_alarms == (scores[:100] > Threshold("contamination", 0.1).fit(scores, y)).sum()
    low, high = found.alarm_interval
    assert 0 < low < found.n_alarms / 100 < high < 0.2
    assert found.recall_interval[0] < 0.2
    assert "by 2 of them: uncertain" in str(found)
    hopeful = Threshold().apply(scores, y, unseen=np.zeros(104, dtype=bool)).forecast
    assert hopeful.is_hopeful
    assert hopeful.recall_interval is None
    assert "of the unlabelled training rows are alarms, and more of new ones may be" in str(hopeful)


@given(any_scores, st.data())
def test_how_a_threshold_came_about_survives_json(scores, data):
    y = data.draw(hnp.arrays(np.int8, len(scores), elements=st.sampled_from([-1, 0, 1])))
    applied = Threshold().apply(scores, y, basis="training")
    again = FittedThreshold.from_json(json.loads(json.dumps(applied.to_json())))
    assert again == applied
    assert str(again) == str(applied)


@pytest.mark.parametrize(
    "damage",
    [
        {"chosen_by": "nobody"},
        {"forecast": {"n_rows": 3, "n_alarms": 4}},
        {"forecast": {"n_rows": "3", "n_alarms": 1}},
        {"forecast": {"n_rows": 3, "n_alarms": 1, "n_anomalies": 0, "n_found": 1}},
        {"basis": "a guess"},
    ],
)
def test_a_damaged_account_of_a_threshold_is_refused(damage):
    plain = Threshold().apply(np.arange(30.0)).to_json()
    with pytest.raises(InputError, match="damaged"):
        FittedThreshold.from_json(plain | damage)


def f1_score(truth, flagged):
    return 2 * np.sum(truth & flagged) / (np.sum(truth) + np.sum(flagged))


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from([-1, 0])), min_size=2, max_size=25))
def test_labels_gives_the_best_f1_of_all_thresholds(rows):
    scores, y = np.array(rows, dtype=float).T
    assume((y == -1).any() and (y == 0).any())
    chosen = f1_score(y == -1, scores > Threshold("labels").fit(scores, y))
    best = max(f1_score(y == -1, scores > cut) for cut in np.arange(-0.5, 9))
    assert chosen == pytest.approx(best)


def test_labels_sits_in_the_middle_of_the_widest_gap():
    assert Threshold("labels").fit([0, 1, 2, 10], [0, 0, 0, -1]) == 6.0
    # flagging the top row alone and the top four both give F1 = 2/3; the gap under the top row is wider
    assert Threshold("labels").fit([0, 3, 4, 5, 10], [0, -1, 0, 0, -1]) == 7.5
    assert Threshold("labels").fit([-9, 3, 4, 5, 10], [0, -1, 0, 0, -1]) == -3.0


def test_labels_prefers_known_normals_to_unlabelled_rows():
    scores, y = [0, 1, 5, 6, 7], [1, 1, -1, 0, 0]
    assert Threshold("labels").fit(scores, y) == 3.0


def test_labels_separates_neighbouring_floats():
    low = 1.0
    high = np.nextafter(low, 2.0)
    assert Threshold("labels").fit([low, high], [0, -1]) == low


@pytest.mark.parametrize("y", [None, [0, 0, 1], [-1, -1, -1]])
def test_labels_needs_an_anomaly_and_something_else(y):
    with pytest.raises(LabelError, match='Use the rule "auto"'):
        Threshold("labels").fit([1, 2, 3], y)


@pytest.mark.parametrize(
    ("rule", "level"),
    [
        ("contamination", None),
        ("contamination", 0.0),
        ("contamination", 0.51),
        ("contamination", float("nan")),
        ("false_alarm", 1.0),
        ("false_alarm", -0.1),
        ("false_alarm", None),
        ("auto", 0.1),
        ("labels", 0.1),
        ("percentile", 0.1),
    ],
)
def test_rules_and_levels_that_do_not_exist_are_refused(rule, level):
    with pytest.raises(InputError, match="Got"):
        Threshold(rule, level)


@pytest.mark.parametrize("scores", [[], [[1.0]], [1.0, np.nan], [np.inf]])
def test_unusable_scores_are_refused(scores):
    with pytest.raises(InputError, match="`scores` must be"):
        Threshold().fit(scores)


def test_labels_of_another_length_are_refused():
    with pytest.raises(LabelError, match="Got 1 for 2 scores"):
        Threshold().fit([1.0, 2.0], [0])
