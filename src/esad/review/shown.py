"""What the page shows of one row, and of two models side by side."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad import labels
from esad.review.book import Opinion
from esad.review.judged import Explained, Judged
from esad.review.material import Material
from esad.review.refit import Comparison, compared

__all__ = ["compared_rows", "item"]

_WORDS: Final = {labels.ANOMALY: "anomaly", labels.NORMAL: "normal"}


def item(
    judged: Judged, opinions: Mapping[str, Opinion], row: int, *, reviewer: str, y: NDArray[np.int8]
) -> dict[str, Any]:
    """Everything about a row: what the model says, why, what people say, the nearest known cases, all cells."""
    scored, material = judged.scored, judged.material
    said = {name: asdict(opinion) for name, opinion in opinions.items()}
    mine = said.pop(reviewer, None)
    verdicts = {one["verdict"] for one in said.values()} | {mine["verdict"] if mine else None}
    visible = (mine is not None and mine["verdict"] is not None) or {"anomaly", "normal"} <= verdicts
    cases = [
        {"row": case.row, "name": material.called(case.row), "label": _WORDS[case.label], "distance": case.distance}
        for case in judged.nearest(row, y)
    ]
    return {
        "row": row,
        "name": material.called(row),
        "is_titled": material.names is None and material.titles is not None,
        "score": float(scored.scores[row]),
        "rank": int(scored.ranks[row]),
        "p_value": None if scored.p_values is None else float(scored.p_values[row]),
        "is_alarm": bool(scored.is_alarm[row]),
        "known": _WORDS.get(int(material.known[row])),
        "mine": mine,
        "others": said if visible else {},  # seen only after one's own verdict: a second opinion is one's own
        "n_others": len(said),
        "pending": judged.is_pending(row),
        "reasons": None if material.cells is None else _reasons(judged.explained(row)),
        "cells": material.shown(row),
        "cases": cases,
    }


def _reasons(explained: Explained | None) -> dict[str, Any] | None:
    if explained is None:
        return None
    rest = {"n_others": explained.n_others, "others": explained.others, "base": explained.base}
    return {"columns": explained.columns} | rest


def compared_rows(comparison: Comparison, material: Material) -> dict[str, Any]:
    """Old and new ranking, with the names of the rows."""
    old, new, y = comparison.old, comparison.new, comparison.y

    def line(row: int) -> dict[str, Any]:
        label = _WORDS.get(int(y[row]))
        ranks = {"old": int(old.ranks[row]), "new": int(new.ranks[row])}
        return {"row": row, "name": material.called(row), "label": label} | ranks

    found = compared(old, new, y)
    return found | {
        "top": {name: [line(row) for row in rows] for name, rows in found["top"].items()},
        "rose": [line(row) for row in found["rose"]],
        "fell": [line(row) for row in found["fell"]],
    }
