"""A fitted detector as one torch module: from a user's data to score, alarm and p-value."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from esad.core.arrays import Floats
from esad.preprocess.image import ImagePreprocessor
from esad.preprocess.inputs import Inputs
from esad.preprocess.tensors import PictureRows, TableRows, exact
from esad.score.conformal import Calibration
from esad.train.objective import Objective

_WITH_NUMBERS = frozenset(
    ["add", "radd", "sub", "rsub", "mul", "rmul", "div", "truediv", "rdiv", "rtruediv", "pow", "rpow", "clamp", "where"]
)
_EXAMPLE_ROWS = 3  # to trace with; 0 and 1 would be taken for constants


class ObjectiveTerms(nn.Module):
    """Rows (n, *features) of float32 -> what each term adds to each member's score, (members, n) of float64."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective
        self.run = objective.scorer()

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """The terms by name."""
        return self.objective.contributions(self.run(rows.to(next(self.objective.parameters()).dtype)))


class ScoreGraph(nn.Module):
    """A module from what `TableRows` or `PictureRows` take to the decisions by name, each (n,).

    - score: float64, higher = more anomalous; NaN for rows that the library would refuse
    - anomaly: bool, whether the score is above the threshold; true for those rows, so that somebody looks at them
    - p_value: float64, only with a calibration
    """

    def __init__(
        self, inputs: Inputs, terms: nn.Module, *, threshold: float, calibration: Calibration | None = None
    ) -> None:
        super().__init__()
        shared = inputs.preprocessor
        self.rows = PictureRows(shared) if isinstance(shared, ImagePreprocessor) else TableRows(inputs)
        self.terms = terms
        self.threshold = threshold
        self.p_values = None if calibration is None else PValues(calibration)

    def forward(self, *given: Tensor) -> dict[str, Tensor]:
        """The decisions."""
        rows, refused = self.rows(*given)
        terms = list(self.terms(rows).values())
        score = torch.where(refused, torch.nan, sum(term.mean(0) for term in terms))
        decided = {"score": score, "anomaly": ~(score <= exact(self.threshold))}
        if self.p_values is not None:
            p_value = self.p_values(score, torch.stack(terms).sum(0))
            decided["p_value"] = torch.where(refused, torch.nan, p_value)
        return decided

    def examples(self) -> tuple[Tensor, ...]:
        """Zeros of the form that `forward` takes."""
        if isinstance(self.rows, PictureRows):
            return (torch.zeros(_EXAMPLE_ROWS, *self.rows.shape, dtype=self.rows.dtype),)
        return tuple(self.rows.examples(_EXAMPLE_ROWS))


class PValues(nn.Module):
    """`Calibration.p_values` by a binary search that every runtime can do."""

    def __init__(self, calibration: Calibration) -> None:
        super().__init__()
        self.is_cross, self.n_rows = calibration.is_cross, calibration.n_rows
        self.sizes = [len(part) for part in calibration.parts]
        for index, part in enumerate(calibration.parts):
            self.register_buffer(f"part_{index}", _pad(part))

    def forward(self, score: Tensor, by_member: Tensor) -> Tensor:
        """Eq. (1) of `esad.score.conformal` by scores (n,) or, for "cross", Eq. (2) by member (members, n)."""
        ranks = torch.ones_like(score, dtype=torch.int64)
        for index, size in enumerate(self.sizes):
            own = by_member[index] if self.is_cross else score
            ranks = ranks + (size - _count_below(self.get_buffer(f"part_{index}"), own))
        return ranks.double() / exact(self.n_rows + 1)


def _pad(ordered: Floats) -> Tensor:
    """Append infinities to sorted values, so that there are 2^k - 1."""
    n = 2 ** len(ordered).bit_length() - 1
    return torch.from_numpy(np.concatenate([ordered, np.full(n - len(ordered), np.inf)]))


def _count_below(padded: Tensor, values: Tensor) -> Tensor:
    """Count the sorted entries that are smaller than each value."""
    n = torch.zeros_like(values, dtype=torch.int64)
    step = (len(padded) + 1) // 2
    while step:
        n = torch.where(padded[n + (step - 1)] < values, n + step, n)
        step //= 2
    return n


class _ExactNumbers(TorchFunctionMode):
    """Makes plain numbers that meet float64 tensors within the block float64 tensors too.

    The exporter to ONNX writes them as float32. Leaky ReLU is a maximum: onnxruntime has none in float64, and torch
    takes long to take apart its own.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        is_exact = any(isinstance(value, Tensor) and value.dtype == torch.float64 for value in args)
        if func.__name__.startswith("leaky_relu"):
            return _leaky_relu(*args, **kwargs)
        if is_exact and func.__name__.strip("_") in _WITH_NUMBERS:
            args = tuple(exact(value) if isinstance(value, float) else value for value in args)
            kwargs = {key: exact(value) if isinstance(value, float) else value for key, value in kwargs.items()}
        return func(*args, **kwargs)


def _leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    if negative_slope == 0.0:
        return x.relu()
    return torch.maximum(x, x * torch.tensor(negative_slope, dtype=x.dtype))


def trace_graph(graph: ScoreGraph) -> Any:
    """The graph as a `torch.export.ExportedProgram` for any number of rows, without a trace of this machine."""
    examples = graph.examples()
    n_rows = torch.export.Dim("rows", min=1)
    shapes = (tuple({0: n_rows} for _ in examples),)
    with _ExactNumbers():
        program = torch.export.export(graph, examples, dynamic_shapes=shapes, strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of source files here
    return program
