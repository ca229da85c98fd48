"""Where jobs run: in this process, in threads or processes of this machine, or as tasks of a Ray cluster.

An engine calls one function with one job after the other, and every call is a future. What becomes of a job whose
worker has died is decided here once, for files and for experiments: it is tried again, and given up when it has cost
several workers.
"""

import functools
import logging
import os
import pickle
import queue
import time
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final, Generic, Self, TypeVar

from esad.core.machine import require
from esad.core.text import first_line
from esad.core.worker import LostWorker, Worker
from esad.errors import InputError

ENGINES = ("local", "ray", "threads")
MAX_ATTEMPTS = 3  # workers that a job may cost
BUSY_SECONDS = 0.2  # before trying again a job that another run is at work on
ONE_THREAD: Final = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}

J = TypeVar("J")
R = TypeVar("R")


def start_engine(
    name: str, function: Callable[[J], R], *, n_jobs: int | None, address: str | None = None, n_most: int | None = None
) -> "Engine[J, R]":
    """The engine of a name.

    Parameters
    ----------
    name : {"local", "ray", "threads"}
        Processes of this machine, tasks of a Ray cluster, or threads of this process. One worker alone, unless it is
        Ray's, is this process.
    function : callable
        What is done with a job; at the top of a module, so that other processes find it.
    n_jobs : int or None
        Workers; by default as many as there are cores, here or in the cluster.
    address : str, optional
        Of the Ray cluster.
    n_most : int, optional
        How many jobs there are, if that is known.
    """
    if name not in ENGINES:
        raise InputError(f"The engine must be one of {', '.join(ENGINES)}. Got {name!r}.")
    if name == "ray":
        return RayTasks(function, n_jobs, address)
    n_wanted = n_jobs or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    n_workers = min(n_wanted, n_most or n_wanted)
    if n_workers <= 1:
        return InProcess(function)
    return Threads(function, n_workers) if name == "threads" else WorkerProcesses(function, n_workers)


def run_jobs(
    engine: "Engine[J, R]", jobs: Iterable[J], *, is_busy: Callable[[R], bool] = lambda result: False
) -> Iterator[tuple[J, R | LostWorker]]:
    """Run all jobs, and yield each with its result as soon as it is there; errors of the function are raised.

    Parameters
    ----------
    engine : Engine
    jobs : iterable
        The next one is taken when a worker has nothing to do.
    is_busy : callable
        Whether a result says that another run is at work on the job; it is tried again later.

    Yields
    ------
    tuple of job and result
        `LostWorker` in place of the result if the job has cost several workers.
    """
    coming, again = iter(jobs), deque[tuple[J, int]]()  # jobs to try again, and how many workers each has cost
    running: dict[Future[R], tuple[J, int]] = {}
    while True:
        while len(running) < engine.n_slots:
            try:
                job, n_lost = next(coming), 0
            except StopIteration:
                if not again:
                    break
                job, n_lost = again.popleft()
            running[engine.submit(job)] = job, n_lost
        if not running:
            return
        ended = wait(running, return_when=FIRST_COMPLETED).done.pop()
        job, n_lost = running.pop(ended)
        try:
            result = ended.result()
        except Exception as error:
            lost = engine.find_loss(error)
            if lost is None:
                raise
            if n_lost + 1 < MAX_ATTEMPTS:
                again.append((job, n_lost + 1))
            else:
                yield job, LostWorker(f"It has cost {MAX_ATTEMPTS} workers: {lost}.")
            continue
        if is_busy(result):
            time.sleep(BUSY_SECONDS)
            again.append((job, n_lost))
        else:
            yield job, result


class Engine(ABC, Generic[J, R]):
    """A number of workers, to which at most `n_slots` jobs may be submitted at once."""

    n_slots: int = 1

    def __init__(self, function: Callable[[J], R]) -> None:
        self._function = function

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @abstractmethod
    def submit(self, job: J) -> "Future[R]":
        """Give a job to a worker that has none."""

    def find_loss(self, error: Exception) -> LostWorker | None:
        """Return how a worker died if the error of a future says so, else None."""
        return error if isinstance(error, LostWorker) else None


class InProcess(Engine[J, R]):
    """Runs jobs in this process, with all threads that torch may use."""

    def submit(self, job: J) -> "Future[R]":
        """Run it."""
        done: Future[R] = Future()
        done.set_result(self._function(job))
        return done


class Threads(Engine[J, R]):
    """Threads of this process, one for each worker. They also look after workers that are other processes."""

    def __init__(self, function: Callable[[J], R], n_jobs: int) -> None:
        super().__init__(function)
        self.n_slots = n_jobs
        self._threads = ThreadPoolExecutor(n_jobs)

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(cancel_futures=True)

    def submit(self, job: J) -> "Future[R]":
        """Hand it to the next thread."""
        return self._threads.submit(self._function, job)


class WorkerProcesses(Threads[J, R]):
    """Processes of this machine with one thread each; one that dies is replaced, and only its own job is done again."""

    def __init__(self, function: Callable[[J], R], n_jobs: int) -> None:
        super().__init__(self._ask_worker, n_jobs)
        self._in_worker = function
        worker = f"{__name__}:{call_pickled.__name__}"
        self.workers = [Worker(worker, environment=ONE_THREAD) for _ in range(n_jobs)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for each in self.workers:
            self._idle.put(each)

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            for worker in self.workers:
                worker.terminate()
        super().__exit__(*error)
        for worker in self.workers:
            worker.close()

    def _ask_worker(self, job: J) -> R:
        worker = self._idle.get()
        try:
            succeeded, result = pickle.loads(worker.ask(pickle.dumps((self._in_worker, job))))
        finally:
            self._idle.put(worker)
        if not succeeded:
            raise result
        found: R = result
        return found


class RayTasks(Engine[J, R]):
    """Tasks of a Ray cluster, one core and one thread each. Every machine must see all files at the same paths.

    Parameters
    ----------
    function : callable
    n_jobs : int or None
        Tasks at once; None: as many as the cluster has cores.
    address : str or None
        Of a cluster that runs already; by default what the environment variable RAY_ADDRESS names. Without either, one
        is started on this machine, which ends with the block.
    """

    def __init__(self, function: Callable[[J], R], n_jobs: int | None, address: str | None) -> None:
        super().__init__(function)
        self._n_jobs, self._address = n_jobs, address or os.environ.get("RAY_ADDRESS")

    def __enter__(self) -> Self:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray = require("ray", extra="ray")
        started_here = {"num_cpus": self._n_jobs, "include_dashboard": False}
        options = {"address": self._address} if self._address else started_here
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # hints on settings of Ray to come
                self._ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise InputError(f"Ray cannot be used at {self._address or 'this machine'}: {first_line(error)}") from error
        self.n_slots = self._n_jobs or int(self._ray.cluster_resources().get("CPU", 1))
        # Ray would try again by itself, but not say how often one and the same job has cost a worker.
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(_call_alone)
        return self

    def __exit__(self, *error: object) -> None:
        self._ray.shutdown()

    def submit(self, job: J) -> "Future[R]":
        """Start a task."""
        started: Future[R] = self._task.remote(self._function, job).future()
        return started

    def find_loss(self, error: Exception) -> LostWorker | None:
        """Return why Ray lost a task; None if the function itself raised the error."""
        known = self._ray.exceptions
        is_loss = isinstance(error, known.RayError) and not isinstance(error, known.RayTaskError)
        return LostWorker(first_line(error)) if is_loss else None


# ---------------------------------------------------------------------- in a worker


def call_pickled(request: bytes) -> bytes:
    """Run a pickled call in a worker process, and return its pickled result or error."""
    function, job = pickle.loads(request)
    try:
        return pickle.dumps((True, _call_alone(function, job)))
    except Exception as error:
        return pickle.dumps((False, error))


def _call_alone(function: Callable[[J], R], job: J) -> R:
    _use_one_thread()
    return function(job)


@functools.cache
def _use_one_thread() -> None:
    """Leave the other cores to the other workers."""
    import pyarrow as pa
    import torch

    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
