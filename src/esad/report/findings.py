"""What a report is about, collected before anything is drawn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esad.score.metrics import Evaluation, evaluate

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.explain.reasons import HeatMaps, Reasons
    from esad.score.drift import Drift

__all__ = ["Alarm", "Findings", "KindFound", "measure_kinds"]

Scores = NDArray[np.float64]
Truth = NDArray[np.bool_]


@dataclass(frozen=True)
class Alarm:
    """One of the worst rows: its name, and what is known of it."""

    name: str
    score: float
    is_alarm: bool
    is_anomaly: bool | None = None
    p_value: float | None = None
    cases: tuple[str, ...] = ()


@dataclass(frozen=True)
class KindFound:
    """How well anomalies of one kind are found; `seen` None where it is not known whether training had labels of it."""

    name: str
    seen: bool | None
    n_rows: int
    n_flagged: int
    found: Evaluation


@dataclass(frozen=True, eq=False, kw_only=True)
class Findings:
    """A model, a data set, and what came of scoring one with the other.

    Attributes
    ----------
    detector : Detector
    model_name, data_name : str
        Files, as they shall be called.
    n_bytes : int or None
        Size of the model file.
    scores : ndarray, (n,)
        Of all rows.
    truth : ndarray of bool, (n,), or None
        Whether each is an anomaly, where that is known.
    evaluation : Evaluation or None
        What `evaluate` says, where the truth is known.
    kinds : sequence of KindFound
        Kinds of anomalies, where they are known.
    p_values : ndarray, (n,), or None
        Where the model is calibrated.
    drift : Drift or None
        How far the rows are from those of training, where the model can tell.
    n_missing : mapping of str to int
        Missing cells of each column, in these rows.
    alarms : sequence of Alarm
        The worst rows, with `reasons` in the same order.
    reasons : Reasons, HeatMaps or None
    """

    detector: "Detector"
    model_name: str
    data_name: str
    n_bytes: int | None = None
    scores: Scores
    truth: Truth | None = None
    evaluation: Evaluation | None = None
    kinds: Sequence[KindFound] = ()
    p_values: Scores | None = None
    drift: "Drift | None" = None
    n_missing: Mapping[str, int] = field(default_factory=dict)
    alarms: Sequence[Alarm] = ()
    reasons: "Reasons | HeatMaps | None" = None

    @property
    def flagged(self) -> Truth:
        """Which rows raise an alarm."""
        return self.scores > self.detector.threshold_

    def to_json(self) -> dict[str, Any]:
        """The figures as plain values."""
        return {
            "n_rows": len(self.scores),
            "n_flagged": int(self.flagged.sum()),
            "threshold": self.detector.threshold_,
            "evaluation": None if self.evaluation is None else self.evaluation.to_json(),
            "kinds": [
                {"kind": kind.name, "seen": kind.seen, "n_rows": kind.n_rows, "n_flagged": kind.n_flagged}
                | {"auc": kind.found.auc}
                for kind in self.kinds
            ],
            "drifted": None if self.drift is None else self.drift.drifted,
            "calibrated": self.p_values is not None,
        }


def measure_kinds(
    scores: Scores, truth: Truth, kinds: NDArray[Any], *, threshold: float, seen: Sequence[str] | None
) -> list[KindFound]:
    """Each kind of anomaly against all normal rows, the most frequent first; anomalies without a kind are left out.

    Examples
    --------
    >>> kinds = np.array([None, None, "scratch", "dent"], dtype=object)
    >>> found = measure_kinds(np.arange(4.0), np.array([False, False, True, True]), kinds, threshold=2.5, seen=["dent"])
    >>> [(kind.name, kind.seen, kind.n_flagged, kind.found.auc) for kind in found]
    [('dent', True, 1, 1.0), ('scratch', False, 0, 1.0)]
    """
    words = np.array([None if kind is None or kind != kind else str(kind) for kind in kinds], dtype=object)
    names, counts = np.unique([word for word in words[truth] if word is not None], return_counts=True)  # sorted
    out = []
    for name in names[np.argsort(-counts, kind="stable")].tolist():
        mine = truth & (words == name)
        chosen = mine | ~truth
        out.append(
            KindFound(
                name=name,
                seen=None if seen is None else name in seen,
                n_rows=int(mine.sum()),
                n_flagged=int((scores[mine] > threshold).sum()),
                found=evaluate(scores[chosen], mine[chosen], ks=()),
            )
        )
    return out
