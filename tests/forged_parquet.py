"""Parquet files whose pages contradict what the file says of itself; heads are Thrift's compact protocol."""

import struct
from typing import Any

_STRUCT, _LIST, _BINARY, _DOUBLE, _BYTE = 12, 9, 8, 7, 3
_FLAGS, _INTEGERS = (1, 2), (4, 5, 6)

Fields = dict[int, list[Any]]  # number of a field: [its type, its value]


def _varint(body: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[place]
        place, value, shift = place + 1, value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, place


def _value(body: bytes, place: int, kind: int) -> tuple[Any, int]:
    if kind in _FLAGS:
        return None, place
    if kind in _INTEGERS:
        coded, place = _varint(body, place)
        return (coded >> 1) ^ -(coded & 1), place
    if kind == _BINARY:
        length, place = _varint(body, place)
        return body[place : place + length], place + length
    if kind == _STRUCT:
        return read(body, place)
    if kind == _LIST:
        head, place = body[place], place + 1
        length = head >> 4
        if length == 15:
            length, place = _varint(body, place)
        values = []
        for _ in range(length):
            value, place = _value(body, place, head & 15)
            values.append(value)
        return (head & 15, values), place
    size = {_DOUBLE: 8, _BYTE: 1}[kind]
    return body[place : place + size], place + size


def read(body: bytes, place: int) -> tuple[Fields, int]:
    """A structure, and where it ends."""
    fields: Fields = {}
    number = 0
    while head := body[place]:
        number, place = number + (head >> 4), place + 1
        value, place = _value(body, place, head & 15)
        fields[number] = [head & 15, value]
    return fields, place + 1


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(value: int) -> bytes:
    """A signed number."""
    return _number(value << 1 if value >= 0 else (-value << 1) - 1)


def _written(kind: int, value: Any) -> bytes:
    if kind in _FLAGS:
        return b""
    if kind in _INTEGERS:
        return number(value)
    if kind == _BINARY:
        return _number(len(value)) + value
    if kind == _STRUCT:
        return write(value)
    if kind == _LIST:
        inner, values = value
        return bytes([0xF0 | inner]) + _number(len(values)) + b"".join(_written(inner, one) for one in values)
    return bytes(value)


def write(fields: Fields) -> bytes:
    """A structure as bytes."""
    out, before = b"", 0
    for field, (kind, value) in sorted(fields.items()):
        out += bytes([(field - before) << 4 | kind]) + _written(kind, value)
        before = field
    return out + b"\0"


def forged(body: bytes, *, page: Any = None, footer: Any = None) -> bytes:
    """A file with the heads and contents of its pages changed by `page(head, content)`, its end by `footer(fields)`."""
    (length,) = struct.unpack("<I", body[-8:-4])
    meta, _ = read(body[-8 - length : -8], 0)
    out = b"PAR1"
    for group in meta[4][1][1]:
        for chunk in group[1][1][1]:
            about = chunk[3][1]
            place = min(about[field][1] for field in (9, 11) if field in about)
            end, began = place + about[7][1], len(out)
            while place < end:
                head, place = read(body, place)
                content, place = body[place : place + head[3][1]], place + head[3][1]
                content = content if page is None else page(head, content)
                head[3][1] = len(content)
                about[11 if head[1][1] == 2 else 9][1] = len(out)
                out += write(head) + content
            about[7][1] = len(out) - began
    if footer is not None:
        footer(meta)
    end_of_file = write(meta)
    return out + end_of_file + struct.pack("<I", len(end_of_file)) + b"PAR1"
