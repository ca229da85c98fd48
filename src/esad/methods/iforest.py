r"""Isolation Forest (Liu et al. 2008): anomalies are isolated by few random cuts.

    S(x) = 2^(-E[h(x)] / c(n))                                        Eq. (1)
    c(n) = 2 H(n - 1) - 2 (n - 1) / n,   H(i) ~ ln(i) + 0.5772        Eq. (2)

=========  =======================================================================
h(x)       depth of the leaf that x falls into, plus c(leaf size) for the cuts not made
c(n)       mean depth of an unsuccessful search in a tree of n rows
=========  =======================================================================

Labels are not used, except that labelled anomalies are left out of the sample. `esad.solvers.trees` grows and walks
the trees.
"""

from esad.core.arguments import with_parameters
from esad.detectors.solved import ShallowDetector
from esad.solvers.trees import ForestArguments, ForestModel

__all__ = ["IsolationForest"]


@with_parameters
class IsolationForest(ForestArguments, ShallowDetector):
    """Isolation Forest, the unsupervised yardstick; of pictures it sees the pixels in a row.

    Parameters
    ----------
    ... : those of `ForestArguments` and `ShallowDetector`

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> forest = IsolationForest(random_state=0).fit(X)
    >>> bool(forest.anomaly_score([[9, 9, 9]])[0] > forest.anomaly_score([[0, 0, 0]])[0])
    True
    """

    summary = "Isolation Forest: few random cuts isolate an anomaly (Liu et al. 2008)"
    labels_used = ("unlabelled", "normal")
    solver = ForestModel
