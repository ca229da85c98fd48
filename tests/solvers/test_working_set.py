"""SSAD's dual: against independent solvers, the optimality conditions, and in parts against at once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize
from sklearn.svm import OneClassSVM

from esad.solvers import working_set
from esad.solvers.kernels import kernel
from esad.solvers.working_set import Dual, solve


def problem(n=30, *, n_anomalous=3, n_normal=3, kappa=1.0, eta=1.0, gamma=0.3, seed=0):
    rng = np.random.default_rng(seed)
    rows = np.r_[rng.normal(size=(n - n_anomalous, 3)), rng.normal(1.5, 1, size=(n_anomalous, 3))]
    y = np.r_[np.ones(n_normal), np.zeros(n - n_normal - n_anomalous), -np.ones(n_anomalous)]
    return Dual(
        rows=rows,
        signs=np.where(y < 0, -1.0, 1.0),
        bounds=np.where(y == 0, eta, 1.0),
        labelled=(y != 0).astype(float),
        kappa=kappa if n_anomalous else 0.0,
        gamma=gamma,
    )


def quadratic(dual):
    return kernel(dual.rows, dual.rows, dual.gamma) * np.outer(dual.signs, dual.signs)


def other_minimum(dual):
    """The least objective by scipy's sequential least squares, from a vertex of what is feasible."""
    q, n = quadratic(dual), len(dual.rows)
    start = linprog(
        np.zeros(n),
        A_eq=dual.signs[None],
        b_eq=[1.0],
        A_ub=-dual.labelled[None],
        b_ub=[-dual.kappa],
        bounds=np.c_[np.zeros(n), dual.bounds],
    ).x
    return minimize(
        lambda a: 0.5 * a @ q @ a,
        start,
        jac=lambda a: q @ a,
        bounds=np.c_[np.zeros(n), dual.bounds],
        constraints=[
            {"type": "eq", "fun": lambda a: dual.signs @ a - 1, "jac": lambda a: dual.signs},
            {"type": "ineq", "fun": lambda a: dual.labelled @ a - dual.kappa, "jac": lambda a: dual.labelled},
        ],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    ).fun


def assert_feasible(dual, weights):
    assert weights.min() >= 0
    assert (weights <= dual.bounds * (1 + 1e-9)).all()
    assert dual.signs @ weights == pytest.approx(1, abs=1e-6)
    assert dual.labelled @ weights >= dual.kappa - 1e-6


CASES = [
    {},
    {"n_anomalous": 0, "n_normal": 0},
    {"n_anomalous": 0},
    {"n_normal": 0},
    {"n_anomalous": 1, "n_normal": 0},  # kappa leaves that row no choice
    {"n_anomalous": 12, "n_normal": 18},  # nothing is unlabelled
    {"kappa": 0.0},
    {"kappa": 2.5},
    {"eta": 0.08},
    {"eta": 0.08, "n_anomalous": 0, "n_normal": 0},
    {"gamma": 2.0**-7},
    {"gamma": 4.0},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_objective_is_that_of_an_independent_solver(case):
    dual = problem(**case)
    found = solve(dual, tol=1e-6, seed=0)
    assert_feasible(dual, found.weights)
    assert found.objective == pytest.approx(0.5 * found.weights @ quadratic(dual) @ found.weights, rel=1e-9)
    assert found.objective == pytest.approx(other_minimum(dual), rel=1e-5)
    assert found.gap <= 1e-6 * found.objective


@pytest.mark.parametrize("nu", [0.05, 0.5])
def test_without_labels_the_weights_are_those_of_the_one_class_svm(nu):
    dual = problem(200, n_anomalous=0, n_normal=0, eta=1 / (nu * 200))
    other = OneClassSVM(kernel="rbf", gamma=dual.gamma, nu=nu, tol=1e-9).fit(dual.rows)
    wanted = np.zeros(200)
    wanted[other.support_] = other.dual_coef_[0] / (nu * 200)
    np.testing.assert_allclose(solve(dual, tol=1e-8, seed=0).weights, wanted, atol=1e-4)


@settings(max_examples=30)
@given(
    n=st.integers(2, 60),
    labels=st.tuples(st.integers(0, 5), st.integers(0, 5)),
    kappa=st.floats(0, 1),
    eta=st.floats(0.5, 2),
    gamma=st.floats(2**-7, 4),
    seed=st.integers(0, 100),
)
def test_the_optimality_conditions_hold(n, labels, kappa, eta, gamma, seed):
    n_normal, n_anomalous = labels
    dual = problem(
        n + n_normal + n_anomalous,
        n_anomalous=n_anomalous,
        n_normal=n_normal,
        kappa=kappa * min(n_anomalous, eta * n + n_normal - 1),
        eta=eta,
        gamma=gamma,
        seed=seed,
    )
    found = solve(dual, tol=1e-7, seed=0)
    assert_feasible(dual, found.weights)
    levels = quadratic(dual) @ found.weights  # y f
    slack = levels - dual.signs * found.rho - dual.labelled * found.margin
    wrong = np.where(slack < 0, (dual.bounds - found.weights) * -slack, found.weights * slack)
    margin_wrong = found.margin * (dual.labelled @ found.weights - dual.kappa)
    assert found.margin >= 0
    assert wrong.sum() + margin_wrong == pytest.approx(0, abs=1e-5 * found.objective)


@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(random):
    dual = problem(40, gamma=0.8)
    order = np.array(random.sample(range(40), 40))
    shuffled = Dual(dual.rows[order], dual.signs[order], dual.bounds[order], dual.labelled[order], 1.0, 0.8)
    weights = solve(dual, tol=1e-8, seed=0).weights
    np.testing.assert_allclose(solve(shuffled, tol=1e-8, seed=0).weights, weights[order], atol=1e-5)


@pytest.mark.parametrize("gamma", [2.0**-7, 0.1, 4.0])
@pytest.mark.parametrize("eta", [1.0, 0.01])
def test_working_sets_reach_what_one_program_reaches(gamma, eta, monkeypatch):
    dual = problem(600, n_anomalous=20, n_normal=10, gamma=gamma, eta=eta)
    for name, value in {"N_START": 600, "N_NEW": 600, "N_WHOLE": 600}.items():
        monkeypatch.setattr(working_set, name, value)
    at_once = solve(dual, tol=1e-6, seed=0)
    assert at_once.n_rounds <= 2
    for name, value in {"N_START": 20, "N_NEW": 20, "N_WHOLE": 60, "N_PART": 60}.items():
        monkeypatch.setattr(working_set, name, value)
    in_parts = solve(dual, tol=1e-3, seed=0)
    assert in_parts.n_rounds > 2
    assert_feasible(dual, in_parts.weights)
    assert in_parts.gap <= 1e-3 * in_parts.objective
    assert at_once.objective * (1 - 1e-6) <= in_parts.objective <= at_once.objective * (1 + 1.1e-3)


def test_a_solution_that_stops_early_states_a_gap_that_holds(monkeypatch):
    dual = problem(300, n_anomalous=10, gamma=1.0)
    least = solve(dual, tol=1e-7, seed=0).objective
    for name, value in {"N_START": 20, "N_NEW": 20, "N_WHOLE": 40, "N_PART": 30, "MAX_WORK": 0}.items():
        monkeypatch.setattr(working_set, name, value)
    early = solve(problem(300, n_anomalous=10, gamma=1.0), tol=1e-7, seed=0)
    assert early.gap > 1e-3 * early.objective
    assert early.objective - early.gap <= least <= early.objective


def test_a_solver_that_fails_is_survived(monkeypatch):
    dual = problem(300, n_anomalous=10, gamma=1.0)
    honest, calls = working_set._solve_quadratic_program, []

    def unsteady(matrix, *args, **kwargs):
        calls.append(len(matrix))
        step = honest(matrix, *args, **kwargs)
        return working_set._Step(step.step * np.nan, step.rho, step.margin) if len(calls) % 2 else step

    monkeypatch.setattr(working_set, "_solve_quadratic_program", unsteady)
    found = solve(dual, tol=1e-3, seed=0)
    assert_feasible(dual, found.weights)
    assert found.gap <= 1e-3 * found.objective
    assert len(calls) > 1


def test_the_same_seed_gives_the_same_bits():
    first, second = (solve(problem(300, gamma=1.0), tol=1e-3, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.weights, second.weights)
    assert (first.rho, first.margin) == (second.rho, second.margin)
