"""Several processes that train one model together: which of them this is, and what they exchange.

Started by torch's launcher, `torchrun --nproc-per-node 2 -m esad fit ...`. Every process holds the whole model and
takes its share of every batch; see docs/distributed.md.
"""

import contextlib
import gc
import os
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from esad.errors import EsadError, InputError, TrainingError

T = TypeVar("T")
TIMEOUT = timedelta(minutes=10)  # for a process that neither answers nor ends
_LOST = re.compile(r"gloo|nccl|connection (closed|reset|refused)|broken pipe", re.IGNORECASE)


@dataclass(frozen=True)
class BatchShare:
    """One of `n_parts` equal parts of a batch: rows `index`, `index + n_parts`, `index + 2 n_parts`, ...

    Rows of several kinds that follow each other, each in a number that can be shared evenly, are taken apart alike.

    Examples
    --------
    >>> BatchShare(1, 2).of(torch.arange(6)[None])
    tensor([[1, 3, 5]])
    """

    index: int = 0
    n_parts: int = 1

    def of(self, rows: Tensor) -> Tensor:
        """Its share of rows (members, batch, ...)."""
        return rows if self.n_parts == 1 else rows[:, self.index :: self.n_parts]


@dataclass(frozen=True)
class Processes:
    """One process among those that train together; alone by default.

    Attributes
    ----------
    rank : int
        Its number, from 0 on.
    size : int
        How many there are.
    store : torch.distributed.Store, optional
        What all of them can write to without waiting for each other.

    Examples
    --------
    >>> Processes().is_alone, Processes(rank=1, size=2).is_first
    (True, False)
    """

    rank: int = 0
    size: int = 1
    store: Any = None

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.size == 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    def gather(self, x: Tensor) -> Tensor:
        """The tensors of all processes, (size, *x.shape); gradients flow back to each of them."""
        stacked: Tensor = _Gather.apply(x, self.rank, self.size)  # type: ignore[no-untyped-call]
        return stacked

    def gather_rows(self, rows: Tensor) -> Tensor:
        """The rows (members, batch, ...) of all processes, in the order of the whole batch."""
        return rows if self.is_alone else self.gather(rows).movedim(0, 2).flatten(1, 2)

    def mean(self, x: Tensor) -> Tensor:
        """Mean of a tensor over all processes."""
        if self.is_alone:
            return x
        total = x.detach().clone()
        dist.all_reduce(total)
        return total / self.size

    def broadcast_first(self, value: Any) -> Any:
        """The value of the first process, in all of them. It is pickled; only processes of one training exchange it."""
        if self.is_alone:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather_each(self, value: Any) -> Iterator[Any]:
        """The values of all processes, one after the other, in each of them; see `broadcast_first`."""
        if self.is_alone:
            yield value
            return
        for source in range(self.size):
            box = [value if source == self.rank else None]
            dist.broadcast_object_list(box, src=source)
            yield box[0]

    def read_by_first(self, read: Callable[[], T]) -> T:
        """Call `read` in the first process alone; all processes get its result or its error."""
        if self.is_alone:
            return read()
        box: list[Any] = [None, None]
        if self.is_first:
            try:
                box[0] = read()
            except EsadError as error:
                box[1] = error
        dist.broadcast_object_list(box, src=0)
        if box[1] is not None:
            raise box[1]
        found: T = box[0]
        return found

    def check_alike(self, value: str, what: str) -> None:
        """Refuse to go on when the processes were not given the same."""
        given = [value] * self.size
        if not self.is_alone:
            dist.all_gather_object(given, value)
        if len(set(given)) > 1:
            raise InputError(f"The processes of this training were given different {what}. Give all of them the same.")

    @contextlib.contextmanager
    def explain_lost_processes(self) -> Iterator[None]:
        """Raise one clear line where torch fails because another process has ended."""
        try:
            yield
        except RuntimeError as error:
            if self.is_alone or not (isinstance(error, dist.DistError) or _LOST.search(str(error))):
                raise
            raise TrainingError(
                "Another process of this training has ended. torchrun --max-restarts 3 starts all of them again, from "
                "the last checkpoint."
            ) from error

    def is_first_to_fail(self) -> bool:
        """Whether this process is the first to fail, so that one failure is reported once."""
        if self.store is None:
            return self.is_first
        try:
            return bool(self.store.add("failed", 1) == 1)
        except RuntimeError:  # it has ended with the process that held it
            return self.is_first


ALONE = Processes()
_current: ContextVar[Processes] = ContextVar("processes", default=ALONE)


def current() -> Processes:
    """The processes that `join` has brought together; `ALONE` without it.

    Examples
    --------
    >>> current().size
    1
    """
    return _current.get()


@contextlib.contextmanager
def join() -> Iterator[Processes]:
    """Train together with the other processes that the launcher has started; alone without a launcher.

    Processes talk by NCCL where each has a GPU of its own, by gloo otherwise.

    Examples
    --------
    >>> with join() as processes:
    ...     processes.is_alone
    True
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not dist.is_initialized():
        yield ALONE
        return
    with _join_group() as processes:
        token = _current.set(processes)
        try:
            yield processes
        finally:
            _current.reset(token)


@contextlib.contextmanager
def _join_group() -> Iterator[Processes]:
    """Join the group of all processes; a group that the user's own program has made is used as it is."""
    if dist.is_initialized():
        yield Processes(dist.get_rank(), dist.get_world_size())
        return
    processes = find_processes()
    store, rank, size = processes.store, processes.rank, processes.size
    with processes.explain_lost_processes():
        dist.init_process_group(_backend(), store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        yield processes
    finally:
        gc.collect()  # a replica left in a cycle would keep the group, and its threads would abort the exit
        dist.destroy_process_group()


def find_processes() -> Processes:
    """The processes that the launcher has started, with the store that they share; no group is made yet."""
    shared, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    # a launcher may keep its store over restarts, with addresses of processes that are gone
    return Processes(rank, size, PrefixStore(f"esad/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", shared))


def _backend() -> str:
    """NCCL between GPUs, one for each process here; gloo otherwise."""
    if not torch.cuda.is_available():
        return "gloo"
    n_here, local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    torch.cuda.set_device(local % torch.cuda.device_count())
    return "cpu:gloo,cuda:nccl" if n_here <= torch.cuda.device_count() else "cpu:gloo,cuda:gloo"


class _Gather(torch.autograd.Function):
    """Every process's tensor, stacked; the gradient of one process's part is the sum over all that used it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rank: int, size: int) -> Tensor:
        ctx.rank = rank
        stacked = x.new_zeros(size, *x.shape)
        stacked[rank] = x
        dist.all_reduce(stacked)
        return stacked

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total[ctx.rank], None, None
