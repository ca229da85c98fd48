"""The one way to Ray: a cluster that runs already, or one on this machine for the time of a block."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from esad.core import extras
from esad.errors import InputError

__all__ = ["ONE_THREAD", "connected", "first_line", "n_cores"]

ONE_THREAD: Final = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


@contextmanager
def connected(n_jobs: int | None, *, address: str | None = None) -> Iterator[Any]:
    """The module `ray`, connected to a cluster.

    Parameters
    ----------
    n_jobs : int or None
        Cores of a cluster that is started here; None: all.
    address : str, optional
        Of the cluster; by default what the environment variable RAY_ADDRESS names. Without either, one is started on
        this machine, which ends with the block.

    Raises
    ------
    InputError
        The cluster cannot be used.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = extras.require("ray", extra="ray")
    where = address or os.environ.get("RAY_ADDRESS")
    options = {"address": where} if where else {"num_cpus": n_jobs, "include_dashboard": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hints on settings of Ray to come
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise InputError(f"Ray cannot be used at {where or 'this machine'}: {first_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def n_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def first_line(error: Exception) -> str:
    """What an error says, in short."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
