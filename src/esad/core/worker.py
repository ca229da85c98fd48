"""A process that answers requests, bytes in and bytes out, one at a time; if it dies, a new one takes its place.

It is a fresh Python that imports what it needs and nothing of the program that started it. It lives in a session of its
own: Ctrl-C is for the one that started it, which then ends its workers. When that one is gone, it ends by itself.
"""

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import IO, NoReturn

_PATIENCE = 10
_END_SECONDS = 10.0  # for a worker that is told to end, to remove its temporary files
_LENGTH = 8  # bytes before each message that say how long it is


class LostWorker(Exception):  # noqa: N818  an answer, not an error of ours
    """A worker died, or was ended because it took too long; the text says how."""


class Worker:
    """One process, started when it is first asked and again when it has died.

    Parameters
    ----------
    function : str
        What it calls with every request, as "package.module:name": from bytes to bytes. Its module is imported first.
    memory_bytes : int, optional
        What it may take beyond what it has when it is ready. Kept by the system, where it can do that: on Linux.
    environment : mapping, optional
        Variables beside those of this process.

    Examples
    --------
    >>> worker = Worker("zlib:compress")
    >>> len(worker.ask(b"a" * 1000)) < 30
    True
    >>> worker.close()
    """

    def __init__(
        self, function: str, *, memory_bytes: int | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self._function, self._memory_bytes, self._environment = function, memory_bytes, environment or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False

    @property
    def pid(self) -> int | None:
        """Number of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def ask(self, request: bytes, *, seconds: float | None = None) -> bytes:
        """The answer to a request.

        `seconds` are those that the process works, where the system counts them, so that a busy machine refuses
        nobody; one that only waits may take `_PATIENCE` times as long.

        Raises
        ------
        LostWorker
            The process has died, or did not answer within `seconds`. The next request gets a new one.
        """
        process = self._process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        is_over, is_late = threading.Event(), threading.Event()
        if seconds is not None:
            threading.Thread(target=_kill_when_late, args=(process, seconds, is_over, is_late), daemon=True).start()
        try:
            _send(process.stdin, request)
            answer = _receive(process.stdout)
        except OSError:
            answer = None
        is_over.set()
        if answer is not None:
            return answer
        code = self._end(process)
        raise LostWorker(f"it took more than {seconds:g} s" if is_late.is_set() else _describe_end(code))

    def terminate(self) -> None:
        """End the process for good; may be called from another thread than the one that asks."""
        self._is_over = True
        if self._process is not None:
            self._process.terminate()

    def close(self) -> None:
        """Let the process end by itself, or kill it after a while."""
        if self._process is not None:
            self._end(self._process)

    def _start(self) -> "subprocess.Popen[bytes]":
        call = f"answer_requests({self._function!r}, memory_bytes={self._memory_bytes})"
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from esad.core.worker import answer_requests; {call}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | self._environment,
            start_new_session=True,
        )
        if self._is_over:
            process.terminate()
        assert process.stdout is not None
        _receive(process.stdout)  # it is ready, so that nobody's time is spent on its start
        return process

    def _end(self, process: "subprocess.Popen[bytes]") -> int:
        self._process = None
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        try:
            return process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _kill_when_late(
    process: "subprocess.Popen[bytes]", seconds: float, is_over: threading.Event, is_late: threading.Event
) -> None:
    """Kill a process that has worked for so many seconds, or waited for `_PATIENCE` times as many."""
    began, before, left = time.monotonic(), _count_worked_seconds(process.pid), seconds
    while not is_over.wait(left):
        worked, passed = _count_worked_seconds(process.pid) - before, time.monotonic() - began
        left = min(seconds - worked, _PATIENCE * seconds - passed)
        if left <= 0:
            is_late.set()
            process.kill()
            return


def _count_worked_seconds(pid: int) -> float:
    """Seconds for which a process has had a processor; by the clock, where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = file.read().rpartition(")")[2].split()[11:13]  # in user mode, in system mode
    except OSError:
        return time.monotonic()
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def answer_requests(function: str, *, memory_bytes: int | None = None) -> None:
    """What the process runs: answer requests from stdin until it ends."""
    signal.signal(signal.SIGTERM, _exit)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print is no answer
    module, _, name = function.partition(":")
    call: Callable[[bytes], bytes] = getattr(importlib.import_module(module), name)
    if memory_bytes is not None:
        _limit_memory(memory_bytes)
    with contextlib.suppress(BrokenPipeError):  # nobody is there to be told
        _send(answers, b"")
        while (request := _receive(sys.stdin.buffer)) is not None:
            _send(answers, call(request))


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(len(message).to_bytes(_LENGTH, "little"))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes | None:
    """The next message; None when the other side is gone."""
    head = stream.read(_LENGTH)
    n_bytes = int.from_bytes(head, "little")
    message = stream.read(n_bytes) if len(head) == _LENGTH else b""
    return message if len(head) == _LENGTH and len(message) == n_bytes else None


def _limit_memory(n_bytes: int) -> None:
    """Let the system refuse memory beyond so many bytes more than there are now."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            n_pages = int(file.read().split()[0])
    except (ImportError, OSError):  # not on Linux
        return
    most = n_pages * resource.getpagesize() + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _describe_end(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"the process ended with code {code}"
    killed = " (is memory short?)" if -code == signal.SIGKILL else ""
    return f"the process was ended by {signal.Signals(-code).name}{killed}"


def _exit(number: int, frame: FrameType | None) -> NoReturn:
    """End on request: temporary files are removed on the way out."""
    raise SystemExit(128 + number)
