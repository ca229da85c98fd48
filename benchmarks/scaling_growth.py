"""How the cost of fitting and scoring grows with rows, columns, members and processes, and by which exponents."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from scaling_runs import Memory, Shards, answer, command, fastest, rows, spinning

AXES: dict[str, dict[str, list[int]]] = {
    "fit": {
        "rows": [2_000, 8_000, 32_000, 128_000, 512_000, 2_048_000],
        "columns": [8, 32, 128, 512],
        "members": [1, 2, 4, 8, 16],
    },
    "score": {
        "rows": [16_384, 65_536, 262_144, 1_048_576],
        "columns": [8, 32, 128, 512],
        "members": [1, 2, 4, 8, 16],
        "processes": [1, 2],
    },
}
BASE = {"fit": {"rows": 8_000, "columns": 32}, "score": {"rows": 65_536, "columns": 32}}
SMALL = {"rows": 1_000, "columns": 4}
# Trainings by several processes: the same rows, the same batches, one thread each.
TRAININGS: dict[str, dict[str, Any]] = {
    "table, the default recipe": {"shape": [8_000, 32]},
    "table, the default networks, batches of 4,096": {"shape": [65_536, 32], "batch_size": 4_096, "n_epochs": 5},
    "table, one network of 512 units, batches of 1,024": {
        "shape": [8_192, 128],
        "n_members": 1,
        "hidden": [512, 512],
        "batch_size": 1_024,
        "n_epochs": 6,
    },
    "colour pictures of 32 x 32, batches of 128": {"shape": [512, 32, 32, 3], "batch_size": 128, "n_epochs": 6},
    "colour pictures of 64 x 64, batches of 64": {"shape": [128, 64, 64, 3], "batch_size": 64, "n_epochs": 6},
}
N_PROCESSES = (1, 2)
REPEATS = 3


def grow(known: Sequence[dict[str, Any]], *, small: bool) -> Iterator[dict[str, Any]]:
    """Seconds and memory along each axis, the others held: what is known, and what is missing, point by point."""
    places = {(point["what"], point["axis"], point["value"]) for point in known}
    yield from known
    for what, axes in AXES.items():
        for axis, values in axes.items():
            missing = [value for value in (values[:2] if small else values) if (what, axis, value) not in places]
            if axis == "processes":
                yield from _scored_by_processes(small) if missing else ()
                continue
            for value in missing:
                place = (SMALL if small else BASE[what]) | {"members": None} | {axis: value}
                repeats = 1 if small or (what == "fit" and place["rows"] > 10_000) else 3
                words = command("scaling_growth.measure", what, *place.values(), repeats)
                yield {"what": what, "axis": axis, "value": value} | answer(words)


def measure(what: str, n_rows: int, n_columns: int, n_members: int | None, repeats: int) -> dict[str, float]:
    """In a process of its own: seconds, processor seconds, and memory beyond that of the data and the packages."""
    from esad import ESAD

    members = {} if n_members is None else {"n_members": n_members}
    X = rows(n_rows if what == "fit" else 2_000, n_columns)
    y = np.zeros(len(X), dtype=int)
    y[:20] = -1
    if what == "fit":

        def action() -> object:
            return ESAD(random_state=0, **members).fit(X, y)
    else:
        detector = ESAD(random_state=0, n_epochs=2, **members).fit(X, y)
        new = rows(n_rows, n_columns)
        detector.anomaly_score(new[:2048])

        def action() -> object:
            return detector.anomaly_score(new)

    memory, wall, busy = Memory(), float("inf"), float("inf")
    for _ in range(repeats):
        started, started_busy = time.perf_counter(), time.process_time()
        action()
        wall = min(wall, time.perf_counter() - started)
        busy = min(busy, time.process_time() - started_busy)
    return {"seconds": round(wall, 4), "busy": round(busy, 4), "mib": round(memory.peak(), 4)}


def _scored_by_processes(small: bool) -> list[dict[str, Any]]:
    """Seconds for the same rows by one and by two processes."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        bench, repeats = Shards.several(folder, small=small)
        runs = {str(n): bench.on(opened, "local", n, repeats=repeats) for n in N_PROCESSES}
        best = fastest(runs, repeats=repeats)
    return [
        {"what": "score", "axis": "processes", "value": int(n), "seconds": round(seconds, 4), "busy": None, "mib": None}
        for n, seconds in best.items()
    ]


def exponents(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Slope of log cost over log size by least squares, Student's 95 % interval, and the slope of the last step."""
    from scipy import stats

    found: dict[str, Any] = {}
    for what, axes in AXES.items():
        for axis in axes:
            for cost in ("busy", "mib"):
                here = [p for p in points if (p["what"], p["axis"]) == (what, axis) and p[cost]]
                here.sort(key=lambda p: p["value"])
                if len(here) < 3:
                    continue
                x, y = (np.log([float(p[key]) for p in here]) for key in ("value", cost))
                line = stats.linregress(x, y)
                half = float(line.stderr * stats.t.ppf(0.975, len(x) - 2))
                found[f"{what} {cost} by {axis}"] = {
                    "exponent": round(float(line.slope), 2),
                    "interval": [round(line.slope - half, 2), round(line.slope + half, 2)],
                    "last": round(float((y[-1] - y[-2]) / (x[-1] - x[-2])), 2),
                }
    return found


# ---------------------------------------------------------------------- training by several processes


def trainings(*, small: bool) -> dict[str, Any]:
    """Each training by one and by two processes, turn and turn about, and what bare products got meanwhile."""
    found, repeats = [], 1 if small else REPEATS
    with ExitStack() as opened:
        products = {n: spinning(opened, n) for n in N_PROCESSES}
        best = dict.fromkeys(N_PROCESSES, float("inf"))
        for name, settings in TRAININGS.items():
            if small:
                settings = settings | {"shape": [256, *settings["shape"][1:]], "n_epochs": 1, "batch_size": 64}
            runs: dict[int, list[dict[str, float]]] = {n: [] for n in N_PROCESSES}
            for _ in range(repeats):
                for n in N_PROCESSES:
                    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(n)]
                    runs[n].append(answer([*launcher, "--no-python", *command("scaling_growth.train", settings)]))
                for n, seconds in fastest(products, repeats=1).items():
                    best[n] = min(best[n], seconds)
            for n in N_PROCESSES:
                found.append(
                    {"training": name, "processes": n} | {key: min(run[key] for run in runs[n]) for key in runs[n][0]}
                )
                print(found[-1], flush=True)
    return {"points": found, "what_the_machine_gave": round(best[1] * 2 / best[2], 2)}


def train(settings: dict[str, Any]) -> dict[str, float] | None:
    """As one of the processes of a launcher: a training, timed after a short one; all of them get its cost."""
    import torch
    import torch.distributed as dist

    from esad import ESAD
    from esad.core.processes import join

    torch.set_num_threads(1)
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    shape = settings.pop("shape")
    X = rows(*shape) if len(shape) == 2 else np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    y = np.zeros(len(X), dtype=int)
    y[:20] = -1
    with join() as processes:
        few = min(len(X), 2 * settings.get("batch_size", 128))
        ESAD(random_state=0, **settings | {"n_epochs": 1}).fit(X[:few], y[:few])
        if not processes.is_alone:
            dist.barrier()
        memory, started, started_busy = Memory(), time.perf_counter(), time.process_time()
        fitted = ESAD(random_state=0, **settings).fit(X, y)
        cost = torch.tensor([time.perf_counter() - started, time.process_time() - started_busy, memory.peak()])
        if not processes.is_alone:
            dist.all_reduce(cost, op=dist.ReduceOp.MAX)
        n_steps = len(next(iter(fitted.loss_curves_.values())))
        names = ("seconds", "busy", "mib")
        found = {name: round(value, 4) for name, value in zip(names, cost.tolist(), strict=True)}
        return found | {"steps": n_steps} if processes.is_first else None
