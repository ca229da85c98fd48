"""Where cells run: processes of this machine, or a Ray cluster, both as joblib's back ends.

Results come back one by one as they are there. What runs a worker does not open the store.
"""

import logging
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import Any

import joblib

from esad import extras
from esad.errors import EsadError, InputError

__all__ = ["BACKENDS", "LostWorkerError", "workers"]

BACKENDS = ("loky", "ray", "threading")


class LostWorkerError(EsadError):
    """A worker has died in the middle of a task, and took its pool with it."""


@contextmanager
def workers(n_jobs: int, *, backend: str = "loky") -> Iterator[joblib.Parallel]:
    """A joblib call whose results come unordered, each as soon as it is there.

    Parameters
    ----------
    n_jobs : int
        Tasks side by side; one alone runs in this process.
    backend : {"loky", "ray", "threading"}
        Processes of this machine, a Ray cluster, or threads of this process. The cluster is the one that the
        environment variable RAY_ADDRESS names, or one on this machine, which ends with the block.

    Raises
    ------
    LostWorkerError
        When a worker is killed, by a lack of memory for instance.
    """
    if backend not in BACKENDS:
        raise InputError(f"The back end must be one of {', '.join(BACKENDS)}. Got {backend!r}.")
    lost: tuple[type[Exception], ...] = (BrokenExecutor,)
    ray = _ray(n_jobs) if backend == "ray" else None
    if ray is not None:
        lost = (*lost, ray.exceptions.RayError)
    try:
        yield joblib.Parallel(
            n_jobs=n_jobs, backend=backend, return_as="generator_unordered", pre_dispatch=n_jobs, batch_size=1
        )
    except lost as error:
        raise LostWorkerError("A worker process died: it was killed, or memory ran out.") from error
    finally:
        if ray is not None:
            ray.shutdown()


def _ray(n_jobs: int) -> Any:
    """Connect to Ray, and make its back end known to joblib."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = extras.require("ray", extra="ray")
    module = extras.require("ray.util.joblib.ray_backend", extra="ray")

    class Backend(module.RayBackend):  # type: ignore[misc, name-defined]
        """Ray's own does not say that its results can be taken one by one, as they can."""

        supports_return_generator = True

    joblib.register_parallel_backend("ray", Backend)
    local = {} if "RAY_ADDRESS" in os.environ else {"num_cpus": n_jobs, "include_dashboard": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hints on settings of Ray to come
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **local)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = os.environ.get("RAY_ADDRESS", "this machine")
        reason = next(iter(str(error).splitlines()), "no reason given")
        raise InputError(f"Ray cannot be used at {where}: {reason}") from error
    return ray
