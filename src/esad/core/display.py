"""What every plot of `esad.plot` shares, in the manner of scikit-learn's displays."""

from typing import Any, Self

from esad.core.machine import require


class Display:
    """Something that can be drawn: `plot(ax=None)` draws it, on new axes of matplotlib unless some are given.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
        What it was drawn on last.
    """

    ax_: Any
    figure_: Any

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            New ones by default, which needs the extra `plot`.
        """
        if ax is None:
            width, height = self._size()
            pyplot = require("matplotlib.pyplot", extra="plot")
            _, ax = pyplot.subplots(figsize=(width, height), layout="constrained")
        self.ax_, self.figure_ = ax, ax.figure
        self._draw(ax)
        return self

    def _size(self) -> tuple[float, float]:
        """Width and height of a new figure, in inches."""
        return 6.4, 4.0

    def _draw(self, ax: Any) -> None:
        raise NotImplementedError
