"""The way from a user's data to a network's rows as tensor operations, which a file can hold.

`TabularPreprocessor` and `ImagePreprocessor` read any table and are quick. These modules do the same arithmetic on
plain tensors, step by step and in the same precision: rows come out equal to the bit, sines and cosines nearly so. What
the others refuse with an error cannot be refused inside a file: such rows are marked instead.
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esad.preprocess.image import UNIT_LIMITS, ImagePreprocessor
from esad.preprocess.inputs import Inputs
from esad.table.encode import CLIP, ColumnFeatures, TabularPreprocessor
from esad.table.statistics import CYCLE_LENGTHS, Cycle

GROUPS = ("numbers", "codes", "dates")  # columns of a kind come as one tensor
NOT_A_DATE = int(np.iinfo(np.int64).min)  # numpy's NaT as a number

_DAY = CYCLE_LENGTHS["day"]
_DAYS_BEFORE_1970 = 719_162  # since 1 January of the year 1
_DAYS_OF_A_YEAR = 365.2425  # on average over 400 years


def exact(value: float) -> Tensor:
    """A constant in float64: torch writes plain numbers into ONNX files as float32."""
    return torch.tensor(value, dtype=torch.float64)


def group_of(part: ColumnFeatures) -> str:
    """Which of the `GROUPS` a column belongs to."""
    return {"category": "codes", "date": "dates"}.get(part.kind, "numbers")


class TableRows(nn.Module):
    """The columns of a table to rows.

    Takes one tensor for each of these groups that the table has columns of, in this order:

    - numbers: float64, (n, number and boolean columns); NaN where missing, truth values as 0 and 1
    - codes: int64, (n, category columns); see `ColumnFeatures.codes`
    - dates: int64, (n, date columns); microseconds since 1970 in UTC, `NOT_A_DATE` where missing

    Gives rows (n, features) of float32, and which of them, (n,), hold a truth value other than 0 and 1 or an unknown
    code.
    """

    mean: Tensor
    scale: Tensor
    minimum: Tensor
    span: Tensor
    is_boolean: Tensor
    n_codes: Tensor
    marked: Tensor  # place among the numbers of each that has a mark for missing
    coded: Tensor  # place among the categories of each category mark
    code: Tensor  # the code that it marks
    order: Tensor  # where each feature lies when they come group by group

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        preprocessor = inputs.preprocessor
        assert isinstance(preprocessor, TabularPreprocessor)
        by_group = {name: [part for part in preprocessor.features_ if group_of(part) == name] for name in GROUPS}
        self.widths = {name: len(by_group[name]) for name in GROUPS if by_group[name]}
        self.dates = by_group["dates"]
        booleans = [part.kind == "boolean" for part in by_group["numbers"]]
        self.has_booleans, self.has_minmax = any(booleans), inputs.minimum is not None
        self.register_buffer("mean", torch.from_numpy(preprocessor.mean_.copy()))
        self.register_buffer("scale", torch.from_numpy(preprocessor.scale_.copy()))
        self.register_buffer("is_boolean", torch.tensor(booleans, dtype=torch.bool))
        sizes = torch.tensor([part.n_features for part in by_group["codes"]], dtype=torch.int64)
        marked = [place for place, part in enumerate(by_group["numbers"]) if part.marks_missing]
        self.register_buffer("n_codes", sizes)
        self.register_buffer("marked", torch.tensor(marked, dtype=torch.int64))
        self.register_buffer("coded", torch.repeat_interleave(sizes))
        self.register_buffer("code", torch.cat([torch.arange(0), *map(torch.arange, sizes)]))
        self.register_buffer("order", torch.from_numpy(_order(preprocessor)))
        if inputs.minimum is not None and inputs.span is not None:
            self.register_buffer("minimum", torch.from_numpy(inputs.minimum.copy()))
            self.register_buffer("span", torch.from_numpy(inputs.span.copy()))

    def forward(self, *groups: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, and which of them the library would refuse."""
        given = dict(zip(self.widths, groups, strict=True))
        scaled = (self._features(given) - self.mean) / self.scale
        rows = torch.where(scaled.isnan(), 0.0, scaled).clamp(-CLIP, CLIP).float()
        if self.has_minmax:
            rows = (rows - self.minimum) / self.span
        refused = torch.zeros_like(groups[0][:, 0], dtype=torch.bool)
        if self.has_booleans:
            numbers = given["numbers"]
            is_truth = (numbers == 0) | (numbers == 1) | numbers.isnan()
            refused = refused | (self.is_boolean & ~is_truth).any(1)
        if "codes" in given:
            refused = refused | ((given["codes"] < 0) | (given["codes"] >= self.n_codes)).any(1)
        return rows, refused

    def examples(self, n_rows: int) -> list[Tensor]:
        """Zeros of the form that `forward` takes."""
        types = {"numbers": torch.float64, "codes": torch.int64, "dates": torch.int64}
        return [torch.zeros(n_rows, width, dtype=types[name]) for name, width in self.widths.items()]

    def _features(self, given: dict[str, Tensor]) -> Tensor:
        """The features before scaling, (n, features), in the order of `TabularPreprocessor`."""
        features = []
        if "numbers" in given:
            features += [given["numbers"], given["numbers"][:, self.marked].isnan().double()]
        if "codes" in given:
            features.append((given["codes"][:, self.coded] == self.code).double())
        for place, part in enumerate(self.dates):
            features.append(_date_features(given["dates"][:, place], part))
        return torch.cat(features, dim=1)[:, self.order]


def _order(preprocessor: TabularPreprocessor) -> NDArray[np.int64]:
    """Where each feature lies among values, marks of numbers, marks of categories, and features of dates."""
    parts = preprocessor.features_
    columns = [index for name in GROUPS for index, part in enumerate(parts) if group_of(part) == name]
    grouped = np.repeat(columns, [parts[index].n_features for index in columns])
    n_values = preprocessor.n_features_out_ - len(grouped)
    return np.concatenate([np.arange(n_values), n_values + np.argsort(grouped, kind="stable")]).astype(np.int64)


def _date_features(microseconds: Tensor, part: ColumnFeatures) -> Tensor:
    """The time, the cycles and the mark of one date column, (n, features)."""
    missing = microseconds == NOT_A_DATE
    known = torch.where(missing, 0, microseconds)
    features = [known.double() / exact(1e6)]
    for cycle in part.cycles:
        angle = exact(2.0 * math.pi) * _phase(known, cycle)
        features += [angle.sin(), angle.cos()]
    stacked = torch.where(missing[:, None], torch.nan, torch.stack(features, dim=1))
    return torch.cat([stacked, missing.double()[:, None]], dim=1) if part.marks_missing else stacked


def _phase(microseconds: Tensor, cycle: Cycle) -> Tensor:
    """Position within the cycle, from 0 to below 1."""
    length = CYCLE_LENGTHS[cycle]
    if cycle != "year":
        return microseconds.remainder(length).double() / exact(length)
    days = (microseconds // _DAY).double()
    since_new_year = (days - _new_year(days)) * exact(_DAY) + microseconds.remainder(_DAY).double()
    return since_new_year / exact(length)


def _new_year(days: Tensor) -> Tensor:
    """The first day of the year of each day, both counted from 1970; whole numbers in float64, so exact."""
    guess = ((days + _DAYS_BEFORE_1970) / _DAYS_OF_A_YEAR).floor()  # whole years since the year 1, at most one off
    first, following = _first_day(guess), _first_day(guess + 1)
    year = guess + (following <= days).double() - (first > days).double()
    return _first_day(year)


def _first_day(years: Tensor) -> Tensor:
    """1 January so many years after the year 1, in days since 1970, by the Gregorian leap years."""
    leap_days = (years / 4).floor() - (years / 100).floor() + (years / 400).floor()
    return 365 * years + leap_days - _DAYS_BEFORE_1970


class PictureRows(nn.Module):
    """Pictures to rows.

    Takes (n, height, width) or, in colour, (n, height, width, 3): uint8 where training saw uint8, else float32. Gives
    rows (n, channels, height, width) of float32, and which of them, (n,), are not finite or on another scale.
    """

    def __init__(self, preprocessor: ImagePreprocessor) -> None:
        super().__init__()
        channels, height, width = preprocessor.shape_
        self.shape = (height, width) if channels == 1 else (height, width, channels)
        self.scale, self.low, self.high = preprocessor.scale_, preprocessor.low_, preprocessor.high_
        self.dtype = torch.uint8 if self.scale == "bytes" else torch.float32

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        """Rows, and which of them the library would refuse."""
        channels_first = pictures[:, None] if len(self.shape) == 2 else pictures.permute(0, 3, 1, 2)
        if self.dtype == torch.uint8:
            return channels_first.float() / 255.0, torch.zeros_like(pictures.flatten(1)[:, 0], dtype=torch.bool)
        pixels = pictures.flatten(1)
        refused = ~pixels.isfinite().all(1)
        if self.scale == "unit":
            refused = refused | (pixels.amin(1) < UNIT_LIMITS[0]) | (pixels.amax(1) > UNIT_LIMITS[1])
            return channels_first.clamp(0.0, 1.0), refused
        span = self.high - self.low
        scaled = (channels_first.double() - exact(self.low)) / exact(span if span > 0.0 else 1.0)
        return scaled.clamp(0.0, 1.0).float(), refused
