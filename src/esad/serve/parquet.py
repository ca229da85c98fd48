"""What a Parquet file would become, by the heads of its pages, before any of them is unpacked.

The reader believes what a file says of itself: a kilobyte can make it take gigabytes. So the pages are walked first.
Their heads are structures of Thrift's compact protocol (parquet-format, `PageHeader`).
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow.parquet as pq

from esad.errors import InputError, RequestError

__all__ = ["check_footer", "unpacked_bytes"]

MAX_PAGES: Final = 50_000
_TAIL: Final = 8  # bytes behind the footer: its length and the magic word
_DICTIONARY_HEAD, _DATA_HEADS = 7, (5, 8)  # fields of a page's head: of dictionaries, of data in version 1 and 2
_N_VALUES, _ENCODINGS = 1, {5: 2, 8: 4}  # fields of those
_DELTA_LENGTH, _DELTA_STRINGS = 6, 7
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_MAX_DEPTH: Final = 4


def check_footer(body: bytes, *, most: int) -> None:
    """Refuse a description of more than `most` bytes: in memory it takes two hundred times as much."""
    n_bytes = int.from_bytes(body[-_TAIL : -_TAIL + 4], "little")
    if most < n_bytes < len(body):  # a longer one than the file is damage, which the reader finds
        message = f"The description in a Parquet file for this model may have {most:,} bytes. This one has {n_bytes:,}."
        raise RequestError(413, message)


def unpacked_bytes(body: bytes, metadata: pq.FileMetaData) -> int:
    """How many bytes all pages become, those of lists apart.

    Raises
    ------
    InputError
        A page contradicts the description of the file, or says that it becomes what nobody can check.
    """
    flat = [index for index in range(metadata.num_columns) if not metadata.schema.column(index).max_repetition_level]
    total, n_pages = 0, 0
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, flat):
            place, end = _extent(chunk, len(body))
            while place < end:
                head, place = _structure(body, place, depth=0)
                total += _checked(head, most_values=group.num_rows)
                place += head[3]
                n_pages += 1
                if n_pages > MAX_PAGES:
                    raise InputError(f"It has more than {MAX_PAGES:,} pages")
    return total


def _extent(chunk: pq.ColumnChunkMetaData, n_bytes: int) -> tuple[int, int]:
    """Where the pages of a column begin and end."""
    first = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
        first = min(first, chunk.dictionary_page_offset)
    if not 0 <= first <= first + chunk.total_compressed_size <= n_bytes:
        raise InputError("Its pages lie outside the file")
    return first, first + chunk.total_compressed_size


def _checked(head: Mapping[int, Any], *, most_values: int) -> int:
    """What a page becomes."""
    if not all(isinstance(head.get(field), int) and head[field] >= 0 for field in (2, 3)):
        raise InputError("A page has no size")
    for field in (_DICTIONARY_HEAD, *_DATA_HEADS):
        own = head.get(field, {})
        if not isinstance(own, dict) or own.get(_N_VALUES, 0) > most_values:
            raise InputError("A page has more values than its part of the file has rows")
        if own.get(_ENCODINGS.get(field)) in (_DELTA_LENGTH, _DELTA_STRINGS):
            raise InputError("Texts are encoded as differences, which cannot be checked. Write them plain")
    return int(head[2])


def _structure(body: bytes, place: int, *, depth: int) -> tuple[dict[int, Any], int]:
    """The fields of a structure by number, and where it ends."""
    if depth > _MAX_DEPTH:
        raise InputError("The head of a page is nested too deeply")
    fields: dict[int, Any] = {}
    field = 0
    while (head := _byte(body, place)) != _STOP:
        place += 1
        if head >> 4:
            field += head >> 4
        else:
            field, place = _integer(body, place)
        fields[field], place = _value(body, place, head & 15, depth)
    return fields, place + 1


def _value(body: bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, place
    if kind == _BYTE:
        return _byte(body, place), place + 1
    if kind in _INTEGERS:
        return _integer(body, place)
    if kind == _DOUBLE:
        return None, place + 8
    if kind == _BINARY:
        length, place = _varint(body, place)
        return None, place + length
    if kind == _STRUCT:
        return _structure(body, place, depth=depth + 1)
    raise InputError("The head of a page has a field that does not belong there")  # lists and maps among them


def _integer(body: bytes, place: int) -> tuple[int, int]:
    coded, place = _varint(body, place)
    return (coded >> 1) ^ -(coded & 1), place


def _varint(body: bytes, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = _byte(body, place)
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise InputError("The head of a page has a number without end")


def _byte(body: bytes, place: int) -> int:
    if place >= len(body):
        raise InputError("A page is cut")
    return body[place]
