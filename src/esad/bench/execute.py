"""One cell, or the seeds of a stack: draw the rows, train, score the test rows, judge the scores."""

import copy
import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad import __version__, registry
from esad.bench.grid import Cell
from esad.bench.maps import code_maps
from esad.bench.rows import drawn_rows
from esad.bench.store import Result
from esad.bench.watch import fit_watched
from esad.datasets.scenario import Scenario
from esad.detectors.deep import DeepDetector
from esad.detectors.hybrid import HybridDetector
from esad.detectors.stacked import can_stack, fit_stack
from esad.score.metrics import evaluate
from esad.train.graphs import own_stream

__all__ = ["code_version", "execute", "execute_stack"]

CHOSEN_RATIO = 0.1  # of the test rows, whose labels a variant with `choose` sees; the others judge it
N_CURVE_POINTS = 100


def execute(cell: Cell, *, checkpoints: Path | None = None, deadline: float | None = None) -> Result:
    """Draw the rows, train, score the test rows and judge the scores.

    With a folder for checkpoints, a training that reaches the deadline leaves one there and raises `OutOfTime`.
    """
    import torch

    torch.set_num_threads(1)
    rows = drawn_rows(cell)
    detector = _detector(cell)
    started = time.perf_counter()
    curves: dict[str, list[float]] = {}
    with own_stream(torch.device("cuda" if torch.cuda.is_available() else "cpu")):
        if cell.choose and not isinstance(detector, HybridDetector):
            pass  # fitted with every value that there is to choose from
        elif isinstance(detector, DeepDetector):
            checkpoint = None if checkpoints is None else checkpoints / f"{cell.name}.checkpoint"
            curves = fit_watched(detector, rows, checkpoint=checkpoint, deadline=deadline)
        else:
            detector.fit(rows.X_train, rows.y_train)
        seconds = time.perf_counter() - started
        if cell.codes and isinstance(detector, DeepDetector):
            curves |= code_maps(detector, rows, cell.codes, cell.seed)
        return _scored(cell, rows, detector, fit_seconds=seconds, figures=curves)


def execute_stack(cells: Sequence[Cell]) -> list[Result]:
    """Run cells that differ in their seed as one training of all seeds of their stack, where that can be done."""
    import torch

    torch.set_num_threads(1)
    everyone = [replace(cells[0], seed=seed) for seed in range(cells[0].stack)]
    drawn = [drawn_rows(cell) for cell in everyone]
    detectors = [_detector(cell) for cell in everyone]
    started = time.perf_counter()
    if not can_stack(detectors, drawn) or not fit_stack(detectors, drawn):
        return [execute(cell) for cell in cells]
    share = (time.perf_counter() - started) / len(everyone)
    return [_scored(cell, drawn[cell.seed], detectors[cell.seed], fit_seconds=share) for cell in cells]


def _detector(cell: Cell) -> Any:
    return registry.method(cell.method)(random_state=cell.seed, **_arguments(cell.settings))


def _arguments(settings: Any) -> dict[str, Any]:
    """Settings as constructor arguments; lists were tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


def _scored(cell: Cell, rows: Scenario, detector: Any, *, fit_seconds: float, figures: Any = None) -> Result:
    """The result of a cell whose detector is fitted; `figures` are kept whole beside the curves of the losses."""
    counted = np.ones(len(rows.truth_test), dtype=bool)
    started = time.perf_counter()
    if cell.choose:
        seen = _seen_by_choice(rows.truth_test, cell.seed)
        detector, counted = _chosen(detector, cell.choose, rows, seen), ~seen
    fitted = time.perf_counter()
    scores = detector.anomaly_score(rows.X_test)
    scored = time.perf_counter()
    found = evaluate(scores[counted], rows.truth_test[counted], ks=(), n_bootstrap=0)
    return Result(
        cell=cell.name,
        description=cell.describe(),
        auc=found.auc,
        ap=found.average_precision,
        fit_seconds=fit_seconds + fitted - started,
        score_seconds=scored - fitted,
        n_train=len(rows.y_train),
        n_test=int(counted.sum()),
        code=code_version(),
        data=rows.fingerprint(),
        curves=_thinned(getattr(detector, "loss_curves_", {})) | (figures or {}),
    )


def _seen_by_choice(truth: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
    """A tenth of the normal test rows and of the anomalies."""
    seen = np.zeros(len(truth), dtype=bool)
    rng = np.random.default_rng(seed)
    for kind in (False, True):
        rows = rng.permutation(np.flatnonzero(truth == kind))
        seen[rows[: max(1, round(CHOSEN_RATIO * len(rows)))]] = True
    return seen


def _chosen(detector: Any, choose: Any, rows: Scenario, seen: NDArray[np.bool_]) -> Any:
    """The fitted detector with one argument after the other at its best AUC on the test rows that may be seen.

    A hybrid comes with a trained autoencoder, which stays.
    """
    for name, values in choose.items():
        best = -np.inf
        kept = detector
        for value in values:
            tried = copy.copy(detector).set_params(**{name: value})
            fit = tried.solve if isinstance(tried, HybridDetector) else tried.fit
            fit(rows.X_train, rows.y_train)
            scores = tried.anomaly_score(rows.X_test[seen])
            auc = evaluate(scores, rows.truth_test[seen], ks=(), n_bootstrap=0).auc
            best, kept = (auc, tried) if auc > best else (best, kept)
        detector = kept
    return detector


def _thinned(curves: Any) -> dict[str, list[float]]:
    """At most a hundred points of each loss curve, as means over as many stretches."""
    thin = {}
    for name, curve in curves.items():
        parts = np.array_split(np.asarray(curve, dtype=float), min(N_CURVE_POINTS, max(1, len(curve))))
        thin[name] = [float(np.mean(part)) for part in parts if len(part)]
    return thin


@cache
def code_version() -> str:
    """The package's version and a hash of its source, so that a result can be traced to the code that made it."""
    digest = hashlib.sha256()
    folder = Path(__file__).resolve().parent.parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:10]}"
