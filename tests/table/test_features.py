"""What each kind of column becomes: numbers, gaps, categories, dates."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from esad.table.encode import ColumnFeatures, TabularPreprocessor
from esad.table.table import Table


def test_numbers_are_standardised_by_the_finite_values_of_the_reference_rows():
    values = np.random.default_rng(0).normal(5.0, 3.0, size=(100, 2))
    values[90:] = 1e300
    values[0] = np.inf, -np.inf
    reference = np.arange(100) < 90
    features = TabularPreprocessor().fit(Table.from_any(values), reference).transform(Table.from_any(values))
    np.testing.assert_allclose(features[1:90].mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(features[1:90].std(axis=0), 1.0, atol=1e-6)
    assert (features[90:] == 10.0).all()
    assert features[0].tolist() == [10.0, -10.0]


def test_a_constant_column_keeps_its_scale():
    preprocessor = TabularPreprocessor().fit(Table.from_any([[5.0], [5.0]]))
    assert preprocessor.transform(Table.from_any([[5.0], [6.5], [-99.0]])).tolist() == [[0.0], [1.5], [-10.0]]


def test_missing_numbers_become_zero_and_get_a_mark_if_training_had_some():
    preprocessor = TabularPreprocessor().fit(Table.from_any([[1.0, 1.0], [np.nan, 3.0], [3.0, 5.0], [2.0, 3.0]]))
    assert preprocessor.feature_names_out() == ("x0", "x1", "x0 is missing")
    assert preprocessor.feature_sources_.tolist() == [0, 1, 0]
    missing, present = preprocessor.transform(Table.from_any([[np.nan, np.nan], [2.0, 3.0]]))
    assert missing[:2].tolist() == [0.0, 0.0]
    assert missing[2] == pytest.approx(0.75 / np.sqrt(0.25 * 0.75))
    assert present[2] == pytest.approx(-0.25 / np.sqrt(0.25 * 0.75))


def test_of_very_many_categories_a_rarer_one_has_a_rarer_mark():
    times = {"often": 4000, "seldom": 80, "rare": 20} | {f"w{index:03d}": 400 for index in range(100)}
    training = pd.DataFrame({"a": np.repeat(list(times), list(times.values()))})
    preprocessor = TabularPreprocessor().fit(Table.from_any(training))
    assert preprocessor.feature_names_out() == ("a is usual", "a is seldom", "a is rare", "a = (other)")
    words = ["often", "w000", "seldom", "rare", "new", None]
    rows = preprocessor.transform(Table.from_any(pd.DataFrame({"a": words})))
    assert rows[0].tolist() == rows[1].tolist()
    assert rows[4].tolist() == rows[5].tolist()
    distances = np.square(rows).sum(axis=1)
    assert (np.diff(distances[1:5]) >= 0).all()
    assert distances[3] > 10 * distances[1]
    assert preprocessor.cells(rows)[0].tolist() == [
        "(a usual one)",
        "(a usual one)",
        "(one seldom seen)",
        "(a rare one)",
        "(other)",
        "(other)",
    ]


def test_texts_that_nearly_all_differ_say_nothing():
    frame = pd.DataFrame({"a": [f"row {number}" for number in range(300)], "b": np.arange(300.0)})
    rows = TabularPreprocessor().fit(Table.from_any(frame)).transform(Table.from_any(frame))
    assert rows.shape == (300, 2)
    assert not rows[:, 1].any()


def test_marks_are_standardised_with_a_deviation_of_at_least_a_tenth():
    training = pd.DataFrame({"a": ["x"] * 50 + ["y"] * 50})
    preprocessor = TabularPreprocessor().fit(Table.from_any(training))
    (features,) = preprocessor.transform(Table.from_any(training[:1]))
    np.testing.assert_allclose(features, [1.0, -1.0, 0.0], atol=1e-6)
    (unseen,) = preprocessor.transform(Table.from_any(pd.DataFrame({"a": ["z"]})))
    np.testing.assert_allclose(unseen, [-1.0, -1.0, 10.0], atol=1e-6)


def test_ties_between_categories_do_not_depend_on_row_order():
    words = [f"w{index}" for index in range(40)]
    there, back = ({"a": order} for order in (words, words[::-1]))
    fitted = [
        TabularPreprocessor().fit(Table.from_any(pd.DataFrame(frame))).feature_names_out() for frame in (there, back)
    ]
    assert fitted[0] == fitted[1]


@pytest.mark.parametrize(("trained", "later"), [("3.0", 3.0), ("3", 3.0), ("003", 3), ("3", "3"), ("2.50", 2.5)])
def test_a_number_finds_the_category_that_spells_it(trained, later):
    preprocessor = TabularPreprocessor().fit(Table.from_any(pd.DataFrame({"a": [trained, "red"]})))
    (features,) = preprocessor.transform(Table.from_any(pd.DataFrame({"a": [later]})))
    assert features[0] > 0


def test_a_number_that_two_categories_spell_is_other():
    preprocessor = TabularPreprocessor().fit(Table.from_any(pd.DataFrame({"a": ["03", "003", "red"]})))
    (features,) = preprocessor.transform(Table.from_any(pd.DataFrame({"a": [3]})))
    assert features[3] > 0


def dates(start: dt.datetime, step: dt.timedelta, n: int) -> pd.DataFrame:
    return pd.DataFrame({"when": [start + index * step for index in range(n)]})


@pytest.mark.parametrize(
    ("step", "cycles"),
    [
        (dt.timedelta(minutes=10), ["day"]),
        (dt.timedelta(days=1), ["week"]),
        (dt.timedelta(days=30), ["week", "year"]),
        (dt.timedelta(days=30, hours=1), ["day", "week", "year"]),
        (dt.timedelta(0), []),
    ],
)
def test_dates_give_time_and_the_cycles_they_cover(step, cycles):
    preprocessor = TabularPreprocessor().fit(Table.from_any(dates(dt.datetime(2024, 1, 1), step, 20)))
    waves = [f"when {wave} of {cycle}" for cycle in cycles for wave in ("sine", "cosine")]
    assert preprocessor.feature_names_out() == ("when", *waves)


def test_the_same_time_on_another_day_has_the_same_place_in_the_day():
    preprocessor = TabularPreprocessor().fit(Table.from_any(dates(dt.datetime(2024, 1, 1), dt.timedelta(hours=1), 48)))
    one, other = preprocessor.transform(Table.from_any(dates(dt.datetime(1950, 5, 5, 6), dt.timedelta(days=7), 2)))
    assert one[1:].tolist() == other[1:].tolist()
    assert one[1] > 1.0  # six in the morning: the sine is at its top


@pytest.mark.parametrize(("cycles", "wanted"), [(("week",), "2024-02-29"), (("day", "week"), "2024-02-29T15:53:26")])
def test_an_expected_date_has_a_time_of_day_only_where_those_given_differ_in_it(cycles, wanted):
    guess = np.datetime64("2024-02-29T15:53:26").astype(np.int64)
    features = ColumnFeatures("date", marks_missing=False, cycles=cycles)
    assert features.read(np.array([[guess, *[0.0] * 2 * len(cycles)]])).tolist() == [np.datetime64(wanted, "s")]


def test_missing_dates_are_zero_with_a_mark():
    frame = pd.DataFrame({"when": ["2024-01-01", None, "2024-01-03"]})
    preprocessor = TabularPreprocessor().fit(Table.from_any(frame))
    features = preprocessor.transform(Table.from_any(frame))
    assert features[1, 0] == 0.0
    assert features[1, 1] == pytest.approx(np.sqrt(2.0))


def test_text_categories_that_look_like_dates_in_a_later_table_stay_text():
    preprocessor = TabularPreprocessor().fit(Table.from_any(pd.DataFrame({"a": ["2024-01-01", "unknown"]})))
    (features,) = preprocessor.transform(Table.from_any(pd.DataFrame({"a": ["2024-01-01"]})))
    assert features[0] > 0


@pytest.mark.parametrize("placeholder", [1e15, -999999.0, 1e300])
def test_a_placeholder_value_does_not_set_the_scale_of_its_column(placeholder):
    values = np.random.default_rng(0).normal(size=(300, 2))
    values[7, 0] = placeholder
    features = TabularPreprocessor().fit(Table.from_any(values)).transform(Table.from_any(values))
    assert abs(features[7, 0]) == 10.0
    assert np.delete(features[:, 0], 7).std() == pytest.approx(1.0, rel=0.01)
    np.testing.assert_allclose(features[:, 1].std(), 1.0, rtol=1e-5)
