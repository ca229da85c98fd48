"""Reasons drawn, as plots and pictures: what columns add to a score, where a picture is unusual, what was expected."""

import base64
import io
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Floats
from esad.core.display import Display
from esad.core.machine import require
from esad.core.text import count_text
from esad.errors import InputError
from esad.explain.reasons import HeatMaps, Reasons, cell_text

MAX_CELL = 24  # characters of a cell beside a bar
MIN_SIDE = 112  # smaller pictures are enlarged by a whole factor
GAP = 4  # white pixels between the three
# Red to yellow, growing brighter: no grey picture has these colours.
HEAT = np.array([[90, 0, 20], [200, 20, 20], [245, 110, 0], [255, 220, 40]], dtype=np.float64)
MAX_COVER = 0.9  # how much of a picture the hottest spot hides
DIMMED = 0.7  # brightness of the picture below


@dataclass(eq=False)
class ReasonsDisplay(Display):
    """What each column adds to the score of a row, with what was given and what was expected.

    Parameters
    ----------
    reasons : Reasons
    row : int
    n_columns : int
        How many columns to draw, the largest shares first; the others are put together.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> forest = IsolationForest(random_state=0).fit(X)
    >>> display = ReasonsDisplay.from_estimator(forest, [[0.1, 8.0, 0.2]])
    >>> display.ax_.get_yticklabels()[-1].get_text().splitlines()[0]
    'x1 = 8'
    """

    reasons: Reasons
    row: int = 0
    n_columns: int = 8

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, row: int = 0, n_columns: int = 8, ax: Any = None) -> Self:
        """Explain rows of a table, and draw one of them."""
        reasons = estimator.explain(X)
        if not isinstance(reasons, Reasons):
            raise InputError("`ReasonsDisplay` is for tables. For pictures take `HeatMapDisplay`.")
        return cls(reasons, row, n_columns).plot(ax)

    def _size(self) -> tuple[float, float]:
        return 6.4, 1.4 + 0.42 * (min(self.n_columns, len(self.reasons.columns)) + 1)

    def _draw(self, ax: Any) -> None:
        reasons, row = self.reasons, self.row
        order, total = reasons.order(row), reasons.total[row]
        shares = [float(total[index]) for index in order[: self.n_columns]]
        names = [
            f"{reasons.columns[index]} = {_short(reasons.observed[row, index])}\n"
            f"expected {_short(reasons.expected[row, index])}"
            for index in order[: self.n_columns]
        ]
        if rest := order[self.n_columns :]:
            shares.append(float(total[rest].sum()))
            names.append(f"({count_text(len(rest), 'other column')})")
        places = np.arange(len(shares))[::-1]
        ax.barh(places, shares, color=["C1" if share >= 0 else "C0" for share in shares])
        ax.axvline(0.0, color="0.3", linewidth=0.8)
        ax.set_yticks(places[::-1], names[::-1], fontsize=8)
        ax.set(xlabel="share of the score", title=f"row {row}, score {reasons.score[row]:.4g}")


def _short(cell: Any) -> str:
    return cell_text(cell, n_digits=4, max_length=MAX_CELL)


@dataclass(eq=False)
class HeatMapDisplay(Display):
    """Where the score of a picture comes from: the picture in grey, and over it red to yellow what adds most.

    Parameters
    ----------
    maps : HeatMaps
    row : int

    Examples
    --------
    >>> flat = np.zeros((1, 1, 8, 8), dtype=np.float32)
    >>> maps = HeatMaps(score=np.ones(1), terms={}, base={}, shares={"s": flat[:, 0]}, pictures=flat, expected=flat)
    >>> HeatMapDisplay(maps).plot().ax_.get_title()
    'picture 0, score 1'
    """

    maps: HeatMaps
    row: int = 0

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, row: int = 0, ax: Any = None) -> Self:
        """Explain pictures, and draw one of them."""
        maps = estimator.explain(X)
        if not isinstance(maps, HeatMaps):
            raise InputError(f"`{cls.__name__}` is for pictures. For tables take `ReasonsDisplay`.")
        return cls(maps, row).plot(ax)

    def _parts(self) -> tuple[str, ...]:
        return ("heat",)

    def _size(self) -> tuple[float, float]:
        return 0.6 + 2.8 * len(self._parts()), 3.2

    def _draw(self, ax: Any) -> None:
        drawn = draw_parts(self.maps, self.row)
        parts = [drawn[name] for name in self._parts()]
        width = parts[0].shape[1]
        for number, part in enumerate(parts):
            left = 1.05 * width * number
            ax.imshow(part, extent=(left, left + width, len(part), 0), interpolation="nearest")
        ax.set(xlim=(0, width * (1.05 * len(parts) - 0.05)), yticks=[])
        middles = [width * (1.05 * number + 0.5) for number in range(len(parts))]
        ax.set_xticks(middles if len(parts) > 1 else [], self._parts() if len(parts) > 1 else [])
        ax.tick_params(length=0)
        for side in ax.spines.values():
            side.set_visible(False)
        ax.set_title(f"picture {self.row}, score {self.maps.score[self.row]:.4g}")


class ReconstructionDisplay(HeatMapDisplay):
    """A picture, what the model expects in its place, and where the score comes from, side by side.

    Examples
    --------
    >>> from esad import Autoencoder
    >>> pictures = np.random.default_rng(0).integers(0, 60, size=(30, 8, 8), dtype=np.uint8)
    >>> rebuilder = Autoencoder(hidden=(4, 4), n_epochs=2, random_state=0).fit(pictures)
    >>> display = ReconstructionDisplay.from_estimator(rebuilder, pictures[:1])
    >>> [label.get_text() for label in display.ax_.get_xticklabels()]
    ['given', 'expected', 'heat']
    """

    def _parts(self) -> tuple[str, ...]:
        if not self.maps.is_rebuilt:
            raise InputError(
                "This model makes no picture of what would be normal in place of this one (`HeatMaps.is_rebuilt`): "
                "labelled anomalies taught it to turn pictures into something else. Take `HeatMapDisplay`."
            )
        return "given", "expected", "heat"


# ---------------------------------------------------------------------- heat maps as pictures


def draw(maps: HeatMaps, row: int) -> NDArray[np.uint8]:
    """The picture, what the model expects in its place if it can tell, and its heat map, (height, width, 3).

    Examples
    --------
    >>> flat = np.zeros((1, 1, 8, 8), dtype=np.float32)
    >>> maps = HeatMaps(score=np.zeros(1), terms={}, base={}, shares={"s": flat[:, 0]}, pictures=flat, expected=flat)
    >>> draw(maps, 0).shape
    (112, 344, 3)
    """
    parts = list(draw_parts(maps, row).values())
    gap = np.full((len(parts[0]), GAP, 3), 255, dtype=np.uint8)
    return np.concatenate([piece for part in parts for piece in (part, gap)][:-1], axis=1)


def draw_parts(maps: HeatMaps, row: int) -> dict[str, NDArray[np.uint8]]:
    """The pictures apart, each (height, width, 3): "given", "expected" where it is one of its own, and "heat"."""
    heat = maps.heat[row]
    level = heat / heat.max() if heat.max() > 0 else heat
    given, expected = _rgb(maps.pictures[row]), _rgb(np.clip(maps.expected[row], 0.0, 1.0))
    stops = np.linspace(0.0, 1.0, len(HEAT))
    colours = np.stack([np.interp(level, stops, HEAT[:, channel]) for channel in range(3)], axis=2)
    cover = MAX_COVER * level[:, :, None]
    covered = (1 - cover) * DIMMED * given.mean(axis=2, keepdims=True) + cover * colours
    named = {"given": given} | ({"expected": expected} if maps.is_rebuilt else {}) | {"heat": covered}
    return {name: _enlarge(part).round().astype(np.uint8) for name, part in named.items()}


def to_pixels(picture: NDArray[Any]) -> NDArray[np.uint8]:
    """One picture (channels, height, width) within [0, 1] to look at, (height, width, 3)."""
    return _enlarge(_rgb(picture)).round().astype(np.uint8)


def to_png(pixels: NDArray[np.uint8]) -> bytes:
    """A drawing as the bytes of a PNG file."""
    pillow = require("PIL.Image", extra="image")
    out = io.BytesIO()
    pillow.fromarray(pixels).save(out, format="PNG", optimize=True)
    return out.getvalue()


def to_data_uri(pixels: NDArray[np.uint8]) -> str:
    """A drawing as an address that holds it, for the `src` of an image."""
    return f"data:image/png;base64,{base64.b64encode(to_png(pixels)).decode()}"


def _rgb(picture: NDArray[Any]) -> Floats:
    """(channels, height, width) within [0, 1] as (height, width, 3) within [0, 255]."""
    channels_last = np.moveaxis(picture, 0, 2).astype(np.float64) * 255
    return np.broadcast_to(channels_last, (*channels_last.shape[:2], 3))


def _enlarge(picture: Floats) -> Floats:
    factor = -(-MIN_SIDE // min(picture.shape[:2]))
    return picture.repeat(factor, axis=0).repeat(factor, axis=1)
