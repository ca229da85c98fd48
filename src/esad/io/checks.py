"""What looks wrong in data to learn from: columns that were probably meant otherwise than they are read."""

import logging
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from esad.core.text import count_text, list_text
from esad.io.dialect import Dialect, Reading, encoding_name, looks_like_a_row
from esad.io.notes import Roles
from esad.labels import LabelCounts
from esad.table.parse import DATE_ORDERS, NOTHING, parse_dates, read_numerals
from esad.table.table import Column, Schema, Table

logger = logging.getLogger("esad")

# Names under which files carry the answer; such a column among the features is most often a leak.
_ANSWERS = ("anomaly", "class", "fraud", "ground_truth", "label", "labels", "outlier", "target", "truth", "y")
_FEW_ROWS = 20  # with fewer unlabelled rows no member can leave some out, and the threshold rests on rows trained on
_MIN_COUNTED_ROWS = 20
_PANDAS_INDEX = ("", "Unnamed: 0")
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


@dataclass(frozen=True)
class Remark:
    """Something about the data that may be a mistake ("warning") or is worth knowing ("note")."""

    kind: Literal["warning", "note"]
    text: str


OnRemark = Callable[[Remark], None]
OnProgress = Callable[[str, int, int | None], None]  # what is being done, how much more is done, of how much


def tell(remark: Remark) -> None:
    """The library's way to say it: a warning, or a line in the log."""
    if remark.kind == "warning":
        warnings.warn(remark.text, UserWarning, stacklevel=3)
    else:
        logger.info("%s", remark.text)


def names_the_answer(name: str) -> bool:
    """Whether a column is called as truth or labels usually are.

    Examples
    --------
    >>> names_the_answer("is_fraud"), names_the_answer("size")
    (True, False)
    """
    return name.casefold().strip().removeprefix("is_") in _ANSWERS


def check_columns(X: Any, schema: Schema | None = None, *, label_column: str | None = None) -> tuple[Remark, ...]:
    """Look for columns that are often a mistake among those to learn from.

    Parameters
    ----------
    X : arrow, pandas or polars table
        The columns to learn from, without labels and ids.
    schema : Schema, optional
        What is known of the columns already; inferred when not given.
    label_column : str, optional
        The column that holds the labels, if there is one; it is not among `X`.

    Returns
    -------
    tuple of Remark
        Text that is nearly all numbers or dates or hardly ever repeats, columns that never vary, that count the rows,
        that look like labels or are called as the answer usually is: most often a leak.

    Examples
    --------
    >>> import pyarrow as pa
    >>> [remark] = check_columns(pa.table({"size": [1.5, 2.5, 3.5], "is_fraud": [0, 0, 1]}))
    >>> print(remark.text)
    column 'is_fraud' is learned from like any other. If it holds the answer, pass `label_column='is_fraud'` or
    `ignore=['is_fraud']`.
    """
    features = X if isinstance(X, pa.Table) else pa.table(X)
    known = Schema.infer(Table.from_any(features)) if schema is None else schema
    return (*check_texts(features, known), *check_kinds(features, known, label_column=label_column))


def check_dialect(path: object, dialect: Dialect, roles: Roles, reading: Reading) -> Iterator[Remark]:
    """Look for a CSV file whose first line is hardly a header, and for whole numbers that are written like codes."""
    if looks_like_a_row(dialect.names):
        yield Remark(
            "warning",
            f"the first line of {str(path)!r} is taken for column names but looks like a row: "
            f"{list_text(dialect.names)}. If there is no header, put a line of names before it.",
        )
    settled = {*roles.text, *roles.ignore, roles.id_column}
    codes = [name for name in dialect.names if name in dialect.codes and name not in settled]
    if codes:
        yield Remark(
            "note",
            f"read as numbers, though written with leading zeros: {list_text(codes)}. "
            f"If these are codes, pass `text={codes[:3]}`.",
        )
    yield from check_notation(dialect, reading)


def check_notation(dialect: Dialect, reading: Reading) -> Iterator[Remark]:
    """Look for what a CSV file leaves open: a comma that may stand before decimals, the order of dates, the letters."""
    mark, example = dialect.decimal.value, dialect.decimal.unclear
    if example and mark == ",":
        yield Remark(
            "note",
            f"numbers such as {example} are read with a decimal comma, as {example.replace(',', '.')}. "
            "Pass `decimal='.'` if these are thousands.",
        )
    elif example:
        yield Remark(
            "warning",
            f"numbers such as {example} are read with a decimal point, though fields are parted by semicolons. If "
            "these are thousands, pass `decimal=','`; else `decimal='.'` ends this warning.",
        )
    if date := dialect.dates.unclear:
        order = dialect.dates.value
        [other] = set(DATE_ORDERS) - {order}
        yield Remark(
            "warning",
            f"dates such as {date} are read with the {order.removesuffix('-first')} first, and no row tells whether "
            f"they are meant so. If not, pass `date_format={other!r}`; else `date_format={order!r}` ends this warning. "
            "The model keeps it.",
        )
    if dialect.encoding.shown == "cp1252" and reading.encoding != "cp1252":
        noted = (
            f", as those of the training were ({encoding_name(reading.encoding or '')})"
            if "encoding" in reading.noted
            else ""
        )
        yield Remark(
            "warning" if noted else "note",
            f"the letters are not UTF-8{noted}, and read as cp1252: {dialect.encoding.example!r}. If that is wrong, "
            "say how they are written, such as `encoding='cp1250'`.",
        )


def check_percents(dialect: Dialect, reading: Reading, schema: Schema) -> Iterator[Remark]:
    """Look for numbers that are per cent in a file and were not in the training, or the other way round."""
    numbers = {column.name for column in schema.columns if column.kind == "number"}
    noted = reading.percents
    for name, is_percent in (dialect.percents or {}).items():
        if noted is not None and name in numbers and is_percent != (name in noted):
            here, there = ("has", "had none") if is_percent else ("has no", "had them")
            yield Remark(
                "warning",
                f"column {name!r} {here} % signs, and {there} in the training. 5 % is read as 0.05 and 5 as 5, so "
                "write it as in the training unless that is meant.",
            )


def check_texts(features: pa.Table, schema: Schema, *, as_text: Collection[str] = ()) -> Iterator[Remark]:
    """Look for text columns that are nearly all numbers or dates, but for the way they are written, or never repeat.

    Of columns that are text because somebody said so, `as_text`, how they are written is no matter.
    """
    for column in schema.columns:
        if column.kind != "category" or (column.n_distinct or 0) < 2:
            continue
        texts = [str(text).strip() for text in features[column.name].drop_null()[:_MAX_LOOKED_AT].to_pylist()]
        if not texts:
            continue
        odd = "" if column.name in as_text else _describe_odd_texts(texts)
        if found := odd or _describe_unique_texts(column, schema.n_rows):
            yield Remark("warning", f"column {column.name!r} {found}")


def _describe_odd_texts(texts: Sequence[str]) -> str:
    """What texts of a column look like and are not read as, and what to do about it; empty if they are just texts."""
    if all(_LIKE_A_DATE.fullmatch(text) for text in texts):
        orders = [order for order in DATE_ORDERS if parse_dates(pa.array(texts), order)[1] is None]
        option = f"`date_format={orders[0]!r}`" if orders else "`date_format`"
        return (
            "looks like dates or times but is read as text, because of cells such as "
            f"{(_no_date(texts) or texts[0])[:40]!r}. Write dates like 2024-02-29 18:30, or say how they are "
            f"written with {option}; times and durations as numbers."
        )
    if currencies := _mixed_currencies(texts):
        fix = "Convert them to one currency, and keep the currency in a column of its own if it matters."
        return f"holds amounts in {list_text(currencies)}, and is read as text. {fix}"
    if odd := _text_among_numbers(texts):
        if _PLAIN.fullmatch(odd):
            fix = "Convert it to numbers, unless these are codes."
            return f"holds numbers as text, such as {odd[:40]!r}, and is read as text. {fix}"
        style = read_numerals(pa.array(texts), decimal_point=",")[1]
        commas = ", or read the file with `decimal=','`" if style is not None and style.is_sound else ""
        fix = f"Write numbers like 1234.56{commas}, and leave cells without a number empty."
        return f"is nearly all numbers but read as text, because of cells such as {odd[:40]!r}. {fix}"
    if odd_dates := _odd_ones(texts, _LIKE_A_DATE):
        fix = "Write dates like 2024-02-29 18:30, and leave cells without a date empty."
        return f"is nearly all dates but read as text, because of cells such as {odd_dates[0][:40]!r}. {fix}"
    return ""


def _describe_unique_texts(column: Column, n_rows: int) -> str:
    """Why texts of which nine in ten differ are of no use; empty if fewer do, or all, for that is proposed as an id."""
    n_present, n_distinct = n_rows - column.n_missing, column.n_distinct or 0
    if column.proposes_id or n_present < _MIN_COUNTED_ROWS or n_distinct < 0.9 * n_present:
        return ""
    return (
        f"holds {n_distinct:,} different texts in {n_rows:,} rows: hardly any comes twice, so next to nothing is "
        "learned from it. Replace it by something that repeats, such as the domain of an address, or leave it out (of "
        f"a file: `ignore={[column.name]}`)."
    )


def _mixed_currencies(texts: Sequence[str]) -> list[str]:
    """The currencies of a column of amounts in several; else none."""
    styles = [read_numerals(pa.array(texts), decimal_point=mark)[1] for mark in (".", ",")]
    units = next((style.units - {"", "%"} for style in styles if style is not None), frozenset())
    return sorted(units) if len(units) > 1 else []


def _text_among_numbers(texts: Sequence[str]) -> str | None:
    """A cell because of which a column is text though it looks like numbers; None if it does not look so."""
    if all(_LIKE_A_NUMBER.fullmatch(text) for text in texts):
        unusual = [text for text in texts if not _PLAIN.fullmatch(text)]
        if len(set(texts)) < _MIN_COUNTED_ROWS and not unusual:
            return None  # a few codes, made text on purpose
        return _no_number(texts) or (unusual[0] if unusual else texts[0])
    odd = _odd_ones([text for text in texts if text not in NOTHING], _LIKE_A_NUMBER)
    return _no_number(texts) or odd[0] if odd else None


def _odd_ones(texts: Sequence[str], like: re.Pattern[str]) -> list[str]:
    """The different texts that do not look like the others, where nearly all do; else none."""
    odd = [text for text in texts if not like.fullmatch(text)]
    ratio = 1 - len(odd) / max(len(texts), 1)
    different = list(dict.fromkeys(odd))
    is_nearly_all = ratio >= 0.9 or (ratio >= 0.5 and len(different) <= _MAX_MARKS)
    return different if is_nearly_all and len(set(texts)) >= _MIN_COUNTED_ROWS else []


def _no_number(texts: Sequence[str]) -> str | None:
    """The first cell that is no number however numbers are written in this column, if one is."""
    return _last_unread(texts, [read_numerals(pa.array(texts), decimal_point=mark)[2] for mark in (".", ",")])


def _no_date(texts: Sequence[str]) -> str | None:
    """The first cell that is no date in whatever order the others are written, such as 31.02.2024, if one is."""
    return _last_unread(texts, [parse_dates(pa.array(texts), order)[1] for order in ("", *DATE_ORDERS)])


def _last_unread(texts: Sequence[str], wrong: Sequence[int | None]) -> str | None:
    """The text at which the reading that came furthest failed; None if one read all."""
    return None if None in wrong else texts[max(index for index in wrong if index is not None)]


def check_kinds(features: pa.Table, schema: Schema, *, label_column: str | None) -> Iterator[Remark]:
    """Look for columns that never vary, count the rows, look like labels, or are called as the answer usually is."""
    if all(column.is_constant for column in schema.columns):
        yield Remark("warning", "every column is constant, so there is nothing to learn: all rows will score alike.")
    if label_column is None:
        for column in schema.columns:
            is_mostly_blank = column.n_missing > schema.n_rows / 2
            if column.kind == "category" and is_mostly_blank and column.n_distinct in (1, 2):
                words = features[column.name].drop_null()
                value = str(words[0]) if len(words) else "WORD"
                fix = f"`label_column={column.name!r}, anomaly_value={value!r}`"
                yield Remark(
                    "note", f"column {column.name!r} is blank but for a few words. If these are labels, pass {fix}."
                )
    for name in features.column_names:
        if names_the_answer(name):
            fix = f"`ignore={[name]}`" if label_column else f"`label_column={name!r}` or `ignore={[name]}`"
            yield Remark(
                "warning", f"column {name!r} is learned from like any other. If it holds the answer, pass {fix}."
            )
    for name, numbering in _numbering_columns(features):
        fix = f"`id_column={name!r}`"
        yield Remark("note", f"column {name!r} {numbering}. If it only numbers the rows, pass {fix}.")


def _numbering_columns(features: pa.Table) -> Iterator[tuple[str, str]]:
    """Names of whole-number columns that grow from every row to the next, or are pandas' index, and which of these."""
    if features.num_rows <= _MIN_COUNTED_ROWS:
        return
    for column, kind in zip(features.columns, features.schema, strict=True):
        if pa.types.is_integer(kind.type) and column.null_count == 0:
            values = column.combine_chunks()
            if pc.all(pc.greater(values[1:], values[:-1])).as_py():
                yield kind.name, "counts up row by row"
            elif kind.name in _PANDAS_INDEX and pc.count_distinct(values).as_py() == len(values):
                yield kind.name, "is called as pandas calls its index, and differs in every row"


def check_labels(counts: LabelCounts) -> Iterator[Remark]:
    """Look for labels that are the other way round, or leave too few rows to learn from what is usual."""
    n_others = counts.n_unlabelled + counts.n_normal
    if counts.n_anomaly > n_others:
        yield Remark(
            "warning",
            f"{counts.n_anomaly:,} of {counts.n_anomaly + n_others:,} rows are labelled anomalies, more than all "
            "others. Are the labels the other way round? Say what they mean with `anomaly_value` and `normal_value`.",
        )
    if not counts.n_unlabelled:
        usual = "none is left to learn what is usual from"
        if counts.n_normal:
            usual = f"what is usual is learned from the {count_text(counts.n_normal, 'row')} labelled normal"
        yield Remark(
            "warning",
            f"every row is labelled, so {usual}. Leave the label of rows that nobody looked at blank, or say which "
            "value means that with `unlabelled_value`.",
        )
    elif counts.n_unlabelled < _FEW_ROWS:
        rows = count_text(counts.n_unlabelled, "unlabelled row")
        text = f"{rows} to learn from: alarms among new rows mean little. Give {_FEW_ROWS} or more."
        yield Remark("warning", text)
