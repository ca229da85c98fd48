"""Whether an exported file gives the library's scores: rows to score with both, and how far they differ."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Arrays, Floats, Scores
from esad.preprocess.inputs import Inputs
from esad.score.conformal import Calibration
from esad.table.columns import Values, as_texts
from esad.table.encode import ColumnFeatures, TabularPreprocessor
from esad.table.table import Table

TOLERANCE: Final = 1e-4
ROUNDING: Final = 1e-6  # a score of 0 may differ by 1e-10 of what scores usually differ by
N_ROWS: Final = 2000
MAX_VALUES: Final = 2**20  # pixels and channels of all random pictures together
_ODD_SHARE: Final = 0.05  # of cells that are missing, infinite, huge or unseen
_ODD_NUMBERS: Final = (np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0, 1e-300)
_UNSEEN: Final = "a word that training has not seen"
_LAST_SECOND: Final = 2.5e11  # in the year 9892


@dataclass(frozen=True)
class Parity:
    """How an exported file compares with the library.

    Attributes
    ----------
    n_rows : int
        Rows or pictures that both have scored.
    difference : float
        The largest difference of two scores, as a share of the score. For pictures, whose convolutions are in float32
        everywhere, as a share of what scores usually differ by (their median distance from the median), where that
        is more than the score.
    n_decided_otherwise : int
        Rows whose alarm or p-value differs by more than such a difference of scores can explain.
    """

    n_rows: int
    difference: float
    n_decided_otherwise: int

    @property
    def holds(self) -> bool:
        """Whether the file may be given away."""
        return self.difference <= TOLERANCE and self.n_decided_otherwise == 0


def random_data(inputs: Inputs) -> Table | NDArray[Any]:
    """Rows or pictures like those of the training and unlike them, odd cells among them."""
    rng = np.random.default_rng(0)
    preprocessor = inputs.preprocessor
    if isinstance(preprocessor, TabularPreprocessor):
        schema = preprocessor.schema_
        far = np.where(np.arange(N_ROWS) % 2, 0.3 * rng.normal(size=N_ROWS), rng.standard_t(2, size=N_ROWS))
        columns = []
        for index, part in enumerate(preprocessor.features_):
            first = int(np.argmax(preprocessor.feature_sources_ == index))
            centre, scale = preprocessor.mean_[first], preprocessor.scale_[first]
            with np.errstate(over="ignore"):
                values = centre + scale * (far * rng.normal(size=N_ROWS))
            cells = _draw_cells(part, values, rng)
            columns.append(Values(part.kind, as_texts(cells) if part.kind == "category" else cells))
        return Table(names=schema.names, named=schema.named, columns=tuple(columns))
    n_pictures = int(np.clip(MAX_VALUES // np.prod(preprocessor.shape_), 4, 64))
    noise = rng.random((n_pictures, *preprocessor.shape_))
    strength = rng.random((n_pictures, 1, 1, 1)) ** 2
    pictures = np.clip(inputs.typical + strength * (noise - 0.5), 0, 1)
    pictures[:2] = np.arange(2).reshape(2, 1, 1, 1)  # black and white
    if preprocessor.scale_ == "bytes":
        return np.round(pictures * 255).astype(np.uint8)
    return (preprocessor.low_ + pictures * (preprocessor.high_ - preprocessor.low_)).astype(np.float32)


def _draw_cells(part: ColumnFeatures, values: Floats, rng: np.random.Generator) -> NDArray[Any]:
    """Cells of one column's kind; numbers and dates around given values."""
    odd = rng.random(len(values)) < _ODD_SHARE
    if part.kind == "category":
        known = [text for text in part.codes if text is not None]
        words = np.array([*known, _UNSEEN, None], dtype=object)
        return np.asarray(words[rng.integers(len(words), size=len(values))])
    if part.kind == "boolean":
        return np.where(odd, np.nan, rng.integers(2, size=len(values)).astype(np.float64))
    if part.kind == "date":
        seconds = np.clip(values, -_LAST_SECOND / 4, _LAST_SECOND)
        dates = (seconds * 1e6).astype(np.int64).astype("M8[us]")
        return np.where(odd, np.datetime64("NaT", "us"), dates)
    return np.where(odd, rng.choice(_ODD_NUMBERS, size=len(values)), values)


def compare_outputs(
    found: Arrays,
    scores: Scores,
    *,
    threshold: float,
    calibration: Calibration | None = None,
    by_member: Scores | None = None,
    is_single: bool = False,
) -> Parity:
    """Compare the outputs of an exported file with the library's scores.

    `by_member` are the members' own scores, (members, n), which p-values of a calibration by member are made of.
    `is_single` says that the file computes in float32.

    Examples
    --------
    >>> scores = np.array([1.0, 2.0, 4.0])
    >>> found = {"score": scores + 1e-5, "anomaly": scores > 3}
    >>> compare_outputs(found, scores, threshold=3.0).holds
    True
    >>> compare_outputs(found, scores, threshold=1.5)  # the file says no alarm for 2.0
    Parity(n_rows=3, difference=1...e-05, n_decided_otherwise=1)
    """
    reach = TOLERANCE * _usual_size(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.abs(found["score"] - scores) / _usual_size(scores, floor=1.0 if is_single else ROUNDING)
    shares[found["score"] == scores] = 0.0
    difference = float(np.max(np.where(np.isnan(shares), np.inf, shares)))
    wrong = (found["anomaly"] != (scores > threshold)) & (np.abs(scores - threshold) > reach)
    if calibration is not None:
        ranked = scores if by_member is None else by_member
        reach = TOLERANCE * _usual_size(ranked)
        least, most = calibration.p_values(ranked + reach), calibration.p_values(ranked - reach)
        wrong |= ~((found["p_value"] >= least - 1e-12) & (found["p_value"] <= most + 1e-12))
    return Parity(len(scores), difference, int(wrong.sum()))


def _usual_size(scores: Scores, *, floor: float = 1.0) -> Floats:
    """Return the size to measure differences by: the score or, if larger, `floor` times the usual spread of scores."""
    median = np.median(scores, axis=-1, keepdims=True)
    usual = np.median(np.abs(scores - median), axis=-1, keepdims=True)
    return np.maximum(np.abs(scores), floor * usual)
