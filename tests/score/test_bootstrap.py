"""The quick bootstrap against the plain one."""

import time

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from esad.score import bootstrap


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=2, max_size=60))
def test_folding_rows_into_cells_changes_neither_measure(rows):
    scores, is_anomaly = np.array(rows, dtype=float).T
    is_anomaly = is_anomaly.astype(bool)
    assume(0 < is_anomaly.sum() < len(is_anomaly))
    n_anomalies, n_normals = bootstrap.count_by_cell(scores, is_anomaly)
    auc, average_precision = bootstrap._measure_resamples(n_anomalies[None], n_normals[None])
    assert auc[0] == pytest.approx(roc_auc_score(is_anomaly, scores))
    assert average_precision[0] == pytest.approx(average_precision_score(is_anomaly, scores))


def plain_bootstrap(scores, is_anomaly, n_bootstrap, rng):
    """Resample rows one by one, as the textbook does."""
    anomalies, normals = scores[is_anomaly], scores[~is_anomaly]
    truth = np.sort(is_anomaly)
    found = []
    for _ in range(n_bootstrap):
        drawn = np.r_[rng.choice(normals, len(normals)), rng.choice(anomalies, len(anomalies))]
        found.append((roc_auc_score(truth, drawn), average_precision_score(truth, drawn)))
    return np.array(found).T


def test_resamples_spread_like_those_drawn_row_by_row():
    rng = np.random.default_rng(0)
    is_anomaly = np.arange(300) < 40
    scores = np.round(rng.normal(size=300) + 1.5 * is_anomaly, 1)  # with ties
    quick = bootstrap.draw_differences(scores, is_anomaly, n_bootstrap=4000, rng=np.random.default_rng(1))
    plain = plain_bootstrap(scores, is_anomaly, 400, rng)
    centre = roc_auc_score(is_anomaly, scores), average_precision_score(is_anomaly, scores)
    for shifts, values, middle in zip(quick, plain, centre, strict=True):
        assert np.std(shifts) == pytest.approx(np.std(values), rel=0.12)
        quantiles = [0.1, 0.5, 0.9]  # of 400 draws: known to about 0.09 standard deviations
        np.testing.assert_allclose(
            np.quantile(middle + shifts, quantiles), np.quantile(values, quantiles), atol=0.22 * values.std()
        )


def test_merged_cells_spread_like_exact_ones(monkeypatch):
    rng = np.random.default_rng(0)
    is_anomaly = np.arange(8000) < 2000
    scores = rng.normal(size=8000) + is_anomaly
    merged_of = {}
    for max_cells in (200, 10_000):
        monkeypatch.setattr(bootstrap, "MAX_CELLS", max_cells)
        merged_of[max_cells] = bootstrap.draw_differences(
            scores, is_anomaly, n_bootstrap=2000, rng=np.random.default_rng(1)
        )
    for merged, exact in zip(merged_of[200], merged_of[10_000], strict=True):
        quantiles = [0.025, 0.5, 0.975]
        np.testing.assert_allclose(
            np.quantile(merged, quantiles), np.quantile(exact, quantiles), atol=0.15 * exact.std()
        )


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
    bootstrap.draw_differences(scores, is_anomaly, n_bootstrap=1000, rng=rng)
    assert time.process_time() - begin < 20  # about 2 s on one core; the plain way takes many minutes
