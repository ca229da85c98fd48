"""Tables in parts: every row once, with its number and label."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_parts import tumours, write_parts

from esad.io.stream import Sample, open_stream, priorities


@pytest.fixture(scope="module")
def drawn():
    return tumours()


@pytest.mark.parametrize("form", [".parquet", ".csv", ".csv.gz"])
def test_streams_give_every_row_once_with_its_number_and_label(tmp_path, drawn, monkeypatch, form):
    monkeypatch.setattr("esad.io.csv.PART_BYTES", 8000)
    parts = write_parts(tmp_path / "parts", drawn.X_train, drawn.y_train, suffix=form)
    stream = open_stream(parts, label_column="label")
    assert stream.n_rows == len(drawn.X_train)
    for blocks in (stream.blocks(), stream.shuffled(np.random.default_rng(0))):
        seen = list(blocks)
        numbers = np.concatenate([block.numbers for block in seen])
        assert sorted(numbers.tolist()) == list(range(stream.n_rows))
        np.testing.assert_array_equal(np.concatenate([block.y for block in seen]), drawn.y_train[numbers])
        first = np.concatenate([block.X["x0"].to_numpy() for block in seen])
        np.testing.assert_array_equal(first, drawn.X_train[numbers, 0])
    assert not np.array_equal(numbers, np.arange(stream.n_rows))  # the last was shuffled


@given(cuts=st.lists(st.integers(0, 300), max_size=5), n_most=st.integers(1, 80), seed=st.integers(0, 9))
def test_a_sample_does_not_depend_on_blocks_order_and_shards(cuts, n_most, seed):
    numbers = np.arange(300)
    expected = numbers[np.argsort(priorities(numbers, seed))][:n_most]
    bounds = sorted({0, 300, *cuts})
    shards = [Sample(n_most, seed=seed), Sample(n_most, seed=seed)]
    for index, (first, last) in enumerate(pairwise(bounds)):
        shards[index % 2].add(numbers[first:last], numbers[first:last] * 10)
    shards[1].merge(shards[0])
    np.testing.assert_array_equal(shards[1].numbers, expected)
    np.testing.assert_array_equal(shards[1].rows(0, n_most), expected * 10)


def test_a_sample_is_uniform():
    counts = np.zeros(100)
    for seed in range(400):
        sample = Sample(20, seed=seed)
        sample.add(np.arange(100), np.arange(100))
        counts[sample.numbers] += 1
    assert abs(counts - 80).max() < 5 * np.sqrt(80 * 0.8)
