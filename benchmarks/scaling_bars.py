"""The bars for scoring at scale, as ratios in one run on one machine."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import synthetic
from scaling_runs import Shards, answer, command, fastest, fitted, rows, spinning

PROCESSES_BAR, STREAM_BAR, DEEPOD_BAR, BARE_BAR, RAY_BAR = 1.6, 0.8, 4.0, 2.0, 0.7


def measure_bars(only: Sequence[str], *, small: bool, peers: str) -> dict[str, Any]:
    """Every bar asked for."""
    found = {}
    for name in only:
        found[name] = BARS[name](small, peers) | {"what": BARS[name].__doc__, "load": round(os.getloadavg()[0], 1)}
        print(f"\n{name}: {json.dumps(found[name], indent=1)}", flush=True)
    return found


def by_processes(small: bool, peers: str) -> dict[str, Any]:
    """Two processes of one thread each against one of one thread: rows per second."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        bench, repeats = Shards.several(folder, small=small)
        runs = {name: bench.on(opened, "local", n, repeats=repeats) for name, n in (("one", 1), ("two", 2))}
        runs |= {f"products by {name}": spinning(opened, n) for name, n in (("one", 1), ("two", 2))}
        best = fastest(runs, repeats=repeats)
        busy = {name: min(bench.busy[f"local-{n}"][1:]) for name, n in (("one", 1), ("two", 2))}
    machine = best["products by one"] * 2 / best["products by two"]
    return _verdict(best, best["one"] / best["two"], PROCESSES_BAR) | {
        "what_the_machine_gave": round(machine, 2),
        "processor_seconds": {name: round(value, 3) for name, value in busy.items()},
        "by_processor_seconds": round(2 * busy["one"] / busy["two"], 2),
    }


def streamed(small: bool, peers: str) -> dict[str, Any]:
    """Streamed from a Parquet file to a file of scores, drift counted, against `anomaly_score` on rows in memory."""
    import torch

    from esad.scale.work import run_job

    torch.set_num_threads(1)
    n_rows, repeats = (4_096, 1) if small else (524_288, 9)
    with tempfile.TemporaryDirectory() as folder:
        bench = Shards(folder, n_shards=1, n_rows=n_rows)
        jobs = [bench.jobs("streamed-")[0] for _ in range(repeats + 1)]
        table = _named(bench.detector, rows(n_rows, synthetic.N_COLUMNS))
        runs = {
            "in memory": lambda: bench.detector.anomaly_score(table),
            "streamed": lambda: run_job(jobs.pop()),
        }
        for run in runs.values():
            run()
        best = fastest(runs, repeats=repeats)
    return _verdict(best, best["in memory"] / best["streamed"], STREAM_BAR)


def deepod(small: bool, peers: str) -> dict[str, Any]:
    """ESAD with one member against DeepOD's Deep SAD, one network, one thread; beside it the default, five members."""
    found = answer(command("scaling_bars.against_deepod", *((2_000, 1) if small else (100_000, 5)), python=peers))
    default = {"ratio_of_the_default": round(found["deepod"] / found["five members"], 2)}
    return _verdict(found, found["deepod"] / found["one member"], DEEPOD_BAR) | default


def against_deepod(n_rows: int, repeats: int) -> dict[str, float]:
    """Both in one process of the peers' environment."""
    import torch
    from deepod.models.tabular import DeepSAD

    torch.set_num_threads(1)
    five, one = fitted(), fitted(n_members=1)
    X, truth = synthetic.make(2_000, seed=0)
    peer = DeepSAD(epochs=2, device="cpu", verbose=0, random_state=0).fit(X, truth.astype(int))
    new = rows(n_rows, synthetic.N_COLUMNS)
    table = _named(five, new)
    runs = {
        "one member": lambda: one.anomaly_score(table),
        "five members": lambda: five.anomaly_score(table),
        "deepod": lambda: peer.decision_function(new),
    }
    return fastest(runs, repeats=repeats)


def bare(small: bool, peers: str) -> dict[str, Any]:
    """`anomaly_score` against a bare forward pass of the same networks over float32 rows, at its best block size."""
    import torch

    torch.set_num_threads(1)
    n_rows = 4_096 if small else 262_144
    detector = fitted()
    X = rows(n_rows, synthetic.N_COLUMNS)
    table, x = _named(detector, X), torch.from_numpy(X.astype(np.float32))
    objective = detector.objective_.eval()
    kinds = objective.view.split_members([network.freeze() for network in objective.networks])

    def forward(block: int) -> None:
        with torch.inference_mode():
            for first in range(0, n_rows, block):
                for _, view, (encoder_1, decoder, encoder_2) in kinds:
                    encoder_2(decoder(encoder_1(view(x[first : first + block]))))

    runs: dict[str, Callable[[], object]] = {"esad": lambda: detector.anomaly_score(table)}
    runs |= {f"bare {block}": lambda block=block: forward(block) for block in (256, 512, 1024, 4096)}
    best = fastest(runs, repeats=1 if small else 5)
    quickest = min(seconds for name, seconds in best.items() if name != "esad")
    return _verdict(best, best["esad"] / quickest, BARE_BAR, at_most=True)


def ray(small: bool, peers: str) -> dict[str, Any]:
    """Two tasks at a time on a Ray of this machine against two local processes: rows per second."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        bench, repeats = Shards.several(folder, small=small)
        runs = {engine: bench.on(opened, engine, 2, repeats=repeats) for engine in ("local", "ray")}
        best = fastest(runs, repeats=repeats)
    return _verdict(best, best["local"] / best["ray"], RAY_BAR)


def _named(detector: Any, X: np.ndarray) -> pa.Table:
    return pa.table(dict(zip(detector.feature_names_in_, X.T, strict=True)))


def _verdict(best: dict[str, float], ratio: float, bar: float, *, at_most: bool = False) -> dict[str, Any]:
    seconds = {name: round(value, 3) for name, value in best.items()}
    reached = ratio <= bar if at_most else ratio >= bar
    return {"seconds": seconds, "ratio": round(ratio, 2), "bar": bar, "reached": bool(reached)}


BARS = {"processes": by_processes, "stream": streamed, "deepod": deepod, "bare": bare, "ray": ray}
