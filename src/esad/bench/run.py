"""Running cells: several processes, results kept one by one, a budget of time, and a way back after a kill."""

import contextlib
import copy
import hashlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray

from esad import __version__, registry
from esad.bench.grid import Cell
from esad.bench.maps import code_maps
from esad.bench.stacked import can_stack, fit_stack
from esad.bench.store import Result, Store
from esad.bench.watch import OutOfTime, fit_watched
from esad.bench.workers import LostWorkerError, workers
from esad.data import scenario
from esad.data.dataset import Dataset
from esad.data.scenario import Scenario
from esad.deep import DeepDetector
from esad.errors import EsadError, InputError
from esad.hybrid import HybridDetector
from esad.score.metrics import evaluate
from esad.train.graphs import own_stream

__all__ = ["Failure", "Outcome", "Unfinished", "code_version", "drawn_rows", "execute", "execute_stack", "run"]

RENEW_SECONDS = 60.0
CHOSEN_RATIO = 0.1  # of the test rows, whose labels a variant with `choose` sees; the others judge it
N_CURVE_POINTS = 100


@dataclass(frozen=True)
class Failure:
    """A cell that could not be run."""

    cell: Cell
    reason: str


@dataclass(frozen=True)
class Unfinished:
    """A cell whose training was cut short by the budget; its checkpoint waits beside the store."""

    cell: Cell


@dataclass
class Outcome:
    """What a run did."""

    n_done: int = 0
    n_elsewhere: int = 0  # finished or claimed by another run in the meantime
    n_left: int = 0  # not started, or not finished: the budget was spent, or a worker died
    failures: list[Failure] = field(default_factory=list)


def run(
    cells: Sequence[Cell],
    store: Store,
    *,
    n_jobs: int = 1,
    backend: str = "loky",
    budget: float | None = None,
    on_done: Callable[[Result | Failure], None] | None = None,
) -> Outcome:
    """Run the cells that the store does not have, and keep each result at once.

    When a worker dies, the cells that were at work have failed and no further one is started.

    Parameters
    ----------
    cells : sequence of Cell
        In the order in which they are started.
    store : Store
        Other runs may use it at the same time.
    n_jobs : int
        Tasks side by side, through joblib.
    backend : {"loky", "ray", "threading"}
        See `esad.bench.workers`. With "loky", pictures are packed on a GPU by threads.
    budget : float, optional
        Seconds after which no further cell is started; trainings under way write a checkpoint, from which a later run
        goes on. On Ray they go on to their end.
    on_done : callable, optional
        Called with each result or failure.
    """
    finished = store.finished()
    waiting = [cell for cell in {cell.name: cell for cell in cells}.values() if cell.name not in finished]
    deadline = None if budget is None else time.monotonic() + budget
    books = _Books(waiting, store, on_done)
    if backend == "loky" and _on_gpu(waiting):
        backend = "threading"
    # a checkpoint stays on the machine that wrote it, and clocks differ between machines
    watched = (None, None) if backend == "ray" else (store.checkpoints, deadline)
    with _renewed(store), _folder(store.checkpoints):
        try:
            with workers(n_jobs, backend=backend) as parallel:
                jobs = (joblib.delayed(_attempt)(group, *watched) for group in books.tasks(deadline))
                for done in itertools.chain.from_iterable(parallel(jobs)):
                    books.enter(done)
        except LostWorkerError as error:
            books.give_up(str(error))
    return books.outcome


class _Books:
    """What of a run is waiting, at work and done."""

    def __init__(
        self, waiting: Sequence[Cell], store: Store, on_done: Callable[[Result | Failure], None] | None
    ) -> None:
        self.outcome = Outcome()
        self._waiting, self._store, self._on_done = waiting, store, on_done
        self._at_work: dict[str, Cell] = {}

    def tasks(self, deadline: float | None) -> Iterator[list[Cell]]:
        """Cells that this run has claimed, one stack or single cell at a time as workers ask for them."""
        n_before = 0
        for group in _groups(self._waiting):
            if deadline is not None and time.monotonic() > deadline:
                self.outcome.n_left += len(self._waiting) - n_before
                return
            claimed = [cell for cell in group if self._store.claim(cell.name)]
            self.outcome.n_elsewhere += len(group) - len(claimed)
            n_before += len(group)
            self._at_work.update((cell.name, cell) for cell in claimed)
            if claimed:
                yield claimed

    def enter(self, done: "Result | Failure | Unfinished") -> None:
        """Keep what came of a cell."""
        self._at_work.pop(done.cell if isinstance(done, Result) else done.cell.name, None)
        if isinstance(done, Unfinished):
            self.outcome.n_left += 1
            return
        if isinstance(done, Failure):
            self.outcome.failures.append(done)
        else:
            self._store.put(done)
            self.outcome.n_done += 1
        if self._on_done is not None:
            self._on_done(done)

    def give_up(self, reason: str) -> None:
        """Cells at work have failed, the others are left."""
        for cell in list(self._at_work.values()):
            self.enter(Failure(cell, reason))
        found = self.outcome
        found.n_left = len(self._waiting) - found.n_done - found.n_elsewhere - len(found.failures)


def _groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that train side by side; a cell that does not is a group of its own."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        beside = cell.stack and issubclass(registry.method(cell.method), DeepDetector)
        groups.setdefault(replace(cell, seed=-1).name if beside else cell.name, []).append(cell)
    return list(groups.values())


@contextlib.contextmanager
def _folder(path: Path) -> Iterator[None]:
    """A folder that is there meanwhile, and stays if something is in it."""
    path.mkdir(exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()


class _renewed:  # noqa: N801  reads as a context
    """Claims are renewed in the background, and those not used are given back at the end."""

    def __init__(self, store: Store) -> None:
        self._store, self._over = store, threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._store.release()

    def _renew(self) -> None:
        while not self._over.wait(RENEW_SECONDS):
            self._store.renew()


def _on_gpu(cells: Sequence[Cell]) -> bool:
    """Whether to pack trainings on one GPU: as threads of one process, each with a stream of its own."""
    import torch

    return torch.cuda.is_available() and any(cell.scenario["kind"] in ("images", "given") for cell in cells)


def _attempt(
    cells: Sequence[Cell], checkpoints: Path | None, deadline: float | None
) -> list[Result | Failure | Unfinished]:
    try:
        if cells[0].stack:
            return [*execute_stack(cells)]
        return [execute(cell, checkpoints=checkpoints, deadline=deadline) for cell in cells]
    except OutOfTime:
        return [Unfinished(cell) for cell in cells]
    except (EsadError, RuntimeError, MemoryError) as error:  # torch has RuntimeError for a full device, say
        return [Failure(cell, str(error)) for cell in cells]


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


def _scored(cell: Cell, rows: Scenario, detector: Any, *, fit_seconds: float, figures: Any = None) -> Result:
    """The result of a cell whose detector is fitted; `figures` are kept whole beside the curves of the losses."""
    test = None
    started = time.perf_counter()
    if cell.choose:
        seen = _seen_by_choice(rows.truth_test, cell.seed)
        detector = _chosen(detector, cell.choose, rows, seen)
        test = ~seen
    fitted = time.perf_counter()
    scores = detector.anomaly_score(rows.X_test)
    scored = time.perf_counter()
    curves = _thinned(getattr(detector, "loss_curves_", {})) | (figures or {})
    seconds = {"fit_seconds": fit_seconds + fitted - started, "score_seconds": scored - fitted}
    return _judged(cell, rows, scores, test=test, curves=curves, **seconds)


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


def _judged(
    cell: Cell,
    rows: Scenario,
    scores: NDArray[np.float64],
    *,
    fit_seconds: float,
    score_seconds: float = 0.0,
    curves: dict[str, list[float]],
    test: NDArray[np.bool_] | None = None,
) -> Result:
    """The result of a cell from the scores of its test rows, of which `test` count."""
    test = np.ones(len(rows.truth_test), dtype=bool) if test is None else test
    found = evaluate(scores[test], rows.truth_test[test], ks=(), n_bootstrap=0)
    return Result(
        cell=cell.name,
        description=cell.describe(),
        auc=found.auc,
        ap=found.average_precision,
        fit_seconds=fit_seconds,
        score_seconds=score_seconds,
        n_train=len(rows.y_train),
        n_test=int(test.sum()),
        code=code_version(),
        data=rows.fingerprint(),
        curves=curves,
    )


def _detector(cell: Cell) -> Any:
    return registry.method(cell.method)(random_state=cell.seed, **_arguments(cell.settings))


def drawn_rows(cell: Cell) -> Scenario:
    """The rows of a cell, by the scenario it names."""
    arguments = dict(cell.scenario)
    kind = arguments.pop("kind")
    dataset = _loaded(cell.data)
    try:
        if kind == "images":
            return _drawn_pictures(dataset, cell.seed, **arguments)
        draws: dict[str, Callable[..., Scenario]] = {
            "table": scenario.table,
            "natural": scenario.natural,
            "given": scenario.given,
        }
        return draws[kind](dataset, seed=cell.seed, **arguments)
    except TypeError as error:
        raise InputError(f"The scenario {kind!r} cannot use {arguments}: {error}.") from error


def _drawn_pictures(
    dataset: Dataset,
    seed: int,
    *,
    labelled_offset: int | None = None,
    n_labelled_classes: int | None = None,
    **rest: Any,
) -> Scenario:
    """Labelled anomalies of the class `labelled_offset` after the normal one, or of classes drawn by the seed."""
    classes = () if dataset.classes is None else dataset.classes
    normal = rest.get("normal_class", 0)
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


def _loaded(name: str) -> Dataset:
    with _loading:  # once, though several threads ask
        return _load_once(name)


_loading = threading.Lock()


@cache
def _load_once(name: str) -> Dataset:
    dataset: Dataset = registry.load_data_set(name)
    return dataset


def _arguments(settings: Any) -> dict[str, Any]:
    """Settings as constructor arguments; lists were tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}


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
