"""Rows and pictures from bodies that are files: CSV, Parquet, PNG and JPEG, by the readers of the command line."""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from esad.detectors.opening import Block, open_pictures, open_table, plain_id
from esad.errors import InputError, RequestError, SchemaError
from esad.io.csv_faults import one_line
from esad.io.pictures import read_header
from esad.serve import parquet
from esad.serve.model import Served
from esad.serve.rows import Rows, check_count, check_expanded, check_width, schema_of
from esad.table.table import Table

__all__ = ["parquet_rows", "picture_rows", "text_rows"]

_PARQUET_ROWS = 64  # looked at in one go
_FOOTER_BYTES = 2**18  # of a Parquet file's description, beside a KiB for every column of the model


def text_rows(body: bytes, suffix: str, served: Served, max_rows: int) -> Rows:
    """Rows of a text with separators; the suffix says which."""
    header = re.match(rb'(?:\xef\xbb\xbf)?(?:"?sep=[^\r\n]*)?\s*[^\r\n]*', body)
    assert header is not None  # an empty one at least
    check_width(sum(map(header[0].count, (b",", b";", b"\t", b"|"))), served)
    with _lying(body, suffix) as path:
        return _table_rows(path, served, max_rows)


def parquet_rows(body: bytes, served: Served, max_rows: int) -> Rows:
    """Rows of a Parquet file."""
    with _lying(body, ".parquet") as path:
        _check_parquet(body, path, served, max_rows)
        return _table_rows(path, served, max_rows)


def _table_rows(path: Path, served: Served, max_rows: int) -> Rows:
    """Rows of a file, read as `esad score` reads it."""
    source = open_table(path, served.detector)
    blocks: list[Block] = []
    n_rows = 0
    for block in source.blocks:
        n_rows += block.n_rows
        check_count(n_rows, max_rows)
        blocks.append(block)
    schema = schema_of(served)
    table = replace(Table.from_any(pa.concat_tables([block.X for block in blocks])), named=schema.named)
    ids = None
    if source.id_name is not None:
        ids = [plain_id(cell) for block in blocks for cell in block.ids.to_pylist()]
    return Rows(served, schema.align(table), ids)


def _check_parquet(body: bytes, path: Path, served: Served, max_rows: int) -> None:
    """Refuse what would become too much: by what the file says of itself, by what its pages say, and as it is read."""
    try:
        parquet.check_footer(body, most=_FOOTER_BYTES + 1024 * len(schema_of(served).columns))
        with pq.ParquetFile(str(path), pre_buffer=False, buffer_size=1 << 16) as source:
            metadata = source.metadata
            check_count(metadata.num_rows, max_rows)
            check_width(metadata.num_columns, served)
            check_expanded(parquet.unpacked_bytes(body, metadata))
            names = source.schema_arrow.names
            known = {*schema_of(served).names, served.detector.notes_.get("id_column")}
            read = [name for name in names if name in known] if schema_of(served).named else names
            for name in read:
                if pa.types.is_nested(source.schema_arrow.field(name).type):
                    raise SchemaError(
                        f"Column {name!r} must hold text, numbers, truth values or dates. It holds lists."
                    )
            n_rows, n_bytes = 0, 0
            for batch in source.iter_batches(batch_size=_PARQUET_ROWS, columns=read, use_threads=False):
                n_rows, n_bytes = n_rows + batch.num_rows, n_bytes + sum(map(_n_bytes, batch.columns))
                check_count(n_rows, max_rows)
                check_expanded(n_bytes)
    except (RequestError, SchemaError):
        raise
    except (InputError, pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise RequestError(422, f"The body is damaged or no Parquet file ({one_line(error)}).") from error


def _n_bytes(column: pa.Array) -> int:
    """What a column takes when a text that is kept once and meant often is spelt out."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return int(column.nbytes)
    return int(column.nbytes) + (pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        of(kind) for of in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def picture_rows(named: Sequence[tuple[str, bytes]], served: Served, max_rows: int) -> Rows:
    """PNG and JPEG files; the size that each claims is checked before any is unpacked."""
    check_count(len(named), max_rows)
    channels, height, width = served.detector.inputs_.shape
    check_expanded(4 * len(named) * channels * height * width)
    with tempfile.TemporaryDirectory(prefix="esad-") as folder:
        paths = [Path(folder) / f"{number:08d}.png" for number in range(len(named))]
        for path, (name, content) in zip(paths, named, strict=True):
            path.write_bytes(content)
            with _renamed(path, name):
                header = read_header(path)
            if (header.width, header.height) != (width, height):
                raise SchemaError(
                    f"Pictures must have {width} x {height} pixels, as in training. "
                    f"{name} has {header.width} x {header.height}."
                )
        with _renamed(Path(folder), "the pictures"):
            images = [block.X for block in open_pictures(Path(folder), served.detector).blocks]
    return Rows(served, np.concatenate(images))


@contextlib.contextmanager
def _lying(body: bytes, suffix: str) -> Iterator[Path]:
    """The body as a file of its own, for readers that want one."""
    with tempfile.TemporaryDirectory(prefix="esad-") as folder:
        path = Path(folder) / f"body{suffix}"
        path.write_bytes(body)
        with _renamed(path, "the body"):
            yield path


@contextlib.contextmanager
def _renamed(path: Path, name: str) -> Iterator[None]:
    """Errors that name a temporary file name what was sent instead."""
    try:
        yield
    except RequestError:
        raise
    except InputError as error:
        raise RequestError(422, str(error).replace(repr(str(path)), name).replace(str(path), name)) from error
    except (pa.ArrowException, OverflowError) as error:  # dates beyond all calendars, nanoseconds of the day
        raise RequestError(422, f"{name} holds a value that cannot be read: {one_line(error)}.") from error
