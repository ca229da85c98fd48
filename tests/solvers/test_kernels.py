"""The RBF kernel in blocks against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.errors import InputError
from esad.solvers import kernels
from esad.solvers.one_class_svm import OneClassSVMModel


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 3), st.floats(0.01, 5))
def test_kernel_is_the_formula(n, m, d, gamma):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    wanted = [[np.exp(-gamma * sum((x - y) ** 2)) for y in b] for x in a]
    np.testing.assert_allclose(kernels.kernel(a, b, gamma), wanted, rtol=1e-10)


def test_sums_in_blocks_are_the_whole_sum(monkeypatch):
    rng = np.random.default_rng(0)
    rows, support, weights = rng.normal(size=(50, 3)), rng.normal(size=(23, 3)), rng.normal(size=23)
    whole = kernels.kernel(rows, support, 0.5) @ weights
    monkeypatch.setattr(kernels, "BLOCK_ROWS", 7)
    np.testing.assert_allclose(kernels.kernel_sum(rows, support, weights, 0.5), whole, rtol=1e-12)


def test_the_automatic_width_gives_an_ordinary_pair_one_over_e():
    rows = np.random.default_rng(0).normal(size=(500, 6))
    gamma = kernels.median_gamma(rows, seed=0)
    pairs = kernels.kernel(rows, rows, gamma)[np.triu_indices(500, 1)]
    assert np.median(pairs) == pytest.approx(np.exp(-1), abs=0.02)
    assert kernels.median_gamma(np.ones((5, 2)), seed=0) == 1.0


@pytest.mark.parametrize("gamma", [0, -1, "scale", None, float("nan"), True])
def test_a_width_that_is_none_is_refused(gamma):
    with pytest.raises(InputError, match="`gamma` must be"):
        OneClassSVMModel(gamma=gamma)
