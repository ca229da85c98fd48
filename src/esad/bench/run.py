"""Running cells: several workers, results kept one by one, a budget of time, and a way back after a kill."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from esad import registry
from esad.bench.execute import OutOfTime, execute, execute_stack
from esad.bench.grid import Cell
from esad.bench.store import Result, ResultStore
from esad.detectors.deep import DeepDetector
from esad.errors import EsadError, InputError
from esad.scale.engines import LostWorker, engine_for, results

__all__ = ["BACKENDS", "Failure", "RunSummary", "Unfinished", "run"]

BACKENDS = {"loky": "local", "ray": "ray", "threading": "threads"}  # names of the option, and of the engines
RENEW_SECONDS = 60.0


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
class RunSummary:
    """What a run did."""

    n_done: int = 0
    n_elsewhere: int = 0  # finished or claimed by another run in the meantime
    n_left: int = 0  # not started, or not finished: the budget was spent
    failures: list[Failure] = field(default_factory=list)


def run(
    cells: Sequence[Cell],
    store: ResultStore,
    *,
    n_jobs: int = 1,
    backend: str = "loky",
    budget: float | None = None,
    on_done: Callable[[Result | Failure], None] | None = None,
) -> RunSummary:
    """Run the cells that the store does not have, and keep each result at once.

    A cell whose worker dies is run again, and fails alone when it has cost several workers.

    Parameters
    ----------
    cells : sequence of Cell
        In the order in which they are started.
    store : ResultStore
        Other runs may use it at the same time.
    n_jobs : int
        Cells side by side; one alone runs in this process, unless it goes to Ray.
    backend : {"loky", "ray", "threading"}
        Processes of this machine, a Ray cluster (the one that the variable RAY_ADDRESS names, or one on this machine
        for the time of the run), or threads of this process. With "loky", pictures are packed on a GPU by threads.
    budget : float, optional
        Seconds after which no further cell is started; trainings under way write a checkpoint, from which a later run
        goes on. On Ray they go on to their end.
    on_done : callable, optional
        Called with each result or failure.
    """
    if backend not in BACKENDS:
        raise InputError(f"The back end must be one of {', '.join(BACKENDS)}. Got {backend!r}.")
    finished = store.finished()
    waiting = [cell for cell in {cell.name: cell for cell in cells}.values() if cell.name not in finished]
    deadline = None if budget is None else time.monotonic() + budget
    books = _Books(waiting, store, on_done)
    if backend == "loky" and _on_gpu(waiting):
        backend = "threading"
    # a checkpoint stays on the machine that wrote it, and clocks differ between machines
    watched = (None, None) if backend == "ray" else (store.checkpoints, deadline)
    engine = engine_for(BACKENDS[backend], _attempt, n_jobs=n_jobs)
    with _renewed(store), _folder(store.checkpoints), engine:
        jobs = (_Job(group, *watched) for group in books.tasks(deadline))
        for job, found in results(engine, jobs):
            if isinstance(found, LostWorker):
                found = [Failure(cell, str(found)) for cell in job.cells]
            for done in found:
                books.enter(done)
    return books.outcome


class _Books:
    """What of a run is waiting, at work and done."""

    def __init__(
        self, waiting: Sequence[Cell], store: ResultStore, on_done: Callable[[Result | Failure], None] | None
    ) -> None:
        self.outcome = RunSummary()
        self._waiting, self._store, self._on_done = waiting, store, on_done

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
            if claimed:
                yield claimed

    def enter(self, done: "Result | Failure | Unfinished") -> None:
        """Keep what came of a cell."""
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

    def __init__(self, store: ResultStore) -> None:
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


@dataclass(frozen=True)
class _Job:
    """Cells that one worker runs, where their checkpoints go, and when its time is over."""

    cells: Sequence[Cell]
    checkpoints: Path | None
    deadline: float | None


def _attempt(job: _Job) -> list[Result | Failure | Unfinished]:
    cells = job.cells
    try:
        if cells[0].stack:
            return [*execute_stack(cells)]
        return [execute(cell, checkpoints=job.checkpoints, deadline=job.deadline) for cell in cells]
    except OutOfTime:
        return [Unfinished(cell) for cell in cells]
    except (EsadError, RuntimeError, MemoryError) as error:  # torch has RuntimeError for a full device, say
        return [Failure(cell, str(error)) for cell in cells]
