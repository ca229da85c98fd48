"""The common scale: it rises everywhere, says what the quantiles say, and is the same in other runtimes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from esad.errors import ModelFileError
from esad.score.surprisal import Surprisal, SurprisalModule

SCORES = hnp.arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e6, 1e6))


def test_it_is_minus_the_logarithm_of_the_share_above():
    rng = np.random.default_rng(0)
    surprisal = Surprisal.of(rng.normal(size=20_000))
    for share, score in ((0.5, 0.0), (0.1, 1.2816), (0.01, 2.3263)):
        assert surprisal(score) == pytest.approx(-np.log(share), rel=0.05)


def test_beyond_the_largest_score_it_goes_on_as_an_exponential_tail():
    surprisal = Surprisal.of(np.random.default_rng(0).exponential(2.0, size=20_000))
    assert surprisal(60.0) - surprisal(40.0) == pytest.approx(10.0, rel=0.15)


@given(SCORES, SCORES)
def test_it_never_turns_the_order_of_two_rows(known, new):
    values = Surprisal.of(known)(np.sort(new))
    assert np.isfinite(values).all() and (values >= 0).all() and (np.diff(values) >= 0).all()


@given(SCORES, SCORES)
def test_a_file_and_another_runtime_say_the_same(known, new):
    surprisal = Surprisal.of(known)
    again = Surprisal.from_state(surprisal.state())
    np.testing.assert_array_equal(again(new), surprisal(new))
    found = SurprisalModule(surprisal)(torch.from_numpy(new)).numpy()
    np.testing.assert_allclose(found, surprisal(new), rtol=1e-6, atol=1e-8)


@given(SCORES, SCORES)
def test_the_secant_leads_from_one_score_to_the_other(known, new):
    surprisal, start = Surprisal.of(known), np.full(len(new), float(known[0]))
    apart = np.abs(new - start) > 1e-3 * np.maximum(np.abs(new), np.abs(start))
    found = surprisal(start) + surprisal.secant(new, start) * (new - start)
    np.testing.assert_allclose(found[apart], surprisal(new)[apart], rtol=1e-6, atol=1e-6)
    assert np.isfinite(surprisal.secant(start, start)).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"knots": np.array([1.0, 0.0])},
        {"values": np.array([0.5, 0.1])},
        {"values": np.array([0.0, 0.1])},
        {"slopes": np.array([1.0, -1.0])},
        {"slopes": np.array([1.0, np.nan])},
        {"knots": np.array([0.0, 1.0], dtype=np.float32)},
        {"knots": np.array([0.0])},
        {"more": np.array([0.0])},
    ],
)
def test_a_forged_scale_is_refused(changes):
    state = {"knots": np.array([0.0, 1.0]), "values": np.array([0.1, 2.0]), "slopes": np.array([1.0, 1.0])}
    Surprisal.from_state(state)
    with pytest.raises(ModelFileError):
        Surprisal.from_state(state | changes)
