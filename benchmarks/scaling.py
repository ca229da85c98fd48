"""How the cost of fitting and scoring grows, and the bars for scoring at scale, as ratios in one run on one machine.

    python benchmarks/scaling.py grow                rows, columns, members, processes: seconds and memory
    python benchmarks/scaling.py train               trainings by one process and by two
    python benchmarks/scaling.py bars                the five bars; --peers names a Python that has DeepOD
    python benchmarks/scaling.py plot                docs/images/scaling.png and the tables of docs/scaling.md
    python benchmarks/scaling.py grow train bars --small   a quick smoke test of the script itself; stores nothing

Everything runs with one thread per process. What is compared is measured turn and turn about, and of each the fastest
counts, so that a busy moment hits both sides and none decides. Growth is in scaling_growth.py, the bars in
scaling_bars.py, what docs/scaling.md shows of them in scaling_page.py.
"""

from __future__ import annotations

import argparse
import json
import os
import sys

from scaling_runs import ONE_THREAD

os.environ.update(ONE_THREAD)

from runs import RESULTS, versions
from scaling_bars import BARS, measure_bars
from scaling_growth import BASE, exponents, grow, trainings
from scaling_page import PAGE, page, plot

STORED = RESULTS / "scaling.json"


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


if __name__ == "__main__":
    main()
