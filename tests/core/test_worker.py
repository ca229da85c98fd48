"""A process that answers: kept while it lives, replaced when it dies, ended when it takes too long or too much."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import worker_of

from esad.core.worker import LostWorker, Worker

linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at Linux' process table")


@pytest.fixture
def worker():
    made = []

    def make(function, **options):
        made.append(Worker(function, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_one_process_answers_all(worker):
    compress = worker("zlib:compress")
    assert compress.ask(b"abc") == compress.ask(b"abc")
    assert len(compress.ask(bytes(10_000_000))) < 20_000  # more than a pipe holds


def test_one_that_dies_is_told_of_and_replaced(worker):
    failing = worker("json:loads")  # its answers are no bytes
    for _ in range(2):
        with pytest.raises(LostWorker, match="ended with code 1"):
            failing.ask(b"1")


def test_one_that_takes_too_long_is_ended(worker):
    slow = worker("time:sleep")
    with pytest.raises(LostWorker):  # bytes are no seconds
        slow.ask(b"")
    evaluating = worker("builtins:eval")
    began = time.monotonic()
    with pytest.raises(LostWorker, match=r"more than 0\.3 s"):
        evaluating.ask(b"[None for _ in iter(int, 1)]", seconds=0.3)
    assert time.monotonic() - began < 10
    assert evaluating.ask(b"b'alive'", seconds=10) == b"alive"


@linux
def test_only_the_time_that_it_works_counts(worker):
    evaluating = worker("builtins:eval")
    assert evaluating.ask(b"__import__('time').sleep(1) or b'rested'", seconds=0.2) == b"rested"
    with pytest.raises(LostWorker, match=r"more than 0\.05 s"):
        evaluating.ask(b"__import__('time').sleep(60)", seconds=0.05)


@linux
def test_one_that_takes_too_much_memory_is_refused_it(worker):
    evaluating = worker("builtins:eval", memory_bytes=2**27)
    assert len(evaluating.ask(b"bytes(2**26)")) == 2**26
    with pytest.raises(LostWorker, match="ended with code 1"):
        evaluating.ask(b"bytes(2**28)")


PROGRAM = """
import sys, time
from esad.core.worker import Worker
worker = Worker("zlib:compress")
worker.ask(b"x")
print("ready", flush=True)
time.sleep(60)
"""


@linux
def test_it_ends_with_the_one_that_started_it():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        child = worker_of(process.pid, "answer_requests")
        assert child is not None
        process.kill()
    end = time.monotonic() + 10
    while os.path.exists(f"/proc/{child}/cmdline") and Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < end
        time.sleep(0.05)
