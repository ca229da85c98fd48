"""What the parts of scaling.py share: rows, timing, functions in processes of their own, shards on warm workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import synthetic

HERE = Path(__file__).resolve().parent
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_CALL = """
import importlib, json, sys
module, _, name = sys.argv[1].partition(".")
found = getattr(importlib.import_module(module), name)(*json.loads(sys.argv[2]))
if found is not None:
    print(json.dumps(found), flush=True)
"""


def rows(n_rows: int, n_columns: int, seed: int = 0) -> np.ndarray:
    """Normal rows near a plane; what is in them hardly matters for the cost."""
    rng = np.random.default_rng(seed)
    code = rng.normal(size=(n_rows, min(5, n_columns)))
    return code @ np.random.default_rng(7).normal(size=(code.shape[1], n_columns)) + rng.normal(
        size=(n_rows, n_columns)
    )


def fitted(**settings: Any) -> Any:
    """The default recipe on a table of named columns, trained for a moment: weights do not change the cost."""
    from esad import ESAD

    X, truth = synthetic.make(2_000, seed=0)
    table = pa.table({f"x{i}": X[:, i] for i in range(X.shape[1])})
    return ESAD(random_state=0, n_epochs=2, **settings).fit(table, synthetic.label_some(truth, 20, seed=0))


def fastest(actions: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Wall seconds of the fastest call of each, turn and turn about."""
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(repeats):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


# ---------------------------------------------------------------------- processes


def command(function: str, *args: Any, python: str = sys.executable) -> list[str]:
    """Words that call a function of one of these modules, such as "scaling_growth.measure", in a process."""
    return [python, "-c", _CALL, function, json.dumps(args)]


def answer(words: Sequence[str]) -> Any:
    """What the process says that these words start, with one thread."""
    done = subprocess.run(words, cwd=HERE, env=os.environ | ONE_THREAD, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"A measurement failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def spinning(opened: ExitStack, n_processes: int) -> Callable[[], None]:
    """A call that lets so many processes each do the same bare matrix products: what the machine has to give."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    place = {"cwd": HERE, "env": os.environ | ONE_THREAD}
    words = command("scaling_runs.spin")
    processes = [opened.enter_context(subprocess.Popen(words, **pipes, **place)) for _ in range(n_processes)]
    for process in processes:
        opened.callback(process.stdin.close)

    def run() -> None:
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            process.stdout.readline()

    run()
    return run


def spin() -> None:
    """For each line that comes, a second or so of matrix products, then a line."""
    import torch

    a = torch.randn(512, 512)
    for _ in sys.stdin:
        for _ in range(250):
            torch.mm(a, a)
        print("done", flush=True)


class Memory:
    """MiB that this process takes at its highest beyond what it took when this was made; Linux only."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
        self._before = self._mib("VmRSS")

    def peak(self) -> float:
        return self._mib("VmHWM") - self._before

    @staticmethod
    def _mib(name: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


# ---------------------------------------------------------------------- shards


class Shards:
    """A model, Parquet shards, and engines whose workers are warm, so that only scoring is timed."""

    def __init__(self, folder: str, *, n_shards: int, n_rows: int) -> None:
        self.folder, self.model = Path(folder), Path(folder, "model.esad")
        self.busy: dict[str, list[float]] = {}  # processor seconds of each run's workers
        self.detector = fitted()
        self.detector.save(self.model)
        names = list(self.detector.feature_names_in_)
        (self.folder / "in").mkdir()
        for part in range(n_shards):
            table = pa.table(dict(zip(names, rows(n_rows, len(names), seed=part).T, strict=True)))
            pq.write_table(table, self.folder / "in" / f"part-{part}.parquet")

    @classmethod
    def several(cls, folder: str, *, small: bool) -> tuple[Shards, int]:
        """Four shards, and how often to score them: short runs, so that some of them find the machine quiet."""
        return cls(folder, n_shards=4, n_rows=2_000 if small else 131_072), 1 if small else 12

    def jobs(self, out: str) -> list[Any]:
        """Jobs into a fresh folder."""
        from esad.io.dialect import Reading
        from esad.scale.run import make_job, make_settings
        from esad.scale.shards import RECORDS_FOLDER, plan_shards

        target = Path(tempfile.mkdtemp(prefix=out, dir=self.folder))
        (target / RECORDS_FOLDER).mkdir()
        settings = make_settings(self.model, None, None, Reading())
        return [make_job(shard, target, settings) for shard in plan_shards([self.folder / "in"], target)]

    def on(self, opened: ExitStack, engine: str, n_jobs: int, *, repeats: int) -> Callable[[], None]:
        """A call that scores all shards by an engine, to be made so many times."""
        from esad.scale.engines import RayTasks, WorkerProcesses, run_jobs
        from esad.scale.work import run_job

        made = WorkerProcesses(run_job, n_jobs) if engine == "local" else RayTasks(run_job, n_jobs, None)
        workers = opened.enter_context(made)
        prepared = [self.jobs(f"{engine}-{n_jobs}-") for _ in range(repeats + 1)]

        def run() -> None:
            before = _processor_seconds(workers)
            states = [found.state for _, found in run_jobs(workers, prepared.pop())]
            assert set(states) == {"done"}
            self.busy.setdefault(f"{engine}-{n_jobs}", []).append(_processor_seconds(workers) - before)

        run()
        return run


def _processor_seconds(workers: Any) -> float:
    """What the processes of an engine have used so far; nothing is known of Ray's."""
    stats = [
        Path(f"/proc/{worker.pid}/stat").read_text()
        for worker in getattr(workers, "workers", ())
        if worker.pid is not None
    ]
    ticks = sum(sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats)
    return ticks / os.sysconf("SC_CLK_TCK")
