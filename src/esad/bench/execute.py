"""One cell, or the seeds of a stack: draw the rows, train and watch, score the test rows, judge the scores."""

import copy
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from esad import __version__, registry
from esad.bench.grid import Cell
from esad.bench.store import Result
from esad.core.arrays import Rows
from esad.datasets import scenario
from esad.datasets.dataset import Dataset
from esad.datasets.scenario import Scenario
from esad.detectors.deep import DeepDetector
from esad.detectors.solved import HybridDetector
from esad.detectors.stacked import can_stack, fit_stack
from esad.errors import InputError
from esad.labels import reference_rows
from esad.persist.checkpoint import Checkpoint
from esad.score.metrics import evaluate
from esad.train.callbacks import Callback
from esad.train.graphs import use_own_stream
from esad.train.loop import LoopState
from esad.train.stopping import scores_so_far

CHOSEN_RATIO = 0.1  # of the test rows, whose labels a variant with `choose` sees; the others judge it
N_CURVE_POINTS = 100
N_LOOKS = 5  # checks of the test AUC, the last one after the training
N_SEEN = 2500  # test rows per check, evenly over all
N_REFERENCE = 1000  # training rows that scale the scores of a check
MAX_REFERENCE = 10_000  # pictures of a data set that a variant names as `reference`
CHECKPOINT_SECONDS = 300.0
N_COMPONENTS = 50  # t-SNE begins with as many principal components, as its authors advise
_load_lock = threading.Lock()


def execute(cell: Cell, *, checkpoints: Path | None = None, deadline: float | None = None) -> Result:
    """Draw the rows, train, score the test rows and judge the scores.

    With a folder for checkpoints, a training that reaches the deadline leaves one there and raises `OutOfTime`.
    """
    torch.set_num_threads(1)
    rows = draw_rows(cell)
    detector = _make_detector(cell)
    started = time.perf_counter()
    curves: dict[str, list[float]] = {}
    with use_own_stream(torch.device("cuda" if torch.cuda.is_available() else "cpu")):
        if cell.choose and not isinstance(detector, HybridDetector):
            pass  # fitted with every value that there is to choose from
        elif isinstance(detector, DeepDetector):
            checkpoint = None if checkpoints is None else checkpoints / f"{cell.name}.checkpoint"
            curves = _fit_watched(detector, rows, checkpoint=checkpoint, deadline=deadline)
        else:
            detector.fit(rows.X_train, rows.y_train)
        seconds = time.perf_counter() - started
        if cell.codes and isinstance(detector, DeepDetector):
            curves |= map_codes(detector, rows, cell.codes, cell.seed)
        return _judge(cell, rows, detector, fit_seconds=seconds, figures=curves)


def execute_stack(cells: Sequence[Cell]) -> list[Result]:
    """Run cells that differ in their seed as one training of all seeds of their stack, where that can be done."""
    torch.set_num_threads(1)
    everyone = [replace(cells[0], seed=seed) for seed in range(cells[0].stack)]
    drawn = [draw_rows(cell) for cell in everyone]
    detectors = [_make_detector(cell) for cell in everyone]
    started = time.perf_counter()
    if not can_stack(detectors, drawn) or not fit_stack(detectors, drawn):
        return [execute(cell) for cell in cells]
    share = (time.perf_counter() - started) / len(everyone)
    return [_judge(cell, drawn[cell.seed], detectors[cell.seed], fit_seconds=share) for cell in cells]


def _make_detector(cell: Cell) -> Any:
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in cell.settings.items()
    }
    if settings.get("reference") in registry.data_set_names():  # pictures for TLSAD, evenly over the training part
        there = _load(settings["reference"])
        there = there.take(np.unique(np.linspace(0, len(there.X) - 1, MAX_REFERENCE).astype(int)))
        settings |= {"reference": there.X, "reference_classes": there.classes}
    return registry.method(cell.method)(random_state=cell.seed, **settings)


def _judge(cell: Cell, rows: Scenario, detector: Any, *, fit_seconds: float, figures: Any = None) -> Result:
    """Return the result of a cell with a fitted detector; `figures` are stored beside the thinned loss curves."""
    counted = np.ones(len(rows.truth_test), dtype=bool)
    started = time.perf_counter()
    if cell.choose:
        seen = _choose_seen(rows.truth_test, cell.seed)
        detector, counted = _choose_arguments(detector, cell.choose, rows, seen), ~seen
    fitted = time.perf_counter()
    scores = detector.anomaly_score(rows.X_test)
    scored = time.perf_counter()
    found = evaluate(scores[counted], rows.truth_test[counted], ks=(), intervals=False)
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
        curves=_thin_curves(getattr(detector, "loss_curves_", {})) | (figures or {}),
    )


def _choose_seen(truth: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
    """A tenth of the normal test rows and of the anomalies."""
    seen = np.zeros(len(truth), dtype=bool)
    rng = np.random.default_rng(seed)
    for kind in (False, True):
        rows = rng.permutation(np.flatnonzero(truth == kind))
        seen[rows[: max(1, round(CHOSEN_RATIO * len(rows)))]] = True
    return seen


def _choose_arguments(detector: Any, choose: Any, rows: Scenario, seen: NDArray[np.bool_]) -> Any:
    """Fit a detector and choose one argument after the other by the AUC on the test rows that may be seen.

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
            auc = evaluate(scores, rows.truth_test[seen], ks=(), intervals=False).auc
            best, kept = (auc, tried) if auc > best else (best, kept)
        detector = kept
    return detector


def _thin_curves(curves: Any) -> dict[str, list[float]]:
    """Shorten each loss curve to at most a hundred points, each the mean over an equal stretch of steps."""
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


# ---------------------------------------------------------------------- the rows


def draw_rows(cell: Cell) -> Scenario:
    """The rows of a cell, by the scenario it names."""
    arguments = dict(cell.scenario)
    kind = arguments.pop("kind")
    dataset = _load(cell.data)
    try:
        if kind == "images":
            return _draw_pictures(dataset, cell.seed, **arguments)
        draws: dict[str, Callable[..., Scenario]] = {
            "table": scenario.table,
            "natural": scenario.natural,
            "given": scenario.given,
        }
        return draws[kind](dataset, seed=cell.seed, **arguments)
    except TypeError as error:
        raise InputError(f"The scenario {kind!r} cannot use {arguments}: {error}.") from error


def _draw_pictures(
    dataset: Dataset,
    seed: int,
    *,
    labelled_offset: int | None = None,
    n_labelled_classes: int | None = None,
    **rest: Any,
) -> Scenario:
    """Labelled anomalies of the class `labelled_offset` after the normal one, or of classes drawn by the seed."""
    normal = rest.get("normal_class", 0)
    classes: Any = dataset.with_normal_class(normal).classes  # refused where there are none
    if labelled_offset is not None:
        others = np.setdiff1d(classes, [normal]).tolist()
        rest["labelled_classes"] = (others[(normal + labelled_offset - 1) % len(others)],)
    elif n_labelled_classes == 0:
        rest["labelled_ratio"] = 0.0
    elif n_labelled_classes is not None:
        rest["labelled_classes"] = scenario.pick_classes(
            classes, normal_class=normal, n_classes=n_labelled_classes, seed=seed
        )
    return scenario.images(dataset, seed=seed, **rest)


def _load(name: str) -> Dataset:
    with _load_lock:  # once, though several threads ask
        return _load_once(name)


@cache
def _load_once(name: str) -> Dataset:
    dataset: Dataset = registry.load_data_set(name)
    return dataset


# ---------------------------------------------------------------------- the training, watched


class OutOfTime(Exception):  # noqa: N818  a signal, not an error
    """The deadline came before the end of a training; the checkpoint holds how far it got."""


def _fit_watched(
    detector: DeepDetector, rows: Scenario, *, checkpoint: Path | None = None, deadline: float | None = None
) -> dict[str, list[float]]:
    """Fit, and return the test AUC at equal intervals before the end of the training: `{"test_auc": [...]}`.

    The test rows are only looked at: nothing is chosen by them, and nothing that is random in a training moves. Tables
    are not looked at, their trainings are short; nor is what searches for every score, which would double its time.
    """
    curve = _TestCurve(detector, rows)
    callbacks: list[Any] = [curve] if rows.X_train.ndim > 2 and detector.can_export else []
    if checkpoint is not None:
        saved = Checkpoint(checkpoint, every_seconds=CHECKPOINT_SECONDS, resume=True)
        callbacks += [saved, _Deadline(saved, deadline)]
    detector.fit(rows.X_train, rows.y_train, callbacks=callbacks)
    if checkpoint is not None:
        saved.remove()
    return {"test_auc": curve.aucs} if curve.aucs else {}


class _TestCurve(Callback):
    """A callback that notes the AUC of the test rows."""

    def __init__(self, detector: DeepDetector, rows: Scenario) -> None:
        self._detector, self._rows = detector, rows
        self._seen = np.unique(np.linspace(0, len(rows.truth_test) - 1, N_SEEN).astype(int))
        self.aucs: list[float] = []

    def on_start(self, state: LoopState) -> None:
        """Bring test rows and some training rows to the device, once the last phase begins."""
        if state.phase < state.n_phases - 1:
            return
        device, dtype = state.data.x.device, state.data.x.dtype
        test_rows = self._detector.inputs_.transform(self._rows.X_test[self._seen])
        test = torch.from_numpy(self._detector.network_rows(test_rows)).to(device, dtype)
        chosen = np.flatnonzero(reference_rows(self._rows.y_train))[:N_REFERENCE]
        reference = state.data.x[torch.from_numpy(chosen).to(device)]
        self._x = torch.cat([reference, test])
        self._is_reference = torch.arange(len(self._x), device=device) < len(reference)

    def on_step(self, state: LoopState) -> None:
        """Compute the test AUC at regular steps."""
        every = max(1, state.n_steps // N_LOOKS)
        if state.phase < state.n_phases - 1 or state.step % every or state.step > (N_LOOKS - 1) * every:
            return
        scores = scores_so_far(state, self._x, self._is_reference)[~self._is_reference].cpu().numpy()
        auc = evaluate(scores, self._rows.truth_test[self._seen], ks=(), intervals=False).auc
        before = state.callback_state.get("test_auc", torch.empty(0)).cpu()  # comes back with a checkpoint
        state.callback_state["test_auc"] = torch.cat([before, torch.tensor([auc], dtype=torch.float64)])

    def on_end(self, state: LoopState) -> None:
        """Read the finished curve from the state of the training."""
        self.aucs = state.callback_state["test_auc"].tolist() if "test_auc" in state.callback_state else []


class _Deadline(Callback):
    """A callback that writes the checkpoint and ends the training when its time has come."""

    def __init__(self, checkpoint: Checkpoint, deadline: float | None) -> None:
        self._checkpoint, self._deadline = checkpoint, deadline

    def on_step(self, state: LoopState) -> None:
        """Stop the training once its deadline has passed."""
        if self._deadline is not None and time.monotonic() > self._deadline and state.step < state.n_steps:
            self._checkpoint.write(state)
            raise OutOfTime


# ---------------------------------------------------------------------- maps of codes


def map_codes(detector: DeepDetector, rows: Scenario, n_rows: int, seed: int) -> dict[str, list[float]]:
    """Return 2-D positions of some test rows, half of them anomalies, for every code of the first member.

    `map row` numbers the test rows, `map truth` is 1 for anomalies, `map score` the anomaly score; `map z x` and
    `map z y` are the places by the code z.
    """
    rng = np.random.default_rng(seed)
    kinds = [np.flatnonzero(rows.truth_test == kind) for kind in (False, True)]
    chosen = np.sort(np.concatenate([rng.permutation(kind)[: n_rows // 2] for kind in kinds]))
    found = {
        "map row": chosen,
        "map truth": rows.truth_test[chosen],
        "map score": detector.anomaly_score(rows.X_test[chosen]),
    }
    for name, codes in detector.codes(rows.X_test[chosen]).items():
        places = _flatten(codes, seed)
        found |= {f"map {name} x": places[:, 0], f"map {name} y": places[:, 1]}
    return {name: values.astype(float).tolist() for name, values in found.items()}


def _flatten(codes: Rows, seed: int) -> Rows:
    n_components = min(N_COMPONENTS, *codes.shape)
    reduced = PCA(n_components, random_state=seed).fit_transform(codes)
    perplexity = min(30.0, (len(codes) - 1) / 3)
    flat: Rows = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)
    return flat
