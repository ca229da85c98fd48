"""ROC and precision-recall curves with bootstrap bands, on a grid, quick enough for a million rows."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esad.score.bootstrap import count_by_cell, draw_resamples

__all__ = ["Curve", "precision_recall", "roc"]

GRID = np.linspace(0.0, 1.0, 101)
Values = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve over a grid, with the middle 95 % of its resamples at every point.

    Attributes
    ----------
    x, y, low, high : ndarray, (points,)
    """

    x: Values
    y: Values
    low: Values
    high: Values


def roc(scores: Values, is_anomaly: NDArray[np.bool_], *, n_bootstrap: int = 500) -> Curve:
    """Share of the anomalies found over the share of false alarms, interpolated.

    Examples
    --------
    >>> curve = roc(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, False, True, True]), n_bootstrap=0)
    >>> curve.y[0], curve.y[-1]
    (np.float64(1.0), np.float64(1.0))
    """

    def measure(n_anomalies: Counts, n_normals: Counts) -> Values:
        found, false = _shares(n_anomalies), _shares(n_normals)
        return np.stack([_highest_at_grid(*pair) for pair in zip(false, found, strict=True)])

    return _with_band(scores, is_anomaly, measure, n_bootstrap)


def precision_recall(scores: Values, is_anomaly: NDArray[np.bool_], *, n_bootstrap: int = 500) -> Curve:
    """Share of anomalies among the alarms, at the threshold that finds a share of the anomalies; steps, not lines.

    Examples
    --------
    >>> curve = precision_recall(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, True, False, True]), n_bootstrap=0)
    >>> curve.y[[0, 50, 51, 100]].round(2).tolist()
    [1.0, 1.0, 0.67, 0.67]
    """

    def measure(n_anomalies: Counts, n_normals: Counts) -> Values:
        found = n_anomalies.cumsum(axis=1)
        precision = found / np.maximum(found + n_normals.cumsum(axis=1), 1)
        recall = found / found[:, -1:]
        rows = []
        for one_recall, one_precision in zip(recall, precision, strict=True):
            first = np.searchsorted(one_recall, np.maximum(GRID - 1e-12, 1e-12))  # the first cut that finds so many
            rows.append(one_precision[np.minimum(first, len(one_precision) - 1)])
        return np.stack(rows)

    return _with_band(scores, is_anomaly, measure, n_bootstrap)


def _with_band(
    scores: Values,
    is_anomaly: NDArray[np.bool_],
    measure: Callable[[Counts, Counts], Values],
    n_bootstrap: int,
) -> Curve:
    n_anomalies, n_normals = count_by_cell(scores, is_anomaly)
    y = measure(n_anomalies[None], n_normals[None])[0]
    if not n_bootstrap:
        return Curve(GRID, y, y, y)
    rng = np.random.default_rng(0)
    drawn = np.concatenate([measure(a, b) for a, b in draw_resamples(n_anomalies, n_normals, n_bootstrap, rng)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Curve(GRID, y, low, high)


def _shares(counts: Counts) -> Values:
    """Cumulated shares, from 0, (resamples, cells + 1)."""
    total = counts.cumsum(axis=1)
    return np.concatenate([np.zeros((len(counts), 1)), total / total[:, -1:]], axis=1)


def _highest_at_grid(x: Values, y: Values) -> Values:
    """Interpolate, taking the top of vertical steps."""
    last = np.append(x[1:] > x[:-1], True)  # of points with one x, the highest
    return np.asarray(np.interp(GRID, x[last], y[last]))
