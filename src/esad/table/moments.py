"""Mean and standard deviation of columns seen in blocks of rows: one pass, safe from overflow and cancellation."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["careful_moments", "finite_moments", "moments_without_extremes"]

_EXTREME = 100.0  # robust standard deviations from the median at which a value no longer counts
_SUSPECT = 3.0  # times the robust standard deviation at which extreme values are looked for
_SAFE_SUM = 1e-200  # below this, squares may have underflowed: the column is constant or needs the careful way


def finite_moments(
    blocks: Iterator[NDArray[np.float64]], column: Callable[[int], NDArray[np.float64]], *, n_unbounded: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and population standard deviation of each column's finite values.

    Sums run over x - s, where s is the first finite value of the column. As s is itself one of the n values, the
    variance is at least (mean - s)^2 / n, so that the relative rounding error stays below about n times 1e-16.
    Columns whose squares leave the range of floats are done again, scaled.

    Parameters
    ----------
    blocks : iterator of ndarray of shape (rows, n_columns)
        Consecutive rows; overwritten here.
    column : callable
        Gives all values of one column, for those that need the careful way.
    n_unbounded : int
        The first so many columns may hold any magnitude; the others are within 1e-100 and 1e100 or 0.

    Returns
    -------
    mean, std : ndarray of shape (n_columns,)
        Both 0 for a column without a finite value; std is exactly 0 for a constant one.

    Examples
    --------
    >>> rows = np.array([[1.0, 1e300], [3.0, -1e300], [np.inf, np.nan]])
    >>> mean, std = finite_moments(iter([rows.copy()]), lambda index: rows[:, index], n_unbounded=2)
    >>> mean.tolist(), std.tolist()
    ([2.0, 0.0], [1.0, 1e+300])
    """
    n_finite, total, squares, shift = (np.zeros(0) for _ in range(4))
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            if not len(shift):
                n_finite, total, squares, shift = (np.full(block.shape[1], start) for start in (0.0, 0.0, 0.0, np.nan))
            _fill_shift(shift, block)
            block -= shift
            sums = _column_sums(block)
            if np.isfinite(sums).all():
                n_finite += len(block)
            else:
                finite = np.isfinite(block)
                block[~finite] = 0.0
                n_finite += finite.sum(axis=0)
                sums = _column_sums(block)
            total += sums
            np.multiply(block, block, out=block)
            squares += _column_sums(block)
        n_finite = np.maximum(n_finite, 1.0)
        offset = total / n_finite
        mean = np.where(np.isnan(shift), 0.0, shift + offset)
        std = np.sqrt(np.maximum(squares / n_finite - offset**2, 0.0))
    safe = np.isfinite(mean) & np.isfinite(std) & (squares > _SAFE_SUM)
    for index in np.flatnonzero(~safe[:n_unbounded]):
        mean[index], std[index] = careful_moments(column(int(index)))
    return mean, std


def _column_sums(block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum over rows: as fast as a matrix product, yet the same bits for any number of threads."""
    return np.asarray(np.einsum("ij->j", block))


def _fill_shift(shift: NDArray[np.float64], block: NDArray[np.float64]) -> None:
    """Give every column that has none yet its first finite value."""
    for index in np.flatnonzero(np.isnan(shift)):
        finite = np.isfinite(block[:, index])
        if finite.any():
            shift[index] = block[finite.argmax(), index]


def careful_moments(values: NDArray[np.float64]) -> tuple[float, float]:
    """Moments of one column of any magnitude, in three passes."""
    values = np.ascontiguousarray(values)
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 0.0
    if (values == values[0]).all():
        return float(values[0]), 0.0
    magnitude = float(np.abs(values).max())
    scaled = values / magnitude  # within [-1, 1]
    centre = float(np.clip(scaled.mean(), -1.0, 1.0))
    deviation = scaled - centre
    spread = float(np.abs(deviation).max())
    ratio = float(np.sqrt(np.mean((deviation / spread) ** 2))) * spread if spread else 0.0
    return centre * magnitude, min(ratio, 1.0) * magnitude  # no column deviates by more than its largest value


def moments_without_extremes(
    sample: NDArray[np.float64], std: float, column: Callable[[], NDArray[np.float64]]
) -> tuple[float, float] | None:
    """Mean and standard deviation without values that drown all others, or None where `std` looks sound.

    A placeholder such as 1e15 in one cell would otherwise set the scale of its column and make everything else alike.
    Median and spread (a 90 % range) come from `sample`, some values of the column.

    Examples
    --------
    >>> values = np.append(np.arange(100.0), 1e15)
    >>> mean, std = moments_without_extremes(values, values.std(), lambda: values)
    >>> mean, round(std, 6)
    (49.5, 28.86607)
    """
    sample = sample[np.isfinite(sample)]
    if not len(sample):
        return None
    low, median, high = (float(value) for value in np.quantile(sample, (0.05, 0.5, 0.95)))
    spread = high / 3.29 - low / 3.29  # 3.29 standard deviations lie between them for a Gaussian
    if not 0.0 < _EXTREME * spread < np.inf or std < _SUSPECT * spread:
        return None
    values = column()
    return careful_moments(values[np.abs(values - median) <= _EXTREME * spread])
