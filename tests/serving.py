"""What the tests of the service build and check with."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

KEY = "a-key-of-the-tests-01"
ROWS = {"rows": [[0.1, 0.2, 0.3], [9.0, 9.0, 9.0]]}
HEADER = "serial,size,colour,made,checked,verdict"


def table(n_rows: int = 60, seed: int = 0) -> str:
    """CSV with an id, numbers with gaps, words, dates, truth values and labels."""
    rng = np.random.default_rng(seed)
    lines = [HEADER]
    for row in range(n_rows):
        size = "" if row % 11 == 5 else f"{rng.normal(9 if row % 20 == 7 else 1, 0.3):.3f}"
        checked = str(rng.choice(["true", "false"]))
        colour = str(rng.choice(["red", "green", ""]))
        lines.append(f"S{row:03d},{size},{colour},2024-0{1 + row % 9}-{1 + row % 28:02d},{checked},")
    return "\n".join(lines) + "\n"


def bearer(key: str = KEY) -> dict[str, str]:
    """The header that carries a key."""
    return {"authorization": f"Bearer {key}"}


def npy(array: Any, **options: Any) -> bytes:
    """An array as the bytes of a .npy file."""
    sink = io.BytesIO()
    np.save(sink, array, **options)
    return sink.getvalue()


def as_parquet(content: pa.Table, **options: Any) -> bytes:
    """A table as the bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(content, sink, **options)
    return sink.getvalue()


def refused(answer: Any, status: int) -> str:
    """The message of an error in the one shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert {"status", "code", "message"} <= set(error)
    assert error["status"] == status
    assert "\n" not in error["message"]
    return str(error["message"])
