"""Experiments drawn from data sets: what a method may see in training, and the test rows it is judged by.

No row is ever in both parts, unless a leak is asked for in order to measure it, and every draw is settled by its seed.
`esad.datasets.draws` says how rows are counted.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.datasets.dataset import Dataset
from esad.datasets.draws import Draw, DrawCounts, Seed, counts, draw, draw_natural, pick_classes, split
from esad.errors import InputError

__all__ = [
    "Draw",
    "DrawCounts",
    "Scenario",
    "counts",
    "draw",
    "draw_natural",
    "given",
    "images",
    "natural",
    "pick_classes",
    "split",
    "table",
]


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
    y_train: NDArray[np.int8]
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
    train, test = _split_parts(dataset.with_normal_class(normal_class), test_ratio, rng)
    labelled_from = None
    if labelled_classes is not None:
        _check_labelled(labelled_classes, train, normal_class)
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


def _split_parts(dataset: Dataset, test_ratio: float, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """Take the data set's own test part, or split one off."""
    if dataset.test is not None:
        return dataset, dataset.test
    train_rows, test_rows = split(_classes(dataset), test_ratio=test_ratio, seed=rng)
    return dataset.take(train_rows), dataset.take(test_rows)


def _check_labelled(labelled_classes: Sequence[int], dataset: Dataset, normal_class: int) -> None:
    """Refuse classes that are normal or do not exist: they could never be labelled anomalies."""
    others = set(np.unique(_classes(dataset)).tolist()) - {normal_class}
    if not set(labelled_classes) <= others:
        raise InputError(f"`labelled_classes` must be among {sorted(others)}. Got {list(labelled_classes)}.")


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
