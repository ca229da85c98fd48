"""Figures as inline SVG: they scale with the page and take its colours.

`SvgAxes` has the few methods of matplotlib's axes that the displays of `esad.plot` draw the report's figures with, so
that a report needs no matplotlib and there is one of each plot.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from esad.core.markup import Element, legend, new

WIDTH = 560
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 12, 46
COLOURS = ("one", "two", "three", "four")  # of the page, in place of matplotlib's C0, C1, ...

Values = NDArray[Any] | Sequence[float]


class SvgAxes:
    """Axes to draw on; what is drawn becomes an element of the page once all is known.

    Parameters
    ----------
    title : str
        What the figure shows, for those who do not see it.
    height : int
    """

    figure = None

    def __init__(self, title: str, *, height: int = 300) -> None:
        self._title, self._height = title, height
        self._artists: list[Callable[[], Element]] = []
        self._names: dict[str, str] = {}
        self._words = {"xlabel": "", "ylabel": ""}
        self._seen: dict[str, list[float]] = {"x": [], "y": []}
        self._limits: dict[str, tuple[float, float]] = {}
        self._ticks: list[tuple[float, str]] | None = None
        self._scale: Callable[[Any], Any] = float

    # ------------------------------------------------------------------ as matplotlib's

    def plot(self, x: Values, y: Values, *, color: str = "C0", linestyle: str = "-", label: str = "") -> "list[_Line]":
        """A line through points."""
        colour = "four" if linestyle == "--" else _colour(color)
        self._note(x, y, colour, label)
        self._artists.append(lambda: new("polyline", points=self._join_points(x, y), class_=colour))
        return [_Line(color)]

    def fill_between(self, x: Values, low: Values, high: Values, **style: Any) -> None:
        """The area between two lines."""
        self._note(x, [*low, *high])
        self._artists.append(
            lambda: new(
                "polygon",
                points=f"{self._join_points(x, low)} {self._join_points(x[::-1], high[::-1])}",
                class_="fill-band",
            )
        )

    def stairs(
        self, values: Values, edges: Values, *, baseline: Values, fill: bool, color: str = "C0", label: str = ""
    ) -> None:
        """Columns between edges, from the baseline up."""
        self._note(edges, [*values, *baseline], _colour(color), label)
        boxes = [box for box in zip(edges[:-1], edges[1:], values, baseline, strict=True) if box[2] > box[3]]
        self._artists.append(lambda: new("g", *(self._draw_column(*box, _colour(color)) for box in boxes)))

    def axvline(self, x: float, *, label: str = "", **style: Any) -> None:
        """A vertical line with its label beside it."""
        self._artists.append(lambda: self._draw_rule(x, label))

    def set(self, *, xlim: tuple[float, float] | None = None, ylim: Any = None, **words: str) -> None:
        """Limits and labels."""
        self._limits |= {side: limits for side, limits in (("x", xlim), ("y", ylim)) if limits is not None}
        self._words |= words

    def set_yscale(self, name: str, functions: tuple[Callable[[Any], Any], Any] | None = None) -> None:
        """A logarithmic axis, or one by a function and its inverse; its marks must be given."""
        self._scale = math.log10 if functions is None else functions[0]

    def set_yticks(self, values: Sequence[float], texts: Sequence[str]) -> None:
        """Set the places and texts of the marks on the vertical axis; round numbers by default."""
        self._ticks = list(zip(values, texts, strict=True))

    def legend(self, **place: Any) -> None:
        """Do nothing: names stand below the figure wherever there are two or more."""

    # ------------------------------------------------------------------ into the page

    def to_element(self, caption: str) -> Element:
        """The drawing with its names and a caption."""
        low, high = self._limits.get("y") or (min(self._seen["y"]), max(self._seen["y"]))
        self._x = _widen_if_equal(*(self._limits.get("x") or (min(self._seen["x"]), max(self._seen["x"]))))
        self._y = _widen_if_equal(float(self._scale(low)), float(self._scale(high)))
        svg = new("svg", new("title", self._title), viewBox=f"0 0 {WIDTH} {self._height}", role="img")
        svg.extend([*self._draw_axes(), *(draw() for draw in self._artists)])
        names = legend(self._names) if len(self._names) > 1 else None
        return new("figure", svg, names, new("figcaption", caption))

    def _note(self, x: Values, y: Values, colour: str = "", label: str = "") -> None:
        self._seen["x"] += [float(value) for value in x]
        self._seen["y"] += [float(value) for value in y]
        if label:
            self._names[label] = colour

    def _join_points(self, x: Values, y: Values) -> str:
        return " ".join(f"{self._place_x(a):.1f},{self._place_y(b):.1f}" for a, b in zip(x, y, strict=True))

    def _draw_column(self, left: float, right: float, top: float, ground: float, colour: str) -> Element:
        x, y = self._place_x(left), self._place_y(top)
        size = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{max(self._place_x(right) - x - 0.8, 0.6):.1f}"}
        return new("rect", **size, height=f"{max(self._place_y(ground) - y, 0.5):.1f}", class_=f"fill-{colour}")

    def _draw_rule(self, x: float, text: str) -> Element:
        at = self._place_x(x)
        line = new("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=TOP, y2=self._height - BOTTOM, class_="rule")
        right = at > WIDTH * 0.7
        place = {"x": f"{at + (-6 if right else 6):.1f}", "y": TOP + 12, "text_anchor": "end" if right else "start"}
        return new("g", line, new("text", text, **place, class_="strong"))

    def _draw_axes(self) -> list[Element]:
        bottom, out = self._height - BOTTOM, []
        marks = ticks(*self._y)
        if self._scale is math.log10:  # round numbers between powers of ten
            marks = [(10.0**place, f"{10.0**place:.2g}") for place, _ in marks]
        for value, text in self._ticks or marks:
            at = f"{self._place_y(value):.1f}"
            out.append(new("line", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at, class_="grid"))
            out.append(new("text", text, x=LEFT - 6, y=f"{self._place_y(value) + 4:.1f}", text_anchor="end"))
        for value, text in ticks(*self._x):
            at = f"{self._place_x(value):.1f}"
            out.append(new("line", x1=at, x2=at, y1=bottom, y2=bottom + 4, class_="axis"))
            out.append(new("text", text, x=at, y=bottom + 18, text_anchor="middle"))
        out.append(new("polyline", points=f"{LEFT},{TOP} {LEFT},{bottom} {WIDTH - RIGHT},{bottom}", class_="axis"))
        middle = {"x": (LEFT + WIDTH - RIGHT) / 2, "y": self._height - 6, "text_anchor": "middle"}
        turned = {"transform": f"translate(13 {(TOP + bottom) / 2:.1f}) rotate(-90)", "text_anchor": "middle"}
        return [*out, new("text", self._words["xlabel"], **middle), new("text", self._words["ylabel"], **turned)]

    def _place_x(self, x: float) -> float:
        share = (float(x) - self._x[0]) / (self._x[1] - self._x[0])
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def _place_y(self, y: float) -> float:
        share = (float(self._scale(y)) - self._y[0]) / (self._y[1] - self._y[0])
        return self._height - BOTTOM - min(max(share, 0.0), 1.0) * (self._height - TOP - BOTTOM)


class _Line:
    """A drawn line, as matplotlib's callers expect it."""

    def __init__(self, color: str) -> None:
        self._color = color

    def get_color(self) -> str:
        return self._color


def _colour(color: str) -> str:
    """Return the page's name for a colour of matplotlib's cycle."""
    return COLOURS[int(color[1:]) % len(COLOURS)] if color.startswith("C") else COLOURS[-1]


def _widen_if_equal(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def ticks(low: float, high: float, n_wanted: int = 5) -> list[tuple[float, str]]:
    """Round numbers between two, about as many as wanted.

    Examples
    --------
    >>> [text for _, text in ticks(0.0, 1.0)]
    ['0', '0.2', '0.4', '0.6', '0.8', '1']
    """
    rough = (high - low) / n_wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.95)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [(number * step, f"{number * step:.6g}") for number in range(first, last + 1)]
