"""Plots of scores: their distribution, how well they find anomalies, p-values, drift, and losses of the training.

They draw with the few methods of matplotlib's axes that the axes of the report have too (`esad.report.figures`), so
that there is one of each plot.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels
from esad.core.arrays import Scores
from esad.core.display import Display
from esad.errors import InputError
from esad.score.bootstrap import Curve, precision_recall, roc
from esad.score.drift import Drift
from esad.score.metrics import Evaluation, Truth, evaluate

N_BINS = 60
MAX_SHIFTS = 15


def _truth_of(y: ArrayLike | None, n_rows: int) -> Truth | None:
    """Which rows are anomalies, if that is known of all."""
    if y is None:
        return None
    truth = labels.truth(y, name="y")
    if len(truth) != n_rows:
        raise InputError(f"`y` must hold one truth per row. Got {len(truth)} for {n_rows} rows.")
    return truth


@dataclass(eq=False)
class ScoreDistributionDisplay(Display):
    """How the anomaly scores lie, and where alarms begin.

    The vertical axis grows with the square root, so that few rows can be seen beside many; the highest thousandth of
    the scores stands in the last bar.

    Parameters
    ----------
    scores : ndarray, (n,)
    threshold : float or None
    truth : ndarray of bool, (n,), or None
        Which rows are anomalies.

    Examples
    --------
    >>> display = ScoreDistributionDisplay.from_predictions([0.1, 0.2, 0.4, 3.0], [0, 0, 0, 1], threshold=1.0)
    >>> [text.get_text() for text in display.ax_.get_legend().get_texts()]
    ['normal', 'anomaly', 'threshold 1']
    """

    scores: Scores
    threshold: float | None = None
    truth: Truth | None = None

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike | None = None, *, ax: Any = None) -> Self:
        """Score rows and draw; `y` is the truth, where it is known."""
        return cls.from_predictions(estimator.anomaly_score(X), y, threshold=estimator.threshold_, ax=ax)

    @classmethod
    def from_predictions(
        cls, scores: ArrayLike, y: ArrayLike | None = None, *, threshold: float | None = None, ax: Any = None
    ) -> Self:
        """Draw scores that are known."""
        known = np.asarray(scores, dtype=np.float64)
        return cls(known, threshold, _truth_of(y, len(known))).plot(ax)

    @property
    def edges(self) -> Scores:
        """Where the bars begin and end."""
        low, high = (float(value) for value in np.quantile(self.scores, (0.0, 0.999)))
        at = [] if self.threshold is None else [self.threshold]
        low, high = min([low, *at]), max([high, *at])
        pad = 0.02 * (high - low) or 0.5
        return np.linspace(low - pad, high + pad, N_BINS + 1)

    @property
    def n_beyond(self) -> int:
        """How many scores are higher than the axis shows; they stand in the last bar."""
        return int((self.scores > self.edges[-1]).sum())

    def _draw(self, ax: Any) -> None:
        edges = self.edges
        clipped = np.clip(self.scores, edges[0], edges[-1])
        groups = {"rows": np.ones(len(clipped), dtype=bool)}
        if self.truth is not None:
            groups = {"normal": ~self.truth, "anomaly": self.truth}
        below = np.zeros(N_BINS)
        for number, (name, mine) in enumerate(groups.items()):
            top = below + np.histogram(clipped[mine], bins=edges)[0]
            ax.stairs(top, edges, baseline=below, fill=True, color=f"C{number}", label=name)
            below = top
        if self.threshold is not None:
            ax.axvline(self.threshold, color="0.3", linestyle="--", label=f"threshold {self.threshold:.4g}")
        ax.set_yscale("function", functions=(_root, np.square))
        ticks = _square_ticks(float(below.max()))
        ax.set_yticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        ax.set(xlabel="anomaly score", ylabel="rows", xlim=(edges[0], edges[-1]), ylim=(0, 1.15 * below.max()))
        if self.truth is not None or self.threshold is not None:
            ax.legend()


def _root(values: Any) -> Any:
    """The square root; of what matplotlib asks beyond the axis, 0."""
    return np.sqrt(np.maximum(values, 0))


def _square_ticks(top: float) -> list[float]:
    """Round numbers of rows at about even distances of their square roots."""
    exact = [top * share**2 for share in (0.25, 0.5, 0.75, 1.0)]
    return [0.0, *sorted({float(max(1, round(value, -max(0, len(str(int(value))) - 2)))) for value in exact})]


@dataclass(eq=False)
class _CurveDisplay(Display):
    """A curve over shares from 0 to 1 with the band of its resamples.

    Parameters
    ----------
    curve : Curve
    evaluation : Evaluation
        The figures that go with it.
    name : str or None
        What the curve is called in the legend.
    """

    curve: Curve
    evaluation: Evaluation
    name: str | None = None

    measure: ClassVar[Callable[..., Curve]]
    figure_name: ClassVar[tuple[str, str]]  # in `Evaluation`, and for people
    axis_labels: ClassVar[tuple[str, str]]

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike, *, name: str | None = None, ax: Any = None) -> Self:
        """Score rows whose truth is known, and draw."""
        return cls.from_predictions(estimator.anomaly_score(X), y, name=name or type(estimator).__name__, ax=ax)

    @classmethod
    def from_predictions(cls, scores: ArrayLike, y: ArrayLike, *, name: str | None = None, ax: Any = None) -> Self:
        """Draw scores of rows whose truth is known."""
        known = np.asarray(scores, dtype=np.float64)
        evaluation, truth = evaluate(known, y, ks=()), _truth_of(y, len(known))
        assert truth is not None
        return cls(cls.measure(known, truth), evaluation, name).plot(ax)

    @property
    def caption(self) -> str:
        """The figure and its interval, in words."""
        key, words = self.figure_name
        low, high = self.evaluation.intervals[key]
        return f"{words} {getattr(self.evaluation, key):.3f} ({low:.3f} to {high:.3f})"

    def _draw(self, ax: Any) -> None:
        curve, label = self.curve, self.caption if self.name is None else f"{self.name}: {self.caption}"
        (line,) = ax.plot(curve.x, curve.y, label=label)
        ax.fill_between(curve.x, curve.low, curve.high, color=line.get_color(), alpha=0.2, linewidth=0)
        ax.set(xlabel=self.axis_labels[0], ylabel=self.axis_labels[1], xlim=(0, 1), ylim=(0, 1.02))
        ax.legend()


class PrecisionRecallDisplay(_CurveDisplay):
    """Which share of the alarms is right, at the threshold that finds a share of the anomalies; with a 95 % band.

    Examples
    --------
    >>> display = PrecisionRecallDisplay.from_predictions([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1])
    >>> display.caption
    'average precision 1.000 (0.109 to 1.000)'
    """

    measure = staticmethod(precision_recall)
    figure_name = ("average_precision", "average precision")
    axis_labels = ("share of anomalies found (recall)", "share of alarms that are right (precision)")


class RocCurveDisplay(_CurveDisplay):
    """Which share of the anomalies is found, at the price of which share of false alarms; with a 95 % band.

    Examples
    --------
    >>> RocCurveDisplay.from_predictions([0.1, 0.2, 0.3, 0.4], [0, 0, 1, 1]).caption
    'AUC 1.000 (0.386 to 1.000)'
    """

    measure = staticmethod(roc)
    figure_name = ("auc", "AUC")
    axis_labels = ("share of false alarms", "share of anomalies found")


@dataclass(eq=False)
class CalibrationDisplay(Display):
    """Whether p-values keep their promise: the share of normal rows with a p-value of at most each level.

    On or below the dashed line they do; the band is what chance allows. Rows whose truth is not known may hold
    anomalies, which lift the left end.

    Parameters
    ----------
    p_values : ndarray, (n,)
        Of normal rows, as far as that is known.
    is_known : bool
        Whether it is known.

    Examples
    --------
    >>> display = CalibrationDisplay.from_predictions(np.arange(1, 100) / 100)
    >>> display.share_at(0.1)
    0.10...
    """

    p_values: Scores
    is_known: bool = False

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike | None = None, *, ax: Any = None) -> Self:
        """P-values of rows by a calibrated detector; with the truth `y` only those of normal rows are drawn."""
        return cls.from_predictions(estimator.p_value(X), y, ax=ax)

    @classmethod
    def from_predictions(cls, p_values: ArrayLike, y: ArrayLike | None = None, *, ax: Any = None) -> Self:
        """Draw p-values that are known."""
        known = np.asarray(p_values, dtype=np.float64)
        truth = _truth_of(y, len(known))
        return cls(known if truth is None else known[~truth], truth is not None).plot(ax)

    def share_at(self, level: float) -> float:
        """The share of rows with a p-value of at most `level`."""
        return float((self.p_values <= level).mean())

    def _draw(self, ax: Any) -> None:
        promised = np.linspace(0.0, 1.0, 201)
        n_rows = max(len(self.p_values), 1)
        share = np.searchsorted(np.sort(self.p_values), promised, side="right") / n_rows
        spread = 1.96 * np.sqrt(promised * (1 - promised) / n_rows)
        low, high = (np.clip(promised + sign * spread, 0, 1) for sign in (-1, 1))
        ax.fill_between(promised, low, high, color="C0", alpha=0.2, linewidth=0)
        ax.plot(promised, promised, color="0.5", linestyle="--", label="promised")
        ax.plot(promised, share, color="C0", label="found")
        rows = "normal rows" if self.is_known else "rows"
        ax.set(xlabel="p-value at most", ylabel=f"share of {rows}", xlim=(0, 1), ylim=(0, 1.02))
        ax.legend(loc="lower right")


@dataclass(eq=False)
class DriftDisplay(Display):
    """How far new rows are from the training rows, column by column; those that drifted stand out.

    Parameters
    ----------
    drift : Drift

    Examples
    --------
    >>> from esad import IsolationForest
    >>> rng = np.random.default_rng(1)
    >>> forest = IsolationForest(random_state=0).fit(rng.normal(size=(500, 3)))
    >>> display = DriftDisplay.from_estimator(forest, rng.normal([0, 1, 0], 1, size=(500, 3)))
    >>> display.ax_.get_yticklabels()[-1].get_text()
    'x1'
    """

    drift: Drift

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, ax: Any = None) -> Self:
        """Compare rows with those that a detector was trained on, and draw."""
        return cls(estimator.drift(X)).plot(ax)

    def _largest_shifts(self) -> list[Any]:
        return sorted(self.drift.shifts, key=lambda shift: shift.distance)[-MAX_SHIFTS:]

    def _size(self) -> tuple[float, float]:
        return 6.4, 1.6 + 0.28 * len(self._largest_shifts())

    def _draw(self, ax: Any) -> None:
        shifts = self._largest_shifts()
        names = [
            f"{shift.column or '(the scores)'}{', missing' if shift.what == 'missing' else ''}" for shift in shifts
        ]
        for drifted, colour in ((True, "C1"), (False, "0.7")):
            mine = [number for number, shift in enumerate(shifts) if shift.drifted is drifted]
            if mine:
                label = "drifted" if drifted else "like the training rows"
                ax.barh(mine, [shifts[number].distance for number in mine], color=colour, label=label)
        ax.axvline(self.drift.min_distance, color="0.3", linestyle="--", label="least that counts")
        ax.set_yticks(range(len(shifts)), names)
        ax.set(xlabel="distance from the training rows", xlim=(0, None))
        ax.legend(loc="lower right")


@dataclass(eq=False)
class LossDisplay(Display):
    """The terms of the loss over the training, weighted as they are trained on; mean over the members.

    Parameters
    ----------
    curves : mapping of str to ndarray
        Name and values of every term.

    Examples
    --------
    >>> LossDisplay({"reconstruction": np.array([2.0, 1.0, 0.5])}).plot().ax_.get_yscale()
    'log'
    """

    curves: Mapping[str, NDArray[Any]]

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """The losses of a detector that was trained in steps."""
        curves = {name: np.asarray(curve) for name, curve in getattr(estimator, "loss_curves_", {}).items()}
        sound = {name: curve for name, curve in curves.items() if curve.ndim == 1 and len(curve)}
        sound = {name: curve for name, curve in sound.items() if np.isfinite(curve).all()}
        if not sound:
            name = type(estimator).__name__
            raise InputError(f"{name} has no curves of loss: it is not one network that is trained step by step.")
        return cls(sound).plot(ax)

    def _draw(self, ax: Any) -> None:
        for number, (name, curve) in enumerate(self.curves.items()):
            ax.plot(np.linspace(0, 100, len(curve)), curve, color=f"C{number}", label=name)
        values = np.concatenate(list(self.curves.values()))
        if values.min() > 0:
            ax.set_yscale("log")
            low, high = float(values.min()), float(values.max())
            ticks = _decade_ticks(low, high)
            ticks = ticks if len(ticks) > 1 else sorted({low, high})
            ax.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks])
        ax.set(xlabel="training done, %", ylabel="loss", xlim=(0, 100))
        ax.legend()


def _decade_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, or where there are too few of them also their halves and fifths."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(powers) > 4 else (1, 2, 5)
    return [value for power in powers for factor in factors if low <= (value := factor * 10.0**power) <= high]
