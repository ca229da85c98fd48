"""How files are to be read where they do not show it themselves: as the user says, or as a model has noted it."""

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from esad.errors import DataFileError, InputError
from esad.io.csv_dialect import Dialect
from esad.table.parse import DATE_ORDERS, check_date_format

__all__ = ["Reading"]

_NOTES = {"decimal": "decimal_point", "date_format": "date_format", "encoding": "encoding", "sheet": "sheet"}
_DECIMALS = {".": "decimal points", ",": "decimal commas"}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is said about files beside what they show.

    Parameters
    ----------
    decimal : {".", ","}, optional
        What stands before decimals. A file that shows the other is refused.
    date_format : str, optional
        "day-first" or "month-first", for dates such as 01/02/2024, or a form such as "%d.%m.%y %H:%M".
    encoding : str, optional
        How letters are written, such as "cp1250". Where it is not said, UTF-8 and UTF-16 are told by the file, and what
        is neither is taken for cp1252.
    sheet : str, optional
        The sheet of an Excel file; the first by default.
    max_unpacked : int, optional
        Bytes that 65,536 rows of a Parquet file, or an Excel file, may take when they are unpacked.
    noted : frozenset of str
        Which of these a model has noted, and nobody said.

    Examples
    --------
    >>> Reading(decimal=";")
    Traceback (most recent call last):
        ...
    esad.errors.InputError: `decimal` must be "." or ",". Got ';'.
    >>> Reading(decimal=".").with_notes({"decimal_point": ",", "encoding": "cp1250"}).encoding
    'cp1250'
    """

    decimal: str | None = None
    date_format: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    max_unpacked: int | None = None
    noted: frozenset[str] = frozenset()

    def said(self) -> dict[str, Any]:
        """What the user says, as arguments."""
        return {name: value for name, value in vars(self).items() if name not in ("noted", *self.noted)}

    def __post_init__(self) -> None:
        if self.decimal not in (None, *_DECIMALS):
            raise InputError(f'`decimal` must be "." or ",". Got {self.decimal!r}.')
        if self.date_format is not None and (wrong := check_date_format(self.date_format)):
            raise InputError(
                f"`date_format` must be {', '.join(DATE_ORDERS)} or a form such as '%d/%m/%Y %H:%M'. "
                f"Got {self.date_format!r}: {wrong}."
            )
        if self.encoding is not None and not _is_encoding(self.encoding):
            raise InputError(f"`encoding` must be one that Python knows, such as cp1250. Got {self.encoding!r}.")

    def with_notes(self, notes: Mapping[str, Any]) -> "Reading":
        """The same, and what a model notes of the files that it learned from where nobody says otherwise."""
        found = self
        for name, key in _NOTES.items():
            value = notes.get(key)
            if getattr(self, name) is None and isinstance(value, str):
                change: dict[str, Any] = {name: value, "noted": found.noted | {name}}
                try:
                    found = replace(found, **change)
                except InputError:  # of a forged model
                    continue
        return found

    def notes(self, dialects: Mapping[Path, Dialect]) -> dict[str, str]:
        """What a model keeps that learned from these files: what was said, and what they show."""
        found = {_NOTES[field.name]: getattr(self, field.name) for field in fields(self) if field.name in _NOTES}
        for dialect in dialects.values():
            shown = {
                "decimal_point": dialect.decimal_point if dialect.decimal_example else None,
                "date_format": dialect.date_format or None,
                "encoding": dialect.encoding if dialect.encoding_example else None,
            }
            found = {key: value or shown.get(key) for key, value in found.items()}
        return {key: value for key, value in found.items() if value is not None}

    def settle(self, file: Path, dialect: Dialect) -> Dialect:
        """How a file is written, with what is said of it; refused where it shows otherwise."""
        if self.decimal is not None:
            if dialect.decimal_example and dialect.decimal_point != self.decimal:
                raise DataFileError(
                    f"Cannot read {str(file)!r}: its numbers have {_DECIMALS[dialect.decimal_point]}, such as "
                    f"{dialect.decimal_example}, and {self._said('decimal', _DECIMALS[self.decimal])}. Write them "
                    f"alike, or pass `decimal={dialect.decimal_point!r}` if this file is meant so."
                )
            dialect = replace(dialect, decimal_point=self.decimal, unclear="")
        if self.date_format is not None:
            if self.date_format in DATE_ORDERS and dialect.date_example and dialect.date_format != self.date_format:
                raise self._other_dates(file, dialect, self._said("date_format", f"{_words(self.date_format)}"))
            dialect = replace(dialect, date_format=self.date_format, date_unclear="", date_columns=())
        return dialect

    def settle_together(self, dialects: Mapping[Path, Dialect]) -> dict[Path, Dialect]:
        """Files whose dates are all written in the order that one of them shows."""
        found = {file: self.settle(file, dialect) for file, dialect in dialects.items()}
        showing = {file: dialect for file, dialect in found.items() if dialect.date_example}
        if self.date_format is not None or not showing:
            order = next((dialect.date_format for dialect in found.values() if dialect.date_format), "")
            return {file: replace(dialect, date_format=order) for file, dialect in found.items()}
        first, order = next((file, dialect.date_format) for file, dialect in showing.items())
        for file, dialect in showing.items():
            if dialect.date_format != order:
                raise self._other_dates(file, dialect, f"those of {str(first)!r} {_words(order)}")
        return {file: replace(each, date_format=order, date_unclear="") for file, each in found.items()}

    def _other_dates(self, file: Path, dialect: Dialect, others: str) -> DataFileError:
        return DataFileError(
            f"Cannot read {str(file)!r}: its dates have {_words(dialect.date_format)}, such as {dialect.date_example}, "
            f"and {others}. Write them alike, or pass `date_format={dialect.date_format!r}` if this file is meant so."
        )

    def _said(self, name: str, what: str) -> str:
        """Who wants it otherwise."""
        return (
            f"those of the training had {what}" if name in self.noted else f"`{name}={getattr(self, name)!r}` is given"
        )


def _words(order: str) -> str:
    return f"the {order.removesuffix('-first')} first"


def _is_encoding(name: str) -> bool:
    """Whether Python decodes text by it."""
    try:
        return isinstance(b"a,b".decode(codecs.lookup(name).name, errors="replace"), str)
    except (LookupError, ValueError):
        return False
