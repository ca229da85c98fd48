"""Plots, in the manner of scikit-learn's displays: `from_estimator`, `from_predictions`, `.plot(ax=None)`.

Each keeps what it draws and, once drawn, `ax_` and `figure_`. They need matplotlib, the extra `plot`.
"""

from esad.advice.displays import ComparisonDisplay, LabelCurveDisplay
from esad.explain.displays import HeatMapDisplay, ReasonsDisplay, ReconstructionDisplay
from esad.score.displays import (
    CalibrationDisplay,
    DriftDisplay,
    LossDisplay,
    PrecisionRecallDisplay,
    RocCurveDisplay,
    ScoreDistributionDisplay,
)

__all__ = [
    "CalibrationDisplay",
    "ComparisonDisplay",
    "DriftDisplay",
    "HeatMapDisplay",
    "LabelCurveDisplay",
    "LossDisplay",
    "PrecisionRecallDisplay",
    "ReasonsDisplay",
    "ReconstructionDisplay",
    "RocCurveDisplay",
    "ScoreDistributionDisplay",
]
