"""Experiments drawn from data sets: what a method may see in training, and the test rows it is judged by.

No row is ever in both parts, unless a leak is asked for in order to measure it, and every draw is settled by its seed.

gamma_l, the labelled ratio, is the share of labelled rows in the whole training set; gamma_p, the pollution ratio, the
share of hidden anomalies among its unlabelled rows. With n normal rows, all of which are used, the training set has

    n_train = n / (r_normal + (1 - r_normal - gamma_l) (1 - gamma_p))

rows, where r_normal is the share of rows labelled as normal; counts are truncated.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels
from esad.core.arrays import Labels, RowNumbers
from esad.datasets.dataset import Dataset
from esad.errors import InputError

Seed = int | np.random.Generator


@dataclass(frozen=True, eq=False)
class Scenario:
    """One experiment.

    Attributes
    ----------
    X_train, y_train : ndarray
        Training rows and their labels -1, 0, +1.
    X_test, truth_test : ndarray
        Test rows, and true where one is an anomaly.
    """

    X_train: NDArray[Any]
    y_train: Labels
    X_test: NDArray[Any]
    truth_test: NDArray[np.bool_]

    def fingerprint(self) -> str:
        """Name exactly these rows and labels, so that a result on others is never taken for one on these."""
        digest = hashlib.sha256()
        for part in (self.X_train, self.y_train, self.X_test, self.truth_test):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()[:16]


def table(
    dataset: Dataset,
    *,
    labelled_ratio: float,
    pollution_ratio: float = 0.0,
    labelled_normal_ratio: float = 0.0,
    test_ratio: float = 0.4,
    leaky: bool = False,
    seed: Seed,
) -> Scenario:
    """Draw the paper's scenario on a table: all normal training rows, some labelled and some hidden anomalies.

    Parameters
    ----------
    dataset : Dataset
        A data set with a truth.
    labelled_ratio, pollution_ratio, labelled_normal_ratio : float
        As in `draw`.
    test_ratio : float
        Share of the normal rows and of the anomalies kept for the test.
    leaky : bool
        Only to measure what the leak is worth: test rows are drawn anew from all rows, so that about three in five
        are in the training part too, as in the code of Deep SAD's authors.
    seed : int or Generator
        The same seed gives the same experiment.

    Examples
    --------
    >>> from esad.datasets.sources.builtin import load
    >>> scenario = table(load("breast_cancer"), labelled_ratio=0.05, seed=0)
    >>> scenario.X_train.shape, int((scenario.y_train == -1).sum()), len(scenario.X_test)
    ((225, 30), 11, 228)
    """
    rng = np.random.default_rng(seed)
    truth = _truth(dataset)
    train_rows, test_rows = split(truth, test_ratio=test_ratio, seed=rng)
    drawn = draw(
        truth[train_rows],
        labelled_ratio=labelled_ratio,
        pollution_ratio=pollution_ratio,
        labelled_normal_ratio=labelled_normal_ratio,
        seed=rng,
    )
    if leaky:
        _, test_rows = split(truth, test_ratio=test_ratio, seed=rng)
    return Scenario(dataset.X[train_rows[drawn.rows]], drawn.y, dataset.X[test_rows], truth[test_rows])


def natural(
    dataset: Dataset,
    *,
    max_train: int | None = 3000,
    labelled_ratio: float = 0.01,
    min_labelled: int = 3,
    test_ratio: float = 0.4,
    seed: Seed,
) -> Scenario:
    """Draw a training set as a user has it: a few labelled anomalies, all else unlabelled and polluted as it comes.

    Parameters
    ----------
    dataset : Dataset
        A data set with a truth.
    max_train : int, optional
        At most so many training rows, with the share of anomalies kept.
    labelled_ratio, min_labelled : float and int
        As in `draw_natural`.
    test_ratio : float
        Share of the normal rows and of the anomalies kept for the test.
    seed : int or Generator
        The same seed gives the same experiment.

    Examples
    --------
    >>> from esad.datasets.sources.builtin import load
    >>> scenario = natural(load("breast_cancer"), max_train=300, seed=0)
    >>> len(scenario.y_train), int((scenario.y_train == -1).sum()), len(scenario.X_test)
    (300, 3, 228)
    """
    rng = np.random.default_rng(seed)
    truth = _truth(dataset)
    train_rows, test_rows = split(truth, test_ratio=test_ratio, seed=rng)
    drawn = draw_natural(
        truth[train_rows], max_rows=max_train, labelled_ratio=labelled_ratio, min_labelled=min_labelled, seed=rng
    )
    return Scenario(dataset.X[train_rows[drawn.rows]], drawn.y, dataset.X[test_rows], truth[test_rows])


def images(
    dataset: Dataset,
    *,
    normal_class: int,
    labelled_classes: Sequence[int] | None = None,
    n_normal: int | None = None,
    labelled_ratio: float,
    pollution_ratio: float = 0.0,
    test_ratio: float = 0.4,
    seed: Seed,
) -> Scenario:
    """Draw a scenario from a data set with classes: one is normal, some of the others give the labelled anomalies.

    Parameters
    ----------
    dataset : Dataset
        A data set with classes.
    normal_class : int
        The class taken as normal.
    labelled_classes : sequence of int, optional
        The classes that labelled anomalies come from, all others by default; see `pick_classes`.
    n_normal : int, optional
        How many training pictures of the normal class to use, all by default.
    labelled_ratio, pollution_ratio : float
        As in `draw`; hidden anomalies come from all other classes.
    test_ratio : float
        Share of each class kept for the test, where the data set has no test part of its own. Where it has one, the
        whole of it is the test.
    seed : int or Generator
        The same seed gives the same experiment.

    Examples
    --------
    >>> from esad.datasets.sources.builtin import load
    >>> scenario = images(load("digits"), normal_class=1, labelled_classes=(7,), labelled_ratio=0.05, seed=0)
    >>> scenario.X_train.shape, int((scenario.y_train == -1).sum())
    ((114, 8, 8), 5)
    """
    rng = np.random.default_rng(seed)
    train = dataset.with_normal_class(normal_class)
    test = train.test
    if test is None:
        train_rows, test_rows = split(_classes(train), test_ratio=test_ratio, seed=rng)
        train, test = train.take(train_rows), train.take(test_rows)
    labelled_from = None
    if labelled_classes is not None:
        others = set(np.unique(_classes(train)).tolist()) - {normal_class}
        if not set(labelled_classes) <= others:  # the normal class, and what is not there, is never labelled
            raise InputError(f"`labelled_classes` must be among {sorted(others)}. Got {list(labelled_classes)}.")
        labelled_from = np.isin(_classes(train), list(labelled_classes))
    drawn = draw(
        _truth(train),
        labelled_ratio=labelled_ratio,
        pollution_ratio=pollution_ratio,
        labelled_from=labelled_from,
        n_normal=n_normal,
        seed=rng,
    )
    return Scenario(train.X[drawn.rows], drawn.y, test.X, _truth(test))


def given(
    dataset: Dataset, *, labelled_ratio: float, pollution_ratio: float = 0.0, n_normal: int | None = None, seed: Seed
) -> Scenario:
    """Draw a scenario from a data set with a truth and a test part of its own, such as the medical pictures.

    Parameters
    ----------
    dataset : Dataset
        A data set with a truth and a test part; the whole of that is the test. Where it says which anomalies may be
        labelled, the labelled ones are among those.
    labelled_ratio, pollution_ratio : float
        As in `draw`.
    n_normal : int, optional
        How many normal training rows to use, all by default.
    seed : int or Generator
        The same seed gives the same experiment.

    Examples
    --------
    >>> test = Dataset("test", np.arange(4)[:, None], np.arange(4) > 1, "")
    >>> train = Dataset("train", np.arange(9)[:, None], np.arange(9) > 5, "", test=test, labellable=np.arange(9) > 7)
    >>> scenario = given(train, labelled_ratio=0.15, seed=0)
    >>> scenario.X_train[scenario.y_train == -1].tolist(), len(scenario.X_train), len(scenario.X_test)
    ([[8]], 7, 4)
    """
    if dataset.test is None:
        raise InputError(f"The data set {dataset.name!r} has no test part. Draw a table scenario from it.")
    drawn = draw(
        _truth(dataset),
        labelled_ratio=labelled_ratio,
        pollution_ratio=pollution_ratio,
        labelled_from=dataset.labellable,
        n_normal=n_normal,
        seed=seed,
    )
    return Scenario(dataset.X[drawn.rows], drawn.y, dataset.test.X, _truth(dataset.test))


def _truth(dataset: Dataset) -> NDArray[np.bool_]:
    if dataset.truth is None:
        raise InputError(
            f"The data set {dataset.name!r} has classes and no truth. Choose one: dataset.with_normal_class(0)."
        )
    return dataset.truth


def _classes(dataset: Dataset) -> NDArray[np.int64]:
    if dataset.classes is None:
        raise InputError(f"The data set {dataset.name!r} has a truth and no classes. Draw a table scenario from it.")
    return dataset.classes


# ---------------------------------------------------------------------- which rows take part, by their truth alone


class DrawCounts(NamedTuple):
    """How many rows of each kind a training set holds."""

    n_labelled_anomaly: int
    n_labelled_normal: int
    n_hidden_anomaly: int
    n_unlabelled_normal: int


class Draw(NamedTuple):
    """Rows for training (sorted) and their labels -1, 0, +1."""

    rows: RowNumbers
    y: Labels


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
