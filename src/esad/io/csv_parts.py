"""A CSV file in parts: where lines end, so that it can be read from many places, and what its columns hold.

A part is some megabytes of whole lines. One pass over a file finds the parts, counts their rows, and settles the type
of each column by all of its values, as `csv_text.read` would. A compressed file can only be read from its beginning,
and is one part.
"""

import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from esad.errors import DataFileError
from esad.io import csv_text
from esad.io.csv_dialect import Dialect, sniff
from esad.io.csv_faults import check_closed, not_utf8, one_line
from esad.table.parse import PLAIN, Style

__all__ = ["CsvPart", "Held", "Types", "given", "scan", "settled"]

PART_BYTES = 1 << 22
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Types = Mapping[str, pa.DataType]
Held = Mapping[str, pa.DataType | Style]  # of one part: a style where text spells numbers


@dataclass(frozen=True)
class CsvPart:
    """Whole lines of a file.

    Attributes
    ----------
    path : Path
    dialect : Dialect
    start, stop : int
        First byte, and the one after the last; of the text, where the file is compressed.
    is_last : bool
        Whether the file ends with it.
    n_rows : int
    """

    path: Path
    dialect: Dialect = field(repr=False)
    start: int
    stop: int
    is_last: bool
    n_rows: int

    def batches(self, types: Types, names: tuple[str, ...], n_rows: int) -> Iterator[pa.RecordBatch]:
        """Its rows, at most so many at a time."""
        for start, lines in _lines(self.path, self.dialect, self.start, self.stop):
            is_last = self.is_last and start + len(lines) == self.stop
            table = _parsed(self.path, self.dialect, lines, names, types, has_header=start == 0, is_last=is_last)
            yield from table.combine_chunks().to_batches(max_chunksize=n_rows)


def scan(
    path: Path,
    columns: Iterable[str],
    *,
    on_bytes: Callable[[int], None] | None = None,
    dialect: Dialect | None = None,
) -> tuple[list[CsvPart], list[Held]]:
    r"""The parts of a file and what each of them holds, to be `settled`; `on_bytes` is told how far it is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name,size\nx,1\ny,2.5\n")
    ...     (part,), held = scan(file, ["name", "size"])
    >>> part.n_rows, settled(held)
    (2, {'name': DataType(string), 'size': DataType(double)})
    """
    dialect, names = dialect or sniff(path), tuple(columns)
    parts: list[CsvPart] = []
    found: list[Held] = []
    for start, lines in _lines(path, dialect):
        table = _parsed(path, dialect, lines, names, {}, has_header=start == 0, is_last=False)
        if any(pa.types.is_binary(type_) for type_ in table.schema.types):
            raise not_utf8(path)
        found.append({name: _held(table.column(name), dialect) for name in names})
        parts.append(CsvPart(path, dialect, start, start + len(lines), False, table.num_rows))
        if on_bytes is not None:
            on_bytes(len(lines))
    last = parts[-1]
    if path.name.lower().endswith(".gz"):
        parts = [CsvPart(path, dialect, 0, last.stop, True, sum(part.n_rows for part in parts))]
    else:
        parts[-1] = CsvPart(path, dialect, last.start, last.stop, True, last.n_rows)
    return parts, found


def _held(column: pa.ChunkedArray, dialect: Dialect) -> pa.DataType | Style:
    style = csv_text.style_of(column, dialect) if pa.types.is_string(column.type) else None
    return column.type if style is None else style


def settled(found: Iterable[Held]) -> Types:
    """What columns hold by all of their parts: text where these do not agree, or are dates for a later parser.

    Examples
    --------
    >>> settled([{"a": pa.int64(), "b": pa.bool_()}, {"a": pa.float64(), "b": pa.int64()}, {"a": pa.null()}])
    {'a': DataType(double), 'b': DataType(string)}
    """
    by_name: dict[str, set[pa.DataType | Style]] = {}
    for types in found:
        for name, type_ in types.items():
            by_name.setdefault(name, set()).add(type_)
    return {name: _common(held - {pa.null()}) for name, held in by_name.items()}


def given(types: Types) -> Types:
    """The types that rows have once they are read; a line in the log names the numbers that text spells."""
    written = [name for name, type_ in types.items() if type_ == csv_text.WRITTEN]
    if written:
        csv_text.mention_written(written)
    return {**types, **dict.fromkeys(written, pa.float64())}


def _common(held: set[pa.DataType | Style]) -> pa.DataType:
    types = {type_ for type_ in held if not isinstance(type_, Style)}
    if types == {pa.bool_()} == held:
        return pa.bool_()
    if not types <= {pa.int64(), pa.float64()}:
        return pa.string()
    if types == held:
        return pa.int64() if types == {pa.int64()} else pa.float64()  # without any value: numbers
    styles = [style for style in held if isinstance(style, Style)] + ([PLAIN] if types else [])
    return csv_text.WRITTEN if functools.reduce(operator.or_, styles).is_sound else pa.string()


def _parsed(
    path: Path, dialect: Dialect, lines: bytes, names: tuple[str, ...], types: Types, *, has_header: bool, is_last: bool
) -> pa.Table:
    """Lines as a table; columns without an entry in `types` are read as what these lines hold."""
    if not has_header and not lines.strip(b"\r\n"):
        return pa.table({name: pa.nulls(0) for name in names})
    wanted = {name: types[name] for name in names if name in types}
    arguments = csv_text.options(dialect, names, wanted, use_threads=True, has_header=has_header)
    try:
        table = pa_csv.read_csv(pa.BufferReader(lines), **arguments)
    except (pa.ArrowException, OSError) as error:
        raise csv_text.fault(path, dialect, names, error) from error
    if is_last:
        check_closed(path, dialect, csv_text.last_text(table, dialect))
    return csv_text.turned(path, dialect, table.select(list(names)))


def _lines(path: Path, dialect: Dialect, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Some megabytes of whole lines at a time, each with its first byte's place."""
    ends = _whole_lines(dialect.delimiter)
    held, at_end = b"", False
    try:
        with pa.input_stream(str(path), compression="detect") as source:
            if start:
                source.seek(start)
            while not at_end:
                n_asked = (PART_BYTES if stop is None else min(PART_BYTES, stop - start)) - len(held)
                read = source.read(n_asked)
                held += read
                at_end = len(read) < n_asked or start + len(held) == stop
                lines = held if at_end else held[: ends(held)]
                if not lines and not at_end:
                    raise DataFileError(
                        f"Cannot read {str(path)!r}: a line is longer than {PART_BYTES} bytes. Are there quotes that "
                        "never close?"
                    )
                if lines:
                    yield start, lines
                start, held = start + len(lines), held[len(lines) :]
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"Cannot read {str(path)!r}: {one_line(error)}.") from error


def _whole_lines(delimiter: str) -> Callable[[bytes], int]:
    """A function from text that begins with a line to the length of its whole lines, by the rules of pyarrow.

    A quote only means something at the beginning of a field; line ends between quotes are part of the value.
    """
    plain = rb"[^\r\n%s]*+" % re.escape(delimiter.encode())
    quoted = rb'"[^"]*+(?:""[^"]*+)*+"' + plain
    one = rb'(?:%s|(?!")%s)' % (quoted, plain)
    lines = re.compile(rb"(?:%s(?:%s%s)*+[\r\n]++)*+" % (one, re.escape(delimiter.encode()), one))

    def length(text: bytes) -> int:
        if b'"' not in text:
            return max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        first = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
        found = lines.match(text, first)
        return found.end() if found is not None and found.end() > first else 0

    return length
