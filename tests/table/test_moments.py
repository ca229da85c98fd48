"""Moments in blocks agree with exact arithmetic, whatever the magnitude of the values."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.table.statistics import TableStatistics, careful_moments
from esad.table.table import Table


def in_blocks(values: np.ndarray, n_block: int) -> tuple[np.ndarray, np.ndarray]:
    """Moments merged over blocks; those that are not finite the careful way, as a fit has it."""
    statistics = TableStatistics()
    for start in range(0, len(values), n_block):
        block = values[start : start + n_block]
        statistics.add(Table.from_any(block), np.ones(len(block), dtype=bool))
    found = []
    for index, column in enumerate(statistics.columns):
        mean, std = (0.0, 0.0) if column.moments is None else (column.moments.mean[0], column.moments.std[0])
        is_sound = np.isfinite(mean) and np.isfinite(std)
        found.append((mean, std) if is_sound else careful_moments(values[:, index]))
    return tuple(np.array(found).T)


def exact(column: np.ndarray) -> tuple[float, float]:
    finite = [Fraction(float(value)) for value in column if math.isfinite(value)]
    if not finite:
        return 0.0, 0.0
    mean = sum(finite) / len(finite)
    variance = sum((value - mean) ** 2 for value in finite) / len(finite)
    scale = max(abs(value) for value in finite) or Fraction(1)
    return float(mean), math.sqrt(variance / scale**2) * float(scale)


MAGNITUDES = st.sampled_from([1e-310, 1e-200, 1e-3, 1.0, 1e9, 1e160, 1e300, 1.7e308])
CELLS = st.builds(lambda a, b: a * b, st.floats(-1, 1), MAGNITUDES) | st.sampled_from([np.nan, np.inf, -np.inf, 0.1])


@given(st.lists(CELLS, min_size=1, max_size=30), st.integers(1, 30))
def test_moments_are_right_for_any_mix_of_magnitudes(cells, n_block):
    mean, std = in_blocks(np.array(cells)[:, None], n_block)
    exact_mean, exact_std = exact(np.array(cells))
    assert np.isfinite(mean[0]) and np.isfinite(std[0])
    assert std[0] == pytest.approx(exact_std, rel=1e-9, abs=5e-324)
    assert mean[0] == pytest.approx(exact_mean, rel=1e-9, abs=1e-9 * exact_std + 5e-324)


def test_a_large_offset_does_not_drown_the_spread():
    values = 1e9 + np.random.default_rng(0).normal(size=(100_000, 1))
    mean, std = in_blocks(values, 1000)
    assert std[0] == pytest.approx(float(np.std(values - 1e9)), rel=1e-6)
    assert mean[0] == pytest.approx(1e9, abs=0.1)


@pytest.mark.parametrize("constant", [0.1, 1e300, -5e-324, 0.0, 123456789.123])
def test_a_constant_column_has_a_deviation_of_exactly_zero(constant):
    mean, std = in_blocks(np.full((1001, 2), constant), 100)
    assert mean.tolist() == [constant] * 2
    assert std.tolist() == [0.0] * 2


def test_a_column_may_start_with_blocks_of_missing_values():
    values = np.concatenate([np.full(50, np.nan), 1e9 + np.arange(50.0)])[:, None]
    mean, std = in_blocks(values, 10)
    assert mean[0] == 1e9 + 24.5
    assert std[0] == pytest.approx(np.arange(50.0).std(), rel=1e-12)
