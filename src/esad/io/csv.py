"""The one CSV reader: arrow's incremental reader gives every column as text, kernels then tell what it holds.

So nothing hangs on what the first block happens to hold, a file is read once, and a value that cannot be read is known
by its row. Where arrow refuses a file, a slow walk over its lines says what is wrong: no decision rests on the words of
an error. What does not fit into memory is written to a Parquet file of its own (`spool`), which is read from anywhere.
"""

import contextlib
import csv
import functools
import itertools
import logging
import operator
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from esad.core.atomic import unnamed_path
from esad.core.text import list_text, one_line
from esad.errors import DataFileError
from esad.io.dialect import MISSING, Dialect, Notation, find_unreadable, open_text, show_date_order
from esad.table.columns import join_chunks
from esad.table.parse import DATE_ORDERS, PLAIN, Style, parse_amounts, parse_written_dates, read_numerals

logger = logging.getLogger("esad")

PACKING = 5  # of text by gzip, about
PART_BYTES = 1 << 22  # of text, in a part of a spooled file
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_N_TRIED = 100  # cells that tell whether a column is worth reading as numbers

Cells = Literal["texts", "values"]  # of a file, to be written beside the scores
Held: TypeAlias = pa.DataType | Style  # what a column holds: a style where numbers are not written plainly


# ---------------------------------------------------------------------- rows


def read(dialects: Mapping[Path, Dialect], names: Sequence[str], *, text: Sequence[str] = ()) -> dict[Path, pa.Table]:
    r"""All rows of files; a column's type is what all its values agree on, text if they do not or if named in `text`.

    Numbers may be written as `esad.table.parse` knows them; a line in the log says so. Dates stay text, so that one
    parser reads them in training and in scoring, but for those of the dialect's `date_format`.

    Examples
    --------
    >>> import tempfile
    >>> from esad.io.dialect import sniff
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name,size\nx,$1\ny,$2.50\n")
    ...     read({file: sniff(file)}, ["name", "size"])[file].to_pydict()
    {'name': ['x', 'y'], 'size': [1.0, 2.5]}
    """
    as_text = pa.schema([(name, pa.string()) for name in names])
    texts = {
        path: pa.Table.from_batches(_read_texts(path, dialect, names), as_text) for path, dialect in dialects.items()
    }
    columns: dict[Path, list[Any]] = {path: [] for path in texts}
    agreed: dict[str, Held] = {}
    for name in names:
        found = {path: (pa.string(), rows[name]) for path, rows in texts.items()}
        if name not in text:
            found = {path: _read_column(rows[name], dialects[path]) for path, rows in texts.items()}
        agreed[name] = functools.reduce(join_types, (held for held, _ in found.values()), pa.null())
        type_ = stored_type(agreed[name])
        for path, (_, typed) in found.items():
            is_right = typed.type == type_
            columns[path].append(typed if is_right else _turn_texts(texts[path][name], type_, dialects[path]))
    mention_written(agreed)
    return {path: pa.Table.from_arrays(own, names=list(names)) for path, own in columns.items()}


def batches(
    path: Path,
    dialect: Dialect,
    names: Sequence[str],
    *,
    kinds: Mapping[str, str],
    cells: Cells | None = None,
    on_row_share: Callable[[float], None] | None = None,
) -> Generator[pa.RecordBatch]:
    """All rows, block by block: columns of the kind "number" as such, so those of the kind "date", the others as text.

    Dates stay text where the dialect has no `date_format`, for `Schema.align` to parse. With `cells` all columns come
    once more, as "texts" that stand in the file, or as "values". `on_row_share` is told which share of the file a row
    takes, by all that were read.
    """
    n_before = 0
    for batch in _read_texts(path, dialect, names, on_row_share, missing=MISSING if cells is None else ("",)):
        texts = batch.columns
        if cells is not None:
            texts = [pc.if_else(pc.is_in(column, pa.array(MISSING)), None, column) for column in batch.columns]
        columns = [
            _read_kind(path, dialect, name, column, kinds.get(name), n_before)
            for name, column in zip(names, texts, strict=True)
        ]
        if cells == "texts":
            columns += batch.columns
        elif cells == "values":
            written = zip(names, batch.columns, columns, strict=True)
            columns += [_cell_values(dialect, name, column, typed) for name, column, typed in written]
        yield pa.RecordBatch.from_arrays(columns, names=[*names] * (1 if cells is None else 2))
        n_before += batch.num_rows


def _cell_values(dialect: Dialect, name: str, texts: pa.Array, typed: pa.Array) -> pa.Array:
    """Cells to write into a sheet: codes as text, cells of a sheet as what they are there, others as they were read."""
    type_ = pa.string() if name in dialect.codes else (dialect.cell_types or {}).get(name, typed.type)
    return typed if type_ == typed.type != pa.string() else _turn_texts(texts, type_, dialect)


def _read_kind(path: Path, dialect: Dialect, name: str, texts: pa.Array, kind: str | None, n_before: int) -> pa.Array:
    """Text as numbers or dates; what spells none is an error that names the column, the value and the line."""
    values: Any
    if kind == "number":
        values, bad_row = parse_amounts(texts, dialect.decimal.value)
        what, fix = "number, and the column held numbers in training", ""
    elif kind == "date" and dialect.dates.value:
        values, bad_row = parse_written_dates(texts, dialect.dates.value)
        what = f"date of the form {dialect.dates.value}, as those of this file or of the training are"
        fix = ", or say how the dates of this file are written with `date_format`"
    else:
        return texts
    if bad_row is None:
        return pa.array(values, from_pandas=True)
    n_records_before = dialect.n_lines_before + 1 + n_before + bad_row
    line, _ = next(itertools.islice(_read_records(path, dialect), n_records_before, None), (n_records_before + 1, ()))
    raise DataFileError(
        f"Cannot read {str(path)!r}: column {name!r} holds {texts[bad_row].as_py()[:40]!r} in line {line}, which is no "
        f"{what}. Correct the value or leave it empty{fix}."
    )


def find_date_order(path: Path, dialect: Dialect) -> Notation | None:
    """The order of dates that the first lines left open, by all rows, if one shows it."""
    for batch in _read_texts(path, dialect, dialect.date_columns):
        for column in batch.columns:
            if found := show_date_order(column.drop_null()):
                return found
    return None


def _read_texts(
    path: Path,
    dialect: Dialect,
    names: Sequence[str],
    on_row_share: Callable[[float], None] | None = None,
    *,
    missing: Sequence[str] = MISSING,
) -> Generator[pa.RecordBatch]:
    """All rows, block by block, every column as text: null where nothing stands."""
    if not names:
        return
    read_names = list(dict.fromkeys((*names, dialect.names[-1])))  # the last one tells whether quotes close
    last, n_rows = None, 0
    try:
        raw = pa.OSFile(str(path)) if dialect.text is None else pa.BufferReader(dialect.text)
        is_packed = dialect.text is None and path.name.lower().endswith(".gz")
        with (
            raw,
            pa_csv.open_csv(
                pa.CompressedInputStream(raw, "gzip") if is_packed else raw,
                read_options=pa_csv.ReadOptions(
                    use_threads=False,  # several are no faster, and workers beside need the cores
                    block_size=dialect.n_block_bytes,
                    skip_rows=dialect.n_lines_before,
                    encoding=dialect.encoding.value,
                ),
                # no `invalid_row_handler`: arrow's threads may let go of it when Python is gone, which aborts us
                parse_options=pa_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True),
                convert_options=pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(read_names, pa.string()),
                    include_columns=read_names,
                    null_values=list(missing),
                    strings_can_be_null=True,
                ),
            ) as reader,
        ):
            n_bytes = _text_bytes(path, raw.size()) if is_packed else raw.size()
            for n_blocks, batch in enumerate(reader, 1):  # one a block; arrow itself reads far ahead
                if batch.num_rows:
                    last, n_rows = batch.column(dialect.names[-1])[-1].as_py(), n_rows + batch.num_rows
                    if on_row_share is not None:
                        on_row_share(min(1.0, n_blocks * dialect.n_block_bytes / n_bytes) / n_rows)
                    yield batch.select(list(names))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if fault := _explain_fault(path, dialect, error):
            raise fault from error
    is_long = last is not None and re.search(r"[\r\n]", last)  # arrow takes a quote that never closes for a long value
    if is_long and (wrong := _find_quote_fault(path, dialect)):
        raise wrong


def _text_bytes(path: Path, n_packed: int) -> int:
    """About how long the text of a gzip file is: as its end says, unless that is less than the file has."""
    with path.open("rb") as packed:
        packed.seek(-4, os.SEEK_END)
        n_said = int.from_bytes(packed.read(), "little")
    return n_said if n_said > n_packed else PACKING * n_packed


# ---------------------------------------------------------------------- what a column holds


def _read_column(column: pa.ChunkedArray | pa.Array, dialect: Dialect) -> tuple[Held, Any]:
    """What all texts of a column agree on, and the column in that type."""
    if column.null_count == len(column):
        return pa.null(), column
    head = column.drop_null().slice(0, _N_TRIED)
    is_form = bool(dialect.dates.value) and dialect.dates.value not in DATE_ORDERS  # may look like a number: 20240131
    if is_form and (dates := _as_dates(head, column, dialect)) is not None:
        return pa.timestamp("us"), dates
    for type_ in (pa.int64(), pa.float64(), pa.bool_()):
        typed = None if _as_type(head, type_, dialect) is None else _as_type(column, type_, dialect)
        if typed is not None:
            return type_, typed
    style = read_numerals(join_chunks(head), decimal_point=dialect.decimal.value)[1]
    if style is not None:
        style = read_numerals(join_chunks(column), decimal_point=dialect.decimal.value)[1]
    if style is not None and style.is_sound:
        return style, _turn_texts(column, pa.float64(), dialect)
    if style is None and (dates := _as_dates(head, column, dialect)) is not None:
        return pa.timestamp("us"), dates
    return style or pa.string(), column


def _as_dates(head: Any, column: Any, dialect: Dialect) -> pa.Array | None:
    """Texts as dates of the dialect, None if one is none, or if the dialect has no dates of its own."""
    form = dialect.dates.value
    if not form or parse_written_dates(join_chunks(head), form)[1] is not None:
        return None
    dates, bad_row = parse_written_dates(join_chunks(column), form)
    return pa.array(dates) if bad_row is None else None


def _as_type(texts: Any, type_: pa.DataType, dialect: Dialect) -> Any:
    """Texts as plain values of a type, None if one is not."""
    if type_ == pa.bool_():
        found = pc.index_in(texts, value_set=pa.array(list(_TRUTHS)))
        if found.null_count > texts.null_count:
            return None
        return pc.take(pa.array(list(_TRUTHS.values())), found)
    if dialect.decimal.value == "," and type_ == pa.float64():
        if pc.any(pc.match_substring(texts, ".")).as_py():
            return None
        texts = pc.replace_substring(texts, ",", ".")
    try:
        return texts.cast(type_)
    except pa.ArrowInvalid:
        return None


def stored_type(held: Held) -> pa.DataType:
    """The type of a column that holds so much; one without any value is taken for text, as whatever may come later."""
    if isinstance(held, Style):
        return pa.float64() if held.is_sound else pa.string()
    return pa.string() if pa.types.is_null(held) else held


def join_types(one: Held, other: Held) -> Held:
    """What a column holds that holds the one here and the other there: text where they do not agree.

    Examples
    --------
    >>> join_types(pa.int64(), pa.float64()), join_types(pa.bool_(), pa.int64()), join_types(pa.null(), pa.bool_())
    (DataType(double), DataType(string), DataType(bool))
    """
    if one == other or other == pa.null():
        return one
    if one == pa.null():
        return other
    numbers = (pa.int64(), pa.float64())
    if one in numbers and other in numbers:
        return pa.float64()
    if (isinstance(one, Style) or one in numbers) and (isinstance(other, Style) or other in numbers):
        return functools.reduce(operator.or_, (held if isinstance(held, Style) else PLAIN for held in (one, other)))
    return pa.string()


def _turn_texts(column: pa.ChunkedArray | pa.Array, type_: pa.DataType, dialect: Dialect) -> Any:
    """Texts as a type that holds all of them."""
    if pa.types.is_string(type_):
        return column
    if pa.types.is_timestamp(type_):
        return pa.array(parse_written_dates(join_chunks(column), dialect.dates.value)[0])
    plain = _as_type(column, type_, dialect)
    if plain is not None:
        return plain
    return pa.array(parse_amounts(join_chunks(column), dialect.decimal.value)[0], from_pandas=True)


def mention_written(held: Mapping[str, Held]) -> None:
    """Say in the log which columns of text are read as numbers."""
    if names := [name for name, style in held.items() if isinstance(style, Style) and style.is_sound]:
        logger.warning("read as numbers, though not written plainly: %s", list_text(names))


# ---------------------------------------------------------------------- more than fits into memory


def spool(
    path: Path,
    dialect: Dialect,
    names: Sequence[str],
    *,
    held: Mapping[str, Held] | None = None,
    on_bytes: Callable[[int], None] | None = None,
) -> tuple[pa.NativeFile, dict[str, Held]]:
    """Write a CSV file to a temporary Parquet file, block by block.

    Parameters
    ----------
    path, dialect, names
        The file and its columns.
    held : dict of str to Held, optional
        What is known of columns, such as that some are text; the first block tells of others. Where a later block
        contradicts it, the rest is looked at without being written, and all is written anew: so a file is read twice
        at most.
    on_bytes : callable, optional
        Told how many bytes of text have been read.

    Returns
    -------
    source : pyarrow.NativeFile
        The Parquet file, which has no name any more: it goes when nobody reads it, whatever happens.
    held : dict of str to Held
        What each column holds.
    """
    known = dict(held or {})
    for _ in range(2):
        with unnamed_path(path, "rows.parquet", instead="Parquet") as target:
            found, is_whole = _write_rows(path, dialect, names, known, target, on_bytes)
            if is_whole:
                return pa.OSFile(str(target)), found
        known, on_bytes = found, None
    raise DataFileError(f"Cannot read {str(path)!r}: it changes while it is read.")


def _write_rows(
    path: Path,
    dialect: Dialect,
    names: Sequence[str],
    known: Mapping[str, Held],
    target: Path,
    on_bytes: Callable[[int], None] | None,
) -> tuple[dict[str, Held], bool]:
    """Write rows as long as they are what was known before; what all of them hold, and whether all were written."""
    found: dict[str, Held] = {}
    writer: pq.ParquetWriter | None = None
    is_whole = True
    with contextlib.ExitStack() as stack:
        for batch in _read_texts(path, dialect, names):
            typed = {name: _read_column(batch.column(name), dialect) for name in names}
            own = {name: known.get(name, typed[name][0]) for name in names}
            found = {name: join_types(found.get(name, own[name]), own[name]) for name in names}
            schema = pa.schema([(name, stored_type(found[name])) for name in names])
            writer = writer or stack.enter_context(pq.ParquetWriter(str(target), schema, compression="lz4"))
            is_whole = is_whole and schema == writer.schema
            if is_whole:
                columns = [
                    typed[name][1] if typed[name][1].type == type_ else _turn_texts(batch.column(name), type_, dialect)
                    for name, type_ in zip(names, schema.types, strict=True)
                ]
                n_parts = max(1, -(-batch.nbytes // PART_BYTES))
                rows = pa.Table.from_arrays(columns, schema=schema)
                writer.write_table(rows, row_group_size=max(1, -(-rows.num_rows // n_parts)))
            if on_bytes is not None:
                on_bytes(batch.nbytes)
        if writer is None:  # no row at all
            found = {name: known.get(name, pa.null()) for name in names}
            schema = pa.schema([(name, stored_type(found[name])) for name in names])
            stack.enter_context(pq.ParquetWriter(str(target), schema))
    return found, is_whole


# ---------------------------------------------------------------------- what is wrong with a file


def _explain_fault(path: Path, dialect: Dialect, error: Exception) -> DataFileError | None:
    """What is wrong with a file that arrow refuses, in one line that names file and line; None if nothing is."""
    with contextlib.suppress(pa.ArrowException, OSError):  # the file itself is damaged, as `error` says
        if _is_header_only(path, dialect):  # which arrow refuses where its line does not end
            return None
        ragged, is_last = _find_ragged_line(path, dialect)
        if ragged and not is_last:
            return ragged
        if wrong := find_unreadable(path, dialect.encoding.value) or _find_quote_fault(path, dialect) or ragged:
            return wrong
    return DataFileError(f"Cannot read {str(path)!r}: {one_line(error)}.")


def _is_header_only(path: Path, dialect: Dialect) -> bool:
    lines = _read_lines(path, dialect)
    records = filter(None, csv.reader(lines, delimiter=dialect.delimiter))
    try:
        next(itertools.islice(records, dialect.n_lines_before, None), None)
    except csv.Error:  # a field too long to look at
        return False
    return not any(line.strip("\r\n") for line in lines)  # what the header left of them


def _find_ragged_line(path: Path, dialect: Dialect) -> tuple[DataFileError | None, bool]:
    """The first line with more or fewer fields than the header; and whether it is the last, as quotes may make it."""
    n_names = len(dialect.names)
    records = _read_records(path, dialect)
    for number, (line, fields) in enumerate(records, 1 - dialect.n_lines_before):
        if number > 1 and len(fields) != n_names:
            fix = "Fix or remove that line."
            if len(fields) > n_names and (number == 2 or n_names == 1):  # a blank row may stand below a title
                fix = "The first line must name every column; no title may stand before it."
            reason = f"line {line} has {len(fields)} fields, the header has {n_names}. "
            return DataFileError(f"Cannot read {str(path)!r}: {reason}{fix}"), next(records, None) is None
    return None, False


def _find_quote_fault(path: Path, dialect: Dialect) -> DataFileError | None:
    """Quotes that never close or close too late, as arrow reads them: they mean something only where a field begins."""
    mark = re.escape(dialect.delimiter)
    closing, plain = re.compile(r'[^"]*(?:""[^"]*)*"'), re.compile(rf"[^{mark}]*{mark}?")
    opened_in, start, length, longest, line_of_longest = None, 1, 0, 0, 1
    for number, line in enumerate(_read_lines(path, dialect), 1):
        place = 0
        if opened_in is None:
            start, length = number, 0
        length += len(line.encode())
        while place < len(line):
            if opened_in is None and line[place] == '"':
                opened_in, place = number, place + 1
            if opened_in is not None:
                closed = closing.match(line, place)
                if closed is None:
                    break
                opened_in, place = None, closed.end()
            found = plain.match(line, place)
            place = found.end() if found and found.end() > place else len(line)
        if length > longest:
            longest, line_of_longest = length, start
    if opened_in is not None:
        return DataFileError(
            f"Cannot read {str(path)!r}: it ends inside quotes that were opened in line {opened_in}. Close them."
        )
    return _too_long_error(path, dialect, line_of_longest) if longest > dialect.n_block_bytes else None


def _too_long_error(path: Path, dialect: Dialect, line: int) -> DataFileError:
    return DataFileError(
        f"Cannot read {str(path)!r}: line {line} is longer than {dialect.n_block_bytes} bytes. "
        "Are there quotes that close too late?"
    )


def _read_lines(path: Path, dialect: Dialect) -> Iterator[str]:
    """All lines; one that arrow would refuse too, since it fills two blocks, is never held as a whole."""
    n_most = 2 * dialect.n_block_bytes
    with open_text(path, dialect) as text:
        for number in itertools.count(1):
            line = text.readline(n_most)
            if len(line) == n_most:
                raise _too_long_error(path, dialect, number)
            if not line:
                return
            yield line


def _read_records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """All records, blank lines left out, with the line in which each starts; in a sheet that is its row."""
    rows = csv.reader(_read_lines(path, dialect), delimiter=dialect.delimiter)
    start = 1
    with contextlib.suppress(csv.Error):  # a field too long to look at
        for fields in rows:
            if fields:
                yield start, fields
            start = start + 1 if dialect.text is not None else rows.line_num + 1
