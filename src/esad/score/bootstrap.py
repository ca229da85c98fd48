"""ROC and precision-recall curves with the bands of their resamples, quick enough for a million rows.

They depend only on how anomalies and normal rows alternate along the ranking, so the rows are
first folded into cells: one per distinct score that an anomaly has, and one for each stretch of normal rows between
them. A resample of all rows, anomalies and normal rows apart, then is one multinomial draw per class over the cells:
the exact bootstrap, at a price that depends on the number of anomalies only.

Beyond `MAX_CELLS` cells, neighbours are merged and count as ties.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Counts, Floats

MAX_CELLS: Final = 4096
GRID: Final = np.linspace(0.0, 1.0, 101)  # of curves
_BLOCK: Final = 64  # resamples drawn together: 2 x 64 x 4096 counts fit into cache


def count_by_cell(scores: Floats, is_anomaly: NDArray[np.bool_]) -> tuple[Counts, Counts]:
    """Count anomalies and normal rows per cell, highest scores first."""
    values, position = np.unique(-scores, return_inverse=True)
    n_anomalies = np.bincount(position[is_anomaly], minlength=len(values))
    n_normals = np.bincount(position[~is_anomaly], minlength=len(values))
    has_anomaly = n_anomalies > 0
    starts = has_anomaly.copy()
    starts[1:] |= has_anomaly[:-1]
    starts[0] = True
    first = np.flatnonzero(starts)
    if len(first) > MAX_CELLS:
        first = first[np.linspace(0, len(first), MAX_CELLS, endpoint=False).astype(np.intp)]
    return np.add.reduceat(n_anomalies, first), np.add.reduceat(n_normals, first)


def _draw_resamples(
    n_anomalies: Counts, n_normals: Counts, n_bootstrap: int, rng: np.random.Generator
) -> Iterator[tuple[Counts, Counts]]:
    """Draw blocks of counts, each of shape (resamples, cells)."""
    for start in range(0, n_bootstrap, _BLOCK):
        size = min(_BLOCK, n_bootstrap - start)
        yield _draw_counts(n_anomalies, size, rng), _draw_counts(n_normals, size, rng)


def _draw_counts(counts: Counts, size: int, rng: np.random.Generator) -> Counts:
    """Draw as many rows as there are, with replacement; empty cells are left out, which saves their draws."""
    drawn = np.zeros((size, len(counts)), dtype=np.int64)
    filled = np.flatnonzero(counts)
    drawn[:, filled] = rng.multinomial(counts.sum(), counts[filled] / counts.sum(), size=size)
    return drawn


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve over a grid, with the middle 95 % of its resamples at every point.

    Attributes
    ----------
    x, y, low, high : ndarray, (points,)
    """

    x: Floats
    y: Floats
    low: Floats
    high: Floats


def roc(scores: Floats, is_anomaly: NDArray[np.bool_], *, n_bootstrap: int = 500) -> Curve:
    """Share of the anomalies found over the share of false alarms, interpolated.

    Examples
    --------
    >>> curve = roc(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, False, True, True]), n_bootstrap=0)
    >>> curve.y[0], curve.y[-1]
    (np.float64(1.0), np.float64(1.0))
    """

    def measure(n_anomalies: Counts, n_normals: Counts) -> Floats:
        found, false = _shares(n_anomalies), _shares(n_normals)
        return np.stack([_highest_at_grid(*pair) for pair in zip(false, found, strict=True)])

    return _draw_band(scores, is_anomaly, measure, n_bootstrap)


def precision_recall(scores: Floats, is_anomaly: NDArray[np.bool_], *, n_bootstrap: int = 500) -> Curve:
    """Share of anomalies among the alarms, at the threshold that finds a share of the anomalies; steps, not lines.

    Examples
    --------
    >>> curve = precision_recall(np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, True, False, True]), n_bootstrap=0)
    >>> curve.y[[0, 50, 51, 100]].round(2).tolist()
    [1.0, 1.0, 0.67, 0.67]
    """

    def measure(n_anomalies: Counts, n_normals: Counts) -> Floats:
        found = n_anomalies.cumsum(axis=1)
        precision = found / np.maximum(found + n_normals.cumsum(axis=1), 1)
        recall = found / found[:, -1:]
        rows = []
        for one_recall, one_precision in zip(recall, precision, strict=True):
            first = np.searchsorted(one_recall, np.maximum(GRID - 1e-12, 1e-12))  # the first cut that finds so many
            rows.append(one_precision[np.minimum(first, len(one_precision) - 1)])
        return np.stack(rows)

    return _draw_band(scores, is_anomaly, measure, n_bootstrap)


def _draw_band(
    scores: Floats,
    is_anomaly: NDArray[np.bool_],
    measure: Callable[[Counts, Counts], Floats],
    n_bootstrap: int,
) -> Curve:
    n_anomalies, n_normals = count_by_cell(scores, is_anomaly)
    y = measure(n_anomalies[None], n_normals[None])[0]
    if not n_bootstrap:
        return Curve(GRID, y, y, y)
    rng = np.random.default_rng(0)
    drawn = np.concatenate([measure(a, b) for a, b in _draw_resamples(n_anomalies, n_normals, n_bootstrap, rng)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Curve(GRID, y, low, high)


def _shares(counts: Counts) -> Floats:
    """Cumulated shares, from 0, (resamples, cells + 1)."""
    total = counts.cumsum(axis=1)
    return np.concatenate([np.zeros((len(counts), 1)), total / total[:, -1:]], axis=1)


def _highest_at_grid(x: Floats, y: Floats) -> Floats:
    """Interpolate, taking the top of vertical steps."""
    last = np.append(x[1:] > x[:-1], True)  # of points with one x, the highest
    return np.asarray(np.interp(GRID, x[last], y[last]))
