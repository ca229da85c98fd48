"""Running cells: several processes, results kept one by one, a budget of time, and a way back after a kill."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import joblib

from esad import registry
from esad.bench.execute import execute, execute_stack
from esad.bench.grid import Cell
from esad.bench.store import Result, Store
from esad.bench.watch import OutOfTime
from esad.bench.workers import LostWorkerError, workers
from esad.detectors.deep import DeepDetector
from esad.errors import EsadError

__all__ = ["Failure", "Outcome", "Unfinished", "run"]

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

    When a worker dies, the cells that were at work have failed and no further one is started. On Ray they are run
    again, and fail alone when they have cost several workers.

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
            with workers(n_jobs, backend=backend, if_lost=_lost) as parallel:
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


def _lost(reason: str, cells: Sequence[Cell], *watched: object) -> list[Failure]:
    """What is known of cells that cost their workers."""
    return [Failure(cell, reason) for cell in cells]


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
