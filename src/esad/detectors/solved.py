"""What methods share whose model is solved for: no network, no training loop."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from esad.core import processes
from esad.core.arguments import with_parameters
from esad.core.random import seed_from
from esad.detectors.base import Detector, Scores, State, TrainingScores
from esad.errors import InputError
from esad.preprocess.inputs import Rows
from esad.score.splits import held_out_parts
from esad.solvers.base import RowModel
from esad.train.callbacks import Callback

__all__ = ["ShallowDetector", "fit_and_score"]


@with_parameters
class ShallowDetector(Detector):
    """A detector whose model is a `RowModel`; pictures are rows of pixels.

    Parameters
    ----------
    contamination : "auto" or float
        Share of the training rows to flag; "auto" takes what labels and unlabelled rows tell.
    random_state : int, RandomState or None
    """

    can_export: ClassVar[bool] = True

    contamination: float | str = "auto"
    random_state: int | np.random.RandomState | None = None

    @abstractmethod
    def _model(self) -> RowModel:
        """The model with the constructor's arguments, which it checks."""

    def n_leaving_out(self, kind: str) -> int:
        """The one model leaves a tenth of the unlabelled rows out, so that thresholds have unseen rows."""
        return 1

    def _fit_rows(self, rows: Rows, y: NDArray[np.int8], callbacks: Sequence[Callback]) -> TrainingScores:
        if not processes.current().is_alone:
            raise InputError(
                f"{type(self).__name__} is solved for, not trained in steps: it cannot be shared by several processes. "
                "Run it without torchrun."
            )
        seed = seed_from(self.random_state)
        parts = held_out_parts(y, seed) if self.n_leaving_out(self.inputs_.kind) else np.full(len(y), -1)
        self.model_ = self._model()
        return fit_and_score(self.model_, _flat(rows), y, parts == 0, seed=seed)

    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        return {"score": self.model_.score(_flat(rows))}

    def _terms_module(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), self.model_.module())

    def _state(self) -> State:
        return self.model_.state()

    def _restore(self, arrays: dict[str, NDArray[Any]], plain: Any) -> None:
        n_features = int(np.prod(self.inputs_.shape))
        self.model_ = self._model().restore(arrays, plain, n_features=n_features)


def fit_and_score(
    model: RowModel, rows: Rows, y: NDArray[np.int8], left_out: NDArray[np.bool_], *, seed: int
) -> TrainingScores:
    """Fit a model without some of the rows; unlabelled rows that it has seen have no score for thresholds."""
    total = model.fit(rows[~left_out], y[~left_out], seed=seed).score(rows)
    if not left_out.any():
        return TrainingScores(total, total)
    return TrainingScores(total, np.where((y == 0) & ~left_out, np.nan, total), np.where(left_out, 0, -1))


def _flat(rows: Rows) -> Rows:
    return rows.reshape(len(rows), -1)
