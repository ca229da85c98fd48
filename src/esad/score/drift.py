"""Does new data look like the training data? One test per column, one of the scores, and one level for all of them.

Numbers and dates: two-sample Kolmogorov-Smirnov on counts between the training percentiles, which can only miss a
little of the distance. Categories and truth values: chi-square. Missing values: Fisher's exact test. Holm's step-down
procedure makes the p-values of one report hold together, so that data like the training data raises any alarm at all
with a chance of at most `level`. With many rows the least difference is significant, so a difference must also be large
enough to matter: `distance` is the share of rows that would have to be moved.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from esad.core.arguments import check_share
from esad.core.arrays import Counts, Floats, Scores
from esad.errors import InputError
from esad.preprocess.inputs import Inputs, read_rows
from esad.table.columns import read_array
from esad.table.profile import ColumnCounts, ColumnProfile, Profile

if TYPE_CHECKING:
    from esad.score.displays import DriftDisplay

Test = Literal["Kolmogorov-Smirnov", "chi-square", "Fisher"]

LEVEL: Final = 0.05
MIN_DISTANCE: Final = 0.05  # a shift of an eighth of a standard deviation
MIN_ROWS: Final = 20  # fewer are not tested
_MIN_EXPECTED: Final = 5.0  # rows in a cell that chi-square is trusted with (Cochran 1954)


@dataclass(frozen=True)
class Shift:
    """One comparison of new with training rows.

    Attributes
    ----------
    column : str or None
        Name of the column; None for the scores.
    what : {"values", "missing", "scores"}
        What was compared.
    test : {"Kolmogorov-Smirnov", "chi-square", "Fisher"}
        How.
    distance : float
        0 to 1: the largest difference of the cumulated shares, the share of rows in other categories, or the difference
        of the missing shares.
    p_value : float
        Adjusted for all comparisons of the report (Holm).
    drifted : bool
        Whether `p_value` and `distance` both pass.
    """

    column: str | None
    what: str
    test: Test
    distance: float
    p_value: float
    drifted: bool

    def __str__(self) -> str:
        subject = "the scores" if self.column is None else repr(self.column)
        missing = " of missing values" if self.what == "missing" else ""
        p_value = f"p = {self.p_value:.1g}" if self.p_value >= 1e-16 else "p < 1e-16"
        return f"{subject} ({self.test}{missing}: distance {self.distance:.2f}, {p_value})"


@dataclass(frozen=True)
class Drift:
    """How far new rows are from the training rows.

    Attributes
    ----------
    n_rows : int
        New rows.
    shifts : tuple of Shift
        Every comparison that was made; none with fewer than 20 rows.
    level, min_distance : float
        As asked for.
    """

    n_rows: int
    shifts: tuple[Shift, ...]
    level: float
    min_distance: float

    @property
    def drifted(self) -> bool:
        """Whether anything differs: on data like the training data with a chance of at most `level`."""
        return any(shift.drifted for shift in self.shifts)

    @property
    def found(self) -> tuple[Shift, ...]:
        """What differs, the farthest first."""
        return tuple(sorted((shift for shift in self.shifts if shift.drifted), key=lambda shift: -shift.distance))

    def plot(self, *, ax: Any = None) -> "DriftDisplay":
        """Draw how far every column is from the training rows (extra `plot`)."""
        from esad.score.displays import DriftDisplay

        return DriftDisplay(self).plot(ax)

    def to_json(self) -> dict[str, Any]:
        """Plain values: the verdict, the level, and what differs."""
        return {
            "drifted": self.drifted,
            "level": self.level,
            "min_distance": self.min_distance,
            "n_tests": len(self.shifts),
            "shifts": [asdict(shift) for shift in self.found],
        }


class DriftMonitor:
    """Count new rows batch by batch, then compare; memory does not grow with the rows.

    Parameters
    ----------
    profile : Profile
        Summary of the training columns.
    inputs : Inputs
        The way of the data into the model.
    held_out : ndarray or None
        Scores of training rows that were held out of the training, to compare scores with.
    """

    def __init__(self, profile: Profile, inputs: Inputs, *, held_out: Scores | None) -> None:
        self._profile, self._inputs = profile, inputs
        self._scores = None if held_out is None else ColumnProfile.fit("score", read_array(held_out, "score"))
        self._counted: list[ColumnCounts] | None = None
        self._n_rows = 0

    def add(self, X: Any, scores: Scores) -> None:
        """Count rows and their scores."""
        table = self._inputs.describe(read_rows(X))
        counted = self._profile.count(table)
        if self._scores is not None:
            counted.append(self._scores.count(read_array(scores, "score")))
        known = self._counted
        self._counted = counted if known is None else [a + b for a, b in zip(known, counted, strict=True)]
        self._n_rows += table.n_rows

    def report(self, *, level: float = LEVEL, min_distance: float = MIN_DISTANCE) -> Drift:
        """Compare all rows so far with the training rows."""
        check_share("`level`", level)
        if not isinstance(min_distance, int | float | np.number) or not 0 <= min_distance < 1:
            raise InputError(f"`min_distance` must be 0 or more and below 1. Got {min_distance!r}.")
        found = list(self._run_tests()) if self._n_rows >= MIN_ROWS else []
        adjusted = _holm(np.array([p_value for *_, p_value in found]))
        shifts = (
            Shift(column, what, test, distance, p_value, p_value <= level and distance >= min_distance)
            for (column, what, test, distance, _), p_value in zip(found, adjusted.tolist(), strict=True)
        )
        return Drift(self._n_rows, tuple(shifts), float(level), float(min_distance))

    def _run_tests(self) -> Iterator[tuple[str | None, str, Test, float, float]]:
        """Column, what, test, distance and p-value of every comparison that can be made."""
        columns = [*self._profile.columns, *([] if self._scores is None else [self._scores])]
        for column, new in zip(columns, self._counted or [], strict=True):
            name, what = (None, "scores") if column is self._scores else (column.name, "values")
            old = column.training
            if old.n_missing or new.n_missing:
                yield name, "missing", "Fisher", *_fisher(old, new)
            if not old.n_present or not new.n_present:
                continue
            if column.kind in ("number", "date"):
                yield name, what, "Kolmogorov-Smirnov", *_kolmogorov_smirnov(old.counts, new.counts)
            else:
                yield name, what, "chi-square", *_chi_square(old.counts, new.counts)


def _kolmogorov_smirnov(old: Counts, new: Counts) -> tuple[float, float]:
    """Distance and p-value, the latter as scipy's `ks_2samp` takes it for samples that are not small.

    It would be 0 where all values of one sample are larger than those of the other, of however few rows. It cannot be
    smaller than 2 / C(n + m, n), the chance of this in either direction.
    """
    from scipy.special import comb
    from scipy.stats import kstwo

    n_old, n_new = int(old.sum()), int(new.sum())
    distance = float(np.abs(old.cumsum() / n_old - new.cumsum() / n_new).max())
    n_both = max(round(n_old * n_new / (n_old + n_new)), 1)
    least = 2.0 / comb(n_old + n_new, n_old)
    return distance, float(np.clip(kstwo.sf(distance, n_both), min(least, 1.0), 1.0))


def _chi_square(old: Counts, new: Counts) -> tuple[float, float]:
    """Distance and p-value; cells with few rows are put together."""
    from scipy.stats import chi2_contingency

    table = np.stack([old, new])
    total = table.sum(axis=0)
    expected = total * (table.sum(axis=1).min() / total.sum())
    order = np.argsort(-expected, kind="stable")
    n_kept = int(np.count_nonzero(expected >= _MIN_EXPECTED))
    if n_kept and expected[order[n_kept:]].sum() < _MIN_EXPECTED:
        n_kept -= 1  # the rest is too small for a cell: it joins the smallest
    kept = np.c_[table[:, order[:n_kept]], table[:, order[n_kept:]].sum(axis=1)]
    kept = kept[:, kept.sum(axis=0) > 0]
    if kept.shape[1] < 2:
        return 0.0, 1.0
    shares = kept / kept.sum(axis=1, keepdims=True)
    return float(np.abs(shares[0] - shares[1]).sum() / 2), float(chi2_contingency(kept, correction=False).pvalue)


def _fisher(old: ColumnCounts, new: ColumnCounts) -> tuple[float, float]:
    """Difference of the missing shares, and its p-value."""
    from scipy.stats import fisher_exact

    table = np.array([[part.n_missing, part.n_present] for part in (old, new)])
    shares = table[:, 0] / table.sum(axis=1)
    return float(abs(shares[0] - shares[1])), float(fisher_exact(table).pvalue)


def _holm(p_values: Floats) -> Floats:
    """Holm's adjusted p-values (1979).

    Examples
    --------
    >>> _holm(np.array([0.04, 0.01, 0.5]))
    array([0.08, 0.03, 0.5 ])
    """
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1)), 1.0)
    return adjusted
