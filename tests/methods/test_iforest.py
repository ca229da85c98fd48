"""Isolation Forest: the stacked trees against scikit-learn's own walk."""

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest as Reference

from esad import IsolationForest
from esad.errors import InputError
from esad.solvers.trees import _average_path


@pytest.mark.parametrize("n_rows", [3, 100, 700])
def test_scores_are_scikit_learns(n_rows):
    X = np.random.default_rng(1).normal(size=(n_rows, 4))
    detector = IsolationForest(random_state=5).fit(X)
    rows = detector.inputs_.transform(X)
    wanted = -Reference(n_estimators=100, max_samples=min(256, n_rows), random_state=5).fit(rows).score_samples(rows)
    np.testing.assert_allclose(detector.anomaly_score(X), wanted, rtol=1e-9)


def test_average_path_is_equation_2():
    harmonic = sum(1 / i for i in range(1, 256))
    assert _average_path(256) == pytest.approx(2 * harmonic - 2 * 255 / 256, abs=5e-3)
    assert _average_path(2) == 1.0
    assert _average_path(1) == 0.0


def test_labelled_anomalies_stay_out_of_the_sample():
    X = np.random.default_rng(0).normal(size=(50, 3))
    y = np.zeros(50, dtype=int)
    y[:10] = -1
    assert IsolationForest(random_state=0).fit(X, y).model_.n_drawn == 40


@pytest.mark.parametrize("parameters", [{"n_samples": 0.5}, {"n_samples": 0}, {"n_trees": 0}])
def test_isolation_forest_names_its_wrong_parameters(parameters):
    with pytest.raises(InputError, match=next(iter(parameters))):
        IsolationForest(**parameters).fit(np.eye(5))
