"""SSAD and its hybrid: the solver sees what it should, and labels reach rows that are like the labelled ones."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from esad import SSAD, SSADHybrid
from esad.core.random import draw_held_out
from esad.errors import InputError
from esad.solvers.ssad import SSADModel

ARGUMENTS = {"kappa": 1.0, "eta_unlabelled": "auto", "eta_labelled": 1.0, "gamma": "auto", "tol": 1e-3}


def rows_of(detector, X):
    return detector.inputs_.transform(X).reshape(len(X), -1)


@pytest.fixture
def hidden_kind():
    """A cluster of forty rows beside the others, four of them known to be anomalies."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(300, 4)), rng.normal(2.2, 0.4, size=(40, 4))]
    y = np.zeros(340, dtype=int)
    y[-4:] = -1
    return X, y, np.r_[np.zeros(300), np.ones(40)]


def test_scores_are_the_solvers_on_rows_without_a_tenth_of_the_unlabelled(rows):
    X, y = rows
    detector = SSAD(random_state=3).fit(X, y)
    seen = draw_held_out(y.astype(np.int8), 3) != 0
    assert 0 < np.count_nonzero(~seen) <= 10
    flat = rows_of(detector, X)
    model = SSADModel(**ARGUMENTS).fit(flat[seen], y[seen].astype(np.int8), seed=3)
    np.testing.assert_array_equal(detector.anomaly_score(X), model.score(flat))


def test_of_pictures_it_sees_the_pixels_in_a_row():
    pictures = np.random.default_rng(0).integers(0, 256, size=(30, 6, 5), dtype=np.uint8)
    detector = SSAD(random_state=0).fit(pictures)
    assert detector.model_.support.shape[1] == 30


def test_four_labels_lift_the_anomalies_like_them(hidden_kind):
    X, y, truth = hidden_kind
    unseen = truth.astype(bool) & (y == 0) | (truth == 0)
    auc = [
        roc_auc_score(truth[unseen], SSAD(random_state=0).fit(X, labels).anomaly_score(X)[unseen])
        for labels in (y, None)
    ]
    assert auc[0] > 0.97
    assert auc[0] > auc[1] + 0.05


def test_the_hybrid_solves_on_the_codes(rows):
    X, y = rows
    detector = SSADHybrid(n_epochs=5, random_state=3).fit(X, y)
    with torch.no_grad():
        codes = detector.objective_.encoder(torch.from_numpy(rows_of(detector, X))[None])[0].numpy()
    seen = draw_held_out(y.astype(np.int8), 3) != 0
    model = SSADModel(**ARGUMENTS).fit(codes[seen], y[seen].astype(np.int8), seed=3)
    np.testing.assert_allclose(detector.anomaly_score(X), model.score(codes), atol=1e-4)


def test_the_hybrids_autoencoder_sees_known_anomalies_as_any_row(rows):
    assert (SSADHybrid()._labels_seen(rows[1]) == 0).all()


@pytest.mark.parametrize("method", [SSAD, SSADHybrid])
@pytest.mark.parametrize("wrong", [{"kappa": -1}, {"eta_unlabelled": 0}, {"tol": None}, {"gamma": 0}], ids=str)
def test_wrong_arguments_are_named(method, wrong, rows):
    with pytest.raises(InputError, match=f"`{next(iter(wrong))}` must be"):
        method(**wrong).fit(*rows)


def test_a_kernel_so_narrow_that_no_two_rows_are_alike_is_solved_for():
    X = np.random.default_rng(0).normal(size=(12, 100))
    y = np.r_[np.zeros(9), 1, -1, -1]
    assert np.isfinite(SSAD(gamma=1e300, random_state=0).fit(X, y).anomaly_score(X)).all()
