"""Names of the arrays that many modules hand on; n rows, of one number per column or of pixels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]  # (n, *features), preprocessed
Labels = NDArray[np.int8]  # (n,), -1 anomaly, 0 unlabelled, +1 normal
Scores = NDArray[np.float64]  # (n,), or (members, n) by member; higher = more anomalous
RowNumbers = NDArray[np.intp]  # (k,), from 0
Floats = NDArray[np.float64]  # other numbers, of any shape
Counts = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]  # by name, as a file holds them
State = tuple[Arrays, dict[str, Any]]  # what a model has learned: arrays, and plain values for JSON
