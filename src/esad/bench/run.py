"""Runs cells in several workers: each result is kept at once, within a budget of time, resumable after a kill."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from esad import registry
from esad.bench.execute import OutOfTime, execute, execute_stack
from esad.bench.grid import Cell
from esad.bench.store import Result, ResultStore
from esad.core.worker import LostWorker
from esad.detectors.deep import DeepDetector
from esad.errors import EsadError, InputError
from esad.scale.engines import run_jobs, start_engine

BACKENDS = {"loky": "local", "ray": "ray", "threading": "threads"}  # names of the option, and of the engines
RENEW_SECONDS = 60.0


@dataclass(frozen=True)
class CellFailure:
    """A cell that could not be run."""

    cell: Cell
    reason: str


@dataclass
class RunSummary:
    """What a run did."""

    n_done: int = 0
    n_elsewhere: int = 0  # finished or claimed by another run in the meantime
    n_left: int = 0  # not started, or not finished: the budget was spent
    failures: list[CellFailure] = field(default_factory=list)


def run(
    cells: Sequence[Cell],
    store: ResultStore,
    *,
    n_jobs: int = 1,
    backend: str = "loky",
    budget: float | None = None,
    on_done: Callable[[Result | CellFailure], None] | None = None,
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
    finished, summary = store.finished_cells(), RunSummary()
    waiting = [cell for cell in {cell.name: cell for cell in cells}.values() if cell.name not in finished]
    deadline = None if budget is None else time.monotonic() + budget
    if backend == "loky" and _packs_on_gpu(waiting):
        backend = "threading"
    # a checkpoint stays on the machine that wrote it, and clocks differ between machines
    watched: dict[str, Any] = {} if backend == "ray" else {"checkpoints": store.checkpoints, "deadline": deadline}
    engine = start_engine(BACKENDS[backend], partial(_run_group, **watched), n_jobs=n_jobs)
    with _renew_claims(store), _keep_folder(store.checkpoints), engine:
        for group, found in run_jobs(engine, _claim_groups(waiting, store, deadline, summary)):
            if isinstance(found, LostWorker):
                found = [CellFailure(cell, str(found)) for cell in group]
            summary.n_left += len(group) - len(found)
            for done in found:
                if isinstance(done, CellFailure):
                    summary.failures.append(done)
                else:
                    store.put(done)
                    summary.n_done += 1
                if on_done is not None:
                    on_done(done)
    return summary


def _claim_groups(
    waiting: Sequence[Cell], store: ResultStore, deadline: float | None, summary: RunSummary
) -> Iterator[list[Cell]]:
    """Claim cells for this run and yield them, one stack or single cell each time a worker asks."""
    n_before = 0
    for group in _group_cells(waiting):
        if deadline is not None and time.monotonic() > deadline:
            summary.n_left += len(waiting) - n_before
            return
        claimed = [cell for cell in group if store.claim(cell.name)]
        summary.n_elsewhere += len(group) - len(claimed)
        n_before += len(group)
        if claimed:
            yield claimed


def _group_cells(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Group the cells that train side by side; any other cell is a group of its own."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        beside = cell.stack and issubclass(registry.method(cell.method), DeepDetector)
        groups.setdefault(replace(cell, seed=-1).name if beside else cell.name, []).append(cell)
    return list(groups.values())


@contextlib.contextmanager
def _keep_folder(path: Path) -> Iterator[None]:
    """Make a folder for the time of the block; it is removed afterwards if it is empty."""
    path.mkdir(exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.rmdir()


@contextlib.contextmanager
def _renew_claims(store: ResultStore) -> Iterator[None]:
    """Renew claims in the background, and give those back that were not used."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(RENEW_SECONDS):
            store.renew()

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        store.release()


def _packs_on_gpu(cells: Sequence[Cell]) -> bool:
    """Whether to pack trainings on one GPU: as threads of one process, each with a stream of its own."""
    return torch.cuda.is_available() and any(cell.scenario["kind"] in ("images", "given") for cell in cells)


def _run_group(
    cells: Sequence[Cell], *, checkpoints: Path | None = None, deadline: float | None = None
) -> list[Result | CellFailure]:
    """Run cells in a worker; an error becomes the returned failure.

    Nothing is returned where the budget cut the training short: its checkpoint waits beside the store.
    """
    try:
        if cells[0].stack:
            return [*execute_stack(cells)]
        return [execute(cell, checkpoints=checkpoints, deadline=deadline) for cell in cells]
    except OutOfTime:
        return []
    except (EsadError, RuntimeError, MemoryError) as error:  # torch has RuntimeError for a full device, say
        return [CellFailure(cell, str(error)) for cell in cells]
