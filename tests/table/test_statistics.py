"""Statistics of blocks, merged in any order, are those of all rows at once."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esad.errors import SchemaError
from esad.table.encode import TabularPreprocessor
from esad.table.statistics import Moments, TableStatistics
from esad.table.table import Schema, Table


def mixed(n=200, seed=0):
    rng = np.random.default_rng(seed)
    hours = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 24 * 500, n), unit="h")
    frame = pd.DataFrame(
        {
            "number": rng.normal(1e6, 1.0, n),
            "gaps": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            "infinite": np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
            "truth": rng.random(n) < 0.3,
            "colour": rng.choice(["red", "blue", "green", None], n),
            "many": rng.integers(0, 60, n).astype(str),
            "when": hours,
            "day": hours.strftime("%Y-%m-%d"),
            "constant": 7.0,
            "empty": np.nan,
        }
    )
    frame["many"] = "word " + frame["many"]
    return frame


def surveyed(frame, reference, cuts, order=None):
    """Statistics of the parts between cuts, merged."""
    parts = []
    for first, last in zip([0, *cuts], [*cuts, len(frame)], strict=True):
        if first < last:
            part = TableStatistics()
            part.add(Table.from_any(frame.iloc[first:last]), reference[first:last])
            parts.append(part)
    whole = TableStatistics()
    for index in order or range(len(parts)):
        whole.merge(parts[index])
    return whole


@given(cuts=st.lists(st.integers(0, 200), max_size=6), seed=st.integers(0, 5))
@settings(max_examples=15, deadline=None)
def test_blocks_tell_what_all_rows_tell(cuts, seed):
    frame = mixed(seed=seed)
    reference = np.random.default_rng(seed).random(len(frame)) < 0.9
    statistics = surveyed(frame, reference, sorted(cuts))
    table = Table.from_any(frame)
    assert statistics.schema == Schema.infer(table)
    expected = TabularPreprocessor().fit(table, reference)
    found = TabularPreprocessor.from_statistics(statistics, table.take(reference))
    assert found.feature_names_out() == expected.feature_names_out()
    np.testing.assert_allclose(found.mean_, expected.mean_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.scale_, expected.scale_, rtol=1e-6, atol=1e-9)


def test_the_order_of_shards_does_not_matter():
    frame, reference = mixed(), np.ones(200, dtype=bool)
    one, other = (surveyed(frame, reference, [50, 90, 150], order) for order in ([0, 1, 2, 3], [3, 1, 0, 2]))
    left, right = (TabularPreprocessor.from_statistics(part, Table.from_any(frame)) for part in (one, other))
    np.testing.assert_allclose(left.mean_, right.mean_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(left.scale_, right.scale_, rtol=1e-6)


def test_moments_do_not_cancel():
    values = 1e9 + np.random.default_rng(0).normal(size=(10_000, 1))
    whole = Moments.of(values[:10])
    for first in range(10, len(values), 10):
        whole.merge(Moments.of(values[first : first + 10]))
    np.testing.assert_allclose(whole.std, values.std(axis=0), rtol=1e-6)


def test_extreme_values_do_not_set_the_scale():
    frame = pd.DataFrame({"x": np.r_[np.random.default_rng(0).normal(size=999), 1e300]})
    table, statistics = Table.from_any(frame), TableStatistics()
    statistics.add(table, np.ones(1000, dtype=bool))
    found = TabularPreprocessor.from_statistics(statistics, table)
    assert found.scale_[0] == pytest.approx(TabularPreprocessor().fit(table).scale_[0])


def test_rare_texts_are_forgotten_and_frequent_ones_kept(monkeypatch):
    monkeypatch.setattr("esad.table.statistics.MAX_TEXTS", 50)
    rng = np.random.default_rng(0)
    texts = np.where(rng.random(2000) < 0.5, "often", [f"once {number}" for number in range(2000)])
    statistics = TableStatistics()
    for block in np.array_split(texts, 40):
        statistics.add(Table.from_any(pd.DataFrame({"text": block})), np.ones(len(block), dtype=bool))
    column = statistics.columns[0]
    assert len(column.texts.texts) <= 50 and not column.texts.is_whole
    assert column.texts.reference_counts(("often",))[0] == (texts == "often").sum()


def test_parts_that_do_not_fit_together_are_refused():
    statistics = TableStatistics()
    statistics.add(Table.from_any(pd.DataFrame({"a": [1.0]})), np.ones(1, dtype=bool))
    with pytest.raises(SchemaError, match="Got category after number"):
        statistics.add(Table.from_any(pd.DataFrame({"a": ["red"]})), np.ones(1, dtype=bool))
    with pytest.raises(SchemaError, match="the same columns"):
        statistics.add(Table.from_any(pd.DataFrame({"b": [1.0]})), np.ones(1, dtype=bool))
