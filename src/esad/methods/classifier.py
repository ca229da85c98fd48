r"""Supervised classifier: a deep network and the binary cross-entropy, the supervised end of the comparison.

    f(x) = w . g(Enc(x)) + b                                                                            Eq. (1)

    L    = 1/n sum_i log(1 + exp f(x_i)) + 1/m sum_j log(1 + exp -f(x_j))                               Eq. (2)

    S(x) = f(x)                                                                                         Eq. (3)

=============  ====================================================================
i = 1 .. n     negatives: unlabelled and labelled normal rows, all alike
j = 1 .. m     positives: labelled anomalies
g              leaky ReLU, slope 0.01
=============  ====================================================================

An unlabelled row counts as normal, so anomalies hidden among the unlabelled rows are learned as normal ones.

Both classes are averaged apart: each has half of the weight however many rows it has, so one positive weighs as much
as n/m negatives. The score is the logit: it estimates log p(x | anomaly) / p(x | normal), which does not depend on how
many rows are labelled, and it still ranks rows whose probabilities all round to 1.
"""

from typing import ClassVar

import numpy as np
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from esad import labels
from esad.core.arguments import with_parameters
from esad.core.arrays import Labels
from esad.detectors.standard import StandardDetector
from esad.networks.layers import inference
from esad.networks.mlp import StackedMLP
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, Objective, Scorer, mean_over_rows

__all__ = ["SupervisedClassifier"]

SLOPE = 0.01


@with_parameters
class SupervisedClassifier(StandardDetector):
    """Deep classifier of labelled anomalies against all other rows, for tables and pictures.

    Needs labelled anomalies. Unlabelled rows count as normal, which is wrong for the anomalies among them.

    Parameters
    ----------
    network : {"auto", "mlp", "lenet", "conv"}
        Auto: "mlp" for tables, "lenet" for pictures. "conv" is the deep network of ESAD's paper.
    hidden, latent : sequence of int and int, or "auto"
        Hidden widths or channels, and the width of the last hidden layer. Auto: those of Deep SAD's paper.
    lr : float or "auto"
        Of Adam, with a cosine schedule. Auto: 3e-3, for pictures 1e-3.
    n_epochs : int or "auto"
        Auto: 30, less on large data; with more, a handful of positives is learned by heart.
    batch_size, labelled_batch_size : int
        Negatives and positives per step; their losses are averaged apart.
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(200, 3)), rng.normal(3, 1, size=(10, 3))]
    >>> y = np.r_[np.zeros(200, dtype=int), np.full(10, -1)]   # ten known anomalies, the rest unlabelled
    >>> detector = SupervisedClassifier(n_epochs=20, random_state=0).fit(X, y)
    >>> bool(np.diff(detector.anomaly_score([[0, 0, 0], [3, 3, 3]]))[0] > 0)
    True
    """

    summary = "Deep classifier with the binary cross-entropy; unlabelled rows count as normal"
    labels_needed = ("anomaly",)
    learning_rates: ClassVar[dict[str, float]] = {"table": 3e-3, "images": 1e-3}
    auto_epochs = 30

    n_members: int = 1
    batch_size: int = 512
    labelled_batch_size: int = 128
    early_stopping: bool | str = False

    def _objective(self, spec: NetworkSpec) -> Objective:
        return SupervisedObjective(spec)

    def _labels_seen(self, y: Labels) -> Labels:
        """One kind of negatives."""
        return np.where(y == labels.NORMAL, np.int8(labels.UNLABELLED), y)


class SupervisedObjective(Objective):
    """The encoder and one linear output, with the loss of Eq. (2); what is drawn as labelled is positive."""

    near_zero = 0.1  # of a logit

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.encoder = spec.encoder()
        self.output = StackedMLP([spec.n_codes, 1], n_members=spec.n_members)

    def forward(self, x: Tensor) -> Tensor:
        """Eq. (1): the logits of rows (members, batch, *features), (members, batch)."""
        return self.output(F.leaky_relu(self.encoder(x), SLOPE)).squeeze(2)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (2), a term for each class, (members,); a class without rows drops out."""
        negative, positive = batch.split(self(batch.rows))
        return {"negatives": mean_over_rows(F.softplus(negative)), "positives": mean_over_rows(F.softplus(-positive))}

    def scorer(self) -> Scorer:
        """A function giving Eq. (3) for every row, (members, batch)."""
        encode, output = inference(self.encoder), inference(self.output)
        return lambda x: {"logit": output(F.leaky_relu(encode(x[None]), SLOPE)).squeeze(2)}
