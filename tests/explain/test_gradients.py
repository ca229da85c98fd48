"""Integrated gradients and shares of logarithms, against plain numpy and closed forms."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import tiny

from esad.explain.attribution import occlude_units, sum_by_unit
from esad.explain.network import TOLERANCE, _integrate, carry_shares, integrate_gradients


def tensor(rows):
    return torch.tensor(rows, dtype=torch.float64)


@given(rows=st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=4))
def test_the_gradient_of_a_quadratic_is_integrated_exactly(rows):
    x, start = tensor(rows), tensor([[0.5, -1.0]]).expand(len(rows), 2)
    found = integrate_gradients(lambda x: {"t": (x.square() * tensor([1.0, 3.0])).sum(1)[None]}, "t", x, start)
    np.testing.assert_allclose(found[0], np.array([1.0, 3.0]) * (x.numpy() ** 2 - start.numpy() ** 2), atol=1e-9)


def test_steps_are_added_until_the_shares_are_complete():
    def sharp(x):  # all of the rise in a hundredth of the path
        return {"t": torch.sigmoid(400 * (x.sum(1) - 1.5))[None]}

    x, start = tensor([[1.0, 2.0]]), torch.zeros(1, 2).double()
    wanted = float(sharp(x)["t"] - sharp(start)["t"])
    few = float(_integrate(sharp, "t", x, start, 32).sum())
    assert abs(few - wanted) > TOLERANCE * wanted
    seen = []

    def watched(points):
        seen.append(len(points))
        return sharp(points)

    found = integrate_gradients(watched, "t", x, start)
    assert max(seen) > 32
    np.testing.assert_allclose(found.sum(), wanted, rtol=1e-12)
    np.testing.assert_allclose(found[0, 0], [wanted / 3, 2 * wanted / 3], rtol=1e-6)


def test_a_norm_of_nothing_has_no_shares():
    still = torch.zeros(1, 3).double()
    found = integrate_gradients(lambda x: {"t": x.square().sum(1).sqrt()[None]}, "t", still, still)
    assert (found == 0).all()


@given(
    summands=st.lists(st.floats(-10, 10), min_size=2, max_size=6).filter(lambda values: abs(sum(values)) > 1e-3),
    raised=st.floats(-10, 10),
)
def test_shares_are_carried_in_proportion(summands, raised):
    parts = tensor(summands)[None, None]
    found = carry_shares(parts, tensor([[raised]]), tensor([[1.0]]))[0, 0].numpy()
    np.testing.assert_allclose(found.sum(), raised, atol=1e-6)
    np.testing.assert_allclose(found * sum(summands), raised * np.array(summands), atol=1e-6)


def test_features_of_one_column_are_added_up():
    shares = np.random.default_rng(0).normal(size=(4, 6))
    units = np.array([2, 0, 1, 1, 0, 2])
    wanted = np.stack([shares[:, units == unit].sum(1) for unit in range(3)], axis=1)
    np.testing.assert_allclose(sum_by_unit(shares, units), wanted)


class TestOcclusion:
    def test_a_score_that_is_a_sum_is_told_apart_exactly(self):
        rng = np.random.default_rng(0)
        rows, expected = (rng.normal(size=(7, 5)).astype(np.float32) for _ in range(2))
        weights = rng.normal(size=5)
        units = np.array([0, 1, 2, 2, 1])
        found = occlude_units(lambda x: {"score": x @ weights}, rows, expected, units)
        wanted = sum_by_unit((rows - expected) * weights, units)
        np.testing.assert_allclose(found.shares["score"], wanted, atol=1e-5)
        np.testing.assert_allclose(found.base["score"], expected @ weights, atol=1e-6)

    def test_two_columns_that_act_together_share_evenly(self):
        def both(x):
            return {"score": (x[:, 0] * x[:, 1]).astype(np.float64)}

        rows, expected = np.ones((1, 3), np.float32), np.zeros((1, 3), np.float32)
        found = occlude_units(both, rows, expected, np.arange(3)).shares["score"]
        np.testing.assert_allclose(found, [[0.5, 0.5, 0.0]])  # orders and their reverses


class TestESAD:
    """The equations of `esad.explain.network` in numpy, for a small trained ESAD."""

    @pytest.fixture(params=["scaled", "sum"])
    def detector(self, request, rows):
        return tiny("esad", combine=request.param, norm_weight=2.0, bins=0, column_weights=0.0, n_epochs=20).fit(*rows)

    def test_reconstruction_shares_are_the_squared_errors(self, detector, rows):
        x = detector.rows_of(rows[0][-6:])
        reasons = detector.explain(rows[0][-6:])
        objective = detector.objective_
        with torch.no_grad():
            _, rebuilt, _ = objective(torch.from_numpy(x).expand(2, *x.shape))
        errors = ((rebuilt.numpy() - x) ** 2).astype(np.float64)  # (members, rows, features)
        errors /= x.shape[1] if objective.settings.reduction == "mean" else 1
        total = errors.sum(2)
        if objective.settings.combine == "sum":
            np.testing.assert_allclose(reasons.shares["reconstruction"], errors.mean(0), rtol=1e-4)
            np.testing.assert_allclose(reasons.base["reconstruction"], 0, atol=1e-12)
            return
        centre, spread = objective.centre[0].numpy()[:, None], objective.spread[0].numpy()[:, None]
        typical = np.zeros((1, x.shape[1]), np.float32)
        with torch.no_grad():
            _, rebuilt, _ = objective(torch.from_numpy(typical).expand(2, *typical.shape))
        at_typical = (rebuilt.numpy() ** 2).sum(2) / (x.shape[1] if objective.settings.reduction == "mean" else 1)
        low = np.minimum(at_typical, total / np.e)
        base = (np.log(low) - centre) / spread
        raised = np.log(total / low) / spread
        np.testing.assert_allclose(reasons.base["reconstruction"], base.mean(0), rtol=1e-3)
        wanted = (raised[:, :, None] * errors / total[:, :, None]).mean(0)
        np.testing.assert_allclose(reasons.shares["reconstruction"], wanted, rtol=1e-3)

    def test_norm_shares_add_up_to_what_the_norm_rises_from_the_base(self, detector, rows):
        reasons = detector.explain(rows[0][-6:])
        terms = detector.score_terms(rows[0][-6:])
        for name, share in reasons.shares.items():
            np.testing.assert_allclose(reasons.base[name] + share.sum(1), terms[name], rtol=1e-4, atol=1e-4)
        assert (reasons.base["norm"] < terms["norm"]).any()

    def test_the_base_of_an_alarm_is_a_normal_score(self, detector, rows):
        reasons = detector.explain(rows[0][-6:])
        base = sum(reasons.base.values())
        alarms = reasons.score > detector.threshold_
        assert (base[alarms] <= detector.threshold_).all()
