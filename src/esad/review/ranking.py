"""Scores and ranks of the rows under review by one model, and the reasons for the scores."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Labels, Rows
from esad.detectors.base import Detector
from esad.explain.cases import Case, Cases
from esad.explain.displays import draw_parts, to_png
from esad.explain.reasons import HeatMaps, Reasons, cell_text
from esad.review.dataset import ReviewDataset
from esad.table.table import take_rows

BLOCK: Final = 4096  # pictures scored at a time
MAX_WANTED: Final = 64
KEPT: Final = 2000  # explanations kept
AT_ONCE: Final = {"row": 8, "picture": 1}  # explained at a time: pictures take long, and the first one is shown first
MAX_CASES: Final = 500  # newest labelled rows among which the nearest are searched
N_CASES: Final = 3  # shown beside a row
N_COLUMNS: Final = 8  # of the reasons, with the largest shares
N_BINS: Final = 48
DRAWINGS: Final = ("given", "expected", "heat")
SKEWED: Final = 10.0  # the highest scores, by the median, both from 0 or the lowest: then the axis is logarithmic
JOIN_SECONDS: Final = 5.0


@dataclass(frozen=True, eq=False)
class Ranking:
    """A fitted detector and what it says of every row."""

    detector: Detector
    scores: NDArray[np.float64]
    p_values: NDArray[np.float64] | None

    @classmethod
    def of(cls, detector: Detector, X: Any) -> "Ranking":
        """Score all rows; p-values where the detector is calibrated."""
        n_rows = len(X)
        size = BLOCK if isinstance(X, np.ndarray) else n_rows  # preprocessed pictures are large
        found = [detector.score_with_p_values(X[first : first + size]) for first in range(0, n_rows, size)]
        p_values = [own for _, own in found if own is not None]
        scores = np.concatenate([own for own, _ in found])
        return cls(detector, scores, np.concatenate(p_values) if p_values else None)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """All rows, the most anomalous first."""
        return np.argsort(-self.scores, kind="stable")

    @cached_property
    def ranks(self) -> NDArray[np.intp]:
        """The place of each row in that order, from 1."""
        ranks = np.empty(len(self.scores), dtype=np.intp)
        ranks[self.order] = np.arange(1, len(ranks) + 1)
        return ranks

    @property
    def is_alarm(self) -> NDArray[np.bool_]:
        """Which rows raise an alarm."""
        return self.scores > self.detector.threshold_

    @cached_property
    def histogram(self) -> dict[str, Any]:
        """How the scores are spread: square roots of the counts, so that few rows can be seen beside many.

        The axis is logarithmic where a few scores are far above all others: from 0 on or, where there are scores below,
        from as far below the lowest one as the median is above it (`origin`; None: the axis is even).
        """
        threshold = self.detector.threshold_
        # a few among very many may lie beyond the axis
        low, middle, high = np.quantile(self.scores, (0.0, 0.5, 0.999), method="higher").tolist()
        low, high = min(low, threshold), max(high, threshold)
        base = min(low, 0.0)
        origin = None
        if high - base > SKEWED * (middle - base) > 0:
            origin = 0.0 if low > 0 else low - (middle - low)
            pad = ((high - origin) / (low - origin)) ** 0.02
            edges = origin + np.geomspace((low - origin) / pad, (high - origin) * pad, N_BINS + 1)
        else:
            pad = 0.02 * (high - low) or 0.5
            edges = np.linspace(low - pad, high + pad, N_BINS + 1)
        counts = np.histogram(np.clip(self.scores, edges[0], edges[-1]), bins=edges)[0]
        heights = (np.sqrt(counts) / np.sqrt(counts.max())).tolist()
        is_cut = bool(self.scores.max() > edges[-1])
        ends = {"low": edges[0], "high": edges[-1], "threshold": threshold}
        return ends | {"heights": heights, "origin": origin, "is_cut": is_cut}


class Explanations:
    """The reasons for the scores of one ranking, found in the background before they are needed.

    Those of a row are what the page shows: its columns, the others together, the baseline. Those of a picture are its
    drawings (PNG) by their kind.

    Parameters
    ----------
    ranking : Ranking
    dataset : ReviewDataset
    """

    def __init__(self, ranking: Ranking, dataset: ReviewDataset) -> None:
        self.ranking, self.dataset = ranking, dataset
        self._explained: OrderedDict[int, dict[str, Any] | None] = OrderedDict()  # None: it failed
        self._wanted: deque[int] = deque()
        self._under_way: list[int] = []
        self._vectors: dict[int, Rows] = {}
        self.drawings: tuple[str, ...] = DRAWINGS  # of a picture; whether it can be drawn is known after the first one
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="explain", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop explaining, and wait for the thread to end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(JOIN_SECONDS)

    def rows_of(self, numbers: Iterable[int]) -> Rows:
        """Preprocessed rows."""
        return self.ranking.detector.rows_of(take_rows(self.dataset.X, np.asarray(numbers, dtype=np.intp)))

    # ------------------------------------------------------------------ reasons

    def request(self, rows: Iterable[int], *, first: bool = True) -> None:
        """Request explanations of rows in this order: next, or after those requested before."""
        with self._changed:
            asked = [row for row in rows if row not in self._explained and row not in self._under_way]
            waiting = [row for row in self._wanted if row not in asked]
            self._wanted = deque([*asked, *waiting][:MAX_WANTED] if first else [*waiting, *asked][-MAX_WANTED:])
            self._changed.notify_all()

    def get(self, row: int, *, wait: float = 0.0) -> dict[str, Any] | None:
        """The reasons for a row; None while they are not ready, or if the row cannot be explained."""
        with self._changed:
            if wait and row not in self._explained:
                self.request([row])
                self._changed.wait_for(lambda: row in self._explained or self._closed, timeout=wait)
            return self._explained.get(row)

    def is_pending(self, row: int) -> bool:
        """Whether an explanation is still to come."""
        with self._changed:
            return row not in self._explained

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closed)
                if self._closed:
                    return
                n = min(AT_ONCE[self.dataset.noun], len(self._wanted))
                self._under_way = rows = [self._wanted.popleft() for _ in range(n)]
            try:
                found = self._explain(rows)
            except Exception:  # a row that cannot be explained can still be judged
                found = dict.fromkeys(rows)
            with self._changed:
                self._explained |= found
                self._under_way = []
                while len(self._explained) > KEPT:
                    self._explained.popitem(last=False)
                self._changed.notify_all()

    def _explain(self, rows: list[int]) -> dict[int, dict[str, Any] | None]:
        part = take_rows(self.dataset.X, np.asarray(rows, dtype=np.intp))
        reasons = self.ranking.detector.explain(part, n_cases=0)
        if isinstance(reasons, HeatMaps):
            parts = {row: draw_parts(reasons, index) for index, row in enumerate(rows)}
            self.drawings = tuple(kind for kind in DRAWINGS if kind in parts[rows[0]])
            return {row: {kind: to_png(pixels) for kind, pixels in part.items()} for row, part in parts.items()}
        return {row: _list_columns(reasons, index) for index, row in enumerate(rows)}

    # ------------------------------------------------------------------ cases

    def nearest(self, row: int, y: Labels) -> list[Case]:
        """The nearest labelled rows, the row itself left out."""
        labelled = np.flatnonzero(y)[-MAX_CASES:].tolist()
        others = [other for other in labelled if other != row]
        if not others:
            return []
        missing = [one for one in [row, *others] if one not in self._vectors]
        if missing:
            self._vectors |= dict(zip(missing, self.rows_of(missing), strict=True))
        vectors = np.stack([self._vectors[other] for other in others])
        cases = Cases(vectors, y[others], np.array(others, dtype=np.int64))
        return cases.nearest(self._vectors[row][None], N_CASES)[0]


def _list_columns(reasons: Reasons, row: int) -> dict[str, Any]:
    total = reasons.total[row]
    order = np.argsort(-np.abs(total), kind="stable").tolist()  # what speaks against an alarm is a reason as well
    shown = [
        {
            "column": reasons.columns[index],
            "share": float(total[index]),
            "observed": cell_text(reasons.observed[row, index], n_digits=10),
            "expected": cell_text(reasons.expected[row, index], n_digits=4),
        }
        for index in order[:N_COLUMNS]
    ]
    rest = order[N_COLUMNS:]
    base = sum(float(values[row]) for values in reasons.base.values())
    return {"columns": shown, "n_others": len(rest), "others": float(total[rest].sum()), "base": base}
