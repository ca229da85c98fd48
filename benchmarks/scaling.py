"""How the cost of fitting and scoring grows, and the bars for scoring at scale, as ratios in one run on one machine.

    python benchmarks/scaling.py grow                rows, columns, members, processes: seconds and memory
    python benchmarks/scaling.py bars                the five bars; --peers names a Python that has DeepOD
    python benchmarks/scaling.py plot                docs/images/scaling.png and the tables of docs/scaling.md
    python benchmarks/scaling.py grow bars --small   a quick smoke test of the script itself; stores nothing

Everything runs with one thread per process. What is compared is measured turn and turn about, and of each the fastest
counts, so that a busy moment hits both sides and none decides.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import synthetic
from runs import RESULTS, versions

HERE = Path(__file__).resolve()
STORED = RESULTS / "scaling.json"
PAGE = HERE.parent.parent / "docs" / "scaling.md"
PICTURE = PAGE.parent / "images" / "scaling.png"
N_COLUMNS = 32
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
BASE = {"fit": {"rows": 8_000, "columns": N_COLUMNS}, "score": {"rows": 65_536, "columns": N_COLUMNS}}
SMALL = {"rows": 1_000, "columns": 4}
PROCESSES_BAR, STREAM_BAR, DEEPOD_BAR, BARE_BAR, RAY_BAR = 1.6, 0.8, 4.0, 2.0, 0.7


def rows(n_rows: int, n_columns: int, seed: int = 0) -> np.ndarray:
    """Normal rows near a plane; what is in them hardly matters for the cost."""
    rng = np.random.default_rng(seed)
    code = rng.normal(size=(n_rows, min(5, n_columns)))
    return code @ np.random.default_rng(7).normal(size=(code.shape[1], n_columns)) + rng.normal(
        size=(n_rows, n_columns)
    )


def fastest(actions: dict[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Wall seconds of the fastest call of each, turn and turn about."""
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(repeats):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - started)
    return best


# ---------------------------------------------------------------------- growth


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

    Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak starts from here
    before = _mib("VmRSS")
    wall, busy = float("inf"), float("inf")
    for _ in range(repeats):
        started, started_busy = time.perf_counter(), time.process_time()
        action()
        wall = min(wall, time.perf_counter() - started)
        busy = min(busy, time.process_time() - started_busy)
    return {"seconds": wall, "busy": busy, "mib": _mib("VmHWM") - before}


def _mib(name: str) -> float:
    """Memory of this process: VmRSS now, VmHWM at its highest."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def in_child(python: str, *words: object) -> Any:
    """What a function of this script gives in a process of its own."""
    done = subprocess.run([python, str(HERE), "child", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"A measurement failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def grow(small: bool, known: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Seconds and memory along each axis, the others held: what is known, and what is missing, point by point."""
    places = {(point["what"], point["axis"], point["value"]) for point in known}
    yield from known
    for what, axes in AXES.items():
        for axis, values in axes.items():
            missing = [value for value in (values[:2] if small else values) if (what, axis, value) not in places]
            if axis == "processes":
                yield from processes_points(small) if missing else ()
                continue
            for value in missing:
                place = (SMALL if small else BASE[what]) | {"members": "auto"} | {axis: value}
                repeats = 1 if small or (what == "fit" and place["rows"] > 10_000) else 3
                found = in_child(sys.executable, what, place["rows"], place["columns"], place["members"], repeats)
                yield {"what": what, "axis": axis, "value": value} | found


def processes_points(small: bool) -> list[dict[str, Any]]:
    """Rows per second of one and of two processes."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        bench, repeats = several_shards(folder, small)
        runs = {str(n): bench.on(opened, "local", n, repeats=repeats) for n in AXES["score"]["processes"]}
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
                last = float((y[-1] - y[-2]) / (x[-1] - x[-2]))
                interval = [round(line.slope - half, 2), round(line.slope + half, 2)]
                found[f"{what} {cost} by {axis}"] = {
                    "exponent": round(float(line.slope), 2),
                    "interval": interval,
                    "last": round(last, 2),
                }
    return found


# ---------------------------------------------------------------------- shards


class Shards:
    """A model, Parquet shards, and engines whose workers are warm, so that only scoring is timed."""

    def __init__(self, folder: Path, *, n_shards: int, n_rows: int) -> None:
        self.folder, self.model = folder, folder / "model.esad"
        self.busy: dict[str, list[float]] = {}  # processor seconds of each run's workers
        self.detector = fitted()
        self.detector.save(self.model)
        names = list(self.detector.feature_names_in_)
        (folder / "in").mkdir()
        for part in range(n_shards):
            table = pa.table(dict(zip(names, rows(n_rows, len(names), seed=part).T, strict=True)))
            pq.write_table(table, folder / "in" / f"part-{part}.parquet")

    def jobs(self, out: str) -> list[Any]:
        """Jobs into a fresh folder."""
        from esad.scale.run import Settings
        from esad.scale.shards import BOOKS, plan

        target = Path(tempfile.mkdtemp(prefix=out, dir=self.folder))
        (target / BOOKS).mkdir()
        settings = Settings.of(self.model, None, None)
        return [settings.job(shard, target) for shard in plan([self.folder / "in"], target)]

    def on(self, opened: ExitStack, engine: str, n_jobs: int, *, repeats: int) -> Callable[[], None]:
        """A call that scores all shards by an engine, to be made so many times."""
        from esad.scale.engines import Processes, RayTasks, answers

        workers = opened.enter_context(Processes(n_jobs) if engine == "local" else RayTasks(n_jobs, None))
        prepared = [self.jobs(f"{engine}-{n_jobs}-") for _ in range(repeats + 1)]

        def run() -> None:
            before = processor_seconds(workers)
            states = [answer.state for _, answer in answers(workers, prepared.pop())]
            assert set(states) == {"done"}
            self.busy.setdefault(f"{engine}-{n_jobs}", []).append(processor_seconds(workers) - before)

        run()
        return run


def processor_seconds(workers: Any) -> float:
    """What the processes of an engine have used so far; nothing is known of Ray's."""
    stats = [
        Path(f"/proc/{process.pid}/stat").read_text()
        for process in getattr(workers, "_running", ()) or ()
        if hasattr(process, "pid")
    ]
    ticks = sum(sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def several_shards(folder: str, small: bool) -> tuple[Shards, int]:
    """Four shards, and how often to score them: short runs, so that some of them find the machine quiet."""
    return Shards(Path(folder), n_shards=4, n_rows=2_000 if small else 131_072), 1 if small else 12


def fitted(**settings: Any) -> Any:
    """The default recipe on a table of named columns, trained for a moment: weights do not change the cost."""
    from esad import ESAD

    X, truth = synthetic.make(2_000, seed=0)
    table = pa.table({f"x{i}": X[:, i] for i in range(X.shape[1])})
    return ESAD(random_state=0, n_epochs=2, **settings).fit(table, synthetic.label_some(truth, 20, seed=0))


# ---------------------------------------------------------------------- bars


def bar_processes(small: bool, peers: str) -> dict[str, Any]:
    """Two processes of one thread each against one of one thread: rows per second."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        bench, repeats = several_shards(folder, small)
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


def spinning(opened: ExitStack, n_processes: int) -> Callable[[], None]:
    """A call that lets so many processes each do the same bare matrix products: what the machine has to give."""
    words = [sys.executable, str(HERE), "child", "spin", "0"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    processes = [opened.enter_context(subprocess.Popen(words, **pipes)) for _ in range(n_processes)]
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


def bar_stream(small: bool, peers: str) -> dict[str, Any]:
    """Streamed from a Parquet file to a file of scores, drift counted, against `anomaly_score` on rows in memory."""
    import torch

    from esad.scale.work import attempt, use_one_thread

    use_one_thread()
    torch.set_num_threads(1)
    n_rows, repeats = (4_096, 1) if small else (524_288, 5)
    with tempfile.TemporaryDirectory() as folder:
        bench = Shards(Path(folder), n_shards=1, n_rows=n_rows)
        jobs = [bench.jobs("streamed-")[0] for _ in range(repeats + 1)]
        X = rows(n_rows, synthetic.N_COLUMNS)
        table = pa.table(dict(zip(bench.detector.feature_names_in_, X.T, strict=True)))
        runs = {
            "in memory": lambda: bench.detector.anomaly_score(table),
            "streamed": lambda: attempt(jobs.pop()),
        }
        for run in runs.values():
            run()
        best = fastest(runs, repeats=repeats)
    return _verdict(best, best["in memory"] / best["streamed"], STREAM_BAR)


def bar_deepod(small: bool, peers: str) -> dict[str, Any]:
    """ESAD with one member against DeepOD's Deep SAD, one network, one thread; beside it the default, five members."""
    found = in_child(peers, "deepod", 2_000 if small else 100_000, 1 if small else 5)
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
    table = pa.table(dict(zip(five.feature_names_in_, new.T, strict=True)))
    runs = {
        "one member": lambda: one.anomaly_score(table),
        "five members": lambda: five.anomaly_score(table),
        "deepod": lambda: peer.decision_function(new),
    }
    return fastest(runs, repeats=repeats)


def bar_bare(small: bool, peers: str) -> dict[str, Any]:
    """`anomaly_score` against a bare forward pass of the same networks over float32 rows, at its best block size."""
    import torch

    torch.set_num_threads(1)
    n_rows = 4_096 if small else 262_144
    detector = fitted()
    X = rows(n_rows, synthetic.N_COLUMNS)
    table = pa.table(dict(zip(detector.feature_names_in_, X.T, strict=True)))
    x = torch.from_numpy(X.astype(np.float32))
    objective = detector.objective_.eval()

    def forward(block: int) -> None:
        with torch.inference_mode():
            for first in range(0, n_rows, block):
                objective(x[first : first + block].expand(objective.n_members, -1, -1))

    runs: dict[str, Callable[[], object]] = {"esad": lambda: detector.anomaly_score(table)}
    runs |= {f"bare {block}": lambda block=block: forward(block) for block in (256, 512, 1024, 4096)}
    best = fastest(runs, repeats=1 if small else 5)
    bare = min(seconds for name, seconds in best.items() if name != "esad")
    return _verdict(best, best["esad"] / bare, BARE_BAR, at_most=True)


def bar_ray(small: bool, peers: str) -> dict[str, Any]:
    """Two tasks at a time on a Ray of this machine against two local processes: rows per second."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        bench, repeats = several_shards(folder, small)
        runs = {engine: bench.on(opened, engine, 2, repeats=repeats) for engine in ("local", "ray")}
        best = fastest(runs, repeats=repeats)
    return _verdict(best, best["local"] / best["ray"], RAY_BAR)


def _verdict(best: dict[str, float], ratio: float, bar: float, *, at_most: bool = False) -> dict[str, Any]:
    seconds = {name: round(value, 3) for name, value in best.items()}
    reached = ratio <= bar if at_most else ratio >= bar
    return {"seconds": seconds, "ratio": round(ratio, 2), "bar": bar, "reached": bool(reached)}


BARS = {"processes": bar_processes, "stream": bar_stream, "deepod": bar_deepod, "bare": bar_bare, "ray": bar_ray}


def bars(small: bool, peers: str, only: Sequence[str]) -> dict[str, Any]:
    """Every bar asked for."""
    found = {}
    for name in only:
        found[name] = BARS[name](small, peers) | {"what": BARS[name].__doc__, "load": round(os.getloadavg()[0], 1)}
        print(f"\n{name}: {json.dumps(found[name], indent=1)}", flush=True)
    return found


# ---------------------------------------------------------------------- plot


def plot(stored: dict[str, Any]) -> None:
    """Processor seconds along each axis, log-log, with the fitted exponents."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    ticks = {"rows": [2_000, 20_000, 200_000, 2_000_000], "columns": [8, 32, 128, 512], "members": [1, 2, 4, 8, 16]}
    figure, places = plt.subplots(1, 3, figsize=(10, 4), layout="constrained", sharey=True)
    for place, (axis, shown) in zip(places, ticks.items(), strict=True):
        for what, colour in (("fit", "#7b3294"), ("score", "#1b7837")):
            here = [p for p in stored["growth"]["points"] if (p["what"], p["axis"]) == (what, axis)]
            known = stored["growth"]["exponents"][f"{what} busy by {axis}"]
            low, high = known["interval"]
            text = f"{what}: exponent {known['exponent']:.2f} ({low:.2f} to {high:.2f})"
            place.loglog([p["value"] for p in here], [p["busy"] for p in here], "o-", color=colour, label=text)
        place.set_xticks(shown, [f"{value:,}" for value in shown])
        place.set_xlabel(axis)
        place.minorticks_off()
        place.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9, frameon=False)
        place.grid(alpha=0.3)
    places[0].set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
    places[0].set_ylabel("processor seconds")
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=120)
    print(PICTURE)


# ---------------------------------------------------------------------- page

TOLD = {
    "processes": "two processes of one thread against one",
    "stream": "streamed from Parquet to a file of scores, drift counted, against rows in memory",
    "deepod": "one member against DeepOD's Deep SAD, one thread",
    "bare": "time of `anomaly_score` against a bare forward pass of the same networks",
    "ray": "Ray against local processes, two workers",
}


def tables(stored: dict[str, Any]) -> str:
    """The measured numbers for docs/scaling.md."""
    lines = ["| what | exponent | 95 % interval | last step |", "| --- | --- | --- | --- |"]
    units = {"busy": "processor time", "mib": "memory"}
    for name, found in stored["growth"]["exponents"].items():
        what, cost, _, axis = name.split()
        low, high = found["interval"]
        words = f"{what}, {units[cost]} by {axis}"
        lines.append(f"| {words} | {found['exponent']:.2f} | {low:.2f} to {high:.2f} | {found['last']:.2f} |")
    lines += ["", "| bar | measured | bar | |", "| --- | --- | --- | --- |"]
    for name, words in TOLD.items():
        found = stored["bars"][name]
        if name == "processes":
            words += f" (by processor seconds: {found['by_processor_seconds']:.2f}; bare matrix products meanwhile: "
            words += f"{found['what_the_machine_gave']:.2f})"
        if name == "deepod":
            words += f" (the default, five members: {found['ratio_of_the_default']:.2f})"
        limit = f"at most {found['bar']:g}" if name == "bare" else f"at least {found['bar']:g}"
        lines.append(
            f"| {words} | {found['ratio']:.2f} | {limit} | {'reached' if found['reached'] else '**missed**'} |"
        )
    return "\n".join(lines) + "\n"


def page(text: str, stored: dict[str, Any]) -> str:
    """The page with its numbers as they are stored."""
    before, _, rest = text.partition("<!-- measured:begin -->\n")
    _, _, after = rest.partition("<!-- measured:end -->\n")
    return f"{before}<!-- measured:begin -->\n{tables(stored)}<!-- measured:end -->\n{after}"


# ---------------------------------------------------------------------- command


def child(words: Sequence[str]) -> None:
    """A measurement in a process of its own; the last line of its output is the answer."""
    what, n_rows, *rest = words
    if what == "spin":
        spin()
        return
    if what == "deepod":
        print(json.dumps(against_deepod(int(n_rows), int(rest[0]))))
        return
    n_columns, members, repeats = rest
    found = measure(what, int(n_rows), int(n_columns), None if members == "auto" else int(members), int(repeats))
    print(json.dumps({name: round(value, 4) for name, value in found.items()}))


def main() -> None:
    """Do what is asked for, print it, keep it."""
    if sys.argv[1:2] == ["child"]:
        child(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["grow", "bars", "plot"])
    parser.add_argument("--only", nargs="+", choices=BARS, default=list(BARS), help="some bars")
    parser.add_argument("--peers", default=sys.executable, help="a Python that has DeepOD and this package")
    parser.add_argument("--again", action="store_true", help="measure points anew that are stored")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to test this script; stores nothing")
    options = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    machine = {"cpus": os.cpu_count(), "versions": versions("esad", "torch", "numpy", "pyarrow")}
    if "grow" in options.parts:
        known = [] if options.again or options.small else stored.get("growth", {}).get("points", [])
        points = []
        for point in grow(options.small, known):
            points.append(point)
            print(point, flush=True)
            stored["growth"] = {"base": BASE, "points": points, "exponents": exponents(points)} | machine
            if not options.small:
                STORED.write_text(json.dumps(stored, indent=1) + "\n")
    if "bars" in options.parts:
        stored["bars"] = stored.get("bars", {}) | bars(options.small, options.peers, options.only)
        stored["machine"] = machine
    if not options.small:
        STORED.write_text(json.dumps(stored, indent=1) + "\n")
    if "plot" in options.parts:
        plot(stored)
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")
    missed = [name for name, found in stored.get("bars", {}).items() if not found["reached"]]
    if "bars" in options.parts:
        print("\nEvery bar reached." if not missed else f"\nBars missed: {', '.join(missed)}.")


if __name__ == "__main__":
    main()
