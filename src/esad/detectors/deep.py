"""What every method trained by gradient descent shares: devices, the loop, scoring in blocks, its state."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esad.core import processes
from esad.core.arguments import is_auto, is_whole
from esad.core.arrays import Arrays, Labels, Rows, Scores, State
from esad.core.random import draw_held_out, seed_from
from esad.detectors.base import Detector, TrainingScores
from esad.detectors.streaming import Portion, StreamRefill
from esad.errors import InputError
from esad.explain.attribution import Attribution
from esad.explain.network import NetworkExplainer
from esad.labels import reference_rows
from esad.persist.bundle import check_weights
from esad.persist.graph import ObjectiveTerms
from esad.train import stopping
from esad.train.callbacks import Callback, show_progress
from esad.train.loop import Phase, Settings, train_phases
from esad.train.objective import HELD_OUT, Objective, Refill, RowPool, Scorer
from esad.train.runtime import device_for_scoring, dtype_of, place_objective, resolve_device, run_over_blocks

__all__ = ["DeepDetector", "Phase", "take_first_member"]

T = TypeVar("T")

logger = logging.getLogger("esad")


class DeepDetector(Detector):
    """A detector whose model is an `Objective` trained by the loop.

    Parameters
    ----------
    early_stopping : bool or "splits"
        True: hold out a quarter of the rows and keep the weights that rank their labels best. "splits": choose when to
        stop by repeated splits in a training before, then train on all rows; with few labels, to the end.
    device : str
        "auto", "cpu", "cuda", ...
    precision : {"auto", "float32", "float64", "bfloat16"}
    verbose : int
        1 shows the progress, and logs it to the logger "esad".

    Attributes
    ----------
    holds_out_anomalies : bool
        Whether members leave out some of the known anomalies too, so that these are scored by one that has not seen
        them; for a committee, which weighs its judges by such scores.
    """

    can_stream: ClassVar[bool] = True
    can_export: ClassVar[bool] = True

    holds_out_anomalies: bool = False
    device: str = "auto"
    precision: str = "auto"
    early_stopping: bool | str = False
    n_members: int | str = 1
    verbose: int = 0

    @abstractmethod
    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        """What the loop runs, in order; the last objective is the model."""

    @abstractmethod
    def _rebuild(self, plain: Any) -> Objective:
        """The model's objective with weights still to be filled, from what `_describe` gave."""

    @abstractmethod
    def _describe(self) -> dict[str, Any]:
        """Plain values from which `_rebuild` makes the objective."""

    def network_rows(self, rows: Rows) -> Rows:
        """What the networks that are trained see of preprocessed rows; another, fixed network may stand before them."""
        return rows

    def _fit_rows(self, rows: Rows, y: Labels, callbacks: Sequence[Callback]) -> TrainingScores:
        device, dtype = resolve_device(self.device), dtype_of(self.precision)
        self.seed_ = seed_from(self.random_state)
        rows = self.network_rows(rows)
        x = torch.from_numpy(rows).to(device, dtype)
        kept, stopping_callbacks = self._prepare_stopping(rows, x, y)
        unseen_by = self._draw_unseen_by(kept)
        phases = self._phases(rows, y, device)

        self._train(phases, x, kept, unseen_by, callbacks=callbacks, last_callbacks=stopping_callbacks)
        return self._training_scores(rows, y, unseen_by, drawn=kept != HELD_OUT)

    def _train(
        self,
        phases: list[Phase],
        x: Tensor,
        y: Labels,
        unseen_by: NDArray[np.int64],
        *,
        callbacks: Sequence[Callback],
        last_callbacks: Sequence[Callback] = (),
        refill: Refill | None = None,
    ) -> None:
        """Run the phases on the rows `x` with labels `y`, of which each member leaves a part out."""

        def data_of(number: int) -> RowPool:
            data = RowPool.from_shared_rows(
                x,
                torch.from_numpy(phases[number].labels_seen(y)).to(x.device),
                n_members=phases[number].objective.n_members,
                unseen_by=torch.from_numpy(unseen_by).to(x.device),
            )
            return replace(data, refill=refill)

        identity = self._name_training([phase.settings for phase in phases])
        together = processes.current()
        together.check_alike(identity, "data, labels or parameters")
        with ExitStack() as stack:
            watch = stack.enter_context(show_progress(f"training {type(self).__name__}")) if self.verbose else []
            curves = train_phases(
                phases,
                data_of,
                seed=self.seed_,
                callbacks=[*watch, *callbacks],
                last_callbacks=last_callbacks,
                identity=identity,
                processes=together,
            )
        self.objective_ = phases[-1].objective
        self.loss_curves_ = {name: curve.numpy() for name, curve in curves.items()}

    def check_stream(self) -> None:
        """Refuse what `fit_stream` cannot do with this detector, here."""
        super().check_stream()
        if self.early_stopping:
            raise InputError("`early_stopping` needs all rows at hand and cannot be used with a stream. Leave it out.")
        resolve_device(self.device), dtype_of(self.precision)

    def _fit_portion(self, portion: Portion, callbacks: Sequence[Callback]) -> TrainingScores:
        """Train on a stream, and score rows that the training has not seen."""
        device, dtype = resolve_device(self.device), dtype_of(self.precision)
        self.seed_ = seed_from(self.random_state)
        x = torch.from_numpy(portion.rows).to(device, dtype)
        phases = self._phases(portion.rows, portion.y, device)
        refill = None
        if not portion.is_whole:
            refill = StreamRefill(portion, x)
            if not is_auto(getattr(self, "n_epochs", "auto")):  # epochs are passes over all rows
                phases = [_lengthen(phase, portion.n_unlabelled / portion.n_slots) for phase in phases]
        nobody = np.full(len(portion.y), -1)
        self._train(phases, x, portion.y, nobody, callbacks=callbacks, refill=refill)
        nobody = np.full(len(portion.scored_y), -1)
        scores = self._training_scores(portion.scored, portion.scored_y, nobody, drawn=nobody == 0)
        return replace(scores, unseen=portion.scored_y == 0)

    def _training_scores(
        self, rows: Rows, y: Labels, unseen_by: NDArray[np.int64], *, drawn: NDArray[np.bool_]
    ) -> TrainingScores:
        """Calibrate the score, then score the training rows: by all members, and by those that did not see them."""
        device = next(self.objective_.parameters()).device
        terms = self._raw_terms(rows)
        reference = torch.from_numpy(reference_rows(y)).to(device)
        self.objective_.calibrate({name: term[:, reference] for name, term in terms.items()})
        total, by_member = self._join_terms(rows, terms)
        unseen = (unseen_by >= 0) & (unseen_by < len(by_member))
        if not unseen.any():
            return TrainingScores(total, total, by_member=by_member)
        held_out = np.where((y == 0) & drawn, np.nan, total)
        held_out[unseen] = by_member[unseen_by[unseen], np.flatnonzero(unseen)]
        return TrainingScores(total, held_out, np.where(unseen, unseen_by, -1), by_member=by_member)

    def _draw_unseen_by(self, y: Labels) -> NDArray[np.int64]:
        """The member that leaves a row out of its training, -1 where none does, (n,)."""
        n_members = self.n_leaving_out(self.inputs_.kind)
        if not n_members:
            return np.full(len(y), -1)
        return draw_held_out(y, self.seed_, n_anomaly_parts=n_members if self.holds_out_anomalies else 0)

    def member_scores(self, rows: Rows) -> Scores:
        """Scores by each member, (members, n)."""
        return _by_member(self.objective_.contributions(self._raw_terms(self.network_rows(rows))))

    def _score_members(self, rows: Rows) -> tuple[Scores, Scores]:
        rows = self.network_rows(rows)
        return self._join_terms(rows, self._raw_terms(rows))

    def _join_terms(self, rows: Rows, terms: dict[str, Tensor]) -> tuple[Scores, Scores]:
        """The score by all members, (n,), and by each, (members, n), of raw terms."""
        contributions = self.objective_.contributions(terms)
        means = {name: _over_members(part) for name, part in contributions.items()}
        return np.sum(list(self._recompute_near_zero(rows, means).values()), axis=0), _by_member(contributions)

    def _repeat_members(self, n_members: int) -> Self:
        """A copy with more members, of the same kinds over and over, once `_phases` has settled the kinds."""
        whole = copy.copy(self)
        whole.n_members = n_members
        return whole

    def n_leaving_out(self, kind: str) -> int:
        """As many as there are members."""
        return int(self.n_members) if is_whole(self.n_members) else 0

    def _precision_on(self, device: torch.device, in_shape: tuple[int, ...]) -> str:
        """What to compute in: "auto" is float32, unless a method is known to bear less."""
        return self.precision

    def _prepare_stopping(self, rows: Rows, x: Tensor, y: Labels) -> tuple[Labels, Sequence[Callback]]:
        """The labels that the training sees, and the callbacks that end it early."""
        if self.early_stopping != "splits":
            return stopping.stop_by_held_out(x, y, seed=self.seed_) if self.early_stopping else (y, [])
        if np.count_nonzero(y < 0) < stopping.MIN_ANOMALIES:
            logger.info("fewer than %d labelled anomalies: training to the end", stopping.MIN_ANOMALIES)
            return y, []
        pilot = copy.copy(self)
        pilot.n_members = stopping.N_SPLITS
        return y, stopping.stop_by_splits(pilot._phases(rows, y, x.device), x, y, seed=self.seed_)

    def _name_training(self, settings: list[Settings]) -> str:
        """A name by which a checkpoint knows this training: one of other data, labels or parameters has another."""
        parameters = self.plain_parameters() | {"verbose": 0, "random_state": self.seed_}
        text = json.dumps([type(self).__name__, parameters, repr(settings), self.fingerprint_], default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    # ------------------------------------------------------------------ score

    def _run_blocks(
        self,
        rows: Rows,
        use: Callable[[dict[str, Tensor], int], dict[str, T]],
        *,
        scorer: Scorer | None = None,
        objective: Objective | None = None,
    ) -> dict[str, list[T]]:
        """What `use` makes of each block's terms and of its number of rows, by name, in the order of the rows.

        A block may be padded with further rows, see `run_over_blocks`; `objective` is another than the model's own.
        """
        objective = objective or self.objective_
        device = next(objective.parameters()).device
        found: dict[int, dict[str, T]] = {}  # blocks of a table come in any order

        def keep(here: slice, terms: dict[str, Tensor]) -> None:
            found[here.start] = use(terms, here.stop - here.start)

        run_over_blocks(objective, rows, keep, scorer=scorer, precision=self._precision_on(device, rows.shape[1:]))
        parts = [found[start] for start in sorted(found)]
        return {name: [part[name] for part in parts] for name in parts[0]}

    def _raw_terms(self, rows: Rows) -> dict[str, Tensor]:
        """The terms of the objective's scorer, (members, n) each."""
        parts = self._run_blocks(rows, lambda terms, n: {name: term[:, :n] for name, term in terms.items()})
        return {name: torch.cat(terms, dim=1) for name, terms in parts.items()}

    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        rows = self.network_rows(rows)
        return self._recompute_near_zero(rows, self._mean_contributions(rows, self.objective_))

    def _recompute_near_zero(self, rows: Rows, found: dict[str, Scores]) -> dict[str, Scores]:
        """Compute contributions, (n,) each, again in float64 where they add up to nearly 0, with few digits left."""
        if self.objective_.near_zero and self._can_double(rows):
            near = np.flatnonzero(np.abs(sum(found.values())) < self.objective_.near_zero)
            if len(near):
                exact = self._mean_contributions(rows[near], self._make_double())
                for name, part in exact.items():
                    found[name][near] = part
        return found

    def _mean_contributions(self, rows: Rows, objective: Objective) -> dict[str, Scores]:
        """What each term adds to the score, over the members, (n,)."""

        def join_members(terms: dict[str, Tensor], n: int) -> dict[str, Scores]:
            return {name: _over_members(part[:, :n]) for name, part in objective.contributions(terms).items()}

        parts = self._run_blocks(rows, join_members, objective=objective)
        return {name: np.concatenate(values) for name, values in parts.items()}

    def _can_double(self, rows: Rows) -> bool:
        """Whether such rows can be scored again in float64: a table's, by float32 weights. Pictures take too long."""
        weight = next(self.objective_.parameters())
        is_single = weight.dtype == torch.float32 and self.precision != "bfloat16"
        return rows.ndim == 2 and is_single and weight.device.type != "mps"

    def _make_double(self) -> Objective:
        """A copy of the model in float64, kept until the weights change."""
        return self.objective_.make_once("double", lambda: copy.deepcopy(self.objective_).double().eval())

    def codes(self, X: Any) -> dict[str, Rows]:
        """Codes of rows by the first member, by their names, each (n, code); none where a method has no codes."""
        rows = self.network_rows(self.rows_of(X))
        parts = self._run_blocks(rows, take_first_member, scorer=self.objective_.codes)
        return {name: np.concatenate(codes) for name, codes in parts.items()}

    # ------------------------------------------------------------------ explain

    def _explainer(self) -> NetworkExplainer:
        if self.inputs_.kind == "table":
            units = self.inputs_.columns
        else:
            channels, height, width = self.inputs_.shape
            units = np.tile(np.arange(height * width), channels)
        return NetworkExplainer(
            self.objective_,
            typical=self.inputs_.typical,
            threshold=self.threshold_,
            units=units,
            front=self._front_in_double(),
        )

    def _front_in_double(self) -> Callable[[Tensor], Tensor] | None:
        """What rows pass before the objective, as a differentiable function in double precision. Nothing by default."""
        return None

    def _find_expected(self, rows: Rows) -> Rows:
        return self._explainer().find_expected(rows)

    def _rebuilds_pictures(self) -> bool:
        """A decoder that learned to turn labelled anomalies into something else no longer says what is normal."""
        is_bent = self.label_counts_.n_anomaly > 0 and getattr(self, "phi", "none") != "none"
        return not is_bent and self._front_in_double() is None and self.objective_.rebuilder() is not None

    def _attribute(self, rows: Rows, expected: Rows) -> Attribution:
        found = self._explainer().attribute(rows)
        if self._precision_on(next(self.objective_.parameters()).device, self.inputs_.shape) != "bfloat16":
            return found
        terms = self._contributions(rows)  # of few digits, where the shares have all: what is missing is nobody's
        return Attribution(found.shares, {name: term - found.shares[name].sum(axis=1) for name, term in terms.items()})

    # ------------------------------------------------------------------ export

    def _terms_module(self) -> nn.Module:
        return ObjectiveTerms(self._make_exportable())

    def _make_exportable(self) -> Objective:
        """The objective for other runtimes: tables in float64, pictures in float32, which all can convolve."""
        if self.precision == "bfloat16":
            raise InputError(
                f"This {type(self).__name__} computes in bfloat16, and no other runtime repeats its scores. Its "
                "weights are float32: set_params(precision='float32') makes one to export, of nearly the same scores."
            )
        dtype = torch.float64 if self.inputs_.kind == "table" else torch.float32
        plain: Objective = copy.deepcopy(self.objective_).cpu().to(dtype).eval().requires_grad_(False)
        return plain.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload,no-any-return]

    def _on_cpu(self) -> Self:
        here = copy.copy(self)
        here.device, here.objective_ = "cpu", copy.deepcopy(self.objective_).cpu()
        return here

    # ------------------------------------------------------------------ state

    def _state(self) -> State:
        arrays = {f"weights.{name}": value.cpu().numpy() for name, value in self.objective_.state_dict().items()}
        arrays |= {f"curves.{name}": curve for name, curve in self.loss_curves_.items()}
        return arrays, {"seed": self.seed_, "objective": self._describe()}

    def _restore(self, arrays: Arrays, plain: Any) -> None:
        self.seed_ = int(plain["seed"])
        with torch.device("meta"):  # nothing is allocated for sizes that a forged file claims
            objective = self._rebuild(plain["objective"])
        weights, self.loss_curves_ = {}, {}
        for name, value in arrays.items():
            group, _, rest = name.partition(".")
            if group == "curves":
                self.loss_curves_[rest] = value
            else:
                weights[rest] = torch.from_numpy(value)
        check_weights(objective, weights)
        objective.load_state_dict(weights, assign=True)
        self.objective_ = place_objective(objective, device_for_scoring(self.device), dtype_of(self.precision)).eval()


def _by_member(contributions: dict[str, Tensor]) -> Scores:
    """The score of each member, (members, n)."""
    by_member: Scores = torch.stack(list(contributions.values())).sum(0).double().cpu().numpy()
    return by_member


def _over_members(part: Tensor) -> Scores:
    """The mean over the members, (n,), of equal rounding for every row; torch's has others at the end of an array."""
    mean: Scores = part.cpu().numpy().mean(axis=0)
    return mean


def take_first_member(codes: dict[str, Tensor], n: int) -> dict[str, Rows]:
    """Codes (members, n or more, code) of a block by the first member, (n, code) each."""
    return {name: code[0, :n].float().cpu().numpy() for name, code in codes.items()}


def _lengthen(phase: Phase, factor: float) -> Phase:
    """The phase with more steps."""
    n_steps = math.ceil(phase.settings.n_steps * factor)
    return replace(phase, settings=replace(phase.settings, n_steps=n_steps, halve_every=math.ceil(n_steps / 4)))
