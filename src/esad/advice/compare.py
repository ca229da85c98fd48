"""Methods held against each other on one's own data, by repeated splits that keep the few labels on both sides.

Held-out labelled anomalies are ranked against all other held-out rows. Anomalies hidden among the unlabelled rows count
as normal there, so the figures compare methods with each other; they are not what a checked test set would give.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from esad import labels, registry
from esad.advice.crossfit import read_whole
from esad.advice.displays import ComparisonDisplay
from esad.core.arrays import Labels, RowNumbers
from esad.core.markup import new, table, to_html
from esad.core.text import as_names, count_text
from esad.detectors.base import warn_of_texts
from esad.detectors.solved import ShallowDetector
from esad.errors import EsadError, InputError
from esad.score.metrics import evaluate
from esad.score.splits import LabelAwareSplit
from esad.table.table import Schema, Table, take_rows
from esad.train.callbacks import Callback

if TYPE_CHECKING:
    from esad.train.loop import LoopState

HEADS = ("method", "average precision", "AUC", "fit seconds")  # of `Comparison.lines`


@dataclass(frozen=True)
class MethodResult:
    """How one method did.

    Attributes
    ----------
    method : str
        Its name.
    auc, average_precision, fit_seconds : tuple of float
        One value per split, of those that there was time for; empty if the method could not be used.
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

    def text(self, name: str) -> str:
        """Mean and spread, or the one value there is."""
        return f"{self.mean(name):.3f}" + (f" ± {self.spread(name):.3f}" if len(getattr(self, name)) > 1 else "")

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
    max_seconds : float or None
        What it was allowed to take.
    """

    results: tuple[MethodResult, ...]
    n_repeats: int
    n_test_anomaly: int
    n_test: int
    max_seconds: float | None = None

    @property
    def shortened(self) -> tuple[MethodResult, ...]:
        """Methods that were not fitted on all splits, because the time was up."""
        return tuple(result for result in self.results if 0 < len(result.auc) < self.n_repeats)

    @property
    def title(self) -> str:
        """One line that says what was measured."""
        anomalies = count_text(self.n_test_anomaly, "labelled anomaly", "labelled anomalies")
        return f"{count_text(self.n_repeats, 'split')}, {anomalies} among {count_text(self.n_test, 'held-out row')}"

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """Methods with mean and spread of their figures, for people; below `HEADS`."""
        return [
            (
                result.method,
                *(result.text(name) for name in ("average_precision", "auc")),
                f"{result.mean('fit_seconds'):.1f}",
            )
            for result in self.results
            if result.reason is None
        ]

    @property
    def left_out(self) -> list[str]:
        """Sentences on the methods that could not be used, or not on every split, with the reasons."""
        told = [f"{one.method} was left out: {one.reason}" for one in self.results if one.reason is not None]
        if self.shortened:
            counts = ", ".join(f"{one.method} {len(one.auc)}" for one in self.shortened)
            told.append(f"{self.max_seconds:g} s were not enough for all {self.n_repeats} splits: {counts}.")
        return told

    def __str__(self) -> str:
        rows = [HEADS, *self.lines]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        shown = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        return "\n".join([self.title, *shown, *self.left_out])

    def plot(self, *, ax: Any = None) -> ComparisonDisplay:
        """Draw every method's figures on every split (extra `plot`)."""
        return ComparisonDisplay(self).plot(ax)

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
    max_seconds: float | None = None,
) -> Comparison:
    """Compare methods on one's own rows and labels.

    Parameters
    ----------
    X : array, pandas, polars or arrow table, or pictures
        As for a detector's `fit`.
    y : array-like of -1, 0, +1
        Two labelled anomalies at least.
    methods : str or sequence of str, optional
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
    max_seconds : float, optional
        Every method has its first split before any has its second, the quick ones first. No fit is begun that would
        end too late at the pace of the method's earlier ones, and a network's training is broken off in time.

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
    methods = None if methods is None else as_names(methods)
    for name in methods or ():
        registry.method(name)  # an unknown one is an error before anything is trained
    data, checked = read_whole(X, y, warn=True)  # what no method could use is an error before anything is trained
    names = registry.methods_for("table" if isinstance(data, Table) else "images") if methods is None else methods
    if not names:
        raise InputError("`methods` must name one method at least.")
    if isinstance(data, Table):
        warn_of_texts(X, data, Schema.infer(data))
    splitter = LabelAwareSplit(n_repeats, test_size=test_size, random_state=random_state)
    splits = list(splitter.split(checked, checked))
    deadline = _Deadline(max_seconds)
    found = {name: MethodResult(name) for name in dict.fromkeys(names)}
    for number, split in enumerate(splits):
        for name in sorted(found, key=lambda name: _try_order(found[name])):
            if found[name].reason is not None or deadline.comes_before(found[name]):
                continue
            if on_fit is not None:
                on_fit(name, number)
            arguments = {"random_state": random_state, **(parameters or {}).get(name, {})}
            found[name] = _measure(found[name], arguments, data, checked, split, deadline)
    late = f"it was not ready on any split within {max_seconds or 0:.0f} seconds."
    results = [one if one.auc or one.reason is not None else replace(one, reason=late) for one in found.values()]
    results.sort(key=lambda one: (one.reason is not None, -one.mean("average_precision") if one.auc else 0.0))
    test = splits[0][1]
    n_anomaly = int((checked[test] == labels.ANOMALY).sum())
    return Comparison(tuple(results), n_repeats, n_anomaly, len(test), max_seconds)


def _try_order(result: MethodResult) -> tuple[bool, float]:
    """Return the sort key of methods: those without training by gradients first, then by the time they took."""
    if result.auc:
        return False, result.mean("fit_seconds")
    return not issubclass(registry.method(result.method), ShallowDetector), 0.0


class _TimeUp(Exception):  # noqa: N818  a signal, not an error
    """Raised when the time limit ends a training."""


class _Deadline(Callback):
    """A callback that ends a training at the time limit."""

    def __init__(self, max_seconds: float | None) -> None:
        self._end = math.inf if max_seconds is None else time.perf_counter() + max_seconds

    def comes_before(self, result: MethodResult) -> bool:
        """Whether the time limit would come before another fit of the method ends."""
        seconds = result.mean("fit_seconds") if result.auc else 0.0
        return time.perf_counter() + seconds >= self._end

    def on_step(self, state: "LoopState") -> None:
        """End the training once the time limit has passed."""
        if time.perf_counter() >= self._end:
            raise _TimeUp


def _measure(
    result: MethodResult,
    arguments: Mapping[str, Any],
    X: Any,
    y: Labels,
    split: tuple[RowNumbers, RowNumbers],
    deadline: _Deadline,
) -> MethodResult:
    """Fit and measure one method on one more split, or say why it cannot be done."""
    train, test = split
    try:
        started = time.perf_counter()
        detector = registry.method(result.method)(**arguments)
        detector.fit(take_rows(X, train), y[train], callbacks=[deadline])
        seconds = time.perf_counter() - started
        scores = detector.anomaly_score(take_rows(X, test))
    except _TimeUp:
        return result
    except EsadError as error:
        return MethodResult(result.method, reason=str(error))
    found = evaluate(scores, (y[test] == labels.ANOMALY).astype(np.int8), ks=(), intervals=False)
    return MethodResult(
        result.method,
        (*result.auc, found.auc),
        (*result.average_precision, found.average_precision),
        (*result.fit_seconds, seconds),
    )
