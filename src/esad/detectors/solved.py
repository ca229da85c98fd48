"""What methods share whose model is solved for: on the rows themselves, or on the codes of an autoencoder (hybrids)."""

import inspect
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from esad import labels
from esad.core import processes
from esad.core.arguments import with_parameters
from esad.core.arrays import Arrays, Labels, Rows, Scores, State
from esad.core.random import draw_held_out, seed_from
from esad.detectors.base import Detector, TrainingScores
from esad.detectors.deep import Phase, take_first_member
from esad.detectors.standard import StandardDetector
from esad.errors import InputError
from esad.explain.attribution import Attribution
from esad.networks.spec import NetworkSpec
from esad.solvers.base import RowModel
from esad.train.autoencoder import AutoencoderObjective
from esad.train.callbacks import Callback

_SOLVED = "solved."  # what the names of the solved model's arrays begin with in a hybrid's file


class SolvedDetector:
    """A detector with a `RowModel`, which `solver` makes of the arguments that both have, and checks them."""

    solver: ClassVar[type[RowModel]]

    def _model(self) -> RowModel:
        names = [name for name in inspect.signature(self.solver).parameters if hasattr(self, name)]
        return self.solver(**{name: getattr(self, name) for name in names})


@with_parameters
class ShallowDetector(SolvedDetector, Detector):
    """A detector whose model is a `RowModel`; pictures are rows of pixels.

    Parameters
    ----------
    ... : those of `Detector`
    """

    can_export: ClassVar[bool] = True

    contamination: float | str = "auto"
    random_state: int | np.random.RandomState | None = None

    def n_leaving_out(self, kind: str) -> int:
        """The one model leaves a tenth of the unlabelled rows out for thresholds, unless it draws rows anyway."""
        return 0 if self.solver.draws_rows else 1

    def _fit_rows(self, rows: Rows, y: Labels, callbacks: Sequence[Callback]) -> TrainingScores:
        if not processes.current().is_alone:
            raise InputError(
                f"{type(self).__name__} is solved for, not trained in steps: it cannot be shared by several processes. "
                "Run it without torchrun."
            )
        seed = seed_from(self.random_state)
        parts = draw_held_out(y, seed) if self.n_leaving_out(self.inputs_.kind) else np.full(len(y), -1)
        self.model_ = self._model()
        return _fit_and_score(self.model_, self.model_rows(rows), y, parts == 0, seed=seed)

    def model_rows(self, rows: Rows) -> Rows:
        """What the model sees of preprocessed rows, (n, features): columns, or pixels in a row."""
        return rows.reshape(len(rows), -1)

    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        return {"score": self.model_.score(self.model_rows(rows))}

    def _terms_module(self) -> nn.Module:
        return nn.Sequential(nn.Flatten(), self.model_.module())

    def _state(self) -> State:
        return self.model_.state()

    def _restore(self, arrays: Arrays, plain: Any) -> None:
        n_features = int(np.prod(self.inputs_.shape))
        self.model_ = self._model().restore(arrays, plain, n_features=n_features)


@with_parameters
class HybridDetector(SolvedDetector, StandardDetector):
    """An autoencoder, trained by the loop, whose codes a `RowModel` is fitted on. There is one member.

    Parameters
    ----------
    network : {"auto", "mlp", "lenet", "conv"}
        Of the autoencoder. Auto: "mlp" for tables, "lenet" for pictures.
    n_epochs : int or "auto"
        Of the autoencoder. Auto: 150, less on large data.
    ... : those of `StandardDetector`
    """

    can_stream: ClassVar[bool] = False
    objective_: AutoencoderObjective = field(init=False)

    scaling: str = "minmax"

    def _objective(self, spec: NetworkSpec) -> AutoencoderObjective:
        return AutoencoderObjective(spec)

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        self._model()  # refuses wrong arguments before anything is trained
        return super()._phases(rows, y, device)

    def _training_scores(
        self, rows: Rows, y: Labels, unseen_by: NDArray[np.int64], *, drawn: NDArray[np.bool_]
    ) -> TrainingScores:
        """Fit the model on the codes of the rows that the autoencoder has seen, then score all."""
        self.model_ = self._model()
        return _fit_and_score(self.model_, self._codes(rows), y, unseen_by == 0, seed=self.seed_)

    def solve(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Fit the solved model anew on the codes of the trained autoencoder, after a change of its arguments.

        `X` and `y` are those of `fit`. The threshold stays; a calibration and the scores of the training rows, which
        the model before gave, do not.
        """
        rows = self.rows_of(X)
        checked = labels.check(y, len(rows), warn=False)
        seen = draw_held_out(checked, self.seed_) != 0
        self.model_ = self._model().fit(self._codes(rows)[seen], checked[seen], seed=self.seed_)
        self.calibration_, self.applied_ = None, None
        for name in [name for name in vars(self) if name.startswith("training_")]:
            delattr(self, name)
        return self

    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        return {"score": self.model_.score(self._codes(rows))}

    def member_scores(self, rows: Rows) -> Scores:
        """Scores by each member, (members, n)."""
        return self.score_rows(rows)[None]

    def _score_members(self, rows: Rows) -> tuple[Scores, Scores]:
        return Detector._score_members(self, rows)

    def _attribute(self, rows: Rows, expected: Rows) -> Attribution:
        return Detector._attribute(self, rows, expected)  # the solved model has no gradient

    def _terms_module(self) -> nn.Module:
        if self.model_.jumps and self.inputs_.kind == "images":
            raise InputError(
                f"{type(self).__name__} of pictures cannot be exported: its score jumps where a code crosses a cut, "
                "and codes that another runtime has convolved differ in their last digits."
            )
        objective = self._make_exportable()
        assert isinstance(objective, AutoencoderObjective)
        return nn.Sequential(_Coder(objective), self.model_.module())

    def _make_double(self) -> AutoencoderObjective:
        objective = super()._make_double()
        assert isinstance(objective, AutoencoderObjective)
        return objective

    def _codes(self, rows: Rows) -> Rows:
        # the solved model subtracts or jumps: no digit of a code may depend on the runtime
        objective = self._make_double() if self._can_double(rows) else self.objective_
        coder = objective.coder()
        parts = self._run_blocks(rows, take_first_member, scorer=lambda x: {"code": coder(x)}, objective=objective)
        return np.concatenate(parts["code"])

    def _state(self) -> State:
        arrays, plain = super()._state()
        solved, solved_plain = self.model_.state()
        named = {f"{_SOLVED}{name}": value for name, value in solved.items()}
        return arrays | named, plain | {"solved": solved_plain}

    def _restore(self, arrays: Arrays, plain: Any) -> None:
        own = {name: value for name, value in arrays.items() if not name.startswith(_SOLVED)}
        super()._restore(own, plain)
        solved = {name.removeprefix(_SOLVED): arrays[name] for name in arrays.keys() - own.keys()}
        self.model_ = self._model().restore(solved, plain["solved"], n_features=self.network_.n_codes)


class _Coder(nn.Module):
    """Rows (n, *features) of float32 -> the codes of the one member, (n, code) of float32."""

    def __init__(self, objective: AutoencoderObjective) -> None:
        super().__init__()
        self.objective = objective
        self.encode = objective.coder()

    def forward(self, rows: Tensor) -> Tensor:
        return self.encode(rows.to(next(self.objective.parameters()).dtype))[0].float()


def _fit_and_score(model: RowModel, rows: Rows, y: Labels, left_out: NDArray[np.bool_], *, seed: int) -> TrainingScores:
    """Fit a model without some of the rows; unlabelled rows that it has seen have no score for thresholds."""
    total = model.fit(rows[~left_out], y[~left_out], seed=seed).score(rows)
    if not left_out.any():
        return TrainingScores(total, total)
    return TrainingScores(total, np.where((y == 0) & ~left_out, np.nan, total), np.where(left_out, 0, -1))
