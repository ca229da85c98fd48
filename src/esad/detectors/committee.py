"""Detectors that judge together: trained side by side on the same rows, put on one scale, weighed by evidence."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esad import labels
from esad.detectors.base import Detector, Scores, State, TrainingScores
from esad.detectors.deep import DeepDetector
from esad.detectors.streaming import Portion
from esad.errors import ModelFileError
from esad.explain.attribution import Attribution
from esad.preprocess.inputs import Rows
from esad.score.surprisal import Surprisal, SurprisalModule
from esad.train.callbacks import Callback

__all__ = ["CommitteeDetector"]


class CommitteeDetector(Detector):
    """A detector whose score is a weighted sum of how surprising the scores of its judges are.

    With a single judge the score, its terms and its reasons are those of that judge.

    Attributes
    ----------
    judges_ : dict of str to Detector
        Fitted, by the name of their method.
    weights_ : dict of str to float
        They add up to 1.
    scales_ : dict of str to Surprisal
        Empty with a single judge.
    why_ : str
        Who judges with which weight, and on what evidence.
    """

    why_: str
    can_stream: ClassVar[bool] = True
    can_export: ClassVar[bool] = True

    judges_: dict[str, Detector]
    weights_: dict[str, float]
    scales_: dict[str, Surprisal]

    @abstractmethod
    def _judges(self, y: NDArray[np.int8] | None) -> dict[str, Detector]:
        """The judges for rows with such labels, first those that may refuse the rows. None: all judges there can be."""

    @abstractmethod
    def _weigh(self, unseen: Mapping[str, Scores], *, n_anomalies: int, n_columns: int) -> dict[str, float]:
        """The judges' weights, from how surprising they find known anomalies that no judge has seen, (n,) each."""

    def n_leaving_out(self, kind: str) -> int:
        """As many as the judge with most members has."""
        return max(judge.n_leaving_out(kind) for judge in self._judges(None).values())

    # ------------------------------------------------------------------ fit

    def _fit_rows(self, rows: Rows, y: NDArray[np.int8], callbacks: Sequence[Callback]) -> TrainingScores:
        self.judges_ = self._judges(y)
        found = {}
        for name, judge in self.judges_.items():
            if isinstance(judge, DeepDetector):
                judge.holds_out_anomalies = len(self.judges_) > 1
            self._join(judge)
            found[name] = judge._fit_rows(rows, y, callbacks)
            judge._decide(found[name], y, None)
        return self._confer(found, y)

    def check_stream(self) -> None:
        """Refuse what a judge cannot do with a stream."""
        super().check_stream()
        for judge in self._judges(None).values():
            judge.check_stream()

    def _fit_portion(self, portion: Portion, callbacks: Sequence[Callback]) -> TrainingScores:
        """Train the judges on a stream, and score rows that they have not seen."""
        self.judges_ = self._judges(portion.y)
        found = {}
        for name, judge in self.judges_.items():
            self._join(judge)
            found[name] = judge._fit_portion(portion, callbacks)
            judge._decide(found[name], portion.scored_y, None)
        return self._confer(found, portion.scored_y)

    def _join(self, judge: Detector) -> None:
        """Give a judge what the committee knows about the rows."""
        judge.inputs_, judge.label_counts_, judge.fingerprint_ = self.inputs_, self.label_counts_, self.fingerprint_
        judge.notes_, judge.calibration_, judge.profile_, judge.applied_ = {}, None, None, None
        judge._describe_features()

    def _confer(self, found: dict[str, TrainingScores], y: NDArray[np.int8]) -> TrainingScores:
        """Learn the scales and weights from rows that the judges have not seen, and score the training rows."""
        self.scales_ = {}
        if len(found) == 1:
            ((name, alone),) = found.items()
            self.weights_ = {name: 1.0}
            return alone
        for name, own in found.items():
            known = np.isfinite(own.held_out)
            unlabelled = known & (y == labels.UNLABELLED)
            self.scales_[name] = Surprisal.of(own.held_out[unlabelled if unlabelled.any() else known])
        each = {name: self.scales_[name](own.held_out) for name, own in found.items()}
        unseen = np.logical_and.reduce([own.is_unseen() for own in found.values()])
        is_anomaly = y == labels.ANOMALY
        self.weights_ = self._weigh(
            {name: own[unseen & is_anomaly] for name, own in each.items()},
            n_anomalies=int(is_anomaly.sum()),
            n_columns=self.inputs_.shape[0],
        )
        held_out = np.sum([self.weights_[name] * own for name, own in each.items()], axis=0)
        numbers = [own.unseen_by for own in found.values() if own.unseen_by is not None]
        unseen_by = np.where(unseen, np.maximum.reduce(numbers), -1) if numbers else None  # a single member is number 0
        members = {name: own.total[None] if own.by_member is None else own.by_member for name, own in found.items()}
        return TrainingScores(_mean_total(self._on_one_scale(members).values()), held_out, unseen_by, unseen)

    # ------------------------------------------------------------------ score

    def _by_member(self, rows: Rows) -> dict[str, Scores]:
        """The terms by the members of each judge, (members, n) each."""
        return self._on_one_scale({name: judge._member_scores(rows) for name, judge in self.judges_.items()})

    def _on_one_scale(self, members: Mapping[str, Scores]) -> dict[str, Scores]:
        """What the scores of the judges' members, (members, n) each, add to the score."""
        return {name: self.weights_[name] * self.scales_[name](own) for name, own in members.items()}

    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        if not self.scales_:
            return self._only._contributions(rows)
        return {name: own.mean(axis=0) for name, own in self._by_member(rows).items()}

    def _score_members(self, rows: Rows) -> tuple[Scores, Scores]:
        if not self.scales_:
            return self._only._score_members(rows)
        by_member = list(self._by_member(rows).values())  # a judge without members counts for each
        return _mean_total(by_member), np.asarray(sum(by_member))

    @property
    def _only(self) -> Detector:
        (judge,) = self.judges_.values()
        return judge

    # ------------------------------------------------------------------ explain

    def _expected(self, rows: Rows) -> Rows:
        return list(self.judges_.values())[-1]._expected(rows)

    def _attribute(self, rows: Rows, expected: Rows) -> Attribution:
        """The judges' own shares, each times the slope of its scale between the base and the score."""
        if not self.scales_:
            return self._only._attribute(rows, expected)
        terms, shares, base = self._contributions(rows), {}, {}
        for name, judge in self.judges_.items():
            own = judge._attribute(rows, expected)
            whole, start = np.sum(list(own.shares.values()), axis=0), np.sum(list(own.base.values()), axis=0)
            slope = self.weights_[name] * self.scales_[name].secant(start + whole.sum(axis=1), start)
            shares[name] = whole * slope[:, None]
            base[name] = terms[name] - shares[name].sum(axis=1)
        return Attribution(shares, base)

    # ------------------------------------------------------------------ export

    def _terms_module(self) -> nn.Module:
        if not self.scales_:
            return self._only._terms_module()
        modules = {name: judge._terms_module() for name, judge in self.judges_.items()}
        return _CommitteeTerms(modules, self.scales_, self.weights_)

    def _on_cpu(self) -> Self:
        here = copy.copy(self)
        here.judges_ = {name: judge._on_cpu() for name, judge in self.judges_.items()}
        return here

    # ------------------------------------------------------------------ state

    def _state(self) -> State:
        arrays: dict[str, NDArray[Any]] = {}
        plain: dict[str, Any] = {}
        for name, judge in self.judges_.items():
            own, described = judge._state()
            arrays |= {f"{name}.{key}": value for key, value in own.items()}
            plain[name] = {"weight": self.weights_[name], "threshold": judge.threshold_, "model": described}
        for name, scale in self.scales_.items():
            arrays |= {f"{name}.{_SCALE}{key}": value for key, value in scale.state().items()}
        return arrays, {"judges": plain, "why": self.why_}

    def _restore(self, arrays: dict[str, NDArray[Any]], plain: Any) -> None:
        possible = self._judges(None)
        described, self.why_ = plain["judges"], plain["why"]
        if not isinstance(self.why_, str):
            raise ModelFileError("what it says of its judges is damaged")
        self.judges_, self.weights_, self.scales_ = {}, {}, {}
        for name, judge in possible.items():
            if name not in described:
                continue
            own = described[name]
            numbers = [own["weight"], own["threshold"]]
            if not all(isinstance(number, int | float) and np.isfinite(number) for number in numbers):
                raise ModelFileError(f"what it says of its judge {name!r} is damaged")
            mine = {key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")}
            scale = {key.removeprefix(_SCALE): mine.pop(key) for key in list(mine) if key.startswith(_SCALE)}
            self._join(judge)
            judge.offset_ = -float(own["threshold"])
            judge._restore(mine, own["model"])
            self.judges_[name], self.weights_[name] = judge, float(own["weight"])
            if scale:
                self.scales_[name] = Surprisal.from_state(scale)
        of_judges = sum(key.partition(".")[0] in self.judges_ for key in arrays)
        if not self.judges_ or self.judges_.keys() != described.keys() or of_judges != len(arrays):
            raise ModelFileError("its judges are not those of a committee")
        if len(self.scales_) != (len(self.judges_) if len(self.judges_) > 1 else 0):
            raise ModelFileError("its judges lack a common scale")


def _mean_total(terms: Iterable[Scores]) -> Scores:
    """The sum of terms, each the mean of its members, (members, n)."""
    total: Scores = np.sum([own.mean(axis=0) for own in terms], axis=0, dtype=np.float64)
    return total


_SCALE = "scale."  # what the names of a scale's arrays begin with in a model file


class _CommitteeTerms(nn.Module):
    """Rows -> what each judge adds to the score, by member, (members, n) of float64."""

    def __init__(
        self, judges: Mapping[str, nn.Module], scales: Mapping[str, Surprisal], weights: Mapping[str, float]
    ) -> None:
        super().__init__()
        self.judges = nn.ModuleDict(judges)
        self.scales = nn.ModuleDict({name: SurprisalModule(scale) for name, scale in scales.items()})
        self.weights = dict(weights)

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        """The terms by name."""
        terms = {}
        for name, judge in self.judges.items():
            score = torch.stack(list(judge(rows).values())).sum(0).double()
            terms[name] = torch.tensor(self.weights[name], dtype=torch.float64) * self.scales[name](score)
        n_members = max(len(term) for term in terms.values())
        return {name: term.expand(n_members, -1) for name, term in terms.items()}
