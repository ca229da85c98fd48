"""Counts between edges are those of numpy's search, whatever the numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.table.profile import count_between

NUMBERS = st.one_of(
    st.floats(allow_nan=False, width=64),
    st.floats(-3, 3),
    st.integers(-5, 5).map(float),
    st.sampled_from([0.0, -0.0, 1e-300, -1e308, 1e308, np.inf, -np.inf, 5e-324]),
)


def looked_up(edges, values):
    return np.bincount(np.searchsorted(edges, values, side="left"), minlength=len(edges) + 1)


@given(
    edges=st.lists(NUMBERS.filter(np.isfinite), max_size=12, unique=True).map(sorted),
    values=st.lists(NUMBERS, min_size=1, max_size=30),
)
def test_counts_are_those_of_a_search(edges, values):
    edges = np.array(edges, dtype=np.float64)
    many = np.tile(np.r_[np.array(values), edges], 1500 // len(values))
    assert count_between(edges, many).tolist() == looked_up(edges, many).tolist()


@pytest.mark.parametrize("draw", ["normal", "lognormal", "standard_cauchy"])
def test_percentiles_of_real_distributions(draw):
    rng = np.random.default_rng(0)
    edges = np.quantile(getattr(rng, draw)(size=5000), np.linspace(0.01, 0.99, 99))
    values = getattr(rng, draw)(size=70_000)
    assert count_between(edges, values).tolist() == looked_up(edges, values).tolist()
