"""What a label means, said once: -1 anomaly, 0 unlabelled, +1 normal.

Truth, which evaluation needs, is something else: a label may be missing, a truth may not.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad.core.arrays import Labels
from esad.core.text import hint
from esad.errors import InputError, LabelError, LabelWarning

ANOMALY: Final = -1
UNLABELLED: Final = 0
NORMAL: Final = +1

_Key = float | str | None  # what a value is compared by

_WORDS: Final = {
    "anomaly": ANOMALY,
    "normal": NORMAL,
    "unlabelled": UNLABELLED,
    "unlabeled": UNLABELLED,
    "unknown": UNLABELLED,
}
# Understood where nobody has said what the values mean.
_USUAL: Final = {
    **dict.fromkeys(("abnormal", "anomalous", "bad", "defective", "fraud", "outlier"), ANOMALY),
    **dict.fromkeys(("good", "inlier", "no fraud", "not fraud", "ok"), NORMAL),
}
_ANSWERS: Final = {"yes": ANOMALY, "no": NORMAL}  # to a column that asks, such as `fraud`
_QUESTIONS: Final = ("anomalous", "anomaly", "defect", "defective", "fraud", "outlier")


@dataclass(frozen=True)
class LabelCounts:
    """How many rows carry each label.

    Examples
    --------
    >>> LabelCounts(n_anomaly=2, n_unlabelled=97, n_normal=1).n_anomaly
    2
    """

    n_anomaly: int
    n_unlabelled: int
    n_normal: int


def counts(y: ArrayLike) -> LabelCounts:
    """Count the labels of a checked `y`.

    Examples
    --------
    >>> counts([-1, 0, 0, 1])
    LabelCounts(n_anomaly=1, n_unlabelled=2, n_normal=1)
    """
    labels = np.asarray(y)
    return LabelCounts(*(int(np.count_nonzero(labels == label)) for label in (ANOMALY, UNLABELLED, NORMAL)))


def check(y: ArrayLike | None, n_rows: int, *, warn: bool = True) -> Labels:
    """Check training labels and bring them into one form.

    Parameters
    ----------
    y : array-like of shape (n_rows,) or (n_rows, 1), or None
        -1 anomaly, 0 unlabelled, +1 normal; a missing entry is unlabelled, `None` means that no row is labelled. Words
        are read as `from_column` reads them, by the name of a series where it has one.
    n_rows : int
        How many rows the data have.
    warn : bool
        Whether to warn about labels that are allowed but often a mistake.

    Returns
    -------
    ndarray of int8, shape (n_rows,)

    Examples
    --------
    >>> check([-1, None, 0, 1], 4)
    array([-1,  0,  0,  1], dtype=int8)
    >>> check(["Fraud", "", "Not Fraud"], 3)
    array([-1,  0,  1], dtype=int8)
    """
    if y is None:
        return np.zeros(n_rows, dtype=np.int8)
    values, codes = _find_distinct(y, name="y")
    if len(codes) != n_rows:
        raise LabelError(f"`y` must hold one label per row. Got {len(codes)} labels for {n_rows} rows.")
    if any(isinstance(value, str) for value in values):
        labels = _from_words(y)
    else:
        wrong = [value for value in values if value is not None and not _is_label(value)]
        if wrong:
            raise LabelError(
                "`y` must hold -1 (anomaly), 0 (unlabelled) or +1 (normal). "
                f"Got {_list_values(wrong)}. See esad.labels.from_binary."
            )
        labels = np.array([UNLABELLED if value is None else int(value) for value in values], dtype=np.int8)[codes]
    if warn:
        _warn_if_doubtful(labels)
    return labels


def _from_words(y: ArrayLike) -> Labels:
    """Labels of a `y` of words, which may be a series with a name that asks, such as `is_fraud`."""
    columns = getattr(y, "columns", None)
    name = str((getattr(y, "name", None) if columns is None else columns[0]) or "y")
    try:
        return from_column(y, name=name)
    except LabelError as error:
        raise LabelError(f"{error} Make labels of it with esad.labels.from_column(y, anomaly_value=...).") from error


def reference_rows(y: Labels) -> NDArray[np.bool_]:
    """The presumed normal rows, (n,): the unlabelled ones, else the known normal ones, else all.

    Examples
    --------
    >>> reference_rows(np.array([-1, 0, 0, 1], dtype=np.int8))
    array([False,  True,  True, False])
    """
    for label in (UNLABELLED, NORMAL):
        if (y == label).any():
            return np.asarray(y == label)
    return np.ones(len(y), dtype=bool)


def from_binary(y: ArrayLike, *, zero: Literal["unlabelled", "normal"] = "unlabelled") -> Labels:
    """Turn 1 = anomaly, 0 = everything else (or true, false) into labels.

    Parameters
    ----------
    y : array-like of shape (n_rows,)
        1 or True marks an anomaly; a missing entry is unlabelled.
    zero : {"unlabelled", "normal"}
        What 0 or False stands for: not looked at yet, or looked at and found normal.

    Returns
    -------
    ndarray of int8, shape (n_rows,)

    Examples
    --------
    >>> from_binary([1, 0, 0])
    array([-1,  0,  0], dtype=int8)
    >>> from_binary([True, False, None], zero="normal")
    array([-1,  1,  0], dtype=int8)
    """
    if zero not in ("unlabelled", "normal"):
        raise InputError(f'`zero` must be "unlabelled" or "normal". Got {zero!r}.')
    values, codes = _find_distinct(y, name="y")
    wrong = [value for value in values if value is not None and (isinstance(value, str) or value not in (0, 1))]
    if wrong:
        raise LabelError(
            f"`y` must hold 1 (anomaly) or 0 here. Got {_list_values(wrong)}. "
            "For words and other numbers see esad.labels.from_column."
        )
    meaning = {None: UNLABELLED, 0: UNLABELLED if zero == "unlabelled" else NORMAL, 1: ANOMALY}
    return np.array([meaning[value] for value in values], dtype=np.int8)[codes]


def from_column(
    values: ArrayLike,
    *,
    anomaly_value: object = None,
    normal_value: object = None,
    unlabelled_value: object = None,
    name: str = "label",
) -> Labels:
    """Read the label column of a file.

    Without options the column may hold the words anomaly, normal and unlabelled (or unknown) in any case, usual ones
    such as fraud and not fraud, bad and good, or the numbers -1, 0 and +1; yes and no where the column is called
    anomaly, fraud, outlier or the like. A blank is unlabelled. A column of 0 and 1 could mean either, so it needs
    `anomaly_value`; then 0 is unlabelled unless `normal_value` says otherwise.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        The column. Values compare as numbers where they are numbers ("1" is 1 is 1.0 is true), else as text.
    anomaly_value, normal_value : object, optional
        The value that marks an anomaly, and the one that marks a row known to be normal.
    unlabelled_value : object, optional
        The value of rows that nobody has looked at, beside blanks.
    name : str
        The column's name.

    Returns
    -------
    ndarray of int8, shape (n_rows,)

    Examples
    --------
    >>> from_column(["Anomaly", "", "normal", None])
    array([-1,  0,  1,  0], dtype=int8)
    >>> from_column([0, 1, 0], anomaly_value=1)
    array([ 0, -1,  0], dtype=int8)
    >>> from_column(["Fraud", "Not Fraud", "not yet"], unlabelled_value="not yet")
    array([-1,  1,  0], dtype=int8)
    """
    distinct, codes = _find_distinct(values, name=name)
    keys = [_to_key(value) for value in distinct]
    anomaly, normal, unlabelled = map(_to_key, (anomaly_value, normal_value, unlabelled_value))
    _check_occurs({"anomaly": anomaly, "normal": normal, "unlabelled": unlabelled}, distinct, name=name)
    meanings = _column_meanings(keys, anomaly, normal, name) | ({} if unlabelled is None else {unlabelled: UNLABELLED})
    if anomaly is None and 1.0 in keys and 1.0 not in meanings and _keep_numbers(keys) <= {0.0, 1.0}:
        one = next((value for value in distinct if str(value).strip().casefold() == "true"), 1)
        raise LabelError(
            f"Column {name!r} holds {_list_values(distinct)}, where {one} could mean anomaly or normal. "
            f"Give the anomaly value: `anomaly_value={one!r}`."
        )
    wrong = [value for value, key in zip(distinct, keys, strict=True) if key not in meanings]
    if wrong and anomaly is not None and normal is None:
        raise LabelError(
            f"Column {name!r} must hold the anomaly value and blanks, unless the normal value is given too "
            f"(`normal_value`). Got {_list_values(wrong)}. Leave cells blank where nobody has looked, or give "
            "the value of such rows (`unlabelled_value`)."
        )
    if wrong:
        raise LabelError(
            f"Column {name!r} must hold the words anomaly, normal or unlabelled, the numbers -1, 0 or +1, blanks, or "
            f"the anomaly value and the normal value given. Got {_list_values(wrong)}."
            f"{hint(str(wrong[0]), _WORDS)} Say what they mean with `anomaly_value` and `normal_value`, and leave the "
            "cells of unlabelled rows blank or give their value (`unlabelled_value`)."
        )
    return np.array([meanings[key] for key in keys], dtype=np.int8)[codes]


def truth(values: ArrayLike, *, anomaly_value: object = None, name: str = "truth") -> NDArray[np.bool_]:
    """Read what is really so, for evaluation: true where a row is an anomaly.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        1 = anomaly and 0 = normal, or -1 = anomaly and +1 = normal, or the words anomaly and normal. No blanks.
    anomaly_value : object, optional
        The value that marks an anomaly; then every other value is normal.
    name : str
        The column's name, for error messages.

    Returns
    -------
    ndarray of bool, shape (n_rows,)

    Examples
    --------
    >>> truth([0, 1]), truth([1, -1]), truth(["ok", "fraud"], anomaly_value="fraud")
    (array([False,  True]), array([False,  True]), array([False,  True]))
    """
    distinct, codes = _find_distinct(values, name=name)
    keys = [_to_key(value) for value in distinct]
    if None in keys:
        n_blank = int(np.isin(codes, [code for code, key in enumerate(keys) if key is None]).sum())
        raise LabelError(f"{name!r} must be known for every row. Got {n_blank} blank. Leave those rows out.")
    asked = _to_key(anomaly_value)
    if asked is not None:
        _check_occurs({"anomaly": asked}, distinct, name=name)
        return np.array([key == asked for key in keys], dtype=bool)[codes]
    known = {word: label for word, label in (_WORDS | _usual_words(name)).items() if label != UNLABELLED}
    meanings: dict[_Key, bool] = {word: label == ANOMALY for word, label in known.items()}
    meanings |= {-1.0: True, 1.0: False} if -1.0 in keys else {1.0: True, 0.0: False}
    words = [_plain_word(key) if isinstance(key, str) else key for key in keys]
    if any(word not in meanings for word in words):
        raise LabelError(
            f"{name!r} must hold 1 (anomaly) and 0 (normal), or -1 (anomaly) and +1 (normal), or those words. "
            f"Got {_list_values(distinct)}. Give `anomaly_value` to use other values."
        )
    return np.array([meanings[word] for word in words], dtype=bool)[codes]


def keep_occurring(words: Mapping[str, object], values: ArrayLike, *, name: str = "label") -> dict[str, object]:
    """Those of some words, by what they stand for, that a column holds; they compare as in `from_column`.

    Examples
    --------
    >>> keep_occurring({"anomaly_value": "1", "normal_value": "ok"}, [0, 1, None])
    {'anomaly_value': '1'}
    """
    found = {_to_key(value) for value in _find_distinct(values, name=name)[0]}
    return {what: word for what, word in words.items() if word is not None and _to_key(word) in found}


def _column_meanings(keys: list[_Key], anomaly: _Key, normal: _Key, name: str) -> dict[_Key, int]:
    """Say which label each value of a column stands for; values without a meaning are left out."""
    meanings: dict[_Key, int] = {None: UNLABELLED}
    known = _WORDS if (anomaly, normal) != (None, None) else _WORDS | _usual_words(name)
    words = {key: _plain_word(key) for key in keys if isinstance(key, str)}
    meanings |= {key: known[word] for key, word in words.items() if word in known}
    if -1.0 in keys and anomaly in (None, -1.0) and normal in (None, 1.0):
        meanings |= {-1.0: ANOMALY, 0.0: UNLABELLED, 1.0: NORMAL}
    elif _keep_numbers(keys) == {0.0} or isinstance(anomaly, float) or isinstance(normal, float):
        meanings[0.0] = UNLABELLED
    asked = {anomaly: ANOMALY, normal: NORMAL}
    return meanings | {key: label for key, label in asked.items() if key is not None}


def _usual_words(name: str) -> dict[str, int]:
    """What is understood in a column of this name without being told."""
    asks = _plain_word(name).removeprefix("is ") in _QUESTIONS
    return _USUAL | (_ANSWERS if asks else {})


def _plain_word(text: str) -> str:
    return text.casefold().replace("_", " ").replace("-", " ").strip()


def _is_label(value: Any) -> bool:
    return not isinstance(value, bool | str | complex) and value in (ANOMALY, UNLABELLED, NORMAL)


def _warn_if_doubtful(labels: Labels) -> None:
    """Warn about labels that are allowed but often a mistake."""
    found, doubt = set(np.unique(labels).tolist()), ""
    if found == {UNLABELLED, NORMAL}:
        doubt = "holds only 0 and 1: 1 means normal here. If 1 marks anomalies, pass esad.labels.from_binary(y)."
    elif found and UNLABELLED not in found:
        doubt = "labels every row, so no unlabelled row is left to learn from. Mark rows nobody looked at with 0."
    if doubt:
        warnings.warn(f"`y` {doubt}", LabelWarning, stacklevel=3)


# ---------------------------------------------------------------------- columns as users bring them

# Lists, arrays and series of any library, with words, numbers, true/false and missing cells. Work is done once per
# distinct value, so that a column of millions of rows stays quick.

_MAX_SHOWN: Final = 5


def _find_distinct(values: ArrayLike, *, name: str) -> tuple[list[Any], NDArray[np.intp]]:
    """Give the distinct plain values (missing ones as None) and, for every row, which of them it holds.

    Shape (n,), or (n, 1) as a table of one column has it.
    """
    if isinstance(values, np.ma.MaskedArray):
        is_masked, values = np.ma.getmaskarray(values), values.data.astype(object)
        values[is_masked] = None
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


def _to_key(value: Any) -> _Key:
    """What a value is compared by: a number if it reads as one, else its text; None when blank."""
    text = "" if _is_missing(value) else str(value).strip()
    if text.casefold() in ("true", "false"):
        return float(text.casefold() == "true")
    try:
        number = float(text)
    except ValueError:
        return text or None
    return None if number != number else number


def _keep_numbers(keys: list[_Key]) -> set[float]:
    """Keep the keys that are numbers."""
    return {value for value in keys if isinstance(value, float)}


def _check_occurs(asked: dict[str, _Key], values: list[Any], *, name: str) -> None:
    """Refuse a value asked for as anomaly or normal that never occurs in the column, or that is asked for twice."""
    keys = [_to_key(value) for value in values]
    for word, wanted in asked.items():
        if wanted is not None and wanted not in keys:
            raise LabelError(
                f"The {word} value {_plain(wanted)!r} never occurs in {name!r}, which holds {_list_values(values)}. "
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


def _list_values(values: list[Any]) -> str:
    """List at most five values for a message."""
    shown = [repr(_plain(value))[:80] for value in values if value is not None]
    more = [f"... ({len(shown)} values)"] if len(shown) > _MAX_SHOWN else []
    return f"[{', '.join(shown[:_MAX_SHOWN] + more)}]"
