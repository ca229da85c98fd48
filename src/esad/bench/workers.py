"""Where cells run: processes or threads of this machine through joblib, or tasks of a Ray cluster.

Results come back one by one as they are there. What runs a worker does not open the store.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import joblib

from esad.errors import EsadError, InputError
from esad.scale import cluster

__all__ = ["BACKENDS", "MAX_ATTEMPTS", "LostWorkerError", "workers"]

BACKENDS = ("loky", "ray", "threading")
MAX_ATTEMPTS = 3  # workers that a task may cost on Ray

Task = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]  # as joblib.delayed makes it


class LostWorkerError(EsadError):
    """A worker has died in the middle of a task, and took its pool with it."""


@contextmanager
def workers(
    n_jobs: int, *, backend: str = "loky", if_lost: Callable[..., Any]
) -> Iterator[Callable[[Iterable[Task]], Iterator[Any]]]:
    """A call that runs tasks, made by `joblib.delayed`, and gives results unordered, each as soon as it is there.

    Parameters
    ----------
    n_jobs : int
        Tasks side by side; one alone runs in this process, unless it goes to Ray.
    backend : {"loky", "ray", "threading"}
        Processes of this machine, a Ray cluster, or threads of this process. The cluster is the one that the
        environment variable RAY_ADDRESS names, or one on this machine, which ends with the block.
    if_lost : callable
        On Ray a task whose worker dies is run again. If it has cost several workers, this is called with the reason and
        the arguments of the task, and gives the result in its place.

    Raises
    ------
    LostWorkerError
        When a process of this machine is killed, by a lack of memory for instance.
    """
    if backend not in BACKENDS:
        raise InputError(f"The back end must be one of {', '.join(BACKENDS)}. Got {backend!r}.")
    if backend == "ray":
        with cluster.connected(n_jobs) as ray:
            yield _RayTasks(ray, n_jobs, if_lost)
        return
    try:
        yield joblib.Parallel(
            n_jobs=n_jobs, backend=backend, return_as="generator_unordered", pre_dispatch=n_jobs, batch_size=1
        )
    except BrokenExecutor as error:
        raise LostWorkerError("A worker process died: it was killed, or memory ran out.") from error


@dataclass(frozen=True)
class _RayTasks:
    """Tasks of one core each; one that costs its worker is run again."""

    ray: Any
    n_jobs: int
    if_lost: Callable[..., Any]
    _known: dict[Callable[..., Any], Any] = field(default_factory=dict)  # as Ray has them

    def __call__(self, tasks: Iterable[Task]) -> Iterator[Any]:
        coming, running = iter(tasks), dict[Any, tuple[Task, int]]()
        while True:
            while len(running) < self.n_jobs and (task := next(coming, None)) is not None:
                running[self._submitted(task)] = task, 1
            if not running:
                return
            (ended,), _ = self.ray.wait(list(running), num_returns=1)
            task, n_attempts = running.pop(ended)
            try:
                result = self.ray.get(ended)
            except self.ray.exceptions.RayTaskError:
                raise  # the task's own doing
            except self.ray.exceptions.RayError as error:
                if n_attempts < MAX_ATTEMPTS:
                    running[self._submitted(task)] = task, n_attempts + 1
                    continue
                reason = f"It has cost {MAX_ATTEMPTS} workers: {cluster.first_line(error)}"
                result = self.if_lost(reason, *task[1], **task[2])
            yield result

    def _submitted(self, task: Task) -> Any:
        function, args, named = task
        if function not in self._known:
            # Ray would try again by itself, but not end when it is always the same task that costs the worker.
            self._known[function] = self.ray.remote(num_cpus=1, max_retries=0)(function)
        return self._known[function].remote(*args, **named)
