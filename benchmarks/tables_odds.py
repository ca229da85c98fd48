"""Hold ESAD's default recipe against the bars on the six ODDS tables.

    ESAD_DATA=folder python benchmarks/tables_odds.py [--rerun] [--tables cardio thyroid] [--methods esad deepsad]

Protocol: leak-free 60:40 split per class, every training normal unlabelled, labelled anomalies one per cent of the
training rows (gamma_l = .01), no hidden anomalies, ten seeds. A table passes when its mean AUC plus one standard error
reaches the bar.
"""

from __future__ import annotations

import argparse

from methods import METHODS
from runs import Store, run_missing, show_bars

from esad.data.scenario import table
from esad.data.sources import odds

BARS = {"arrhythmia": 82.5, "cardio": 98.8, "satellite": 92.0, "satimage-2": 99.8, "shuttle": 99.5, "thyroid": 99.5}


def run(store: Store, tables: list[str], methods: list[str], seeds: list[int], *, rerun: bool) -> None:
    """Fit and judge every missing (method, table, seed)."""
    for name in tables:
        data = odds.load(name)
        for seed in seeds:
            drawn = table(data, labelled_ratio=0.01, pollution_ratio=0.0, test_ratio=0.4, seed=seed)
            for method in methods:
                run_missing(store, method=method, table=name, seed=seed, drawn=drawn, rerun=rerun)


def main() -> None:
    """Read the options, run, print; exit code 0 when every bar is reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=BARS, default=list(BARS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["esad"])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(10)))
    parser.add_argument("--rerun", action="store_true", help="run again though stored")
    parser.add_argument("--show", action="store_true", help="print the stored results and stop")
    options = parser.parse_args()
    store = Store("tables_odds")
    if not options.show:
        run(store, options.tables, options.methods, options.seeds, rerun=options.rerun)
    raise SystemExit(0 if show_bars(store, BARS, slack=True) else 1)


if __name__ == "__main__":
    main()
