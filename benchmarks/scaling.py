"""How the cost of fitting and scoring grows, and the bars for scoring at scale, as ratios in one run on one machine.

    python benchmarks/scaling.py grow                rows, columns, members, processes: seconds and memory
    python benchmarks/scaling.py train               trainings by one process and by two
    python benchmarks/scaling.py bars                the five bars; --peers names a Python that has DeepOD
    python benchmarks/scaling.py plot                docs/images/scaling.png and the tables of docs/scaling.md
    python benchmarks/scaling.py grow train bars --small   a quick smoke test of the script itself; stores nothing

Everything runs with one thread per process. What is compared is measured turn and turn about, and of each the fastest
counts, so that a busy moment hits both sides and none decides. Growth is in scaling_growth.py, the bars in
scaling_bars.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from scaling_runs import HERE, ONE_THREAD

if __name__ == "__main__":  # before what starts threads is imported
    os.environ.update(ONE_THREAD)

from runs import RESULTS, versions
from scaling_bars import BARS, measure_bars
from scaling_growth import BASE, exponents, grow, trainings

STORED = RESULTS / "scaling.json"
PAGE = HERE.parent / "docs" / "scaling.md"
PICTURE = PAGE.parent / "images" / "scaling.png"
TOLD = {
    "processes": "two processes of one thread against one",
    "stream": "streamed from Parquet to a file of scores, drift counted, against rows in memory",
    "deepod": "one member against DeepOD's Deep SAD, one thread",
    "bare": "time of `anomaly_score` against a bare forward pass of the same networks",
    "ray": "Ray against local processes, two workers",
}


def main() -> None:
    """Do what is asked for, print it, keep it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["grow", "train", "bars", "plot"])
    parser.add_argument("--only", nargs="+", choices=BARS, default=list(BARS), help="some bars")
    parser.add_argument("--peers", default=sys.executable, help="a Python that has DeepOD and this package")
    parser.add_argument("--again", action="store_true", help="measure points anew that are stored")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to test this script; stores nothing")
    options = parser.parse_args()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    machine = {"cpus": os.cpu_count(), "versions": versions("esad", "torch", "numpy", "pyarrow")}

    def keep(**found: object) -> None:
        stored.update(found)
        if not options.small:
            STORED.write_text(json.dumps(stored, indent=1) + "\n")

    if "grow" in options.parts:
        known = [] if options.again or options.small else stored.get("growth", {}).get("points", [])
        points = []
        for point in grow(known, small=options.small):
            points.append(point | {"load": point.get("load", round(os.getloadavg()[0], 1))})
            print(points[-1], flush=True)
            keep(growth={"base": BASE, "points": points, "exponents": exponents(points)} | machine)
    if "train" in options.parts:
        keep(trainings=trainings(small=options.small) | {"load": round(os.getloadavg()[0], 1)} | machine)
    if "bars" in options.parts:
        found = measure_bars(options.only, small=options.small, peers=options.peers)
        keep(bars=stored.get("bars", {}) | found, machine=machine)
        missed = [name for name, bar in stored["bars"].items() if not bar["reached"]]
        print("\nEvery bar reached." if not missed else f"\nBars missed: {', '.join(missed)}.")
    if "plot" in options.parts:
        plot(stored)
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")


# ---------------------------------------------------------------------- docs/scaling.md


def plot(stored: dict[str, Any]) -> None:
    """Processor seconds along each axis, log-log, with the fitted exponents; and how much faster two processes are."""
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


def page(text: str, stored: dict[str, Any]) -> str:
    """The page with its numbers as they are stored."""
    for name, table in (("growth", _growth), ("trainings", _trainings), ("bars", _bars)):
        before, _, rest = text.partition(f"<!-- {name}:begin -->\n")
        _, _, after = rest.partition(f"<!-- {name}:end -->\n")
        text = f"{before}<!-- {name}:begin -->\n{table(stored)}<!-- {name}:end -->\n{after}"
    return text


def _growth(stored: dict[str, Any]) -> str:
    lines = ["| what | exponent | 95 % interval | last step |", "| --- | --- | --- | --- |"]
    units = {"busy": "processor time", "mib": "memory"}
    for name, found in stored["growth"]["exponents"].items():
        what, cost, _, axis = name.split()
        low, high = found["interval"]
        words = f"{what}, {units[cost]} by {axis}"
        lines.append(f"| {words} | {found['exponent']:.2f} | {low:.2f} to {high:.2f} | {found['last']:.2f} |")
    return "\n".join(lines) + "\n"


def _trainings(stored: dict[str, Any]) -> str:
    lines = ["| training | steps | one process | two processes | times as fast | by processor time | memory of each |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    points = stored["trainings"]["points"]
    for one, two in zip(points[::2], points[1::2], strict=True):
        lines.append(
            f"| {one['training']} | {one['steps']} | {one['seconds']:.2f} s | {two['seconds']:.2f} s "
            f"| {one['seconds'] / two['seconds']:.2f} | {one['busy'] / two['busy']:.2f} "
            f"| {one['mib']:.0f}, {two['mib']:.0f} MiB |"
        )
    given, load = stored["trainings"]["what_the_machine_gave"], stored["trainings"]["load"]
    lines += ["", f"Bare matrix products meanwhile: {given:.2f} times as many by two processes. Load: {load:.1f}."]
    return "\n".join(lines) + "\n"


def _bars(stored: dict[str, Any]) -> str:
    lines = ["| bar | measured | bar | |", "| --- | --- | --- | --- |"]
    for name, words in TOLD.items():
        found = stored["bars"][name]
        if name == "processes":
            words += f" (by processor seconds: {found['by_processor_seconds']:.2f}; bare matrix products meanwhile: "
            words += f"{found['what_the_machine_gave']:.2f})"
        if name == "deepod":
            words += f" (the default, five members: {found['ratio_of_the_default']:.2f})"
        limit = f"at most {found['bar']:g}" if name == "bare" else f"at least {found['bar']:g}"
        verdict = "reached" if found["reached"] else "**missed**"
        lines.append(f"| {words} | {found['ratio']:.2f} | {limit} | {verdict} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
