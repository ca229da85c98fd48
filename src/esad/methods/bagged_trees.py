r"""Bagged trees: known anomalies against small draws of the other rows, many times (Mordelet & Vert 2014).

    D_t   = P_t + U_t + N_t                                                                             Eq. (1)
    f_t   = extremely randomised tree, grown on D_t with the weight |U_t + N_t| / |P_t| for anomalies;      Eq. (2)
            for every second t on the ranks of its columns, whose cuts become values again
    S(x)  = 1/T sum_t f_t(x)                                                                            Eq. (3)
    S_oob(x_i) = mean of f_t(x_i) over the trees with x_i not in D_t                                      Eq. (4)

    S(x)  = 1/T sum_t [f_t(root) + sum_v (f_t(child of v) - f_t(v))],   v on the path of x                Eq. (5)

=========  ==========================================================================================
P_t        two thirds of the known anomalies; all of them where there are fewer than six
U_t        unlabelled rows, drawn anew for each bag: `unlabelled_ratio` times as many as P_t,
           `min_unlabelled` at least, two thirds of all at most
N_t        known normal rows; as many as were asked for of the unlabelled ones at most
f_t(v)     weighted share of anomalies among the rows of D_t that reach the node v; f_t(x) that of x's leaf
=========  ==========================================================================================

Hidden anomalies among the unlabelled rows do little harm: a small draw has few of them, and each draw has others. Cuts
are drawn evenly between the smallest and the largest value of a column, so that a few extreme values leave most of it
uncut. Ranks have no extreme values, but they do not say either how far two values are apart. So where six anomalies or
more are known, every second tree is grown on ranks. Its cuts are then put between the values of those ranks, and it
scores rows like any other tree. The ranks are those of all rows that are in some bag, also for a tree whose bag lacks
them, so that Eq. (4) is not entirely without the row.

Eq. (5) gives the reasons: a step belongs to the column that is cut at v (Saabas 2014), so that shares add up exactly.
`esad.solvers.trees` draws the bags and grows the trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from esad import labels
from esad.core.arguments import with_parameters
from esad.core.arrays import Labels, Rows
from esad.detectors.base import TrainingScores
from esad.detectors.solved import ShallowDetector
from esad.detectors.streaming import Portion
from esad.errors import LabelError
from esad.explain.attribution import Attribution, sum_by_unit
from esad.solvers.trees import BaggedTreesArguments, BaggedTreesModel
from esad.train.callbacks import Callback

__all__ = ["BaggedTrees"]


@with_parameters
class BaggedTrees(BaggedTreesArguments, ShallowDetector):
    """Bags of extremely randomised trees that learn from known anomalies and unlabelled rows of a table.

    Quick, and hard to beat on tables with a handful of known anomalies; it cannot do without one.

    Parameters
    ----------
    ... : those of `BaggedTreesArguments` and `ShallowDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(300, 4)), rng.normal([3, 0, 0, 0], 1, size=(20, 4))]
    >>> y = np.r_[np.zeros(310), -np.ones(10)]                 # half of the twenty are known
    >>> trees = BaggedTrees(random_state=0).fit(X, y)
    >>> bool((trees.predict(X)[300:310] == -1).mean() > 0.5)   # the others are found
    True
    >>> trees.explain(X[300:301]).top(0, n=1)
    ('x0',)
    """

    summary: ClassVar[str] = (
        "Bagged trees: known anomalies against small draws of unlabelled rows (Mordelet & Vert 2014)"
    )
    takes: ClassVar[tuple[str, ...]] = ("table",)
    labels_needed: ClassVar[tuple[str, ...]] = ("anomaly",)
    can_stream: ClassVar[bool] = True

    solver = BaggedTreesModel

    model_: BaggedTreesModel = field(init=False)

    def n_held_out(self, kind: str, n_unlabelled: int) -> int:
        """Return the number of unlabelled rows, since some tree has not seen each; a single one is in every bag."""
        return n_unlabelled if n_unlabelled > 1 else 0

    def _check_needed(self, y: Labels) -> None:
        super()._check_needed(y)
        if (y == labels.ANOMALY).all():
            raise LabelError(
                "BaggedTrees tells labelled anomalies (-1) from unlabelled (0) or normal rows (+1) and needs one of "
                "these at least. Got anomalies only."
            )

    def _fit_rows(self, rows: Rows, y: Labels, callbacks: Sequence[Callback]) -> TrainingScores:
        total = super()._fit_rows(rows, y, callbacks).total
        out_of_bag = self.model_.out_of_bag
        unseen = np.isfinite(out_of_bag)
        held_out = np.where(unseen | (y == 0), out_of_bag, total)
        return TrainingScores(total, held_out, np.where(unseen, 0, -1))

    def check_stream(self) -> None:
        """Refuse wrong arguments before anything is read."""
        super().check_stream()
        self._model()

    def _fit_portion(self, portion: Portion, callbacks: Sequence[Callback]) -> TrainingScores:
        """Grow the trees on a sample of the stream and all labelled rows; bags are small draws anyway."""
        self._fit_rows(portion.rows, portion.y, callbacks)
        scores = self.model_.score(portion.scored)
        return TrainingScores(scores, scores, unseen=portion.scored_y == 0)

    def _attribute(self, rows: Rows, expected: Rows) -> Attribution:
        """Eq. (5)."""
        shares, root = self.model_.trees.shares(rows)
        return Attribution({"score": sum_by_unit(shares, self.inputs_.columns)}, {"score": np.full(len(rows), root)})
