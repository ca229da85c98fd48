"""Plots of advice: what labels have brought, and which method does best."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from esad.core.display import Display

if TYPE_CHECKING:
    from esad.advice.compare import Comparison
    from esad.advice.curve import LearningCurve


@dataclass(eq=False)
class LabelCurveDisplay(Display):
    """What labels have brought so far, and what the next ones are expected to bring.

    The band is the spread over the splits, the bar at the end the 80 % interval of one further training.

    Parameters
    ----------
    curve : LearningCurve

    Examples
    --------
    >>> from esad.advice.curve import CurvePoint, Gain, LearningCurve
    >>> curve = LearningCurve((CurvePoint(3, 0, 0.8, 0.1), CurvePoint(9, 0, 0.9, 0.05)), Gain(10, 0.03, 0.0, 0.06), 6)
    >>> LabelCurveDisplay(curve).plot().ax_.get_xlabel()
    'labels'
    """

    curve: "LearningCurve"

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: ArrayLike, *, ax: Any = None, **options: Any) -> Self:
        """Measure the curve, which trains many times, and draw; `options` are those of `esad.learning_curve`."""
        from esad.advice.curve import learning_curve

        return cls(learning_curve(estimator, X, y, **options)).plot(ax)

    def _draw(self, ax: Any) -> None:
        points, gain = self.curve.points, self.curve.gain
        n_labels = np.array([point.n_anomaly + point.n_normal for point in points], dtype=float)
        auc, spread = (np.array([getattr(point, name) for point in points]) for name in ("auc", "spread"))
        ax.fill_between(n_labels, auc - spread, np.minimum(auc + spread, 1.0), color="C0", alpha=0.2, linewidth=0)
        ax.plot(n_labels, auc, marker="o", color="C0", label="so far")
        to_come = auc[-1] + np.array([gain.auc, gain.low, gain.high])
        expected, low, high = np.minimum(to_come, 1.0)
        next_n = n_labels[-1] + gain.n_next
        ax.plot([n_labels[-1], next_n], [auc[-1], expected], linestyle="--", color="C1")
        errors = [[expected - low], [high - expected]]
        label = f"{gain.n_next} more labels, expected"
        ax.errorbar([next_n], [expected], yerr=errors, fmt="o", color="C1", capsize=4, label=label)
        ax.set(xlabel="labels", ylabel="AUC of held-out anomalies")
        ax.locator_params(axis="x", integer=True)
        ax.legend(loc="lower right")


@dataclass(eq=False)
class ComparisonDisplay(Display):
    """Average precision of every method on every split, and its mean; the best on top.

    Parameters
    ----------
    comparison : Comparison

    Examples
    --------
    >>> from esad.advice.compare import Comparison, MethodResult
    >>> found = MethodResult("esad", (0.9, 1.0), (0.5, 0.7), (1.0, 3.0))
    >>> ComparisonDisplay(Comparison((found,), 2, 2, 30)).plot().ax_.get_yticklabels()[0].get_text()
    'esad'
    """

    comparison: "Comparison"

    @classmethod
    def from_estimator(cls, X: Any, y: ArrayLike, *, ax: Any = None, **options: Any) -> Self:
        """Compare methods on rows and labels, and draw; `options` are those of `esad.advice.compare.compare`."""
        from esad.advice.compare import compare

        return cls(compare(X, y, **options)).plot(ax)

    def _list_usable(self) -> list[Any]:
        return [result for result in self.comparison.results if result.reason is None][::-1]

    def _size(self) -> tuple[float, float]:
        return 6.4, 1.2 + 0.3 * len(self._list_usable())

    def _draw(self, ax: Any) -> None:
        results = self._list_usable()
        for number, result in enumerate(results):
            values = result.average_precision
            ax.plot(values, [number] * len(values), linestyle="", marker="o", color="C0", alpha=0.4)
            ax.plot([result.mean("average_precision")], [number], linestyle="", marker="|", markersize=16, color="C1")
        ax.set_yticks(range(len(results)), [result.method for result in results])
        ax.set(xlabel="average precision of held-out anomalies (mean marked)", xlim=(0, 1.02))
        ax.set(title=self.comparison.title, ylim=(-0.6, len(results) - 0.4))
