"""Many small requests as one forward pass.

While a pass runs, requests gather; those whose turn it is go into the next one. A request that comes alone does not
wait. A row's score does not depend on the rows beside it, so nobody can tell.
"""

import asyncio
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from esad.serve.bodies import RequestRows
from esad.serve.fair_queue import FairQueue
from esad.serve.metrics import Metrics
from esad.table.table import Table

_MAX_ROWS = 8192  # of one pass; a larger request is a pass of its own
_MAX_VALUES = 1 << 24  # of pictures in one pass
_REQUEST_ROWS = 64  # what a request costs beside its rows, in rows: many small ones are no small thing
_TELLING_ROWS = 512  # only passes of so many rows are used to estimate later times

RowScores = tuple[NDArray[np.float64], NDArray[np.float64] | None]
"""Scores of one request, and p-values if the model is calibrated."""

_Job = tuple[RequestRows, "asyncio.Future[RowScores]"]


class Batcher:
    """A queue in front of one thread that scores.

    Parameters
    ----------
    metrics : Metrics
    max_seconds : float
        That a request may be expected to wait; see `esad.serve.fair_queue.FairQueue`.
    """

    def __init__(self, metrics: Metrics, *, max_seconds: float = 15.0) -> None:
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="esad-score")
        self._queue: FairQueue[_Job] = FairQueue(max_seconds=max_seconds)
        self._n_waiting = 0
        self._runner: asyncio.Task[None] | None = None

    async def score(self, rows: RequestRows, *, caller: Hashable) -> RowScores:
        """Scores of some rows, with those of others who ask at the same time."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[RowScores] = loop.create_future()
        self._queue.put((rows, answer), caller=caller, cost=rows.n_rows + _REQUEST_ROWS)
        self._count(rows.n_rows)
        if self._runner is None or self._runner.done():
            self._runner = loop.create_task(self._run())
        return await answer

    @property
    def is_full(self) -> bool:
        """Whether so much is waiting that a new request would wait too long."""
        return self._queue.is_full

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False)

    def _count(self, n_rows: int) -> None:
        self._n_waiting += n_rows
        self._metrics.waiting.set(self._n_waiting)

    async def _run(self) -> None:
        """Score batch after batch until the queue is empty."""
        loop = asyncio.get_running_loop()
        while batch := self._take_jobs():
            n_rows, began = sum(rows.n_rows for rows, _ in batch), loop.time()
            self._metrics.batch_requests.observe(len(batch))
            self._metrics.batch_rows.observe(n_rows)
            answers = await loop.run_in_executor(self._thread, _score_batch, [rows for rows, _ in batch])
            if n_rows >= _TELLING_ROWS:
                self._queue.learn(loop.time() - began, cost=n_rows + _REQUEST_ROWS * len(batch))
            for (_, waiting), answer in zip(batch, answers, strict=True):
                if waiting.done():  # given up meanwhile
                    continue
                if isinstance(answer, Exception):
                    waiting.set_exception(answer)
                else:
                    waiting.set_result(answer)

    def _take_jobs(self) -> list[_Job]:
        """The next jobs that fit into one pass."""
        batch: list[_Job] = []
        n_rows = 0
        while len(self._queue):
            rows, answer = self._queue.peek()
            fits = n_rows + rows.n_rows <= _max_rows_beside(rows)
            if batch and not (fits and _can_join(batch[0][0], rows)):
                break
            self._queue.pop()
            self._count(-rows.n_rows)
            if not answer.done():
                batch.append((rows, answer))
                n_rows += rows.n_rows
        return batch


def _max_rows_beside(rows: RequestRows) -> int:
    """How many rows a pass may have that these are in."""
    if isinstance(rows.X, Table):
        return _MAX_ROWS
    return min(_MAX_ROWS, max(1, _MAX_VALUES // int(np.prod(rows.X.shape[1:]))))


def _can_join(first: RequestRows, other: RequestRows) -> bool:
    """Whether rows can be put below each other."""
    if first.served is not other.served:
        return False
    return isinstance(first.X, Table) or (not isinstance(other.X, Table) and first.X.dtype == other.X.dtype)


def _score_batch(batch: Sequence[RequestRows]) -> Sequence[RowScores | Exception]:
    """Score all jobs in one pass; if it fails, score each alone, so that only the faulty one gets the error."""
    try:
        return _run_pass(batch)
    except Exception as error:
        if len(batch) == 1:
            return [error]
        return [answer for rows in batch for answer in _score_batch([rows])]


def _run_pass(batch: Sequence[RequestRows]) -> list[RowScores]:
    X = batch[0].X if len(batch) == 1 else _join([rows.X for rows in batch])
    detector = batch[0].served.detector
    scores, p_values = detector.score_with_p_values(X)
    ends = np.cumsum([rows.n_rows for rows in batch])[:-1]
    parts = [None] * len(batch) if p_values is None else np.split(p_values, ends)
    return list(zip(np.split(scores, ends), parts, strict=True))


def _join(parts: Sequence[Table | NDArray[np.generic]]) -> Table | NDArray[np.generic]:
    tables = [part for part in parts if isinstance(part, Table)]
    return Table.join(tables) if tables else np.concatenate([part for part in parts if not isinstance(part, Table)])
