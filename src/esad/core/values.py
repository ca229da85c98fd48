"""Mixed columns as users bring them: which distinct values there are, and when two of them are the same.

Label columns come as lists, arrays and series of any library, with words, numbers, true/false and missing cells. Work
is done once per distinct value, so that a column of millions of rows stays quick.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad.errors import LabelError

__all__ = ["Key", "check_occurs", "find_distinct", "keep_numbers", "list_values", "to_key"]

Key = float | str | None
_MAX_SHOWN: Final = 5


def find_distinct(values: ArrayLike, *, name: str) -> tuple[list[Any], NDArray[np.intp]]:
    """Give the distinct plain values (missing ones as None) and, for every row, which of them it holds.

    Shape (n,), or (n, 1) as a table of one column has it.
    """
    try:
        # arrow's chunked categories come out with the first of them where a cell is missing
        column = np.asarray(values.combine_chunks() if hasattr(values, "combine_chunks") else values)
    except ValueError as error:
        raise LabelError(f"{name!r} must be one column of values. Got a ragged list.") from error
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise LabelError(f"{name!r} must be one column of values. Got shape {column.shape}.")
    if column.dtype.kind in "biuf":
        unique, codes = np.unique(column, return_inverse=True)
        return [None if value != value else value for value in unique.tolist()], codes
    found: dict[tuple[type, Any], int] = {}
    codes = np.empty(len(column), dtype=np.intp)
    for row, raw in enumerate(column.tolist()):
        value = None if _is_missing(raw) else raw.item() if isinstance(raw, np.generic) else raw
        try:
            codes[row] = found.setdefault((type(value), value), len(found))
        except TypeError as error:
            raise LabelError(f"{name!r} must hold numbers or words. Got {repr(value)[:80]} in row {row}.") from error
    return [value for _, value in found], codes


def _is_missing(value: Any) -> bool:
    """Tell None, NaN, NaT and pandas' NA (which has no truth value) from real values."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def to_key(value: Any) -> Key:
    """What a value is compared by: a number if it reads as one, else its text; None when blank."""
    text = "" if _is_missing(value) else str(value).strip()
    if text.casefold() in ("true", "false"):
        return float(text.casefold() == "true")
    try:
        number = float(text)
    except ValueError:
        return text or None
    return None if number != number else number


def keep_numbers(keys: list[Key]) -> set[float]:
    """Keep the keys that are numbers."""
    return {value for value in keys if isinstance(value, float)}


def check_occurs(asked: dict[str, Key], values: list[Any], *, name: str) -> None:
    """Refuse a value asked for as anomaly or normal that never occurs in the column, or that is asked for twice."""
    keys = [to_key(value) for value in values]
    for word, wanted in asked.items():
        if wanted is not None and wanted not in keys:
            raise LabelError(
                f"The {word} value {_plain(wanted)!r} never occurs in {name!r}, which holds {list_values(values)}. "
                f"Give one of these as `{word}_value`."
            )
    wanted_keys = [wanted for wanted in asked.values() if wanted is not None]
    if len(set(wanted_keys)) < len(wanted_keys):
        raise LabelError(
            f"The anomaly value and the normal value must differ. Got {_plain(wanted_keys[0])!r} for both."
        )


def _plain(value: Any) -> Any:
    """Show 2.0 as 2."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def list_values(values: list[Any]) -> str:
    """List at most five values for a message."""
    shown = [repr(_plain(value))[:80] for value in values if value is not None]
    more = [f"... ({len(shown)} values)"] if len(shown) > _MAX_SHOWN else []
    return f"[{', '.join(shown[:_MAX_SHOWN] + more)}]"
