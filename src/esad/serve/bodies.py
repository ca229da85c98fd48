"""From the body of a request to rows or pictures, by its type."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.errors import RequestError, SchemaError
from esad.io.images import as_images
from esad.serve.files import parquet_rows, picture_rows, text_rows
from esad.serve.json_rows import json_rows
from esad.serve.model import Served
from esad.serve.rows import Rows, check_count
from esad.table.table import Table

__all__ = ["CSV", "JPEG", "JSON", "MULTIPART", "NPY", "PARQUET", "PNG", "TSV", "media_types", "read", "read_uploads"]

JSON, CSV, TSV = "application/json", "text/csv", "text/tab-separated-values"
PARQUET, NPY = "application/vnd.apache.parquet", "application/x-npy"
PNG, JPEG, MULTIPART = "image/png", "image/jpeg", "multipart/form-data"

_SUFFIXES = {CSV: ".csv", TSV: ".tsv"}


def media_types(kind: str) -> tuple[str, ...]:
    """What a model of tables or pictures takes."""
    return (JSON, CSV, TSV, PARQUET, NPY) if kind == "table" else (PNG, JPEG, MULTIPART, NPY)


def read(media_type: str, body: bytes, served: Served, *, max_rows: int) -> Rows:
    """Rows of a body of one of `media_types`, other than uploads.

    Raises
    ------
    RequestError
        413 for more than `max_rows` rows or too much when unpacked, 400 for what is not of its type.
    InputError
        It does not fit the model.
    """
    if not body:
        raise RequestError(400, "The body is empty. Send rows or pictures.")
    readers: Mapping[str, Callable[[], Rows]] = {
        JSON: lambda: json_rows(body, served, max_rows),
        NPY: lambda: _npy_rows(body, served, max_rows),
        **dict.fromkeys((CSV, TSV), lambda: text_rows(body, _SUFFIXES[media_type], served, max_rows)),
        PARQUET: lambda: parquet_rows(body, served, max_rows),
        **dict.fromkeys((PNG, JPEG), lambda: picture_rows([("the picture", body)], served, max_rows)),
    }
    return readers[media_type]()


def read_uploads(uploads: Sequence[tuple[str, bytes]], served: Served, *, max_rows: int) -> Rows:
    """Pictures that came as files of a form, with their names."""
    if not uploads:
        raise RequestError(422, "The form has no file. Send PNG or JPEG pictures as files.")
    found = picture_rows([(f"{name!r}", content) for name, content in uploads], served, max_rows)
    return replace(found, ids=[name for name, _ in uploads])


def _npy_rows(body: bytes, served: Served, max_rows: int) -> Rows:
    """An array file of numbers: nothing that could run code, no more than its bytes can hold."""
    file = io.BytesIO(body)
    try:
        version = np.lib.format.read_magic(file)
        reader = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, dtype = reader(file)
    except (
        ValueError,
        KeyError,
        OverflowError,
        MemoryError,
        SyntaxError,
        TypeError,
        EOFError,
        RecursionError,
    ) as error:
        raise RequestError(400, "The body is no .npy file of version 1 or 2.") from error
    if dtype.kind not in "fiub":
        raise RequestError(422, f"The array must hold numbers or truth values. Got {str(dtype)[:100]}.")
    if min(shape, default=0) < 1 or len(shape) > 4:
        raise RequestError(422, f"The array must have 2 to 4 axes, none of them empty. Got {str(shape)[:100]}.")
    check_count(shape[0], max_rows)
    if math.prod(shape) * dtype.itemsize != len(body) - file.tell():
        raise RequestError(400, "The .npy file is cut, or longer than its shape says.")
    file.seek(0)
    return _array_rows(np.load(file, allow_pickle=False), served)


def _array_rows(array: NDArray[Any], served: Served) -> Rows:
    inputs = served.detector.inputs_
    schema = inputs.schema
    if schema is None:
        images = as_images(array)
        if images.shape[1:] != inputs.shape:
            raise SchemaError(f"Pictures must have (channels, height, width) = {inputs.shape}. Got {images.shape[1:]}.")
        return Rows(served, images)
    if array.ndim != 2 or array.shape[1] != len(schema.columns):
        raise SchemaError(f"The array must have the shape (rows, {len(schema.columns)}). Got {array.shape}.")
    table = replace(Table.from_any(array), names=schema.names, named=schema.named)
    return Rows(served, schema.align(table))
