"""Tables in several files, for what reads them in parts."""

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from esad import registry
from esad.datasets import scenario

WORDS = {-1: "anomaly", 0: None, 1: "normal"}


def named(X):
    """Rows as a table with the columns x0, x1, ..."""
    return pa.table({f"x{index}": column for index, column in enumerate(X.T)})


def write_parts(folder, X, y=None, *, n_parts=3, group_rows=50, suffix=".parquet"):
    """Rows as Parquet or CSV files."""
    folder.mkdir(exist_ok=True)
    table = named(X)
    if y is not None:
        table = table.append_column("label", pa.array([WORDS[label] for label in y.tolist()], type=pa.string()))
    for number, rows in enumerate(np.array_split(np.arange(len(X)), n_parts)):
        part = table.take(pa.array(rows))
        file = folder / f"part-{number}{suffix}"
        if suffix == ".parquet":
            pq.write_table(part, file, row_group_size=group_rows)
        else:
            with pa.output_stream(str(file), compression="detect") as opened:
                pa_csv.write_csv(part, opened)
    return folder


def tumours():
    """A table with a few labels, and rows to test with."""
    return scenario.table(registry.load_data_set("breast_cancer"), labelled_ratio=0.05, pollution_ratio=0.05, seed=0)
