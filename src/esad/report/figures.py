"""Figures as inline SVG: they scale with the page and take its colours."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.markup import Element, new

__all__ = ["COLOURS", "Plot", "ticks"]

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 12, 46
COLOURS = ("one", "two", "three", "four")

Values = NDArray[Any] | Sequence[float]


class Plot:
    """Axes to draw on.

    Parameters
    ----------
    x, y : tuple of float
        What the axes span.
    x_label, y_label : str
    title : str
        What the figure shows, for those who do not see it.
    height : int
    y_ticks : list of (float, str), optional
        Where the vertical axis is marked, and with what; round numbers by default.
    """

    def __init__(
        self,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        x_label: str,
        y_label: str,
        title: str,
        height: int = HEIGHT,
        y_ticks: list[tuple[float, str]] | None = None,
    ) -> None:
        self.x = x if x[1] > x[0] else (x[0] - 0.5, x[0] + 0.5)
        self.y = y if y[1] > y[0] else (y[0] - 0.5, y[0] + 0.5)
        self.height = height
        self.svg = new("svg", new("title", title), viewBox=f"0 0 {WIDTH} {height}", role="img")
        self._axes(x_label, y_label, ticks(*self.y) if y_ticks is None else y_ticks)

    def line(self, x: Values, y: Values, colour: str = "one") -> None:
        """A line through points."""
        points = " ".join(f"{self._across(a):.1f},{self._up(b):.1f}" for a, b in zip(x, y, strict=True))
        self.svg.append(new("polyline", points=points, class_=colour))

    def band(self, x: Values, low: Values, high: Values) -> None:
        """The area between two lines."""
        there = [f"{self._across(a):.1f},{self._up(b):.1f}" for a, b in zip(x, low, strict=True)]
        back = [f"{self._across(a):.1f},{self._up(b):.1f}" for a, b in zip(x, high, strict=True)]
        self.svg.append(new("polygon", points=" ".join([*there, *back[::-1]]), class_="fill-band"))

    def bars(self, edges: Values, counts: Values, *, below: Values | None = None, colour: str = "one") -> None:
        """Columns between edges, standing on others where given."""
        ground = np.zeros(len(counts)) if below is None else np.asarray(below)
        for left, right, count, base in zip(edges[:-1], edges[1:], counts, ground, strict=True):
            if count > 0:
                x, top = self._across(left), self._up(base + count)
                width = max(self._across(right) - x - 0.8, 0.6)
                size = {"x": f"{x:.1f}", "y": f"{top:.1f}", "width": f"{width:.1f}"}
                height = f"{max(self._up(base) - top, 0.5):.1f}"
                self.svg.append(new("rect", **size, height=height, class_=f"fill-{colour}"))

    def rule(self, x: float, text: str) -> None:
        """A vertical line with a word to it, as far as it lies on the axes."""
        if not self.x[0] <= x <= self.x[1]:
            return
        at = self._across(x)
        self.svg.append(new("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=TOP, y2=self.height - BOTTOM, class_="rule"))
        right = at > WIDTH * 0.7
        place = {"x": f"{at + (-6 if right else 6):.1f}", "y": TOP + 12, "text_anchor": "end" if right else "start"}
        self.svg.append(new("text", text, **place, class_="strong"))

    def _axes(self, x_label: str, y_label: str, y_ticks: list[tuple[float, str]]) -> None:
        bottom = self.height - BOTTOM
        for value, text in y_ticks:
            at = self._up(value)
            self.svg.append(new("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{at:.1f}", y2=f"{at:.1f}", class_="grid"))
            self.svg.append(new("text", text, x=LEFT - 6, y=f"{at + 4:.1f}", text_anchor="end"))
        for value, text in ticks(*self.x):
            at = self._across(value)
            self.svg.append(new("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=bottom, y2=bottom + 4, class_="axis"))
            self.svg.append(new("text", text, x=f"{at:.1f}", y=bottom + 18, text_anchor="middle"))
        self.svg.append(new("polyline", points=f"{LEFT},{TOP} {LEFT},{bottom} {WIDTH - RIGHT},{bottom}", class_="axis"))
        self.svg.append(new("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=self.height - 6, text_anchor="middle"))
        middle = (TOP + bottom) / 2
        turned = {"transform": f"translate(13 {middle:.1f}) rotate(-90)", "text_anchor": "middle"}
        self.svg.append(new("text", y_label, **turned))

    def _across(self, x: float) -> float:
        share = (float(x) - self.x[0]) / (self.x[1] - self.x[0])
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def _up(self, y: float) -> float:
        share = (float(y) - self.y[0]) / (self.y[1] - self.y[0])
        return self.height - BOTTOM - min(max(share, 0.0), 1.0) * (self.height - TOP - BOTTOM)

    def figure(self, caption: str, *extra: Element) -> Element:
        """The drawing with a caption."""
        return new("figure", self.svg, *extra, new("figcaption", caption))


def ticks(low: float, high: float, n_wanted: int = 5) -> list[tuple[float, str]]:
    """Round numbers between two, about as many as wanted.

    Examples
    --------
    >>> [text for _, text in ticks(0.0, 1.0)]
    ['0', '0.2', '0.4', '0.6', '0.8', '1']
    """
    rough = (high - low) / n_wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [(number * step, f"{number * step:.6g}") for number in range(first, last + 1)]
