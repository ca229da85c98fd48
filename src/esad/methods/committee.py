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

import logging
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from esad import labels, registry
from esad.core.arguments import with_parameters
from esad.core.random import seed_from
from esad.detectors.base import Detector, Scores
from esad.detectors.committee import CommitteeDetector

__all__ = ["Committee"]

logger = logging.getLogger("esad")

TREES, NETWORKS = "bagged_trees", "esad"
PRIOR: Final = 1.1  # log odds of the trees where no evidence is at hand: a quarter for ESAD
MAX_COLUMNS: Final = 4  # for each known anomaly: beyond, trees are trusted less
TRUST: Final = 0.5  # log odds for each standard error by which one judge is ahead
MIN_EVIDENCE: Final = 5  # known anomalies that neither has seen


@with_parameters
class Committee(CommitteeDetector):
    """ESAD and bagged trees judging together; on tables with a few known anomalies the best ranking we know.

    Without a labelled anomaly, and for pictures, ESAD judges alone: score, terms and reasons are those of ESAD.

    Parameters
    ----------
    n_members, hidden, latent, n_epochs
        Of the `ESAD` in it.
    n_trees : int, default 320
        Of the `BaggedTrees` in it.
    contamination : "auto" or float, default "auto"
        Share of the training rows to flag; "auto" takes what labels and unlabelled rows tell.
    device, precision : str
        As for `ESAD`.
    random_state : int, RandomState or None, default None
    verbose : int
        1 shows the progress of ESAD's training.

    Attributes
    ----------
    judges_ : dict of str to Detector
        "bagged_trees" and "esad", fitted; or "esad" alone.
    weights_ : dict of str to float
        Their say; the sum is 1.
    why_ : str
        Who judges with which weight, and on what evidence.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(300, 4)), rng.normal([3, 0, 0, 0], 1, size=(20, 4))]
    >>> y = np.r_[np.zeros(310), -np.ones(10)]                 # half of the twenty are known
    >>> committee = Committee(n_members=2, n_epochs=5, random_state=0).fit(X, y)
    >>> bool((committee.predict(X)[300:310] == -1).mean() > 0.5)
    True
    >>> sorted(committee.score_terms(X)), Committee(n_members=1, n_epochs=1).fit(X).why_
    (['bagged_trees', 'esad'], 'ESAD judges alone: trees cannot learn without a labelled anomaly')
    """

    summary: ClassVar[str] = "ESAD and bagged trees together, weighed by known anomalies that neither had seen"

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

    def _judges(self, y: NDArray[np.int8] | None) -> dict[str, Detector]:
        seed = seed_from(self.random_state)
        judges: dict[str, Detector] = {}
        for name in (TREES, NETWORKS):
            method = registry.method(name)
            known = method().get_params()
            own = {key: value for key, value in self.get_params().items() if key in known}
            judges[name] = method(**own | {"random_state": seed})
        if y is not None and (self.inputs_.kind == "images" or not (y == labels.ANOMALY).any()):
            del judges[TREES]
            cannot = "see pictures" if self.inputs_.kind == "images" else "learn without a labelled anomaly"
            self._say(f"ESAD judges alone: trees cannot {cannot}")
        return judges

    def _weigh(self, unseen: Mapping[str, Scores], *, n_anomalies: int, n_columns: int) -> dict[str, float]:
        """Eqs. (3) to (5)."""
        ahead = unseen[TREES] - unseen[NETWORKS]
        n, z = len(ahead), 0.0
        if n >= MIN_EVIDENCE:
            z = float(ahead.mean() / max(ahead.std(ddof=1) / n**0.5, 1e-9))
        prior = PRIOR - np.log(max(1.0, n_columns / (MAX_COLUMNS * n_anomalies)))
        share = float(1.0 / (1.0 + np.exp(np.clip(prior + TRUST * z, -20.0, 20.0))))
        leader = "trees" if z > 0 else "ESAD"
        evidence = f"{leader} ahead by {abs(z):.1f} standard errors on {n}" if n >= MIN_EVIDENCE else "too few"
        self._say(f"ESAD {share:.0%}, trees {1 - share:.0%}: {evidence} known anomalies that neither had seen")
        return {TREES: 1.0 - share, NETWORKS: share}

    def _say(self, why: str) -> None:
        self.why_ = why
        logger.info(why)
