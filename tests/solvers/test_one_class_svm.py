"""One-class SVM: against scikit-learn, the dual's conditions, and SVDD's ball."""

import logging

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.svm import OneClassSVM

from esad.errors import InputError
from esad.solvers.kernels import kernel
from esad.solvers.one_class_svm import OneClassSVMModel


def fitted(rows, **changes):
    settings = {"gamma": 0.3, "nu": 0.2, "max_rows": 1000} | changes
    return OneClassSVMModel(**settings).fit(rows, np.zeros(len(rows), dtype=np.int8), seed=0)


@pytest.fixture
def cloud():
    return np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)


def test_scores_are_scikit_learns_up_to_scale(cloud):
    model = fitted(cloud)
    wanted = -OneClassSVM(kernel="rbf", gamma=0.3, nu=0.2).fit(cloud).decision_function(cloud) / (0.2 * len(cloud))
    np.testing.assert_allclose(model.score(cloud), wanted, atol=1e-7)


def test_the_solution_is_the_minimum_of_the_dual(cloud):
    """An independent solver finds nothing lower on the same constraints."""
    rows = cloud[:25]
    model = fitted(rows)
    k = kernel(rows, rows, 0.3)
    bound = 1 / (0.2 * len(rows))
    ours = 0.5 * model.weights @ kernel(model.support, model.support, 0.3) @ model.weights
    other = minimize(
        lambda a: 0.5 * a @ k @ a,
        np.full(len(rows), 1 / len(rows)),
        jac=lambda a: k @ a,
        bounds=[(0, bound)] * len(rows),
        constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert model.weights.sum() == pytest.approx(1)
    assert model.weights.max() <= bound * (1 + 1e-6)
    assert ours == pytest.approx(other.fun, rel=1e-3)


def test_svdds_distance_from_the_centre_ranks_rows_alike(cloud):
    model = fitted(cloud)
    centre = model.weights @ kernel(model.support, model.support, 0.3) @ model.weights
    distance = 1 - 2 * kernel(cloud, model.support, 0.3) @ model.weights + centre  # ||phi(x) - c||^2
    np.testing.assert_allclose(model.score(cloud), (distance - 1 - centre) / 2 + model.rho, atol=1e-10)


def test_two_rows_share_the_weight():
    model = fitted(np.array([[0.0], [2.0]], dtype=np.float32), nu=0.5)
    np.testing.assert_allclose(model.weights, [0.5, 0.5])
    assert model.score(np.array([[0.0]]))[0] == pytest.approx(0.0, abs=1e-7)  # on the boundary
    assert model.score(np.array([[50.0]]))[0] == pytest.approx((1 + np.exp(-0.3 * 4)) / 2)


def test_labelled_anomalies_are_left_out(cloud):
    y = np.zeros(80, dtype=np.int8)
    y[:10] = -1
    model = OneClassSVMModel(gamma=0.3, nu=0.2, max_rows=1000).fit(cloud, y, seed=0)
    assert not {tuple(row) for row in cloud[:10].astype(float)} & {tuple(row) for row in model.support}


def test_many_rows_are_sampled_and_said(cloud, caplog):
    with caplog.at_level(logging.WARNING, "esad"):
        model = fitted(cloud, max_rows=20)
    assert len(model.support) <= 20
    assert "20 of 80 rows" in caplog.text


@pytest.mark.parametrize("wrong", [{"nu": 0}, {"nu": 1.5}, {"max_rows": 1}, {"gamma": "wide"}])
def test_wrong_arguments_are_named(wrong, cloud):
    with pytest.raises(InputError, match=next(iter(wrong))):
        fitted(cloud, **wrong)
