"""Where shards are scored: in this process, in processes of this machine, or in tasks of a Ray cluster.

An engine starts jobs and gives back answers as they come. What becomes of a shard whose worker has died is decided here
once for all engines: it is tried again, and set aside when it has cost several workers.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any, Self

from esad.scale import cluster
from esad.scale.work import Answer, Job, attempt, use_one_thread

__all__ = [
    "ENGINES",
    "MAX_ATTEMPTS",
    "Engine",
    "InProcess",
    "LostWorker",
    "Processes",
    "RayTasks",
    "answers",
    "engine_for",
]

ENGINES = ("local", "ray")
MAX_ATTEMPTS = 3  # workers that a shard may cost
BUSY_SECONDS = 0.2  # before asking again for a shard that another run is at work on
_END_SECONDS = 10.0  # for a worker to remove its temporary file


class LostWorker(Exception):  # noqa: N818  an answer, not an error of ours
    """A worker died; the text says how."""


class Engine(ABC):
    """A number of workers; `start` no more than `n_slots` jobs at once, then `wait` for any of them."""

    n_slots: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    @abstractmethod
    def start(self, job: Job) -> None:
        """Give a job to a worker that has none."""

    @abstractmethod
    def wait(self) -> tuple[Job, Answer | LostWorker]:
        """Some job with what came of it."""


def engine_for(name: str, *, n_jobs: int | None, address: str | None, n_shards: int) -> Engine:
    """The engine of a name; `n_jobs` by default as many as there are cores, here or in the cluster."""
    if name == "ray":
        return RayTasks(n_jobs, address)
    n_workers = min(n_jobs or cluster.n_cores(), n_shards)
    return InProcess() if n_workers <= 1 else Processes(n_workers)


def answers(engine: Engine, jobs: Sequence[Job]) -> Iterator[tuple[Job, Answer]]:
    """Every job with what finally came of it, in the order of coming."""
    waiting, n_lost, n_running = deque(jobs), Counter[str](), 0
    while waiting or n_running:
        while waiting and n_running < engine.n_slots:
            engine.start(waiting.popleft())
            n_running += 1
        job, answer = engine.wait()
        n_running -= 1
        if isinstance(answer, LostWorker):
            n_lost[job.name] += 1
            if n_lost[job.name] < MAX_ATTEMPTS:
                waiting.append(job)
            else:
                yield job, Answer("failed", reason=f"It has cost {MAX_ATTEMPTS} workers: {answer}.")
        elif answer.state == "busy":
            time.sleep(BUSY_SECONDS)
            waiting.append(job)
        else:
            yield job, answer


class InProcess(Engine):
    """No worker: jobs run here, with all threads that torch may use."""

    n_slots = 1

    def start(self, job: Job) -> None:
        """Remember it: it runs when it is waited for."""
        self._job = job

    def wait(self) -> tuple[Job, Answer | LostWorker]:
        """Run it."""
        return self._job, attempt(self._job)


class Processes(Engine):
    """Processes of this machine with one thread each.

    A thread looks after each of them. One that dies is replaced, and only its own shard is to be done again.
    """

    def __init__(self, n_jobs: int) -> None:
        self.n_slots = n_jobs
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Job, Answer | LostWorker]] = queue.SimpleQueue()
        self._running: set[subprocess.Popen[str]] = set()
        self._threads = [threading.Thread(target=self._look_after, daemon=True) for _ in range(n_jobs)]
        self._over = False

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over = error[0] is not None
        for _ in self._threads:
            self._jobs.put(None)
        if self._over:
            for process in tuple(self._running):
                process.terminate()
        for thread in self._threads:
            thread.join()

    def start(self, job: Job) -> None:
        """Hand it to the next thread."""
        self._jobs.put(job)

    def wait(self) -> tuple[Job, Answer | LostWorker]:
        """The next answer that a thread has."""
        return self._done.get()

    def _look_after(self) -> None:
        process = None
        while (job := self._jobs.get()) is not None and not self._over:
            process = process or self._started()
            line = _asked(process, job)
            if line:
                self._done.put((job, Answer.from_json(json.loads(line))))
                continue
            code = self._ended(process)
            process = None
            self._done.put((job, LostWorker(_told(code))))
        if process is not None:
            self._ended(process)

    def _started(self) -> "subprocess.Popen[str]":
        # In a session of its own: Ctrl-C is for the one that was started, which then ends its workers.
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from esad.scale.work import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=os.environ | cluster.ONE_THREAD,
            start_new_session=True,
        )
        self._running.add(process)
        if self._over:
            process.terminate()
        return process

    def _ended(self, process: "subprocess.Popen[str]") -> int:
        """Let a process end, or make it."""
        with ExitStack() as closed:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    closed.callback(stream.close)
            try:
                process.communicate(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        self._running.discard(process)
        return process.wait()


def _asked(process: "subprocess.Popen[str]", job: Job) -> str:
    """The answer of a process as a line; nothing if it died."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(asdict(job)) + "\n")
        process.stdin.flush()
        return process.stdout.readline()
    except OSError:
        return ""


def _told(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"the process ended with code {code}"
    killed = " (is memory short?)" if -code == signal.SIGKILL else ""
    return f"the process was ended by {signal.Signals(-code).name}{killed}"


class RayTasks(Engine):
    """Tasks of a Ray cluster, one core and one thread each.

    Every machine must see the model, the shards and the folder of the scores at the same paths.
    """

    def __init__(self, n_jobs: int | None, address: str | None) -> None:
        self._n_jobs, self._address = n_jobs, address
        self._running: dict[Any, Job] = {}
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        self._ray = self._opened.enter_context(cluster.connected(self._n_jobs, address=self._address))
        self.n_slots = self._n_jobs or int(self._ray.cluster_resources().get("CPU", 1))
        # Ray would try again by itself, but not say how often one and the same shard has cost a worker.
        self._task = self._ray.remote(num_cpus=1, max_retries=0)(_attempt_alone)
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    def start(self, job: Job) -> None:
        """Submit a task."""
        self._running[self._task.remote(job)] = job

    def wait(self) -> tuple[Job, Answer | LostWorker]:
        """The next task that has ended."""
        (ended,), _ = self._ray.wait(list(self._running), num_returns=1)
        job = self._running.pop(ended)
        try:
            answer: Answer = self._ray.get(ended)
        except self._ray.exceptions.RayError as error:
            return job, LostWorker(cluster.first_line(error))
        return job, answer


def _attempt_alone(job: Job) -> Answer:
    use_one_thread()
    return attempt(job)
