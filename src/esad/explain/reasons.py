"""The answers of `explain`: reasons of table rows, heat maps of pictures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Floats
from esad.core.markup import new, table, to_html
from esad.core.text import count_text
from esad.errors import MissingExtraError
from esad.explain.cases import Case

if TYPE_CHECKING:
    import pyarrow as pa

    from esad.explain.displays import HeatMapDisplay, ReasonsDisplay

SMOOTHING = 1 / 16  # standard deviation of a heat map's smoothing, over the shorter side of the picture
MAX_TEXT = 80  # characters of a cell that people are shown; programs get all of it
N_SHOWN = 5  # columns of a row, and rows, that a display shows
MAX_PLAIN = 1e15  # numbers below it are written without an exponent


@dataclass(frozen=True, eq=False, kw_only=True)
class _Explanation:
    """What both kinds of answers hold: n scores, their terms, and what the terms are made of."""

    score: Floats
    terms: Mapping[str, Floats]
    base: Mapping[str, Floats]
    shares: Mapping[str, Floats]
    cases: Sequence[Sequence[Case]] = field(default=())

    @property
    def total(self) -> Floats:
        """Shares added up over the terms."""
        return np.asarray(sum(self.shares.values()))

    def __len__(self) -> int:
        return len(self.score)

    def _shown_rows(self) -> range:
        return range(min(len(self), N_SHOWN))

    def _tell_rest(self) -> str:
        """What a display leaves out."""
        n_more = len(self) - N_SHOWN
        return f"... and {n_more:,} more" if n_more > 0 else ""

    def _cases_json(self, row: int) -> list[dict[str, Any]]:
        return [asdict(case) for case in self.cases[row]] if self.cases else []

    def _terms_json(self, row: int) -> dict[str, dict[str, float]]:
        return {
            name: {"value": float(self.terms[name][row]), "base": float(self.base[name][row])} for name in self.terms
        }


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Reasons(_Explanation):
    """Why rows of a table got their scores.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns, d of them.
    score : ndarray, (n,)
        The anomaly scores.
    terms : mapping of str to ndarray, (n,)
        The named terms that add up to the score.
    base : mapping of str to ndarray, (n,)
        What each term would be if no column added anything.
    shares : mapping of str to ndarray, (n, d)
        What each column adds to each term: `base[k] + shares[k].sum(1)` is `terms[k]`.
    observed, expected : ndarray of object, (n, d)
        The cells as given and as the model expects them from the other columns, in the user's units and categories;
        None where a value is missing.
    cases : sequence of sequence of Case
        The nearest labelled cases of each row, nearest first; empty where none are known.

    Examples
    --------
    >>> from esad import IsolationForest
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> reasons = IsolationForest(random_state=0).fit(X).explain([[0.1, 8.0, 0.2]])
    >>> reasons.top(0)[0], reasons.observed[0, 1]
    ('x1', 8.0)
    >>> reasons
    Reasons of 1 row
      row 0, score 0.547: x1 +0.143, x2 +0.00498, x0 +0.00274, (baseline) +0.396
    """

    columns: tuple[str, ...]
    observed: NDArray[Any]
    expected: NDArray[Any]

    def top(self, row: int, n: int = 3) -> tuple[str, ...]:
        """The columns that add most to the score of a row."""
        return tuple(self.columns[index] for index in self.order(row)[:n])

    def order(self, row: int) -> list[int]:
        """Numbers of the columns, the largest share first."""
        return [int(index) for index in np.argsort(-self.total[row], kind="stable")]

    def lines(self, row: int, n: int = N_SHOWN) -> list[tuple[str, str, str, str]]:
        """Column, share, cell as given and cell as expected, for people: the largest shares, the rest, the base."""
        total, order = self.total[row], self.order(row)
        lines = [
            (
                self.columns[index],
                f"{total[index]:+.3g}",
                cell_text(self.observed[row, index], max_length=MAX_TEXT),
                cell_text(self.expected[row, index], max_length=MAX_TEXT),
            )
            for index in order[:n]
        ]
        if rest := order[n:]:
            lines.append((f"({count_text(len(rest), 'other column')})", f"{total[rest].sum():+.3g}", "", ""))
        base = sum(float(base[row]) for base in self.base.values())
        return [*lines, ("(baseline)", f"{base:+.3g}", "", "")]

    def __repr__(self) -> str:
        told = [
            f"  row {row}, score {self.score[row]:.3g}: "
            + ", ".join(f"{line[0]} {line[1]}" for line in self.lines(row))
            for row in self._shown_rows()
        ]
        return "\n".join([f"Reasons of {count_text(len(self), 'row')}", *told, *filter(None, [self._tell_rest()])])

    def _repr_html_(self) -> str:
        """The rows as tables, in a notebook."""
        heads = ["column", "share", "observed", "expected"]
        parts = []
        for row in self._shown_rows():
            parts.append(new("p", new("b", f"row {row}"), f", score {self.score[row]:.4g}"))
            parts.append(table(heads, [list(line) for line in self.lines(row)], numbers=("share",)))
        return to_html(*parts, self._tell_rest())

    def plot(self, row: int = 0, *, n_columns: int = 8, ax: Any = None) -> "ReasonsDisplay":
        """Draw what columns add to the score of a row (extra `plot`)."""
        from esad.explain.displays import ReasonsDisplay

        return ReasonsDisplay(self, row, n_columns).plot(ax)

    def to_frame(self, ids: Sequence[Any] | None = None, *, id_name: str = "row", top: int | None = None) -> "pa.Table":
        """One line per row and column, the largest share first: an arrow table; `.to_pandas()` makes it another.

        Parameters
        ----------
        ids : sequence, optional
            What the rows are called; their numbers by default.
        id_name : str
            Name of the first column.
        top : int, optional
            Only so many columns of each row.
        """
        import pyarrow as pa

        named = range(len(self)) if ids is None else ids
        lines: dict[str, list[Any]] = {name: [] for name in (id_name, "score", "rank", "column", "share")}
        lines |= {f"share of {name}": [] for name in self.shares}
        lines |= {"observed": [], "expected": []}
        total = self.total
        for row, name in enumerate(named):
            for rank, index in enumerate(self.order(row)[:top]):
                cells = (name, self.score[row], rank + 1, self.columns[index], total[row, index])
                parts = (values[row, index] for values in self.shares.values())
                texts = (cell_text(cells[row, index]) for cells in (self.observed, self.expected))
                for column, cell in zip(lines.values(), (*cells, *parts, *texts), strict=True):
                    column.append(cell)
        return pa.table(lines)

    def to_json(self, row: int, *, top: int | None = None) -> dict[str, Any]:
        """One row as plain values."""
        total = self.total
        columns = [
            {
                "column": self.columns[index],
                "share": float(total[row, index]),
                "shares": {name: float(values[row, index]) for name, values in self.shares.items()},
                "observed": plain_cell(self.observed[row, index]),
                "expected": plain_cell(self.expected[row, index]),
            }
            for index in self.order(row)[:top]
        ]
        return {"terms": self._terms_json(row), "columns": columns, "cases": self._cases_json(row)}


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HeatMaps(_Explanation):
    """Why pictures got their scores.

    Attributes
    ----------
    score : ndarray, (n,)
        The anomaly scores.
    terms, base : mapping of str to ndarray, (n,)
        As in `Reasons`.
    shares : mapping of str to ndarray, (n, height, width)
        What each pixel adds to each term.
    pictures : ndarray, (n, channels, height, width)
        The pictures as the model sees them, within [0, 1].
    expected : ndarray, (n, channels, height, width)
        What the model makes of them, or the mean of the presumed normal training pictures where it makes none.
    is_rebuilt : bool
        Whether `expected` is made for each picture. It is not where labelled anomalies taught the decoder to turn
        pictures into something else (`ESAD` with labels): what it makes of a picture is then the same blur for all.
    cases : sequence of sequence of Case
        As in `Reasons`.

    Examples
    --------
    >>> from esad import Autoencoder
    >>> pictures = np.random.default_rng(0).integers(0, 60, size=(30, 8, 8), dtype=np.uint8)
    >>> odd = pictures[:1].copy()
    >>> odd[0, 2, 5] = 255
    >>> maps = Autoencoder(hidden=(4, 4), n_epochs=2, random_state=0).fit(pictures).explain(odd)
    >>> np.unravel_index(maps.total[0].argmax(), (8, 8))
    (np.int64(2), np.int64(5))
    """

    pictures: NDArray[np.float32]
    expected: NDArray[np.float32]
    is_rebuilt: bool = True

    @property
    def heat(self) -> Floats:
        """What to look at, (n, height, width), 0 or more: of each term, smoothed, what adds to the score."""
        return np.asarray(sum(np.maximum(_smooth(share), 0.0) for share in self.shares.values()))

    def __repr__(self) -> str:
        height, width = self.pictures.shape[2:]
        spots = [(self.score[row], self.to_json(row)["hottest"]) for row in self._shown_rows()]
        told = [
            f"  picture {row}, score {score:.3g}: hottest at x {spot['x']}, y {spot['y']}"
            for row, (score, spot) in enumerate(spots)
        ]
        head = f"HeatMaps of {count_text(len(self), 'picture')} of {width} x {height} pixels"
        return "\n".join([head, *told, *filter(None, [self._tell_rest()])])

    def _repr_html_(self) -> str | None:
        """The pictures beside their heat maps, in a notebook; nothing without Pillow."""
        from esad.explain.displays import draw, to_data_uri  # which draws what this file holds

        try:
            parts = [
                new(
                    "figure",
                    new("figcaption", new("b", f"picture {row}"), f", score {self.score[row]:.4g}"),
                    new("img", src=to_data_uri(draw(self, row)), alt="as given, as expected if known, heat map"),
                )
                for row in self._shown_rows()
            ]
        except MissingExtraError:
            return None
        return to_html(*parts, self._tell_rest())

    def plot(self, row: int = 0, *, ax: Any = None) -> "HeatMapDisplay":
        """Draw where the score of a picture comes from (extra `plot`)."""
        from esad.explain.displays import HeatMapDisplay

        return HeatMapDisplay(self, row).plot(ax)

    def to_json(self, row: int) -> dict[str, Any]:
        """One picture as plain values, with the place and the size of its hottest spot."""
        heat = self.heat[row]
        y, x = np.unravel_index(int(heat.argmax()), heat.shape)
        warm = heat >= heat.max() / 2 if heat.max() > 0 else np.zeros_like(heat, dtype=bool)
        hottest = {"x": int(x), "y": int(y), "share_of_pixels": float(warm.mean())}
        return {"terms": self._terms_json(row), "hottest": hottest, "cases": self._cases_json(row)}


def _smooth(maps: Floats) -> Floats:
    """Maps (n, height, width) under a Gaussian whose width is a sixteenth of the shorter side."""
    from scipy.ndimage import gaussian_filter

    sigma = SMOOTHING * min(maps.shape[1:])
    return np.asarray(gaussian_filter(maps, (0, sigma, sigma)))


def cell_text(cell: Any, *, n_digits: int = 6, max_length: int | None = None) -> str:
    """A cell for people: numbers with few digits, dates without an empty time, missing ones named so, long text cut.

    Examples
    --------
    >>> cell_text(1234.56789), cell_text(None), cell_text(True), cell_text(np.datetime64("2024-02-29T00:00:00"))
    ('1234.57', '(missing)', 'true', '2024-02-29')
    >>> cell_text(72123456.0, n_digits=4)
    '72120000'
    >>> cell_text("a long story", max_length=7)
    'a long…'
    """
    if cell is None:
        return "(missing)"
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        text = f"{cell:.{n_digits}g}"
        return f"{float(text):.0f}" if "e+" in text and abs(cell) < MAX_PLAIN else text
    if isinstance(cell, np.datetime64):
        return str(cell.astype("M8[s]")).replace("T00:00:00", "").replace("T", " ")
    text = str(cell)
    return text if max_length is None or len(text) <= max_length else f"{text[: max_length - 1]}\N{HORIZONTAL ELLIPSIS}"


def plain_cell(cell: Any) -> Any:
    """A cell as JSON can hold it.

    Examples
    --------
    >>> plain_cell(1.5), plain_cell(np.datetime64("2024-02-29"))
    (1.5, '2024-02-29')
    """
    if cell is None or isinstance(cell, bool | str) or (isinstance(cell, float) and math.isfinite(cell)):
        return cell
    return cell_text(cell)
