"""Which rows take part and which of them are labelled: draws with known counts, from the truth alone.

gamma_l, the labelled ratio, is the share of labelled rows in the whole training set; gamma_p, the pollution ratio, the
share of hidden anomalies among its unlabelled rows. With n normal rows, all of which are used, the training set has

    n_train = n / (r_normal + (1 - r_normal - gamma_l) (1 - gamma_p))

rows, where r_normal is the share of rows labelled as normal; counts are truncated.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels
from esad.errors import InputError

__all__ = ["Draw", "DrawCounts", "Seed", "counts", "draw", "draw_natural", "pick_classes", "split"]

RowNumbers = NDArray[np.intp]
Seed = int | np.random.Generator


class DrawCounts(NamedTuple):
    """How many rows of each kind a training set holds."""

    n_labelled_anomaly: int
    n_labelled_normal: int
    n_hidden_anomaly: int
    n_unlabelled_normal: int


class Draw(NamedTuple):
    """Rows for training (sorted) and their labels -1, 0, +1."""

    rows: RowNumbers
    y: NDArray[np.int8]


def counts(
    n_normal: int, *, labelled_ratio: float, pollution_ratio: float = 0.0, labelled_normal_ratio: float = 0.0
) -> DrawCounts:
    """Work out how many rows of each kind the ratios ask for.

    Examples
    --------
    >>> counts(6000, labelled_ratio=0.05, pollution_ratio=0.1)
    DrawCounts(n_labelled_anomaly=350, n_labelled_normal=0, n_hidden_anomaly=666, n_unlabelled_normal=6000)
    """
    ratios = (labelled_ratio, pollution_ratio, labelled_normal_ratio)
    if not all(0 <= ratio < 1 for ratio in ratios) or labelled_ratio + labelled_normal_ratio >= 1:
        raise InputError(f"Ratios must be at least 0 and, like the sum of the labelled ones, below 1. Got {ratios}.")
    unlabelled_ratio = 1.0 - labelled_ratio - labelled_normal_ratio
    n_train = n_normal / (labelled_normal_ratio + unlabelled_ratio * (1.0 - pollution_ratio))
    n_labelled_normal = _truncate(labelled_normal_ratio * n_train)
    return DrawCounts(
        n_labelled_anomaly=_truncate(labelled_ratio * n_train),
        n_labelled_normal=n_labelled_normal,
        n_hidden_anomaly=_truncate(pollution_ratio * unlabelled_ratio * n_train),
        n_unlabelled_normal=n_normal - n_labelled_normal,
    )


def split(classes: ArrayLike, *, test_ratio: float = 0.4, seed: Seed) -> tuple[RowNumbers, RowNumbers]:
    """Split every class (or normal rows and anomalies) apart into training and test rows, both sorted.

    Examples
    --------
    >>> train, test = split([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], seed=0)
    >>> len(train), len(test)
    (6, 4)
    """
    if not 0 < test_ratio < 1:
        raise InputError(f"`test_ratio` must be between 0 and 1. Got {test_ratio!r}.")
    rng = np.random.default_rng(seed)
    class_of = np.asarray(classes)
    is_train = np.zeros(len(class_of), dtype=bool)
    for value in np.unique(class_of):
        rows = rng.permutation(np.flatnonzero(class_of == value))
        is_train[rows[: _truncate((1.0 - test_ratio) * len(rows))]] = True
    return np.flatnonzero(is_train), np.flatnonzero(~is_train)


def draw(
    truth: ArrayLike,
    *,
    labelled_ratio: float,
    pollution_ratio: float = 0.0,
    labelled_normal_ratio: float = 0.0,
    labelled_from: ArrayLike | None = None,
    n_normal: int | None = None,
    seed: Seed,
) -> Draw:
    """Draw a training set with the asked ratios; known and hidden anomalies never overlap.

    Parameters
    ----------
    truth : array-like of bool, shape (n_rows,)
        True where a row is an anomaly.
    labelled_ratio, pollution_ratio, labelled_normal_ratio : float
        Share of labelled anomalies and of labelled normal rows in the training set, and of hidden anomalies among its
        unlabelled rows.
    labelled_from : array-like of bool, shape (n_rows,), optional
        The anomalies that may be labelled, such as those of one class. Hidden ones come from all.
    n_normal : int, optional
        How many of the normal rows to use; all by default.
    seed : int or Generator
        The same seed gives the same draw.

    Examples
    --------
    >>> y = draw([False] * 90 + [True] * 30, labelled_ratio=0.1, pollution_ratio=0.1, seed=0).y
    >>> labels.counts(y)
    LabelCounts(n_anomaly=11, n_unlabelled=100, n_normal=0)
    """
    rng = np.random.default_rng(seed)
    is_anomaly = np.asarray(truth, dtype=bool)
    normals = rng.permutation(np.flatnonzero(~is_anomaly))
    normals = normals[: _check_available(n_normal, normals, "normal rows")]
    asked = counts(
        len(normals),
        labelled_ratio=labelled_ratio,
        pollution_ratio=pollution_ratio,
        labelled_normal_ratio=labelled_normal_ratio,
    )
    allowed = is_anomaly if labelled_from is None else is_anomaly & np.asarray(labelled_from, dtype=bool)
    known = rng.permutation(np.flatnonzero(allowed))
    known = known[: _check_available(asked.n_labelled_anomaly, known, "anomalies to label")]
    hidden = rng.permutation(np.setdiff1d(np.flatnonzero(is_anomaly), known, assume_unique=True))
    hidden = hidden[: _check_available(asked.n_hidden_anomaly, hidden, "anomalies to hide")]
    y = np.zeros(len(is_anomaly), dtype=np.int8)
    y[known], y[normals[: asked.n_labelled_normal]] = labels.ANOMALY, labels.NORMAL
    rows = np.sort(np.concatenate([normals, known, hidden]))
    return Draw(rows, y[rows])


def draw_natural(
    truth: ArrayLike, *, max_rows: int | None = None, labelled_ratio: float = 0.01, min_labelled: int = 3, seed: Seed
) -> Draw:
    """Label a few anomalies and leave all other rows unlabelled, with the pollution that nature gave them.

    Parameters
    ----------
    truth : array-like of bool, shape (n_rows,)
        True where a row is an anomaly.
    max_rows : int, optional
        Use at most so many rows, with the share of anomalies kept, though at least `min_labelled` where there are.
    labelled_ratio : float
        Labelled anomalies as a share of the rows used, truncated.
    min_labelled : int
        At least so many labelled anomalies, where there are.
    seed : int or Generator
        The same seed gives the same draw.

    Examples
    --------
    >>> y = draw_natural([False] * 900 + [True] * 100, max_rows=500, seed=0).y
    >>> labels.counts(y)
    LabelCounts(n_anomaly=5, n_unlabelled=495, n_normal=0)
    """
    if (max_rows is not None and max_rows <= min_labelled) or not 0 <= labelled_ratio < 1 or min_labelled < 0:
        raise InputError(
            "`labelled_ratio` must be at least 0 and below 1, `min_labelled` 0 or more and below `max_rows`. "
            f"Got {labelled_ratio!r}, {min_labelled!r} and {max_rows!r}."
        )
    rng = np.random.default_rng(seed)
    is_anomaly = np.asarray(truth, dtype=bool)
    anomalies = rng.permutation(np.flatnonzero(is_anomaly))
    normals = rng.permutation(np.flatnonzero(~is_anomaly))
    if max_rows is not None and max_rows < len(is_anomaly):
        n_anomaly = max(round(max_rows * len(anomalies) / len(is_anomaly)), min(min_labelled, len(anomalies)))
        anomalies, normals = anomalies[:n_anomaly], normals[: max_rows - n_anomaly]
    n_labelled = max(_truncate(labelled_ratio * (len(anomalies) + len(normals))), min_labelled)
    y = np.zeros(len(is_anomaly), dtype=np.int8)
    y[anomalies[:n_labelled]] = labels.ANOMALY
    rows = np.sort(np.concatenate([anomalies, normals]))
    return Draw(rows, y[rows])


def pick_classes(classes: ArrayLike, *, normal_class: int, n_classes: int, seed: Seed) -> tuple[int, ...]:
    """Pick k of the other classes at random, to draw labelled anomalies from.

    Examples
    --------
    >>> len(pick_classes([0, 1, 2, 3], normal_class=1, n_classes=2, seed=0))
    2
    """
    others = np.setdiff1d(np.asarray(classes), [normal_class])
    picked = np.random.default_rng(seed).permutation(others)[: _check_available(n_classes, others, "other classes")]
    return tuple(sorted(int(number) for number in picked))


def _truncate(value: float) -> int:
    """Cut off the fraction, allowing for rounding errors: 0.7 x 90 is 63."""
    return int(value + 1e-9)


def _check_available(n_asked: int | None, rows: NDArray[Any], what: str) -> int:
    """Refuse to ask for more than there is; `None` asks for all."""
    if n_asked is None:
        return len(rows)
    if not 0 <= n_asked <= len(rows):
        raise InputError(f"The scenario needs {n_asked} {what}. There are {len(rows)}. Ask for less.")
    return n_asked
