"""Cross-validation that never loses every labelled anomaly, which scikit-learn's splitters do when labels are few."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels
from esad.core.arrays import Floats, Labels, RowNumbers
from esad.errors import InputError, LabelError


@dataclass(frozen=True)
class LabelAwareSplit:
    """Repeated random splits that keep the shares of anomalies, unlabelled and normal rows.

    Every training part keeps at least one labelled anomaly and every test part holds one; apart from that, each kind
    of label is split within one row of `test_size`.

    Parameters
    ----------
    n_splits : int
        How many splits to draw.
    test_size : float
        Share of each kind of label that goes into the test part, between 0 and 1.
    random_state : int, optional
        Seed; the same seed gives the same splits each time.

    Examples
    --------
    >>> y = [-1, -1, 0, 0, 0, 0, 0, 0, 0, 0]
    >>> for train, test in LabelAwareSplit(1, test_size=0.5, random_state=0).split(y, y):
    ...     print(len(train), len(test))
    5 5
    """

    n_splits: int = 5
    _: KW_ONLY
    test_size: float = 0.3
    random_state: int | None = None

    def split(
        self, X: Any, y: ArrayLike | None = None, groups: object = None
    ) -> Iterator[tuple[RowNumbers, RowNumbers]]:
        """Yield (training rows, test rows), each sorted.

        Parameters
        ----------
        X : sized
            The rows to split; only their number is used.
        y : array-like of shape (n_rows,)
            Labels -1, 0, +1, with two anomalies at least.
        groups : object
            Ignored; scikit-learn passes it.
        """
        if self.n_splits < 1:
            raise InputError(f"`n_splits` must be 1 or more. Got {self.n_splits!r}.")
        if not 0 < self.test_size < 1:
            raise InputError(f"`test_size` must be between 0 and 1. Got {self.test_size!r}.")
        checked = labels.check(y, X.shape[0] if hasattr(X, "shape") else len(X), warn=False)
        n_anomaly = labels.counts(checked).n_anomaly
        if n_anomaly < 2:
            raise LabelError(
                "Splitting needs two labelled anomalies (-1) at least, one to train and one to test with. "
                f"Got {n_anomaly}."
            )
        rng = np.random.default_rng(self.random_state)
        for _ in range(self.n_splits):
            is_test = _draw_test(checked, self.test_size, rng)
            yield np.flatnonzero(~is_test), np.flatnonzero(is_test)

    def get_n_splits(self, X: object = None, y: object = None, groups: object = None) -> int:
        """Tell scikit-learn how many splits there are."""
        return self.n_splits


def _draw_test(y: Labels, test_size: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mark the test rows, drawn from each kind of label apart."""
    is_test = np.zeros(len(y), dtype=bool)
    for label in (labels.ANOMALY, labels.UNLABELLED, labels.NORMAL):
        rows = np.flatnonzero(y == label)
        n_test = round(test_size * len(rows))
        if label == labels.ANOMALY:
            n_test = min(max(n_test, 1), len(rows) - 1)
        is_test[rng.permutation(rows)[:n_test]] = True
    return is_test


def corrected_error(values: Floats, *, test_size: float) -> float:
    """Standard error of a mean over repeated splits, by Nadeau and Bengio: splits that share rows tell less.

    Examples
    --------
    >>> round(corrected_error(np.array([1.0, 2.0, 3.0]), test_size=0.4), 6)  # sqrt(1 / 3 + 0.4 / 0.6)
    1.0
    """
    if len(values) < 2:
        return float("inf")
    return float(values.std(ddof=1) * np.sqrt(1 / len(values) + test_size / (1 - test_size)))
