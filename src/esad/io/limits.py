"""What a file may become when it is read, held by a process of its own whose memory and time have an end.

A reader believes what a file says of itself: a kilobyte of Parquet can make it take gigabytes, and a picture of empty
chunks a quarter of a minute. So files from strangers are read by another process first. If that dies, or is ended
because it takes too long, the file is refused; the program that asked does not notice more of it.
"""

import atexit
import contextlib
import functools
import json
import os
import queue
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from esad.core.text import one_line
from esad.core.worker import LostWorker, Worker
from esad.errors import DataFileError, EsadError, InputError, LimitError, SchemaError

_PIECE_ROWS, _LARGE_PIECE_ROWS = 64, 1024  # looked at in one go: of files that may have few rows, of others
_BATCH_ROWS = 65_536  # that `esad.io` reads in one go
_TAIL_BYTES = 8  # behind the description of a Parquet file: its length and the magic word
_DESCRIPTION_BYTES = 512  # of a column that is allowed
_PICTURE_SECONDS = 0.01
_PIECE_BYTES, _FILE_PIECES, _MOST_PIECES = 1024, 100, 5000  # of pictures: encoders write 4 KB and more, or a line
_MOST_SCANS = 100  # of a JPEG file, each over all pixels; encoders write about a dozen
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # of a JPEG file, beside those inside a scan
_SCAN, _END, _WITHOUT_LENGTH = 0xDA, 0xD9, {0xC8, 0xD8, 0xD9, *range(0xF0, 0xFE)}
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
_REFUSALS = {kind.__name__: kind for kind in (DataFileError, LimitError, SchemaError)}


@dataclass(frozen=True)
class FileLimits:
    """What a file may become.

    Parameters
    ----------
    rows, columns : int, optional
        Of a table.
    unpacked_bytes : int
        Of the cells of 65,536 rows, which are read in one go, and of a set of pictures. A text that is kept once and
        meant often counts as often as it is meant.
    seconds : float, optional
        That reading may take; a hundredth of a second more for every picture.
    """

    rows: int | None = None
    columns: int | None = None
    unpacked_bytes: int = 2**28
    seconds: float | None = 5.0


def check_unpacked_size(path: str | os.PathLike[str], unpacked_bytes: int) -> None:
    """Refuse a Parquet file of which 65,536 rows take more than so many bytes.

    Raises
    ------
    LimitError
        It becomes more than it may.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"name": ["x" * 10_000] * 1000}), f"{folder}/names.parquet")
    ...     check_unpacked_size(f"{folder}/names.parquet", 2**20)
    Traceback (most recent call last):
        ...
    esad.errors.LimitError: '.../names.parquet' is refused. Unpacked, this is more than 1 MiB. Allow more ...
    """
    if not os.path.isfile(path):
        return
    limits = FileLimits(unpacked_bytes=unpacked_bytes, seconds=None)
    try:
        _keep_readers(unpacked_bytes + 2**28).check_parquet(Path(path), limits)
    except LimitError as error:
        raise LimitError(
            f"{os.fspath(path)!r} is refused. {error} Allow more (max_unpacked, --max-unpacked) if you trust it."
        ) from error
    except InputError:
        return  # who reads it says better what is wrong


@functools.cache
def _keep_readers(memory_bytes: int) -> "Readers":
    """A reader for the rest of the program: its start takes longer than many a file."""
    readers = Readers(memory_bytes=memory_bytes)
    atexit.register(readers.close)
    return readers


class Readers:
    """Processes that read files within limits, started when they are needed and then kept.

    Parameters
    ----------
    n_readers : int
        Files read at one time; further ones wait.
    memory_bytes : int
        That each may take.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, contextlib.closing(Readers()) as readers:
    ...     pq.write_table(pa.table({"size": [1.0] * 1000}), f"{folder}/sizes.parquet")
    ...     readers.check_parquet(Path(folder) / "sizes.parquet", FileLimits(rows=10))
    Traceback (most recent call last):
        ...
    esad.errors.LimitError: A file may have 10 rows. This one has 1,000.
    """

    def __init__(self, n_readers: int = 1, *, memory_bytes: int = 3 * 2**27) -> None:
        self._memory_bytes = memory_bytes
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._workers = [
            Worker(f"{__name__}:answer", memory_bytes=memory_bytes, environment=_ENVIRONMENT) for _ in range(n_readers)
        ]
        for worker in self._workers:
            self._idle.put(worker)

    def check_parquet(self, path: Path, limits: FileLimits, *, known: Sequence[str] | None = None) -> None:
        """Read a Parquet file from one end to the other and keep nothing.

        Parameters
        ----------
        path : pathlib.Path
        limits : FileLimits
        known : sequence of str, optional
            Columns that will be read; all when not given.

        Raises
        ------
        LimitError
            It becomes more than it may.
        SchemaError
            One of the columns holds lists.
        DataFileError
            It is damaged.
        """
        what = {"path": os.path.abspath(path), "name": str(path), "known": None if known is None else list(known)}
        self._ask("parquet", what, limits, limits.seconds)

    def read_pictures(self, folder: Path, limits: FileLimits, *, shape: tuple[int, ...]) -> NDArray[Any]:
        """The pixels of all pictures of a folder in the order of their names, (n, *shape).

        Raises
        ------
        DataFileError
            One is damaged; its path is named.
        SchemaError
            One has another size.
        LimitError
            They become more than they may.
        """
        n_pictures = len(list(folder.iterdir()))
        seconds = None if limits.seconds is None else limits.seconds + _PICTURE_SECONDS * n_pictures
        head, pixels = self._ask("pictures", {"folder": os.path.abspath(folder), "shape": shape}, limits, seconds)
        return np.frombuffer(pixels, dtype=head["dtype"]).reshape(head["shape"])

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()

    def _ask(
        self, kind: str, what: Mapping[str, Any], limits: FileLimits, seconds: float | None
    ) -> tuple[dict[str, Any], bytes]:
        request = json.dumps({"kind": kind, "limits": asdict(limits), **what}).encode()
        memory = f"{self._memory_bytes >> 20} MiB of memory"
        worker = self._idle.get()
        try:
            head, _, content = worker.ask(request, seconds=seconds).partition(b"\n")
        except LostWorker as error:
            most = memory if seconds is None else f"{memory} and {seconds:g} s"
            raise LimitError(f"Reading it takes more than it may, {most}: {error}.") from error
        finally:
            self._idle.put(worker)
        document = json.loads(head)
        if document.get("refused") == MemoryError.__name__:
            raise LimitError(f"Reading it takes more than the {memory} that it may.")
        if "refused" in document:
            raise _REFUSALS[document["refused"]](document["message"])
        return document, content


# ---------------------------------------------------------------------- in the other process


def answer(request: bytes) -> bytes:
    """What a reader does with a request: a line of JSON, and for pictures their pixels behind it."""
    asked = json.loads(request)
    limits = FileLimits(**asked["limits"])
    try:
        if asked["kind"] == "parquet":
            _read_parquet(asked["path"], asked["name"], asked["known"], limits)
            return b"{}\n"
        pixels = _read_pictures(Path(asked["folder"]), tuple(asked["shape"]), limits)
        head = {"dtype": str(pixels.dtype), "shape": pixels.shape}
        return json.dumps(head).encode() + b"\n" + np.ascontiguousarray(pixels).tobytes()
    except EsadError as error:
        kind = next(kind.__name__ for kind in (*type(error).__mro__, DataFileError) if kind.__name__ in _REFUSALS)
        return json.dumps({"refused": kind, "message": str(error)}).encode()
    except MemoryError as error:  # arrow's too
        return json.dumps({"refused": MemoryError.__name__, "message": str(error)}).encode()


def _read_parquet(path: str, name: str, known: Sequence[str] | None, limits: FileLimits) -> None:
    """Refuse what would become too much: by what the file says of itself, and as it is read."""
    with open(path, "rb") as file:  # in memory a description takes two hundred times as much
        file.seek(-min(_TAIL_BYTES, os.path.getsize(path)), os.SEEK_END)
        n_described = int.from_bytes(file.read()[:4], "little")
    if limits.columns is not None and _DESCRIPTION_BYTES * (128 + limits.columns) < n_described < os.path.getsize(path):
        raise LimitError(f"The description in a Parquet file is too long: {n_described:,} bytes.")
    with _name_damage(name), pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as source:
        _check_most(source.metadata.num_rows, limits.rows, "rows")
        _check_most(source.metadata.num_columns, limits.columns, "columns")
        wanted = [field for field in source.schema_arrow if known is None or field.name in known]
        for field in wanted:
            if pa.types.is_nested(field.type):
                raise SchemaError(
                    f"Column {field.name!r} must hold text, numbers, truth values or dates. It holds lists."
                )
        n_rows = n_before = n_bytes = 0
        n_piece = _PIECE_ROWS if limits.rows is not None else _LARGE_PIECE_ROWS
        names = [field.name for field in wanted]
        for batch in source.iter_batches(batch_size=n_piece, columns=names, use_threads=False):
            n_rows, n_bytes = n_rows + batch.num_rows, n_bytes + sum(map(_n_bytes, batch.columns))
            _check_most(n_rows, limits.rows, "rows")
            _check_unpacked(n_bytes, limits)
            if n_rows - n_before >= _BATCH_ROWS:
                n_before, n_bytes = n_rows, 0


@contextlib.contextmanager
def _name_damage(name: str) -> Iterator[None]:
    try:
        yield
    except (EsadError, MemoryError):
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise DataFileError(f"{name!r} is damaged or no Parquet file ({one_line(error)}).") from error


def _n_bytes(column: pa.Array) -> int:
    """What a column takes when a text that is kept once and meant often is spelt out."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return int(column.nbytes)
    return int(column.nbytes) + (pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)


def _is_text(kind: pa.DataType) -> bool:
    return any(
        of(kind) for of in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    )


def _read_pictures(folder: Path, shape: tuple[int, ...], limits: FileLimits) -> NDArray[Any]:
    from esad.io.picture_folder import open_folder
    from esad.io.pictures import read_header

    channels, height, width = shape
    paths = sorted(folder.iterdir())
    _check_unpacked(4 * len(paths) * channels * height * width, limits)
    _check_undecoded(paths)
    for path in paths:  # the size that each claims is checked before any is unpacked
        header = read_header(path)
        if (header.width, header.height) != (width, height):
            raise SchemaError(
                f"Pictures must have {width} x {height} pixels, as in training. "
                f"{str(path)!r} has {header.width} x {header.height}."
            )
    return np.concatenate([batch.images for batch in open_folder(folder, channels=channels).batches()])


def _check_undecoded(paths: Sequence[Path]) -> None:
    """Refuse what is no picture, and very many tiny pieces, which take a decoder seconds whatever their size."""
    left = _MOST_PIECES + sum(_FILE_PIECES + path.stat().st_size // _PIECE_BYTES for path in paths)
    for path in paths:
        n_scans = 0
        content = path.read_bytes()
        if not content.startswith((_PNG, _JPEG)):
            raise DataFileError(f"Cannot read the picture {str(path)!r}: it is neither PNG nor JPEG.")
        for n_steps, is_scan in _find_pieces(content):
            left, n_scans = left - n_steps, n_scans + is_scan
            if left < 0 or n_scans > _MOST_SCANS:
                raise LimitError(f"The picture {str(path)!r} is in too many pieces for its size.")


def _find_pieces(content: bytes) -> Iterator[tuple[int, bool]]:
    """Chunks of a PNG or segments of a JPEG file: the steps that each takes a decoder, and whether it is a scan."""
    if content.startswith(_PNG):
        place, kind = len(_PNG), b""
        while place < len(content) and kind != b"IEND":
            yield 1, False
            kind = content[place + 4 : place + 8]
            place += 12 + int.from_bytes(content[place : place + 4], "big")  # length and kind before it, a sum behind
    else:
        place, is_scanned = 2, False
        while (found := _MARKER.search(content, place)) and not (is_scanned and found[0][1] == _END):
            marker, n_between = found[0][1], found.start() - place  # skipped one by one, unless they are a scan
            yield 1 + (0 if is_scanned else n_between), marker == _SCAN
            is_scanned = is_scanned or marker == _SCAN
            n_bytes = int.from_bytes(content[found.end() : found.end() + 2], "big")
            place = found.end() + (0 if marker in _WITHOUT_LENGTH else max(2, n_bytes))


def _check_most(n_found: int, most: int | None, what: str) -> None:
    if n_found < 0 or (most is not None and n_found > most):
        raise LimitError(f"A file may have {most or 0:,} {what}. This one has {n_found:,}.")


def _check_unpacked(n_bytes: int, limits: FileLimits) -> None:
    if n_bytes > limits.unpacked_bytes:
        raise LimitError(f"Unpacked, this is more than {limits.unpacked_bytes >> 20} MiB.")
