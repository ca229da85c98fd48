"""Many small requests as one forward pass.

While a pass runs, requests gather; all of them go into the next one. A request that comes alone does not wait. A row's
score does not depend on the rows beside it, so nobody can tell.
"""

import asyncio
import collections
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esad.detectors.alarms import AlarmRule
from esad.errors import RequestError
from esad.serve.bodies import RequestRows
from esad.serve.metrics import Metrics
from esad.table.table import Table

__all__ = ["Batcher", "RowScores"]

_MAX_VALUES = 1 << 24  # of pictures in one pass
_TELLING_ROWS = 512  # a pass of so many tells how long others will take


@dataclass(frozen=True, eq=False)
class RowScores:
    """Scores of one request, and p-values if the model is calibrated."""

    scores: NDArray[np.float64]
    p_values: NDArray[np.float64] | None


@dataclass(eq=False)
class _Job:
    rows: RequestRows
    answer: "asyncio.Future[RowScores]"


class Batcher:
    """A queue in front of one thread that scores.

    Parameters
    ----------
    metrics : Metrics
    max_rows : int
        Of one pass; a larger request is a pass of its own.
    max_seconds : float
        That a request may be expected to wait. Who would wait longer is refused with 503 at once, by how long the
        passes took until now; those who came before keep their turn.
    """

    def __init__(self, metrics: Metrics, *, max_rows: int = 8192, max_seconds: float = 15.0) -> None:
        self._metrics, self._max_rows, self._max_seconds = metrics, max_rows, max_seconds
        self._row_seconds = 0.0  # of one row in a large pass, lately
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="esad-score")
        self._jobs: collections.deque[_Job] = collections.deque()
        self._n_waiting = 0
        self._runner: asyncio.Task[None] | None = None

    async def score(self, rows: RequestRows) -> RowScores:
        """Scores of some rows, with those of others who ask at the same time."""
        if (seconds := self.expected_seconds) > self._max_seconds:
            headers = {"retry-after": str(math.ceil(seconds - self._max_seconds))}
            raise RequestError(503, "Too many rows are waiting. Try again in a moment.", headers)
        loop = asyncio.get_running_loop()
        job = _Job(rows, loop.create_future())
        self._jobs.append(job)
        self._count(rows.n_rows)
        if self._runner is None or self._runner.done():
            self._runner = loop.create_task(self._run())
        return await job.answer

    @property
    def expected_seconds(self) -> float:
        """How long a request would wait that came now."""
        return self._n_waiting * self._row_seconds

    @property
    def is_full(self) -> bool:
        """Whether it would be refused."""
        return self.expected_seconds > self._max_seconds

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False)

    def _count(self, n_rows: int) -> None:
        self._n_waiting += n_rows
        self._metrics.waiting.set(self._n_waiting)

    async def _run(self) -> None:
        """Pass after pass, until nobody waits."""
        loop = asyncio.get_running_loop()
        while batch := self._take_jobs():
            n_rows, began = sum(job.rows.n_rows for job in batch), loop.time()
            self._metrics.batch_requests.observe(len(batch))
            self._metrics.batch_rows.observe(n_rows)
            answers = await loop.run_in_executor(self._thread, _score_batch, [job.rows for job in batch])
            if n_rows >= _TELLING_ROWS:
                self._row_seconds += ((loop.time() - began) / n_rows - self._row_seconds) / 4
            for job, answer in zip(batch, answers, strict=True):
                if job.answer.done():  # given up meanwhile
                    continue
                if isinstance(answer, RowScores):
                    job.answer.set_result(answer)
                else:
                    job.answer.set_exception(answer)

    def _take_jobs(self) -> list[_Job]:
        """The next jobs that fit into one pass."""
        batch: list[_Job] = []
        n_rows = 0
        while self._jobs:
            job = self._jobs[0]
            if batch and not (
                n_rows + job.rows.n_rows <= self._max_rows_with(job.rows) and _can_join(batch[0].rows, job.rows)
            ):
                break
            self._jobs.popleft()
            self._count(-job.rows.n_rows)
            if not job.answer.done():
                batch.append(job)
                n_rows += job.rows.n_rows
        return batch

    def _max_rows_with(self, rows: RequestRows) -> int:
        if isinstance(rows.X, Table):
            return self._max_rows
        return min(self._max_rows, max(1, _MAX_VALUES // int(np.prod(rows.X.shape[1:]))))


def _can_join(first: RequestRows, other: RequestRows) -> bool:
    """Whether rows can be put below each other."""
    if first.served is not other.served:
        return False
    return isinstance(first.X, Table) or (not isinstance(other.X, Table) and first.X.dtype == other.X.dtype)


def _score_batch(batch: Sequence[RequestRows]) -> Sequence[RowScores | Exception]:
    """One pass for all; should it fail, one for each, so that nobody pays for another's rows."""
    try:
        return _run_pass(batch)
    except Exception as error:
        if len(batch) == 1:
            return [error]
        return [answer for rows in batch for answer in _score_batch([rows])]


def _run_pass(batch: Sequence[RequestRows]) -> list[RowScores]:
    X = batch[0].X if len(batch) == 1 else _join([rows.X for rows in batch])
    detector = batch[0].served.detector
    scores = detector.anomaly_score(X)
    p_values = AlarmRule(detector.threshold_, detector.calibration_).p_values(detector, X, scores)
    ends = np.cumsum([rows.n_rows for rows in batch])[:-1]
    parts = [None] * len(batch) if p_values is None else np.split(p_values, ends)
    return [RowScores(own, part) for own, part in zip(np.split(scores, ends), parts, strict=True)]


def _join(parts: Sequence[Table | NDArray[np.generic]]) -> Table | NDArray[np.generic]:
    tables = [part for part in parts if isinstance(part, Table)]
    return Table.joined(tables) if tables else np.concatenate([part for part in parts if not isinstance(part, Table)])
