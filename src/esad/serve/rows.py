"""Rows as a request brings them, and how many they may be; sizes are checked before memory is taken for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from esad.errors import RequestError
from esad.serve.model import Served
from esad.table.schema import Schema
from esad.table.table import Table

__all__ = ["MAX_EXPANDED", "SCALARS", "Rows", "check_count", "check_expanded", "check_width", "schema_of"]

MAX_EXPANDED = 2**28  # bytes that a Parquet file or a set of pictures may become
SCALARS = {str, int, float, bool, type(None)}


@dataclass(frozen=True, eq=False)
class Rows:
    """What one request asks about: rows in the form of the model, and what they are called."""

    served: Served
    X: Table | NDArray[Any]
    ids: Sequence[Any] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows or pictures."""
        return self.X.n_rows if isinstance(self.X, Table) else len(self.X)


def schema_of(served: Served) -> Schema:
    """The columns of a model that takes tables."""
    schema = served.detector.inputs_.schema
    assert schema is not None  # the model takes tables
    return schema


def check_count(n_rows: int, max_rows: int) -> None:
    """Refuse no rows and too many."""
    if n_rows == 0:
        raise RequestError(422, "There is no row. Send one at least.")
    if n_rows < 0 or n_rows > max_rows:
        raise RequestError(413, f"A request may have {max_rows:,} rows or pictures. Send less at a time.")


def check_width(n_columns: int, served: Served) -> None:
    """Refuse far more columns than the model has."""
    most = 1000 + 20 * len(schema_of(served).columns)
    if n_columns > most:
        raise RequestError(413, f"A table for this model may have {most:,} columns. Got {n_columns:,}.")


def check_expanded(n_bytes: int) -> None:
    """Refuse what becomes too much in memory."""
    if n_bytes > MAX_EXPANDED:
        raise RequestError(413, f"Unpacked, this is more than {MAX_EXPANDED >> 20} MiB. Send less at a time.")
