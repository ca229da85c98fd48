"""SSAD: known answers, what missing labels do, and thirty thousand rows."""

import logging
import tracemalloc

import numpy as np
import pytest

from esad.errors import InputError, ModelFileError
from esad.solvers import working_set
from esad.solvers.kernels import kernel
from esad.solvers.ssad import SSADModel

ARGUMENTS = {"kappa": 1.0, "eta_unlabelled": 1.0, "eta_labelled": 1.0, "gamma": 0.5, "tol": 1e-6}


def fitted(rows, y, **changes):
    return SSADModel(**ARGUMENTS | changes).fit(np.asarray(rows, np.float32), np.asarray(y, np.int8), seed=0)


@pytest.fixture
def cloud():
    return np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


def test_two_rows_share_the_weight():
    model = fitted([[0.0], [2.0]], [0, 0])
    np.testing.assert_allclose(model.weights, [0.5, 0.5], atol=1e-6)
    assert model.rho[0] == pytest.approx((1 + np.exp(-0.5 * 4)) / 2, abs=1e-6)
    np.testing.assert_allclose(model.score(np.array([[0.0], [2.0]])), 0, atol=1e-6)  # on the boundary


def test_a_known_anomaly_takes_kappa_and_the_others_one_more():
    """w = a phi(0) + b phi(2) - phi(1) with a + b = 2; by symmetry a = b = 1."""
    model = fitted([[0.0], [2.0], [1.0]], [0, 0, -1])
    np.testing.assert_allclose(model.weights, [1, 1, -1], atol=1e-5)
    scores = model.score(np.array([[0.0], [2.0], [1.0]]))
    near, far = np.exp(-0.5), np.exp(-2.0)
    np.testing.assert_allclose(scores - scores[0], [0, 0, (1 + far - near) - (2 * near - 1)], atol=1e-5)


def test_scores_are_the_offset_minus_the_projection(cloud):
    y = np.r_[-np.ones(5), np.ones(5), np.zeros(50)]
    model = fitted(cloud, y)
    wanted = model.rho - kernel(cloud, model.support, 0.5) @ model.weights
    np.testing.assert_allclose(model.score(cloud), wanted, rtol=1e-10)
    assert (model.weights < 0).sum() >= 1


@pytest.mark.parametrize("sign", [-1, 1])
def test_labels_move_the_scores_their_way(cloud, sign):
    others = np.r_[np.zeros(3), -np.ones(3), np.zeros(54)]  # so that there is a boundary to be moved
    before, after = (fitted(cloud, y).score(cloud) for y in (others, others + np.r_[np.full(3, sign), np.zeros(57)]))
    ranks = [np.argsort(np.argsort(scores))[:3].sum() for scores in (before, after)]
    assert (ranks[1] - ranks[0]) * -sign > 0


def test_normal_labels_alone_are_rows_like_the_others(cloud):
    y = np.r_[np.ones(5), np.zeros(55)]
    np.testing.assert_allclose(fitted(cloud, y).score(cloud), fitted(cloud, np.zeros(60)).score(cloud), atol=1e-5)


def test_anomalies_alone_count_as_unlabelled(cloud):
    np.testing.assert_array_equal(fitted(cloud, -np.ones(60)).score(cloud), fitted(cloud, np.zeros(60)).score(cloud))


def test_a_kappa_that_cannot_be_is_lowered_and_said(cloud, caplog):
    y = np.r_[-np.ones(2), np.zeros(58)]
    with caplog.at_level(logging.WARNING, "esad"):
        model = fitted(cloud, y, kappa=5.0)
    assert "kappa = 5 is more than the labels can carry; 2 is used" in caplog.text
    np.testing.assert_allclose(model.weights[model.weights < 0], [-1, -1], atol=1e-6)


def test_the_automatic_cost_lets_a_tenth_lie_outside(cloud):
    by_hand = fitted(cloud, np.zeros(60), eta_unlabelled=1 / (0.1 * 60))
    automatic = fitted(cloud, np.zeros(60), eta_unlabelled="auto")
    np.testing.assert_array_equal(automatic.score(cloud), by_hand.score(cloud))
    assert (automatic.score(cloud) > 1e-6).mean() <= 0.1


def test_costs_that_cannot_add_up_to_one_are_raised(cloud):
    model = fitted(cloud, np.zeros(60), eta_unlabelled=1e-3)
    np.testing.assert_allclose(model.weights, 1 / 60)  # a kernel density


@pytest.mark.parametrize(
    "rows",
    [np.zeros((50, 2)), np.repeat([[0.0, 1.0], [3.0, 1.0]], 25, axis=0), np.c_[np.arange(50.0), np.ones(50)]],
    ids=["all the same", "two rows many times", "a constant column"],
)
@pytest.mark.parametrize("y", [np.zeros(50), np.r_[-np.ones(3), np.zeros(47)], np.resize([-1, 1], 50)], ids=len)
@pytest.mark.parametrize("gamma", ["auto", 2.0**-7, 4.0])
def test_degenerate_rows_still_give_scores(rows, y, gamma):
    model = fitted(rows, y, gamma=gamma, tol=1e-3)
    assert np.isfinite(model.score(rows)).all()


def test_a_gap_that_is_not_reached_is_stated(cloud, caplog, monkeypatch):
    for name, value in {"N_START": 5, "N_NEW": 2, "N_WHOLE": 5, "N_PART": 6, "MAX_ROUNDS": 3}.items():
        monkeypatch.setattr(working_set, name, value)
    with caplog.at_level(logging.WARNING, "esad"):
        fitted(np.repeat(cloud, 10, axis=0) + np.arange(600)[:, None] / 100, np.zeros(600), gamma=4.0)
    assert "relative duality gap" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [{"kappa": -1}, {"eta_unlabelled": 0}, {"eta_labelled": "auto"}, {"tol": 0}, {"gamma": "wide"}, {"kappa": True}],
    ids=str,
)
def test_wrong_arguments_are_named(wrong, cloud):
    with pytest.raises(InputError, match=next(iter(wrong))):
        fitted(cloud, np.zeros(60), **wrong)


def test_a_restored_model_scores_alike_and_a_forged_one_is_refused(cloud):
    model = fitted(cloud, np.r_[-np.ones(5), np.zeros(55)])
    arrays, plain = model.state()
    again = SSADModel(**ARGUMENTS).restore(arrays, plain, n_features=3)
    np.testing.assert_array_equal(again.score(cloud), model.score(cloud))
    for forged in (
        {"weights": arrays["weights"][:-1]},
        {"support": arrays["support"][:, :2]},
        {"rho": np.array([np.nan])},
    ):
        with pytest.raises(ModelFileError):
            SSADModel(**ARGUMENTS).restore(arrays | forged, plain, n_features=3)
    with pytest.raises(ModelFileError):
        SSADModel(**ARGUMENTS).restore(arrays, {"gamma": -1.0}, n_features=3)


@pytest.mark.extra
@pytest.mark.parametrize("gamma", [2.0**-7, 0.05, 4.0])
def test_thirty_thousand_rows_without_a_matrix_of_all_by_all(gamma):
    rng = np.random.default_rng(0)
    rows = np.r_[rng.normal(size=(29_500, 10)), rng.normal(0, 3, size=(500, 10))].astype(np.float32)
    y = np.zeros(30_000, dtype=np.int8)
    y[-100:] = -1
    tracemalloc.start()
    model = fitted(rows, y, gamma=gamma, tol=1e-3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500e6  # the matrix alone would take 7.2e9
    assert model.score(rows[-400:]).mean() > model.score(rows[:400]).mean()
