"""Which scored rows are alarms: by the model's threshold, by p-value, or by the false-discovery rate of the file."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from esad.cli import common
from esad.cli.source import Source, scored
from esad.detectors.alarms import AlarmRule
from esad.errors import DataFileError, InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector

__all__ = ["Decision", "decision_for"]


@dataclass(frozen=True)
class Decision(AlarmRule):
    """The rule that the options ask for, and what can be said of it."""

    alpha: float | None = None
    fdr: float | None = None
    n_rows: int | None = None  # of the file, where it was read before

    def counted(self, detector: "Detector", source: Source) -> "Decision":
        """For a false-discovery rate: read the file once, counting p-values, and see how small they must be."""
        import numpy as np

        if self.fdr is None:
            return self
        assert self.calibration is not None
        n_by_rank = np.zeros(self.calibration.n_rows + 2, dtype=np.int64)
        first = replace(source, blocks=source.again())
        for block, scores in scored(detector, first, word="counting"):
            p_values = self.p_values(detector, block.X, scores)
            assert p_values is not None
            n_by_rank += np.bincount(self.ranks(p_values), minlength=len(n_by_rank))
        last_rank = self.calibration.last_discovery(n_by_rank, self.fdr)
        return replace(self, last_rank=last_rank, n_rows=int(n_by_rank.sum()))

    def check_same(self, n_rows: int) -> None:
        """Refuse a file that has changed since its p-values were counted."""
        if self.n_rows is not None and n_rows != self.n_rows:
            raise DataFileError(f"The data changed while it was read: {self.n_rows:,} rows first, then {n_rows:,}.")

    def to_json(self) -> dict[str, Any]:
        """What was asked for and what came of it."""
        found: dict[str, Any] = {"threshold": self.threshold, "alpha": self.alpha, "fdr": self.fdr}
        if self.calibration is not None:
            found["calibration"] = {"kind": self.calibration.kind, "n_rows": self.calibration.n_rows}
            if self.last_rank is not None:
                found["largest_p_value"] = self.last_rank / (self.calibration.n_rows + 1)
        return found

    def told(self, n_flagged: int) -> str:
        """The rule in words, to follow "12 flagged"."""
        if self.last_rank is None:
            return f"above the threshold {self.threshold:.6g}"
        if self.alpha is not None:
            return f"with a p-value of at most {self.alpha:g}"
        assert self.calibration is not None
        if not n_flagged:
            return f"at a false-discovery rate of {common.percent(self.fdr or 0)}"
        largest = self.last_rank / (self.calibration.n_rows + 1)
        return f"at a false-discovery rate of {common.percent(self.fdr or 0)}: p-values up to {largest:.3g}"

    def mention_limits(self, n_flagged: int) -> None:
        """Say what weakens a false-discovery rate: members in place of held-out rows, or too few of these."""
        if self.fdr is None or self.calibration is None or self.n_rows is None:
            return
        if self.calibration.pollution_ratio:
            common.warn("the highest calibration scores were cut off: the false-discovery rate may be much exceeded.")
        if self.calibration.is_cross:
            common.note("the p-values of this model are cross-conformal: it keeps to the false-discovery rate about.")
        n_together = math.ceil(self.n_rows / (self.fdr * (self.calibration.n_rows + 1)) - 1e-9)
        if not n_flagged and n_together > 1:
            needed = math.ceil(self.n_rows / self.fdr - 1e-9) - 1
            common.note(
                f"with {self.calibration.n_rows:,} calibration rows, {n_together:,} of {self.n_rows:,} rows must stand "
                f"out together before any is flagged at this rate; with {needed:,}, a single one can."
            )


def decision_for(detector: "Detector", *, alpha: float | None, fdr: float | None) -> Decision:
    """The decision that the options ask for, checked against the model."""
    from esad.core.arguments import check_share

    if alpha is not None and fdr is not None:
        raise InputError("Give --alpha or --fdr, not both.")
    for option, share in (("--alpha", alpha), ("--fdr", fdr)):
        if share is not None:
            check_share(option, share)
            if detector.calibration_ is None:
                raise InputError(
                    f"{option} needs p-values, and the model has no calibration. Train it with --calibration-ratio, or "
                    "give it normal rows with: esad calibrate"
                )
            detector.calibration_.check_level(share, name=option)
    decision = Decision(detector.threshold_, detector.calibration_, alpha=alpha, fdr=fdr)
    if alpha is not None and detector.calibration_ is not None:
        decision = replace(decision, last_rank=detector.calibration_.last_rank(alpha))
    return decision
