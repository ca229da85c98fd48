"""The quick bootstrap against the plain one; curves against scikit-learn, and bands that hold what they say."""

import time

import numpy as np
import pytest
from sklearn.metrics import auc, precision_recall_curve, roc_curve

from esad.score import bootstrap
from esad.score.bootstrap import precision_recall, roc


def test_merging_keeps_every_row():
    rng = np.random.default_rng(0)
    is_anomaly = rng.random(50_000) < 0.5
    n_anomalies, n_normals = bootstrap.count_by_cell(rng.normal(size=50_000), is_anomaly)
    assert len(n_anomalies) == bootstrap.MAX_CELLS
    assert n_anomalies.sum() == is_anomaly.sum()
    assert n_normals.sum() == (~is_anomaly).sum()


@pytest.mark.parametrize("anomaly_ratio", [0.01, 0.5])
def test_a_million_rows_take_seconds(anomaly_ratio):
    rng = np.random.default_rng(0)
    is_anomaly = rng.random(1_000_000) < anomaly_ratio
    scores = rng.normal(size=1_000_000) + is_anomaly
    begin = time.process_time()
    roc(scores, is_anomaly)
    precision_recall(scores, is_anomaly)
    assert time.process_time() - begin < 20  # about 2 s on one core; the plain way takes many minutes


@pytest.fixture
def drawn():
    rng = np.random.default_rng(0)
    truth = rng.random(400) < 0.2
    return np.round(rng.normal(truth * 1.2), 1), truth  # with ties


def test_the_roc_curve_is_scikit_learns(drawn):
    scores, truth = drawn
    curve = roc(scores, truth, n_bootstrap=0)
    x, y, _ = roc_curve(truth, scores, drop_intermediate=False)
    inside = curve.x > 0
    np.testing.assert_allclose(curve.y[inside], np.interp(curve.x, x, y)[inside], atol=1e-12)
    assert auc(curve.x, curve.y) == pytest.approx(auc(x, y), abs=0.01)


def test_the_precision_is_that_of_the_first_cut_which_finds_so_many(drawn):
    scores, truth = drawn
    curve = precision_recall(scores, truth, n_bootstrap=0)
    precision, recall, _ = precision_recall_curve(truth, scores)
    for share, value in zip(curve.x[1:], curve.y[1:], strict=True):
        enough = recall[:-1] >= share - 1e-12
        assert value == pytest.approx(precision[:-1][enough][-1])


def test_the_precision_begins_where_the_first_anomaly_is_found():
    curve = precision_recall(np.array([5.0, 4.0, 3.0, 2.0]), np.array([False, True, False, True]), n_bootstrap=0)
    assert curve.y[0] == 0.5


def test_the_band_holds_the_curve_and_narrows_with_rows():
    rng = np.random.default_rng(1)
    widths = []
    for n_rows in (100, 4000):
        truth = np.arange(n_rows) % 5 == 0
        scores = rng.normal(truth * 1.0)
        for curve in (roc(scores, truth), precision_recall(scores, truth)):
            assert (curve.low <= curve.high).all()
            middle = slice(10, 90)
            assert np.mean((curve.low <= curve.y)[middle] & (curve.y <= curve.high)[middle]) > 0.95
        widths.append(np.mean(curve.high - curve.low))
    assert widths[1] < widths[0] / 3
