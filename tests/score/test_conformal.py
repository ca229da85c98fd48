"""Conformal p-values hold their level, discoveries their rate, and what cannot be promised is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, false_discovery_control

from esad.errors import InputError, ModelFileError
from esad.score.conformal import Calibration, discoveries
from esad.score.threshold import n_rows_needed

numbers = st.floats(-1e6, 1e6)


def by_hand(calibration: np.ndarray, score: float) -> float:
    return (1 + sum(value >= score for value in calibration)) / (len(calibration) + 1)


@given(rows=st.lists(numbers, min_size=1, max_size=30), new=st.lists(numbers, min_size=1, max_size=10))
def test_the_p_value_is_the_share_of_rows_that_score_as_high(rows, new):
    found = Calibration.of([rows], "given").p_values([*new, rows[0]])
    assert found.tolist() == [by_hand(rows, score) for score in [*new, rows[0]]]


@given(rows=st.lists(numbers, min_size=1, max_size=30), new=st.lists(numbers, min_size=2, max_size=10))
def test_a_higher_score_never_has_a_larger_p_value(rows, new):
    found = Calibration.of([rows], "given").p_values(np.sort(new))
    assert (np.diff(found) <= 0).all()


@given(
    rows=st.lists(st.integers(0, 9), min_size=1, max_size=40),
    alpha=st.one_of(st.floats(0.01, 0.99), st.sampled_from([0.1, 0.2, 0.3, 0.7])),
)
def test_alarms_are_exactly_the_p_values_of_at_most_alpha(rows, alpha):
    calibration = Calibration.of([rows], "given")
    if len(rows) < n_rows_needed(alpha):
        with pytest.raises(InputError, match=f"at least {n_rows_needed(alpha)} calibration rows. Got {len(rows)}"):
            calibration.threshold(alpha)
        return
    new = np.arange(-1.0, 11.0)
    flagged = new > calibration.threshold(alpha)
    np.testing.assert_array_equal(flagged, calibration.p_values(new) <= alpha + 1e-12)
    np.testing.assert_array_equal(flagged, calibration.ranks(new) <= calibration.last_rank(alpha))


@pytest.mark.parametrize("alpha", [0.4, 0.1, 0.05, 0.01, 1 / 3])
def test_the_rows_needed_are_just_enough(alpha):
    n_needed = n_rows_needed(alpha)
    assert n_needed == math.ceil(1 / alpha) - 1
    Calibration.of([np.arange(n_needed)], "given").threshold(alpha)
    with pytest.raises(InputError, match=f"needs at least {n_needed:,} calibration rows. Got {n_needed - 1}"):
        Calibration.of([np.arange(n_needed - 1)], "given").threshold(alpha)


@pytest.mark.parametrize(("n_rows", "alpha"), [(9, 0.1), (50, 0.1), (99, 0.01), (200, 0.05), (37, 0.25)])
def test_exchangeable_rows_hold_the_level_within_the_binomial_band(n_rows, alpha):
    rng = np.random.default_rng(n_rows)
    n_draws = 20_000
    scores = rng.gumbel(size=(n_draws, n_rows + 1)).round(2)  # with ties, which make it careful
    ranks = 1 + (scores[:, 1:] >= scores[:, :1]).sum(axis=1)
    spot = Calibration.of([scores[0, 1:]], "given")
    assert spot.ranks(scores[0, :1]) == ranks[0]
    n_flagged = int((ranks / (n_rows + 1) <= alpha + 1e-12).sum())
    assert n_flagged <= binom.ppf(0.9999, n_draws, alpha)
    attained = math.floor((n_rows + 1) * alpha + 1e-9) / (n_rows + 1)
    assert n_flagged >= binom.ppf(0.0001, n_draws, attained) - 0.02 * n_draws  # ties cost a little
    for share in (0.02, 0.2, 0.5, 0.9):  # super-uniform everywhere, not at alpha only
        assert (ranks / (n_rows + 1) <= share).sum() <= binom.ppf(0.9999, n_draws, share)


def test_cross_conformal_ranks_add_up_member_by_member():
    rng = np.random.default_rng(0)
    parts, new = [rng.normal(size=8), rng.normal(size=5)], rng.normal(size=(3, 20))
    calibration = Calibration.of(parts, "cross")
    wanted = [1 + sum(int((part >= new[k, i]).sum()) for k, part in enumerate(parts)) for i in range(20)]
    assert calibration.ranks(new).tolist() == wanted
    with pytest.raises(InputError, match=r"of 2 members\. Got scores by 1"):
        calibration.ranks(new[0])


class TestPollution:
    """Calibration rows with hidden anomalies, which score higher than normal rows."""

    N, ALPHA, N_DRAWS = 200, 0.05, 3000

    def flagged(self, n_hidden: int, *, cut: float, hidden_score: float = 6.0) -> float:
        rng = np.random.default_rng(7)
        scores = rng.normal(size=(self.N_DRAWS, self.N + 1))
        scores[:, 1 : 1 + n_hidden] += hidden_score
        hits = sum(
            Calibration.of([row[1:]], "given", pollution_ratio=cut).p_values(row[:1])[0] <= self.ALPHA for row in scores
        )
        return hits / self.N_DRAWS

    def test_hidden_anomalies_make_it_careful(self):
        assert self.flagged(20, cut=0.0) < 0.01  # of 5 % that were allowed

    def test_cutting_off_what_is_there_regains_the_level(self):
        found = self.flagged(20, cut=0.1)
        assert binom.ppf(0.001, self.N_DRAWS, 0.045) <= found * self.N_DRAWS <= binom.ppf(0.999, self.N_DRAWS, 0.05)

    @pytest.mark.parametrize("n_hidden", [0, 5, 20])
    @pytest.mark.parametrize("hidden_score", [-6.0, 0.0, 6.0])
    def test_the_worst_case_is_the_stated_one(self, n_hidden, hidden_score):
        n_cut = 20
        bound = self.ALPHA * (self.N + 1) / (self.N - n_hidden + 1)
        assert self.flagged(n_hidden, cut=0.0, hidden_score=hidden_score) < bound + 0.015
        bound = self.ALPHA + n_cut / (self.N - n_cut + 1)
        assert self.flagged(n_hidden, cut=0.1, hidden_score=hidden_score) < bound + 0.015


class TestDiscoveries:
    @given(
        ranks=st.lists(st.integers(1, 21), min_size=1, max_size=60),
        rate=st.one_of(st.floats(0.05, 0.95), st.sampled_from([0.05, 0.1, 0.2, 0.5])),
    )
    def test_counted_ranks_give_what_scipy_gives(self, ranks, rate):
        calibration = Calibration.of([np.arange(20)], "given")
        cut = calibration.last_discovery(np.bincount(ranks, minlength=22), rate)
        found = np.asarray(ranks) <= cut
        np.testing.assert_array_equal(found, false_discovery_control(np.asarray(ranks) / 21) <= rate * (1 + 1e-9))
        np.testing.assert_array_equal(found, discoveries(np.asarray(ranks) / 21, rate))

    def test_the_rate_is_kept_and_anomalies_are_found(self):
        rng = np.random.default_rng(1)
        n_rows, n_normal, n_odd, rate = 500, 180, 20, 0.2
        shares, powers = [], []
        for _ in range(1000):
            calibration = Calibration.of([rng.normal(size=n_rows)], "given")
            new = np.r_[rng.normal(size=n_normal), rng.normal(4, 1, size=n_odd)]
            found = discoveries(calibration.p_values(new), rate)
            shares.append(found[:n_normal].sum() / max(found.sum(), 1))
            powers.append(found[n_normal:].mean())
        error = np.std(shares) / math.sqrt(len(shares))
        assert np.mean(shares) <= rate * n_normal / (n_normal + n_odd) + 3 * error
        assert np.mean(shares) >= 0.1  # and is not just empty
        assert np.mean(powers) > 0.8

    def test_a_rate_that_no_number_of_rows_can_reach_is_refused(self):
        calibration = Calibration.of([np.arange(5)], "given")
        with pytest.raises(InputError, match=r"rate of 0\.1 needs at least 9 calibration rows\. Got 5"):
            calibration.last_discovery(np.ones(7, dtype=np.int64), 0.1)

    @pytest.mark.parametrize("rate", [0, 1, -0.1, 2, math.nan, True, "0.1", None])
    def test_wrong_rates_are_refused(self, rate):
        with pytest.raises(InputError, match="above 0 and below 1"):
            discoveries([0.5], rate)

    @pytest.mark.parametrize("p_values", [[], [[0.5]], [0.0], [1.5], [math.nan]])
    def test_what_are_no_p_values_is_refused(self, p_values):
        with pytest.raises(InputError, match="`p_values` must be"):
            discoveries(p_values, 0.1)


@pytest.mark.parametrize("ratio", [-0.1, 1, 1.5, math.nan, "much", None])
def test_wrong_pollution_is_refused(ratio):
    with pytest.raises(InputError, match="`pollution_ratio` must be"):
        Calibration.of([np.arange(9)], "given", pollution_ratio=ratio)


def test_no_row_is_refused():
    with pytest.raises(InputError, match="one row at least"):
        Calibration.of([[]], "given")


@settings(max_examples=30)
@given(parts=st.lists(st.lists(numbers, max_size=9), min_size=1, max_size=4).filter(any))
def test_the_state_comes_back(parts):
    before = Calibration.of(parts, "cross")
    after = Calibration.from_state(*before.state())
    assert after.kind == "cross"
    assert [part.tolist() for part in after.parts] == [sorted(part) for part in parts]


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "else"},
        {"kind": ["given"]},
        {"sizes": [2]},
        {"sizes": [1, 2]},
        {"sizes": []},
        {"sizes": [-1, 4]},
        {"sizes": "3"},
        {"pollution_ratio": 1},
        {"pollution_ratio": None},
        {"more": 1},
    ],
)
def test_a_forged_description_is_refused(changes):
    arrays, plain = Calibration.of([[1.0, 2.0, 3.0]], "given").state()
    with pytest.raises(ModelFileError, match="calibration is damaged"):
        Calibration.from_state(arrays, plain | changes)


@pytest.mark.parametrize("scores", [[3.0, 2.0, 1.0], [1.0, 2.0, math.nan], [1.0, 2.0], [[1.0, 2.0, 3.0]]])
def test_forged_scores_are_refused(scores):
    _, plain = Calibration.of([[1.0, 2.0, 3.0]], "given").state()
    with pytest.raises(ModelFileError, match="calibration is damaged"):
        Calibration.from_state({"scores": np.asarray(scores)}, plain)


class TestProbabilities:
    @staticmethod
    def draw(rng, n_rows, ratio):
        """Scores of normal rows around 0 and of anomalies around 2, and which are which."""
        is_anomaly = rng.random(n_rows) < ratio
        return rng.normal(2.0 * is_anomaly, 1.0), is_anomaly

    @pytest.mark.parametrize(("ratio", "told"), [(0.2, None), (0.05, 0.05)])
    def test_of_rows_said_to_be_anomalies_with_a_probability_such_a_share_is(self, ratio, told):
        rng = np.random.default_rng(0)
        scores, is_anomaly = self.draw(rng, 4000, 0.2)
        calibration = Calibration.of([scores[~is_anomaly]], "given")
        calibration = calibration.with_anomalies(scores[is_anomaly], anomaly_ratio=told)
        new, truth = self.draw(rng, 20000, ratio)
        found = calibration.probabilities(new)
        for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
            mine = (found >= low) & (found < high)
            assert abs(found[mine].mean() - truth[mine].mean()) < 0.1

    @given(rows=st.lists(numbers, min_size=1, max_size=30), odd=st.lists(numbers, min_size=1, max_size=5))
    @settings(max_examples=30, deadline=None)
    def test_a_higher_score_is_never_less_probable(self, rows, odd):
        calibration = Calibration.of([rows], "given").with_anomalies(odd)
        found = calibration.probabilities(np.sort([*rows, *odd]))
        assert ((found >= 0) & (found <= 1)).all()
        assert (np.diff(found) >= 0).all()

    def test_they_come_back_from_a_file_and_a_forged_scale_is_refused(self):
        calibration = Calibration.of([np.arange(50.0)], "given").with_anomalies([60.0, 70.0])
        arrays, plain = calibration.state()
        back = Calibration.from_state(arrays, plain)
        assert back.probabilities([45.0, 65.0]).tolist() == calibration.probabilities([45.0, 65.0]).tolist()
        for forged in ([1.0], [math.nan, 0.0], [-1.0, 0.0], "ab", [1, 0]):
            with pytest.raises(ModelFileError, match="scale of probabilities"):
                Calibration.from_state(arrays, plain | {"sigmoid": forged})
