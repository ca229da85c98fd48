"""Columns weighed by how well they tell known anomalies from unlabelled rows."""

import numpy as np
import pytest
import torch

from esad import load
from esad.methods.esad import ESAD
from esad.methods.esad.loss import LossSettings
from esad.methods.esad.views import LEAST_WEIGHT, MOST_WEIGHT, N_TREES, make_view, weigh_columns
from esad.networks.spec import NetworkSpec
from esad.solvers.trees import BaggedTreesModel


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    """Two of twelve columns tell anomalies apart; ten of thirty anomalies are known."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 12)).astype(np.float32)
    X[:30, :2] += 3
    y = np.zeros(600, dtype=np.int8)
    y[:10] = -1
    return X, y


def test_weights_are_eq_c(table):
    X, y = table
    found = weigh_columns(X, y, np.full(600, -1), power=0.5, n_members=1, seed=3)
    settings = {"n_trees": N_TREES, "unlabelled_ratio": 4.0, "min_unlabelled": 64, "max_features": 1.0}
    importances = BaggedTreesModel(**settings, with_ranks=False).fit(X, y, seed=3).importances
    assert importances.sum() == pytest.approx(1)
    np.testing.assert_allclose(found[0], np.sqrt(np.clip(12 * importances, LEAST_WEIGHT, MOST_WEIGHT)), rtol=1e-6)
    assert found[0, :2].min() > 1 > found[0, 2:].max()


def test_a_member_does_not_weigh_by_rows_that_it_leaves_out(table):
    X, y = table
    unseen_by = np.full(600, -1)
    unseen_by[:5], unseen_by[300:310] = 0, 1
    first, second = weigh_columns(X, y, unseen_by, power=1.0, n_members=2, seed=0)
    changed = X.copy()
    changed[:5] = 100
    again = weigh_columns(changed, y, unseen_by, power=1.0, n_members=2, seed=0)
    assert np.array_equal(again[0], first)
    assert not np.array_equal(again[1], second)


def test_without_known_anomalies_all_columns_weigh_alike(table):
    X, _ = table
    assert (weigh_columns(X, np.zeros(600, dtype=np.int8), np.full(600, -1), power=1.0, n_members=2, seed=0) == 1).all()
    assert ESAD(n_epochs=1, random_state=0).fit(X).recipe_.loss.column_weights == 0


@pytest.mark.parametrize("bins", [(), (0, 3)])
def test_what_is_shown_can_be_read_back(table, bins):
    """Plain members and those that see bins; rows within the bins, which end where the training rows did."""
    X, y = table
    spec = NetworkSpec("mlp", in_shape=(12,), hidden=(4,), latent=2, n_members=2)
    view = make_view(spec, LossSettings(input_noise=(0.0, 0.0), column_weights=1.0, bins=bins)).double()
    weights = weigh_columns(X, y, np.full(600, -1), power=1.0, n_members=2, seed=0)
    view.learn(X, np.arange(600), weights)
    rows = torch.from_numpy(X[100:150]).double().expand(2, 50, 12)
    shown = view.show(rows)
    np.testing.assert_allclose(view.columns(shown).numpy(), rows.numpy(), atol=1e-5)
    plain = shown[0].reshape(50, -1, 12)[:, 0] if bins else shown[0]
    np.testing.assert_allclose(plain.numpy(), rows[0].numpy() * weights[0], rtol=1e-6)


def test_columns_that_do_not_matter_disturb_less(table, tmp_path):
    from sklearn.metrics import average_precision_score

    X, y = table
    truth = np.arange(600) < 30
    weighed, alike = (ESAD(n_members=2, random_state=0, column_weights=power).fit(X, y) for power in ("auto", 0.0))
    found = [average_precision_score(truth[10:], one.anomaly_score(X)[10:]) for one in (weighed, alike)]
    assert found[0] > found[1]
    weighed.save(tmp_path / "weighed.esad")
    assert np.array_equal(load(tmp_path / "weighed.esad").anomaly_score(X), weighed.anomaly_score(X))
