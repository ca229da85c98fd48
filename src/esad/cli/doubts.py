"""Columns that were probably meant otherwise than they are read, pointed at before the training starts."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from esad.cli import common

if TYPE_CHECKING:
    import pyarrow as pa

    from esad.cli.training import Reading
    from esad.table.schema import Column, Schema

__all__ = ["mention_doubts", "mention_misread", "mention_names", "mention_unclear", "names_the_answer"]

# Names under which files carry the answer; such a column among the features is most often a leak.
_ANSWERS = ("anomaly", "class", "fraud", "ground_truth", "label", "labels", "outlier", "target", "truth", "y")
_MIN_COUNTED_ROWS = 20
_MAX_LOOKED_AT = 10_000
_MAX_MARKS = 3  # words that stand for "no number" in one column
_PLAIN = re.compile(r"[-+]?\d+(?:\.\d*)?")
_LIKE_A_NUMBER = re.compile(
    r"[^\w\s]{0,2}\s?[-+\N{MINUS SIGN}]?(?:\d{1,3}(?:[.,'\s]\d{3})+|\d+)(?:[.,]\d*)?(?:[eEdD][-+]?\d+)?"
    r"\s?(?:[^\W\d]{1,4}|[^\w\s]{1,2})?"
)
_LIKE_A_DATE = re.compile(
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}(?:[T ].*)?|\d{1,2}[-. ]+[^\W\d]{3,}[-. ,]+\d{2,4}(?: .*)?"
    r"|[^\W\d]{3,} \d{1,2},? \d{4}(?: .*)?|\d{1,2}:\d{2}(?::\d{2})?(?: ?[aApP][mM])?"
)


def names_the_answer(name: str) -> bool:
    """Whether a column is called as truth or labels usually are."""
    return name.casefold().strip().removeprefix("is_") in _ANSWERS


def mention_names(path: Path, reading: "Reading") -> None:
    """Point at a CSV file whose first line is hardly a header, and at whole numbers that are written like codes."""
    from esad.io.csv_dialect import looks_like_a_row, sniff
    from esad.io.files import is_parquet

    if is_parquet(path):
        return
    dialect = sniff(path)
    if looks_like_a_row(dialect.names):
        common.warn(
            f"the first line of {str(path)!r} is taken for column names but looks like a row: "
            f"{common.listed(dialect.names)}. If there is no header, put a line of names before it."
        )
    settled = {*reading.text, *reading.ignore, reading.id_column}
    codes = [name for name in dialect.names if name in dialect.codes and name not in settled]
    if codes:
        fix = " ".join(f"--text {shlex.quote(name)}" for name in codes[:3])
        common.note(
            f"read as numbers, though written with leading zeros: {common.listed(codes)}. "
            f"If these are codes, pass {fix}."
        )
    _mention_unclear(dialect.unclear)


def mention_unclear(path: Path) -> None:
    """Say it when a comma in the numbers of a CSV file is only taken for a decimal comma."""
    from esad.io.csv_dialect import sniff
    from esad.io.files import is_parquet

    if not is_parquet(path):
        _mention_unclear(sniff(path).unclear)


def _mention_unclear(unclear: str) -> None:
    if unclear:
        common.note(
            f"numbers such as {unclear} are read with a decimal comma, as {unclear.replace(',', '.')}. "
            "If these are thousands, write them without commas."
        )


def mention_misread(features: "pa.Table", schema: "Schema") -> None:
    """Point at text columns that are nearly all numbers or dates, but for the way they are written."""
    for column in schema.columns:
        if column.kind != "category" or (column.n_distinct or 0) < 2:
            continue
        texts = [str(text).strip() for text in features[column.name].drop_null()[:_MAX_LOOKED_AT].to_pylist()]
        if not texts:
            continue
        if all(_LIKE_A_DATE.fullmatch(text) for text in texts):
            common.warn(
                f"column {column.name!r} looks like dates or times but is read as text, such as {texts[0]!r}. "
                "Write dates like 2024-02-29 18:30, times and durations as numbers."
            )
        elif odd := _spoils_numbers(column, texts):
            common.warn(
                f"column {column.name!r} is nearly all numbers but read as text, because of cells such as {odd!r}. "
                "Write numbers like 1234.56, and leave cells without a number empty."
            )


def _spoils_numbers(column: "Column", texts: list[str]) -> str | None:
    """A cell because of which a column is text though it looks like numbers; None if it does not look so."""
    numbers = {text for text in texts if _LIKE_A_NUMBER.fullmatch(text)}
    others = {text: None for text in texts if text not in numbers}
    ratio = sum(text in numbers for text in texts) / len(texts)
    if not others:
        unusual = [text for text in texts if not _PLAIN.fullmatch(text)]
        if len(numbers) < _MIN_COUNTED_ROWS and not unusual:
            return None  # a few codes, made text on purpose
        return unusual[0] if unusual else texts[0]
    few_marks = len(others) <= _MAX_MARKS and ratio >= 0.5
    if len(numbers) + len(others) >= _MIN_COUNTED_ROWS and (ratio >= 0.9 or few_marks):
        return next(iter(others))
    return None


def mention_doubts(features: "pa.Table", schema: "Schema", *, label_column: str | None) -> None:
    """Point at columns that are often a mistake among those to learn from."""
    if all(column.is_constant for column in schema.columns):
        common.warn("every column is constant, so there is nothing to learn: all rows will score alike.")
    for column in schema.columns:
        mostly_blank = column.n_missing > schema.n_rows / 2 and column.n_distinct in (1, 2)
        if mostly_blank and column.kind == "category" and label_column is None:
            words = features[column.name].drop_null()
            value = shlex.quote(str(words[0])) if len(words) else "WORD"
            fix = f"--label-column {shlex.quote(column.name)} --anomaly-value {value}"
            common.note(f"column {column.name!r} is blank but for a few words. If these are labels, pass {fix}.")
    for name in features.column_names:
        if names_the_answer(name):
            quoted = shlex.quote(name)
            fix = f"--ignore {quoted}" if label_column else f"--label-column {quoted} or --ignore {quoted}"
            common.warn(f"column {name!r} is learned from like any other. If it holds the answer, pass {fix}.")
    for name in _counting(features):
        fix = f"--id-column {shlex.quote(name)}"
        common.note(f"column {name!r} counts up row by row. If it only numbers the rows, pass {fix}.")


def _counting(features: "pa.Table") -> Iterable[str]:
    """Names of whole-number columns that grow from every row to the next."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if features.num_rows <= _MIN_COUNTED_ROWS:
        return
    for column, kind in zip(features.columns, features.schema, strict=True):
        if pa.types.is_integer(kind.type) and column.null_count == 0:
            values = column.combine_chunks()
            if pc.all(pc.greater(values[1:], values[:-1])).as_py():
                yield kind.name
