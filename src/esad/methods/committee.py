r"""Committee: ESAD and bagged trees judge together, each as far as known anomalies that it had not seen bear it out.

    v_j(x) = -log(1 - F_j(s_j(x)))                                                                      Eq. (1)
    S(x)   = sum_j w_j mean_k v_j(s_jk(x))                                                              Eq. (2)

    d_i    = v_trees(x_i) - v_ESAD(x_i),   i = 1 .. m                                                   Eq. (3)
    z      = mean(d) / (std(d) / sqrt(m)),   0 where m < 5                                              Eq. (4)
    w_ESAD = 1 / (1 + exp(1.1 - log max(1, c / 4n) + z / 2)),   w_trees = 1 - w_ESAD                     Eq. (5)

=========  =========================================================================================
s_jk       score of judge j by its member k; the trees have one
F_j        distribution of s_j over unlabelled rows that the member, or the tree, had not seen; of fewer than 20
           such rows ESAD leaves none out, and its F_j is over rows that it has seen
x_i        known anomalies that neither judge had seen: out of bag for the trees, for ESAD by the member
           that left it out, as each does with a fifth of them
c, n       columns, as the networks see them, and known anomalies: among many columns trees find one that
           tells few anomalies apart by chance
=========  =========================================================================================

Without evidence (z = 0) ESAD has a quarter of the say, and more of it where columns are many. The scales are kept with
the model, so that the score of a row does not depend on the rows beside it. Reasons are those of the judges, each times
the slope of its scale, so that they add up. docs/decisions/0026-committee.md has what was measured.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np
import torch
from torch import Tensor, nn

from esad import labels, registry
from esad.core.arguments import with_parameters
from esad.core.arrays import Arrays, Labels, Rows, Scores, State
from esad.core.random import seed_from
from esad.core.text import count_text
from esad.detectors.base import Detector, TrainingScores
from esad.detectors.deep import DeepDetector
from esad.detectors.streaming import Portion
from esad.errors import ModelFileError
from esad.explain.attribution import Attribution
from esad.score.surprisal import Surprisal, SurprisalModule
from esad.train.callbacks import Callback

__all__ = ["Committee"]

logger = logging.getLogger("esad")

TREES, NETWORKS = "bagged_trees", "esad"
PRIOR: Final = 1.1  # log odds of the trees where no evidence is at hand: a quarter for ESAD
MAX_COLUMNS: Final = 4  # for each known anomaly: beyond, trees are trusted less
TRUST: Final = 0.5  # log odds for each standard error by which one judge is ahead
MIN_EVIDENCE: Final = 5  # known anomalies that neither has seen
_SCALE = "scale."  # what the names of a scale's arrays begin with in a model file


@with_parameters
class Committee(Detector):
    """ESAD and bagged trees judging together; on tables with a few known anomalies the best ranking we know.

    Both learn from labelled normal rows too; their weights follow from known anomalies alone. Without labelled
    anomalies, with nothing else, and for pictures, ESAD judges alone: score, terms and reasons are those of ESAD.

    Parameters
    ----------
    n_members : a whole number above 0 or 'auto'
        Networks of the `ESAD` in it, trained side by side; its score is their mean.
    hidden : a list of whole numbers above 0, or 'auto'
        Hidden widths (tables) or channels per level (pictures) of `ESAD`. Auto: (64, 32) for tables, the paper's for
        pictures, narrower on a CPU.
    latent : a whole number above 0 or 'auto'
        Size of the code of `ESAD`, or its channels. Auto: 32 for tables, the paper's for pictures, narrower on a CPU.
    n_epochs : a whole number above 0 or 'auto'
        Passes of `ESAD` over the unlabelled rows. Auto: as `ESAD` says.
    n_trees : int, default 320
        Of the `BaggedTrees` in it.
    device, precision : str
        As for `ESAD`.
    verbose : int
        1 shows the progress of ESAD's training.
    ... : those of `Detector`

    Attributes
    ----------
    judges_ : dict of str to Detector
        "bagged_trees" and "esad", fitted; or "esad" alone.
    weights_ : dict of str to float
        Their say; the sum is 1.
    scales_ : dict of str to Surprisal
        What puts their scores on one scale; empty where ESAD judges alone.
    why_ : str
        Who judges with which weight, and on what evidence.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(300, 4)), rng.normal([5, 0, 0, 0], 1, size=(20, 4))]
    >>> y = np.r_[np.zeros(310), -np.ones(10)]                 # half of the twenty are known
    >>> committee = Committee(n_epochs=5, random_state=0).fit(X, y)
    >>> bool((committee.predict(X)[300:310] == -1).mean() > 0.5)
    True
    >>> sorted(committee.score_terms(X)), Committee(n_members=1, n_epochs=1).fit(X).why_
    (['bagged_trees', 'esad'], 'ESAD judges alone: trees cannot learn without a labelled anomaly')
    """

    summary: ClassVar[str] = "ESAD and bagged trees together, weighed by known anomalies that neither had seen"
    can_stream: ClassVar[bool] = True
    can_export: ClassVar[bool] = True

    n_members: int | str = "auto"
    hidden: Any = "auto"
    latent: int | str = "auto"
    n_epochs: int | str = "auto"
    n_trees: int = 320
    contamination: float | str = "auto"
    device: str = "auto"
    precision: str = "auto"
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    # ------------------------------------------------------------------ fit

    def make_judges(self, **changes: Any) -> dict[str, Detector]:
        """All judges that there can be, not fitted; the trees first, for they may refuse the rows."""
        judges, given = dict[str, Detector](), self.get_params() | changes
        for name in (TREES, NETWORKS):
            method = registry.method(name)
            known = method().get_params()
            judges[name] = method(**{key: value for key, value in given.items() if key in known})
        return judges

    def n_leaving_out(self, kind: str) -> int:
        """As many as the judge with most members has."""
        return max(judge.n_leaving_out(kind) for judge in self.make_judges().values())

    def check_stream(self) -> None:
        """Refuse what a judge cannot do with a stream."""
        super().check_stream()
        for judge in self.make_judges().values():
            judge.check_stream()

    def _fit_rows(self, rows: Rows, y: Labels, callbacks: Sequence[Callback]) -> TrainingScores:
        self._choose_judges(y)
        esad = self.judges_[NETWORKS]
        assert isinstance(esad, DeepDetector)
        esad.holds_out_anomalies = len(self.judges_) > 1
        return self._fit_judges(y, lambda judge: judge._fit_rows(rows, y, callbacks))

    def _fit_portion(self, portion: Portion, callbacks: Sequence[Callback]) -> TrainingScores:
        self._choose_judges(portion.y)
        return self._fit_judges(portion.scored_y, lambda judge: judge._fit_portion(portion, callbacks))

    def _choose_judges(self, y: Labels) -> None:
        """Choose the judges for rows with such labels, and tell them what is known of the rows."""
        self.judges_ = self.make_judges(random_state=seed_from(self.random_state))
        is_anomaly, cannot = y == labels.ANOMALY, ""
        if self.inputs_.kind == "images":
            cannot = "see pictures"
        elif is_anomaly.all():
            cannot = "learn from anomalies alone"
        elif not is_anomaly.any():
            cannot = "learn without a labelled anomaly"
        if cannot:
            del self.judges_[TREES]
            self._note_why(f"ESAD judges alone: trees cannot {cannot}")
        for judge in self.judges_.values():
            self.inform(judge)

    def _fit_judges(self, y: Labels, fit: Callable[[Detector], TrainingScores]) -> TrainingScores:
        """Fit the judges, learn scales and weights from rows that they have not seen, and score the training rows."""
        found: dict[str, TrainingScores] = {}
        for name, judge in self.judges_.items():
            found[name] = fit(judge)
            judge.decide(found[name], y)
        self.scales_, self.weights_ = {}, {NETWORKS: 1.0}
        if len(found) == 1:
            return found[NETWORKS]
        surprisals, members = {}, {}
        for name, scores in found.items():
            known = np.isfinite(scores.held_out)
            unlabelled = known & (y == labels.UNLABELLED)
            self.scales_[name] = Surprisal.of(scores.held_out[unlabelled if unlabelled.any() else known])
            surprisals[name] = self.scales_[name](scores.held_out)
            members[name] = scores.total[None] if scores.by_member is None else scores.by_member
        is_anomaly, unseen = y == labels.ANOMALY, np.all([scores.is_unseen() for scores in found.values()], axis=0)
        evidence = {name: own[unseen & is_anomaly] for name, own in surprisals.items()}
        self.weights_ = self._weigh(evidence, n_anomalies=int(is_anomaly.sum()), n_columns=self.inputs_.shape[0])
        total = _add_means(self._on_one_scale(members).values())
        held_out = np.sum([self.weights_[name] * own for name, own in surprisals.items()], axis=0)
        numbers = [scores.unseen_by for scores in found.values() if scores.unseen_by is not None]
        unseen_by = np.where(unseen, np.maximum.reduce(numbers), -1) if numbers else None  # a single member is number 0
        return TrainingScores(total, held_out, unseen_by, unseen)

    def _weigh(self, unseen: Mapping[str, Scores], *, n_anomalies: int, n_columns: int) -> dict[str, float]:
        """Eqs. (3) to (5)."""
        ahead = unseen[TREES] - unseen[NETWORKS]
        n, z = len(ahead), 0.0
        if n >= MIN_EVIDENCE:
            z = float(ahead.mean() / max(ahead.std(ddof=1) / n**0.5, 1e-9))
        too_wide = max(1.0, n_columns / (MAX_COLUMNS * n_anomalies))
        share = float(1.0 / (1.0 + np.exp(np.clip(PRIOR - np.log(too_wide) + TRUST * z, -20.0, 20.0))))
        leader = "trees are" if z > 0 else "trees lead unless ESAD is clearly ahead; here it is"
        evidence = f"{leader} ahead by {abs(z):.1f} standard errors on {n}" if n >= MIN_EVIDENCE else "too few"
        evidence += " known anomalies that neither had seen"
        if too_wide > 1:
            known = count_text(n_anomalies, "known anomaly", "known anomalies")
            evidence += f", and {n_columns:,} columns to {known}, among which trees find one by chance"
        self._note_why(f"ESAD {share:.0%}, trees {1 - share:.0%}: {evidence}")
        return {TREES: 1.0 - share, NETWORKS: share}

    def _note_why(self, why: str) -> None:
        self.why_ = why
        logger.info(why)

    # ------------------------------------------------------------------ score

    def _by_member(self, rows: Rows) -> dict[str, Scores]:
        """What the members of each judge add to the score, (members, n) each."""
        return self._on_one_scale({name: judge.member_scores(rows) for name, judge in self.judges_.items()})

    def _on_one_scale(self, members: Mapping[str, Scores]) -> dict[str, Scores]:
        """w_j v_j of Eq. (2) from the scores of each judge's members, (members, n) each."""
        return {name: self.weights_[name] * self.scales_[name](own) for name, own in members.items()}

    def _contributions(self, rows: Rows) -> dict[str, Scores]:
        if not self.scales_:
            return self.judges_[NETWORKS]._contributions(rows)
        return {name: own.mean(axis=0) for name, own in self._by_member(rows).items()}

    def _score_members(self, rows: Rows) -> tuple[Scores, Scores]:
        if not self.scales_:
            return self.judges_[NETWORKS]._score_members(rows)
        by_member = list(self._by_member(rows).values())
        return _add_means(by_member), np.asarray(sum(by_member))  # trees have one row, which counts for each member

    # ------------------------------------------------------------------ explain

    def _find_expected(self, rows: Rows) -> Rows:
        return self.judges_[NETWORKS]._find_expected(rows)

    def _attribute(self, rows: Rows, expected: Rows) -> Attribution:
        """The judges' own shares, each times the slope of its scale between the base and the score."""
        if not self.scales_:
            return self.judges_[NETWORKS]._attribute(rows, expected)
        terms, shares, base = self._contributions(rows), {}, {}
        for name, judge in self.judges_.items():
            own = judge._attribute(rows, expected)
            own_shares, own_base = (np.sum(list(part.values()), axis=0) for part in (own.shares, own.base))
            slope = self.weights_[name] * self.scales_[name].secant(own_base + own_shares.sum(axis=1), own_base)
            shares[name] = own_shares * slope[:, None]
            base[name] = terms[name] - shares[name].sum(axis=1)
        return Attribution(shares, base)

    # ------------------------------------------------------------------ export

    def _terms_module(self) -> nn.Module:
        if not self.scales_:
            return self.judges_[NETWORKS]._terms_module()
        modules = {name: judge._terms_module() for name, judge in self.judges_.items()}
        return _CommitteeTerms(modules, self.scales_, self.weights_)

    def _on_cpu(self) -> Self:
        here = copy.copy(self)
        here.judges_ = {name: judge._on_cpu() for name, judge in self.judges_.items()}
        return here

    # ------------------------------------------------------------------ state

    def _state(self) -> State:
        arrays: Arrays = {}
        plain: dict[str, Any] = {}
        for name, judge in self.judges_.items():
            own, described = judge._state()
            arrays |= {f"{name}.{key}": value for key, value in own.items()}
            plain[name] = {"weight": self.weights_[name], "threshold": judge.threshold_, "model": described}
        for name, scale in self.scales_.items():
            arrays |= {f"{name}.{_SCALE}{key}": value for key, value in scale.state().items()}
        return arrays, {"judges": plain, "why": self.why_}

    def _restore(self, arrays: Arrays, plain: Any) -> None:
        possible = self.make_judges()
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
            self.inform(judge)
            judge.offset_ = -float(own["threshold"])
            judge._restore(mine, own["model"])
            self.judges_[name], self.weights_[name] = judge, float(own["weight"])
            if scale:
                self.scales_[name] = Surprisal.from_state(scale)
        of_judges = sum(key.partition(".")[0] in self.judges_ for key in arrays)
        if NETWORKS not in self.judges_ or self.judges_.keys() != described.keys() or of_judges != len(arrays):
            raise ModelFileError("its judges are not those of a committee")
        if len(self.scales_) != (len(self.judges_) if len(self.judges_) > 1 else 0):
            raise ModelFileError("its judges lack a common scale")


def _add_means(terms: Iterable[Scores]) -> Scores:
    """The sum of terms, each the mean of its members, (members, n)."""
    total: Scores = np.sum([own.mean(axis=0) for own in terms], axis=0, dtype=np.float64)
    return total


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
