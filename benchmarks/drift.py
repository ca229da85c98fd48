"""How often is drift reported on halves of one table, and when one column has moved?

    ESAD_DATA=folder python benchmarks/drift.py [--draws 200]

From each of three development tables two sets of rows are drawn without replacement; in the second one, a column drawn
at random is moved by 0, 0.25, 0.5 or 1 of its standard deviations. Printed: the share of draws with an alarm, and with
an alarm that names the column.
"""

from __future__ import annotations

import argparse

import numpy as np

from esad.datasets.sources import adbench
from esad.preprocess.inputs import Inputs
from esad.score.drift import DriftMonitor
from esad.table.profile import Profile
from esad.table.table import Table

TABLES = ("10_cover", "11_donors", "47_yeast")  # ten columns, or eight
SHIFTS = (0.0, 0.25, 0.5, 1.0)
N_ROWS = (100, 500, 1000)


def alarms(X: np.ndarray, n_rows: int, shift: float, rng: np.random.Generator) -> tuple[bool, bool]:
    """Whether there is an alarm, and whether it names the moved column, for one draw."""
    old, new = (X[rows] for rows in np.split(rng.permutation(len(X))[: 2 * n_rows], 2))
    moved = rng.choice(np.flatnonzero(X.std(axis=0) > 0))
    new[:, moved] += shift * X[:, moved].std()
    inputs, _ = Inputs.fit(Table.from_any(old), np.zeros(n_rows, dtype=np.int8), scaling="standard")
    monitor = DriftMonitor(Profile.fit(Table.from_any(old)), inputs, held_out=None)
    monitor.add(new, np.zeros(n_rows))
    report = monitor.report()
    return report.drifted, f"x{moved}" in {found.column for found in report.found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    n_draws = parser.parse_args().draws
    print(f"{'table':12}{'rows':>6}" + "".join(f"{f'+{shift:g} sd':>18}" for shift in SHIFTS))
    for table in TABLES:
        X = np.asarray(adbench.load(table).X, dtype=np.float64)
        for n_rows in (n for n in N_ROWS if 2 * n <= len(X)):
            cells = []
            for shift in SHIFTS:
                rng = np.random.default_rng(n_rows)
                any_alarm, named = np.mean([alarms(X, n_rows, shift, rng) for _ in range(n_draws)], axis=0)
                cells.append(f"{100 * any_alarm:.1f} / {100 * named:.1f} %")
            print(f"{table:12}{n_rows:>6}" + "".join(f"{cell:>18}" for cell in cells))


if __name__ == "__main__":
    main()
