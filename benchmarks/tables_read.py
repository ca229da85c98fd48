"""How long it takes from a CSV file to features: 200,000 rows with five numbers, one text and one date column.

Run: python benchmarks/tables_read.py [ROWS]
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from esad.io.files import open_tables
from esad.table.encode import TabularPreprocessor
from esad.table.table import Table

N_REPEATS = 3

T = TypeVar("T")


def write_example(file: Path, n_rows: int) -> None:
    """Five numbers, a text of 300 different values, and minutes of a year."""
    rng = np.random.default_rng(0)
    minutes = rng.integers(0, 365 * 24 * 60, n_rows).astype("m8[m]")
    columns = {f"number {index}": rng.normal(size=n_rows) for index in range(5)}
    shops = np.char.add("shop ", rng.integers(0, 300, n_rows).astype(str))
    dates = (np.datetime64("2024-01-01") + minutes).astype(str)
    pa_csv.write_csv(pa.table({**columns, "shop": shops, "date": dates}), str(file))


def timed(what: str, act: Callable[[], T]) -> T:
    """Do something a few times and print the shortest time, by the clock and on the processor."""
    passed, used = [], []
    for _ in range(N_REPEATS):
        start, begun = time.perf_counter(), time.process_time()
        found = act()
        passed.append(time.perf_counter() - start)
        used.append(time.process_time() - begun)
    print(f"{what:<30} {min(passed):7.3f} s  (processor {min(used):.3f} s)")
    return found


def main() -> None:
    """Print the seconds of every step."""
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "example.csv"
        write_example(file, n_rows)
        rows = timed("read the file", lambda: open_tables(file).read())
        table = timed("columns", lambda: Table.from_any(rows))
        preprocessor = timed("fit the preprocessor", lambda: TabularPreprocessor().fit(table))
        timed("features", lambda: preprocessor.transform(table))

        def from_file_to_features() -> None:
            read = Table.from_any(open_tables(file).read())
            TabularPreprocessor().fit(read).transform(read)

        timed("all of it, fit and features", from_file_to_features)

        def score() -> None:
            for batch in open_tables(file).batches(schema=preprocessor.schema_):
                preprocessor.transform(Table.from_any(batch))

        timed("in batches, features only", score)
        matrix = np.random.default_rng(0).normal(size=(n_rows, 30))
        numbers = timed("array of 30 numbers: fit", lambda: TabularPreprocessor().fit(Table.from_any(matrix)))
        timed("array of 30 numbers: features", lambda: numbers.transform(Table.from_any(matrix)))


if __name__ == "__main__":
    main()
