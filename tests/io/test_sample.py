"""Uniform samples of what is read once."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from esad.io.sample import Sample, priorities


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
