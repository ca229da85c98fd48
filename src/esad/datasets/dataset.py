"""A data set with its ground truth, as sources give it and scenarios use it."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.errors import InputError


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows or pictures whose truth is known. The truth is for evaluation; a scenario makes training labels from it.

    Parameters
    ----------
    name : str
        The name it is loaded by.
    X : ndarray
        A table of shape (n_rows, n_columns), or pictures of shape (n_rows, height, width) or (n_rows, height, width,
        channels).
    truth : ndarray of bool, shape (n_rows,), or None
        True where a row is an anomaly. `None` where only `classes` are known and any class may be taken as normal.
    description : str
        One line about where it comes from and what an anomaly is.
    test : Dataset, optional
        The test part, where the source has one of its own.
    classes : ndarray of int, shape (n_rows,), optional
        Class numbers, for data sets made for classification.
    columns : tuple of str
        Names of a table's columns, where the source has them.
    labellable : ndarray of bool, shape (n_rows,), optional
        True where an anomaly may be labelled, such as those of one disease; all may by default.

    Examples
    --------
    >>> digits = Dataset("three", np.zeros((3, 8, 8)), None, "three digits", classes=np.array([0, 1, 1]))
    >>> digits.is_images
    True
    >>> digits.with_normal_class(1).truth
    array([ True, False, False])
    """

    name: str
    X: NDArray[Any]
    truth: NDArray[np.bool_] | None
    description: str
    test: "Dataset | None" = None
    classes: NDArray[np.int64] | None = None
    columns: tuple[str, ...] = ()
    labellable: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.truth is None and self.classes is None:
            raise InputError(f"The data set {self.name!r} must have a truth or classes. Got neither.")
        given = {"truth": self.truth, "classes": self.classes, "labellable": self.labellable}
        for what, known in given.items():
            if known is not None and known.shape != (len(self.X),):
                raise InputError(f"`{what}` must hold one value per row ({len(self.X)}). Got shape {known.shape}.")

    @property
    def is_images(self) -> bool:
        """Whether `X` holds pictures."""
        return self.X.ndim > 2

    def with_normal_class(self, normal_class: int) -> "Dataset":
        """Take one class as normal and all others as anomalies, in the test part too."""
        if self.classes is None:
            raise InputError(f"The data set {self.name!r} has no classes, only a truth. Use it as it is.")
        if not (self.classes == normal_class).any():
            raise InputError(f"`normal_class` must be one of {np.unique(self.classes).tolist()}. Got {normal_class!r}.")
        test = None if self.test is None else self.test.with_normal_class(normal_class)
        return replace(self, truth=self.classes != normal_class, test=test)

    def take(self, rows: NDArray[np.intp]) -> "Dataset":
        """Keep the given rows, without a test part."""
        known = {"truth": self.truth, "classes": self.classes, "labellable": self.labellable}
        taken: dict[str, Any] = {name: values[rows] for name, values in known.items() if values is not None}
        return replace(self, X=self.X[rows], test=None, **taken)
