"""Methods held against each other on one's own data, by repeated splits that keep the few labels on both sides.

Held-out labelled anomalies are ranked against all other held-out rows. Anomalies hidden among the unlabelled rows count
as normal there, so the figures compare methods with each other; they are not what a checked test set would give.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels, registry
from esad.core.markup import new, table, to_html
from esad.core.text import counted
from esad.errors import EsadError, InputError
from esad.preprocess.inputs import read
from esad.score.metrics import evaluate
from esad.score.splits import LabelAwareSplit
from esad.table.schema import Table
from esad.table.table import take_rows

__all__ = ["HEADS", "Comparison", "MethodResult", "compare"]

HEADS = ("method", "average precision", "AUC", "fit seconds")  # of `Comparison.lines`

RowNumbers = NDArray[np.intp]


@dataclass(frozen=True)
class MethodResult:
    """How one method did.

    Attributes
    ----------
    method : str
        Its name.
    auc, average_precision, fit_seconds : tuple of float
        One value per split; empty if the method could not be used.
    reason : str or None
        Why it could not.

    Examples
    --------
    >>> MethodResult("esad", auc=(0.9, 1.0), average_precision=(0.5, 0.7), fit_seconds=(1.0, 3.0)).mean("auc")
    0.95
    """

    method: str
    auc: tuple[float, ...] = ()
    average_precision: tuple[float, ...] = ()
    fit_seconds: tuple[float, ...] = ()
    reason: str | None = None

    def mean(self, name: str) -> float:
        """Mean over the splits."""
        return fmean(getattr(self, name))

    def spread(self, name: str) -> float:
        """Standard deviation over the splits; 0 for a single one."""
        values = getattr(self, name)
        return stdev(values) if len(values) > 1 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values, with mean and spread where there are any."""
        plain = asdict(self)
        if self.reason is None:
            for name in ("auc", "average_precision", "fit_seconds"):
                plain[f"{name}_mean"], plain[f"{name}_spread"] = self.mean(name), self.spread(name)
        return plain


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Attributes
    ----------
    results : tuple of MethodResult
        Best mean average precision first; methods that could not be used last.
    n_repeats, n_test_anomaly, n_test : int
        Splits, and how many labelled anomalies and rows each holds out.
    """

    results: tuple[MethodResult, ...]
    n_repeats: int
    n_test_anomaly: int
    n_test: int

    @property
    def title(self) -> str:
        """What was measured, in a line."""
        anomalies = counted(self.n_test_anomaly, "labelled anomaly", "labelled anomalies")
        return f"{counted(self.n_repeats, 'split')}, {anomalies} among {counted(self.n_test, 'held-out row')}"

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """Methods with mean and spread of their figures, for people; below `HEADS`."""
        return [
            (
                result.method,
                *(f"{result.mean(name):.3f} ± {result.spread(name):.3f}" for name in ("average_precision", "auc")),
                f"{result.mean('fit_seconds'):.1f}",
            )
            for result in self.results
            if result.reason is None
        ]

    @property
    def left_out(self) -> list[str]:
        """Which methods could not be used, and why."""
        return [f"{one.method} was left out: {one.reason}" for one in self.results if one.reason is not None]

    def _repr_html_(self) -> str:
        """The methods as a table, in a notebook."""
        found = table(list(HEADS), [list(line) for line in self.lines], numbers=HEADS[1:])
        return to_html(new("p", new("b", self.title)), found, *(new("p", text) for text in self.left_out))

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes."""
        return asdict(self) | {"results": [result.to_json() for result in self.results]}


def compare(
    X: Any,
    y: ArrayLike,
    *,
    methods: Sequence[str] | None = None,
    n_repeats: int = 5,
    test_size: float = 0.3,
    random_state: int = 0,
    parameters: Mapping[str, Mapping[str, Any]] | None = None,
    on_fit: Callable[[str, int], None] | None = None,
) -> Comparison:
    """Compare methods on one's own rows and labels.

    Parameters
    ----------
    X : array, pandas, polars or arrow table, or pictures
        As for a detector's `fit`.
    y : array-like of -1, 0, +1
        Two labelled anomalies at least.
    methods : sequence of str, optional
        Names in the registry; all that take such data by default.
    n_repeats : int
        How many splits to draw; every method sees the same ones.
    test_size : float
        Share of each kind of label that is held out.
    random_state : int
        Seed of the splits and of the methods.
    parameters : mapping of str to mapping, optional
        Constructor arguments per method, beside the defaults.
    on_fit : callable, optional
        Called with the method's name and the number of the split before each fit.

    Returns
    -------
    Comparison
        A method that cannot take these data is listed with the reason.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(60, 2)), rng.normal(6, 1, size=(4, 2))]
    >>> y = [0] * 60 + [-1] * 4
    >>> found = compare(X, y, methods=["iforest"], n_repeats=2)
    >>> [(result.method, result.mean("auc") > 0.9) for result in found.results]
    [('iforest', True)]
    """
    for name in methods or ():
        registry.method(name)  # an unknown one is an error before anything is trained
    data = read(X)  # what no method could use is an error before anything is trained
    checked = labels.check(y, data.n_rows if isinstance(data, Table) else len(data))
    names = registry.methods_for("table" if isinstance(data, Table) else "images") if methods is None else methods
    if not names:
        raise InputError("`methods` must name one method at least.")
    del data
    splitter = LabelAwareSplit(n_repeats, test_size=test_size, random_state=random_state)
    splits = list(splitter.split(checked, checked))
    results = []
    for name in dict.fromkeys(names):
        arguments = {"random_state": random_state, **(parameters or {}).get(name, {})}
        results.append(_measure(name, arguments, X, checked, splits, on_fit))
    results.sort(key=lambda result: (result.reason is not None, -sum(result.average_precision)))
    test = splits[0][1]
    return Comparison(tuple(results), n_repeats, int((checked[test] == labels.ANOMALY).sum()), len(test))


def _measure(
    name: str,
    arguments: Mapping[str, Any],
    X: Any,
    y: NDArray[np.int8],
    splits: Sequence[tuple[RowNumbers, RowNumbers]],
    on_fit: Callable[[str, int], None] | None,
) -> MethodResult:
    """Fit and measure one method on every split, or say why it cannot be done."""
    aucs, precisions, seconds = [], [], []
    for number, (train, test) in enumerate(splits):
        if on_fit is not None:
            on_fit(name, number)
        try:
            started = time.perf_counter()
            detector = registry.method(name)(**arguments).fit(take_rows(X, train), y[train])
            seconds.append(time.perf_counter() - started)
            scores = detector.anomaly_score(take_rows(X, test))
        except EsadError as error:
            return MethodResult(name, reason=str(error))
        found = evaluate(scores, (y[test] == labels.ANOMALY).astype(np.int8), ks=(), n_bootstrap=0)
        aucs.append(found.auc)
        precisions.append(found.average_precision)
    return MethodResult(name, tuple(aucs), tuple(precisions), tuple(seconds))
