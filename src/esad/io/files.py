r"""The one door for data on disk: a path is opened and sniffed once, then read whole, in batches or in parts.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     file = Path(folder) / "sizes.csv"
...     _ = file.write_text("name;size\nx;1,5\ny;NA\n")
...     data = open_data(file)
...     data.names, data.dialect.decimal.value, data.read().to_pydict()
(('name', 'size'), ',', {'name': ['x', 'y'], 'size': [1.5, None]})
"""

import contextlib
import glob
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pyarrow as pa

from esad.errors import DataFileError, SchemaError
from esad.io import csv, excel, limits, parquet
from esad.io.dialect import Dialect, Reading, sniff
from esad.io.picture_folder import Broken, PictureFolder, Resize, open_folder
from esad.io.pictures import is_picture
from esad.table.columns import is_text_type, read_arrow
from esad.table.table import Schema

__all__ = [
    "SUFFIXES",
    "Dialect",
    "Part",
    "TableFiles",
    "as_text",
    "find_tables",
    "is_table",
    "open_data",
    "open_tables",
    "read_table",
]

_CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
_PARQUET = (".parquet", ".pq")
SUFFIXES = _CSV + _PARQUET + excel.SUFFIXES
_OTHER_SHEETS = (".xls", ".xlsb", ".ods")
_HIDDEN = (".", "_")  # as Spark, Hive and Arrow have it
_MAX_CELLS = 1 << 22  # of one batch: 32 MiB as float64, however wide the table

_Path = str | os.PathLike[str]
_PLAINLY = Reading()  # nobody says anything


def open_data(
    path: _Path,
    *,
    reading: Reading = _PLAINLY,
    labels_csv: _Path | None = None,
    broken: Broken | None = None,
    resize: Resize = None,
) -> "TableFiles | PictureFolder":
    """Open whatever lies at a path.

    Parameters
    ----------
    path : str or path-like
        A CSV, Parquet or Excel file, a folder or a pattern of them (`parts/`, `2024-*.parquet`), or a folder of
        pictures.
    reading : Reading, optional
        What is said about tables.
    labels_csv, broken, resize
        Of a folder of pictures, as for `esad.io.picture_folder.open_folder`; with `labels_csv` it is one.

    Returns
    -------
    TableFiles or PictureFolder
        Both have `n_rows`, `read()` and `batches()`.
    """
    is_folder = os.path.isdir(path)
    found = () if is_folder and labels_csv is not None else find_tables(path)
    if is_folder and not found:
        return open_folder(path, labels_csv=labels_csv, broken=broken, resize=resize)
    return TableFiles(found or (path,), reading=reading)


def open_tables(path: _Path, reading: Reading = _PLAINLY) -> "TableFiles":
    """Open a CSV, Parquet or Excel file, a folder or a pattern of them."""
    return TableFiles(find_tables(path) or (path,), reading=reading)


def read_table(path: _Path, *, columns: Sequence[str] | None = None, text: Sequence[str] = ()) -> pa.Table:
    r"""Read a whole CSV, Parquet or Excel file; `columns` and `text` as for `TableFiles.read`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name;size\nx;1,5\ny;NA\n")
    ...     read_table(file).to_pydict()
    {'name': ['x', 'y'], 'size': [1.5, None]}
    """
    return TableFiles([path]).read(columns, text=text)


@dataclass(frozen=True)
class Part:
    """Rows of a file that follow each other: a row group of Parquet, of a file that may stand for another (`source`).

    Columns are turned into `types`, those in `text` into text; others stay as they are.
    """

    file: Path
    group: int
    n_rows: int
    source: pa.NativeFile | None
    types: Mapping[str, pa.DataType]
    text: Sequence[str] = ()

    def batches(self, names: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        """Its rows, at most so many at a time."""
        for batch in parquet.batches(self.file, names, n_rows, group=self.group, source=self.source):
            yield as_text(_cast(pa.Table.from_batches([batch]), self.types), self.text)


class TableFiles:
    """One or several CSV, Parquet and Excel files with the same columns, opened and sniffed.

    Parameters
    ----------
    paths : sequence of path-like
        Files, in the order of their rows. What is missing, empty or no table is a DataFileError here.
    reading : Reading, optional
        What is said about the files; those that show otherwise are a DataFileError.

    Attributes
    ----------
    files : tuple of Path
    names : tuple of str
        The columns of the first file; the others must have those that are read.
    dialects : dict of Path to Dialect
        How each CSV file is written: separator, decimal point, encoding, order of dates, codes such as 007.
    reading : Reading
    """

    def __init__(self, paths: Sequence[_Path], *, reading: Reading = _PLAINLY) -> None:
        self.files = tuple(_check_file(path) for path in paths)
        self.reading = reading
        if reading.max_unpacked is not None:
            for file in filter(_is_parquet, self.files):
                limits.check_unpacked_size(file, reading.max_unpacked)
        self.dialects = reading.settle_together(
            {file: _sniff(file, reading) for file in self.files if not _is_parquet(file)}
        )
        self._layouts = {file: parquet.Layout(file) for file in self.files if _is_parquet(file)}
        self._names = {file: (self.dialects.get(file) or self._layouts[file]).names for file in self.files}
        self.names = self._names[self.files[0]]

    @property
    def dialect(self) -> Dialect | None:
        """How the first CSV file is written; None where all are Parquet."""
        return next(iter(self.dialects.values()), None)

    @property
    def is_csv(self) -> bool:
        """Whether all files are CSV, and none is a sheet."""
        return all(file in self.dialects and self.dialects[file].text is None for file in self.files)

    @property
    def written(self) -> Reading:
        """How the files are written, by what is said and what they show; for a model to keep."""
        return self.reading.with_shown(self.dialects.values())

    @property
    def n_rows(self) -> int | None:
        """How many rows there are; None where only reading tells, as in CSV."""
        return None if self.dialects else sum(layout.n_rows for layout in self._layouts.values())

    @property
    def n_bytes(self) -> int:
        """About what all cells take in memory: eight bytes each, in CSV as many as their text."""
        total = sum(layout.n_rows * len(layout.names) * 8 for layout in self._layouts.values())
        for file in self.dialects:
            packed = (".gz", *excel.SUFFIXES)
            total += file.stat().st_size * (csv.PACKING if file.name.lower().endswith(packed) else 1)
        return total

    def read(
        self, columns: Sequence[str] | None = None, *, label_column: str | None = None, text: Sequence[str] = ()
    ) -> pa.Table:
        """All rows, file by file.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to read, in this order; all but `label_column` when not given.
        label_column : str, optional
            Read too, as the last column. It may be of another type in every file, for only its meaning counts.
        text : sequence of str
            Columns that are read as text whatever they hold: codes such as 007.

        Returns
        -------
        pyarrow.Table
            With at least one row. In CSV a column's type is what all its values agree on, else text; numbers may be
            written like 1,234.50, 12 % or $5; dates stay text; empty fields and NA, NaN, null, None, ? and the like
            are missing.
        """
        names, labels = self._check_wanted(columns, label_column)
        tables = csv.read(self.dialects, (*names, *labels), text=text)
        for file in self._layouts:
            tables[file] = as_text(parquet.read(file, (*names, *labels)), text)
        if not any(table.num_rows for table in tables.values()):
            raise _no_rows_error(self.files[0])
        held = {file: dict(zip(table.column_names, table.schema.types, strict=True)) for file, table in tables.items()}
        types = {name: _common_type(name, {file: held[file][name] for file in self.files}) for name in names}
        try:
            parts = [_cast(tables[file], types) for file in self.files]
            return parts[0] if len(parts) == 1 else pa.concat_tables(parts, promote_options="permissive")
        except pa.ArrowException as error:
            raise DataFileError(f"Cannot read {str(self.files[0])!r} and the others as one table: {error}.") from error

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        schema: Schema | None = None,
        batch_rows: int = 65_536,
        may_be_empty: bool = False,
        cells: csv.Cells | None = None,
        on_share: Callable[[float], None] | None = None,
    ) -> Iterator[pa.Table]:
        """All rows in batches, so that memory does not grow with the files; can be called again.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to read, in this order; all of them when not given.
        schema : Schema, optional
            Columns of training. It fixes the types in CSV, whatever a batch holds: number columns are float64, dates
            whose order the file or `reading` tells are dates, all others text for `Schema.align` to parse. Without it
            every CSV column is text.
        batch_rows : int
            Rows of a batch, fewer in the last one of a file and in tables of more than 64 columns.
        may_be_empty : bool
            Whether a file with columns but no rows gives no batch. By default it is an error.
        cells : {"texts", "values"}, optional
            Give all columns once more, after these and under the same names: as they are written in the file, or as
            values for a sheet, where codes and cells of text stay text.
        on_share : callable, optional
            Told which share of the bytes the rows given so far take, about.

        Raises
        ------
        DataFileError
            Also when a number or date column of `schema` holds something else, with column, value and line.
        """
        names, _ = self._check_wanted(columns, None)
        n_rows = max(1, min(batch_rows, _MAX_CELLS // max(1, len(names))))
        kinds = {} if schema is None else dict(zip(schema.names if schema.named else names, schema.kinds, strict=False))
        return self._batches(names, kinds, n_rows, may_be_empty, cells, on_share)

    def _batches(
        self,
        names: tuple[str, ...],
        kinds: Mapping[str, str],
        n_rows: int,
        may_be_empty: bool,
        cells: csv.Cells | None,
        on_share: Callable[[float], None] | None,
    ) -> Iterator[pa.Table]:
        sizes = {file: file.stat().st_size for file in self.files}
        n_bytes, n_before = sum(sizes.values()), 0
        row_share = 0.0

        def note(now: float) -> None:
            nonlocal row_share
            row_share = now

        for file, n_own in sizes.items():
            if file in self.dialects:
                rows = csv.batches(file, self.dialects[file], names, kinds=kinds, cells=cells, on_row_share=note)
            else:
                rows, row_share = parquet.batches(file, names, n_rows), 1 / max(1, self._layouts[file].n_rows)
            n_given = 0
            for table in _rebatch(rows, n_rows):
                if cells is not None and table.num_columns == len(names):
                    table = pa.Table.from_arrays([*table.columns] * 2, names=[*names] * 2)
                n_given += table.num_rows
                if on_share is not None:
                    on_share((n_before + n_own * n_given * row_share) / n_bytes)
                yield table
            if not n_given and not may_be_empty:
                raise _no_rows_error(file)
            n_before += n_own

    def parts(
        self,
        columns: Sequence[str] | None = None,
        *,
        label_column: str | None = None,
        text: Sequence[str] = (),
        on_bytes: Callable[[int], None] | None = None,
    ) -> list[Part]:
        """Parts that can be read apart and in any order, with the same types in all of them.

        These are row groups of Parquet; CSV is written to a temporary Parquet file, which `on_bytes` can watch. Columns
        of CSV are text where files do not agree. `columns`, `label_column` and `text` as for `read`.
        """
        names, labels = self._check_wanted(columns, label_column)
        sources = self._spool((*names, *labels), text, on_bytes)
        layouts = {file: parquet.Layout(file, source) for file, source in sources.items()} | self._layouts
        types = {
            name: _common_type(name, {file: layouts[file].types[name] for file in self.files})
            for name in names
            if name not in text
        }
        return [
            Part(file, group, n_rows, sources.get(file), types, text)
            for file in self.files
            for group, n_rows in enumerate(layouts[file].group_rows)
        ]

    def _spool(
        self, names: Sequence[str], text: Sequence[str], on_bytes: Callable[[int], None] | None
    ) -> dict[Path, pa.NativeFile]:
        """CSV files as Parquet; one that does not agree with the others is written again, as text."""
        as_texts = {name: pa.string() for name in text if name in names}
        spools = {
            file: csv.spool(file, dialect, names, held=as_texts, on_bytes=on_bytes)
            for file, dialect in self.dialects.items()
        }
        common = {
            name: reduce(csv.join_types, (held[name] for _, held in spools.values()))
            for name in (names if spools else ())
        }
        for file, (_, held) in spools.items():
            if any(csv.stored_type(common[name]) == pa.string() != csv.stored_type(held[name]) for name in names):
                spools[file] = csv.spool(file, self.dialects[file], names, held=common)
        csv.mention_written(common)
        return {file: source for file, (source, _) in spools.items()}

    def _check_wanted(
        self, columns: Sequence[str] | None, label_column: str | None
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the columns to read and of the label column, all of them in every file."""
        labels = () if label_column is None else (label_column,)
        names = tuple(name for name in self.names if name not in labels) if columns is None else tuple(columns)
        first, known_first, others = self.files[0], set(self.names), dict[str, Path]()
        for file, given in self._names.items():
            known = set(given)
            lacking = [name for name in (*names, *labels) if name not in known]
            if lacking and file == first:
                shown = ", ".join(map(repr, given[:10])) + (", ..." if len(given) > 10 else "")
                raise DataFileError(
                    f"Cannot read {str(file)!r}: it has no column {lacking[0]!r}. Its columns are {shown}."
                )
            if lacking:
                raise DataFileError(f"{str(file)!r} has no column {lacking[0]!r}, which {str(first)!r} has.")
            others |= {name: file for name in given if name not in known_first}
        if others:
            name, file = next(iter(others.items()))
            message = f"Columns that {str(first)!r} does not have are left out: {name!r} of {str(file)!r}"
            warnings.warn(message + (f" and {len(others) - 1} more." if len(others) > 1 else "."), stacklevel=3)
        return names, labels


def _cast(rows: pa.Table, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Rows with columns of these types; columns without one stay as they are."""
    wanted = [types.get(field.name, field.type) for field in rows.schema]
    if wanted == rows.schema.types:
        return rows
    columns = [column.cast(type_, safe=False) for column, type_ in zip(rows.columns, wanted, strict=True)]
    return pa.Table.from_arrays(columns, names=rows.schema.names)


def _common_type(name: str, found: Mapping[Path, pa.DataType]) -> pa.DataType:
    """The type for a column that files hold in several; an error when they mean different things."""
    if len(set(found.values())) == 1:
        return next(iter(found.values()))
    plain = {file: type_.value_type if pa.types.is_dictionary(type_) else type_ for file, type_ in found.items()}
    held = {file: type_ for file, type_ in plain.items() if not pa.types.is_null(type_)}
    if len(set(held.values())) < 2:
        return next(iter(held.values()), pa.null())
    meant = {_name_meaning(type_): file for file, type_ in reversed(held.items())}
    if len(meant) > 1:
        (one, its), (other, others) = list(meant.items())[-1:-3:-1]
        raise SchemaError(
            f"Column {name!r} holds {one} in {str(its)!r} and {other} in {str(others)!r}. Write it alike in all files."
        )
    return _TYPES[next(iter(meant))]


_TYPES = {"numbers": pa.float64(), "text": pa.string(), "dates": pa.timestamp("us")}


def _name_meaning(type_: pa.DataType) -> str:
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return "numbers"
    if is_text_type(type_):
        return "text"
    return "dates" if pa.types.is_timestamp(type_) or pa.types.is_date(type_) else str(type_)


def as_text(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The same table with some of its columns as text: 7, 7.0 and "7" are the same.

    Examples
    --------
    >>> as_text(pa.table({"code": [7, None], "size": [1, 2]}), ["code"]).to_pydict()
    {'code': ['7', None], 'size': [1, 2]}
    """
    for name in names:
        if name in table.column_names:
            texts = read_arrow(table[name], name).as_kind("category")[0].array
            table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _rebatch(batches: Generator[pa.RecordBatch], n_rows: int) -> Iterator[pa.Table]:
    """Join and cut batches so that each has `n_rows` rows, the last one the rest."""
    held: list[pa.RecordBatch] = []
    n_held = 0
    with contextlib.closing(batches):
        for batch in batches:
            rest = batch
            while n_held + rest.num_rows >= n_rows:
                n_taken = n_rows - n_held
                yield pa.Table.from_batches([*held, rest.slice(0, n_taken)])
                rest, held, n_held = rest.slice(n_taken), [], 0
            if rest.num_rows > 0:
                held, n_held = [*held, rest], n_held + rest.num_rows
    if held:
        yield pa.Table.from_batches(held)


def _sniff(file: Path, reading: Reading) -> Dialect:
    """How a file is written; where its first lines leave the order of dates open and nobody says it, by all lines."""
    if file.name.lower().endswith(excel.SUFFIXES):
        sheet = None if "sheet" in reading.noted and reading.sheet not in excel.sheet_names(file) else reading.sheet
        text, found = excel.read_sheet(file, sheet, decimal=reading.decimal, max_bytes=reading.max_unpacked)
        dialect = sniff(file, text=text)
        types = {dialect.names[place]: type_ for place, type_ in found.items() if place < len(dialect.names)}
        numbers, letters = (replace(own, example="") for own in (dialect.decimal, dialect.encoding))  # our own writing
        dialect = replace(dialect, decimal=numbers, encoding=letters, percents=None, cell_types=types)
    else:
        dialect = sniff(file, encoding=reading.encoding, is_sure="encoding" not in reading.noted)
    if not dialect.date_columns or reading.date_format is not None:
        return dialect
    return replace(dialect, dates=csv.find_date_order(file, dialect) or dialect.dates)


def _no_rows_error(file: Path) -> DataFileError:
    return DataFileError(
        f"Cannot read {str(file)!r}: it has columns but no rows. At least one row is needed.{excel.sheets_hint(file)}"
    )


# ---------------------------------------------------------------------- which files


def find_tables(path: _Path) -> tuple[Path, ...]:
    """Tables that a path means: itself, those below a folder, or those that a pattern matches; none if none.

    What begins with "." or "_" is left out. CSV files beside pictures are about these, and no tables to learn from.
    """
    text = os.fspath(path)
    place = Path(text)
    if place.is_dir():
        found = tuple(sorted(file for file in place.rglob("*") if is_table(file, place)))
        return () if not any(map(_is_parquet, found)) and any(map(is_picture, place.rglob("*"))) else found
    if place.exists() or not glob.has_magic(text):
        return (place,) if text.lower().endswith(SUFFIXES) else ()
    matches = sorted(Path(match) for match in glob.glob(text, recursive=True))
    if not matches:
        raise DataFileError(f"Cannot read {text!r}: no file matches.")
    others = [str(match) for match in matches if not match.name.lower().endswith(SUFFIXES)]
    if others:
        raise DataFileError(f"Cannot read {others[0]!r}: its name must end in one of {', '.join(SUFFIXES)}.")
    return tuple(matches)


def is_table(path: Path, folder: Path) -> bool:
    """Whether a path below a folder is a table that is not hidden."""
    below = path.relative_to(folder).parts
    return (
        path.name.lower().endswith(SUFFIXES) and not any(part.startswith(_HIDDEN) for part in below) and path.is_file()
    )


def _is_parquet(file: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return file.name.lower().endswith(_PARQUET)


def _check_file(path: _Path) -> Path:
    """Path of a regular file of a known format that is not empty."""
    file, shown = Path(path), repr(os.fspath(path))
    try:
        if file.suffix == ".esad":
            raise DataFileError(f"{shown} is a model, and data is expected here. Give a CSV, Parquet or Excel file.")
        if not file.exists():
            raise DataFileError(f"Cannot read {shown}: no such file.")
        if not file.is_file():
            what = "a folder" if file.is_dir() else "not a regular file"
            raise DataFileError(f"Cannot read {shown}: it is {what}. Give a CSV, Parquet or Excel file.")
        if not file.name.lower().endswith(SUFFIXES):
            fix = " Save the sheet as .xlsx or CSV." if file.suffix.lower() in _OTHER_SHEETS else ""
            fix = " Give the folder that the picture lies in." if is_picture(file) else fix
            raise DataFileError(f"Cannot read {shown}: its name must end in one of {', '.join(SUFFIXES)}.{fix}")
        if file.stat().st_size == 0:
            raise DataFileError(f"Cannot read {shown}: it is empty. Columns and at least one row are needed.")
        str(file).encode()
        with file.open("rb"):
            return file
    except DataFileError:
        raise
    except OSError as error:
        raise DataFileError(f"Cannot read {shown}: {error.strerror}.") from error
    except UnicodeEncodeError as error:  # arrow opens no other
        raise DataFileError(f"Cannot read {shown}: its name is not UTF-8 text. Rename it.") from error
    except ValueError as error:  # a null byte in the name
        raise DataFileError(f"Cannot read {shown}: {error}.") from error
