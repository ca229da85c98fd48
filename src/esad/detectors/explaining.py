"""Reasons for a score: `explain`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from esad import labels
from esad.detectors.scoring import Scoring
from esad.explain.attribution import Attribution
from esad.explain.cases import Cases
from esad.explain.occlusion import occlude, patches
from esad.explain.reasons import HeatMaps, Reasons
from esad.preprocess.inputs import Rows

__all__ = ["Explaining"]


class Explaining(Scoring):
    """A detector as far as it explains; methods with networks know better than occlusion."""

    def explain(self, X: Any, *, cases: tuple[Any, ArrayLike] | None = None, n_cases: int = 3) -> Reasons | HeatMaps:
        """Which columns or pixels make the score of each row, and what was expected in their place.

        Meant for the rows one looks at: it costs hundreds of times as much as scoring.

        Parameters
        ----------
        X : as in `anomaly_score`
        cases : (X, y), optional
            Labelled rows to be held against, -1 and +1. By default those of training; a model file has them only if
            it was saved with `with_cases=True`.
        n_cases : int
            How many of the nearest labelled cases are named.

        Returns
        -------
        Reasons or HeatMaps
            `Reasons` for a table, `HeatMaps` for pictures.
        """
        rows = self._rows(X)
        known = getattr(self, "cases_", None)
        if cases is not None:
            labelled = self._rows(cases[0])
            known = Cases.of(labelled, labels.check(cases[1], len(labelled), warn=False))
        expected = self._expected(rows)
        found = self._attribute(rows, expected)
        terms = self._contributions(rows)
        answers: dict[str, Any] = {
            "score": np.sum(list(terms.values()), axis=0),
            "terms": terms,
            "base": found.base,
            "cases": known.nearest(rows, n_cases) if known is not None and len(known) and n_cases else (),
        }
        if self.inputs_.schema is None:
            maps = {name: value.reshape(len(rows), *rows.shape[2:]) for name, value in found.shares.items()}
            return HeatMaps(shares=maps, pictures=rows, expected=expected, **answers)
        return Reasons(
            shares=found.shares,
            columns=self.inputs_.schema.names,
            observed=np.stack(self.inputs_.observed(X), axis=1),
            expected=np.stack(self.inputs_.cells(expected), axis=1),
            **answers,
        )

    def _expected(self, rows: Rows) -> Rows:
        """What the model expects in place of the rows; the typical row where it cannot tell."""
        return np.broadcast_to(self.inputs_.typical, rows.shape)

    def _attribute(self, rows: Rows, expected: Rows) -> Attribution:
        """Shares of columns (n, columns) or pixels (n, height x width) in the terms of the score."""
        if rows.ndim == 2:
            return occlude(self._contributions, rows, expected, self.inputs_.columns)
        patch = patches(self.inputs_.shape).ravel()
        found = occlude(self._contributions, rows, expected, np.tile(patch, rows.shape[1]))
        by_pixel = {name: (share / np.bincount(patch))[:, patch] for name, share in found.shares.items()}
        return Attribution(by_pixel, found.base)
