r"""The one door for data on disk: a path is opened and sniffed once, then read whole, in batches or in parts.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     file = Path(folder) / "sizes.csv"
...     _ = file.write_text("name;size\nx;1,5\ny;NA\n")
...     data = open_data(file)
...     data.names, data.dialect.decimal_point, data.read().to_pydict()
(('name', 'size'), ',', {'name': ['x', 'y'], 'size': [1.5, None]})
"""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from esad.errors import DataFileError
from esad.io import csv_dialect, csv_text, files, parts
from esad.io.csv_dialect import Dialect
from esad.io.parts import Part, find_tables
from esad.io.picture_folder import Broken, Listing, list_folder
from esad.table.schema import Schema

__all__ = ["Dialect", "Listing", "Part", "TableFiles", "find_tables", "open_data", "open_tables"]

_Path = str | os.PathLike[str]


def open_data(
    path: _Path, *, labels_csv: _Path | None = None, channels: int | None = None, broken: Broken | None = None
) -> "TableFiles | Listing":
    """Open whatever lies at a path.

    Parameters
    ----------
    path : str or path-like
        A CSV or Parquet file, a folder or a pattern of them (`parts/`, `2024-*.parquet`), or a folder of pictures.
    labels_csv, channels, broken
        Of a folder of pictures, as for `esad.io.picture_folder.list_folder`; with `labels_csv` it is one.

    Returns
    -------
    TableFiles or Listing
        Both have `n_rows`, `read()` and `batches()`.
    """
    is_folder = os.path.isdir(path)
    found = () if is_folder and labels_csv is not None else find_tables(path)
    if is_folder and not found:
        return list_folder(path, labels_csv, channels, broken)
    return TableFiles(found or (Path(path),))


def open_tables(path: _Path) -> "TableFiles":
    """Open a CSV or Parquet file, a folder or a pattern of them."""
    return TableFiles(find_tables(path) or (Path(path),))


class TableFiles:
    """One or several CSV and Parquet files with the same columns, opened and sniffed.

    Parameters
    ----------
    paths : sequence of path-like
        Files, in the order of their rows. What is missing, empty or no table is a DataFileError here.

    Attributes
    ----------
    files : tuple of Path
    names : tuple of str
        The columns of the first file; the others must have those that are read.
    dialects : dict of Path to Dialect
        How each CSV file is written: separator, decimal point, codes such as 007, an unclear number.
    """

    def __init__(self, paths: Sequence[_Path]) -> None:
        self.files = tuple(files.checked(path) for path in paths)
        self.dialects = {file: csv_dialect.sniff(file) for file in self.files if not files.is_parquet(file)}
        self._names = {
            file: self.dialects[file].names if file in self.dialects else files.column_names(file)
            for file in self.files
        }
        self.names = self._names[self.files[0]]
        self._counts = {file: files.count_rows(file) for file in self.files}

    @property
    def dialect(self) -> Dialect | None:
        """How the first CSV file is written; None where all are Parquet."""
        return next(iter(self.dialects.values()), None)

    @property
    def n_rows(self) -> int | None:
        """How many rows there are; None where only reading tells, as in CSV."""
        counts = [count for count in self._counts.values() if count is not None]
        return sum(counts) if len(counts) == len(self.files) else None

    @property
    def n_bytes(self) -> int:
        """About what all cells take in memory: eight bytes each, in CSV as many as their text."""
        return sum(files.n_cell_bytes(file) for file in self.files)

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
            written like 1,234.50, 12 % or $5; dates stay text.
        """
        wanted = self._wanted(columns, label_column)
        if len(self.files) > 1:
            return parts.read_tables(self.files, wanted[0], label_column=label_column, text=text)
        (file,) = self.files
        if file not in self.dialects:
            return files.read_table(file, columns=sum(wanted, ()), text=text)
        table = csv_text.read(file, columns=sum(wanted, ()), text=text, dialect=self.dialects[file])
        if not table.num_rows:
            raise files.no_rows(file)
        return table

    def batches(
        self,
        columns: Sequence[str] | None = None,
        *,
        schema: Schema | None = None,
        batch_rows: int = 65_536,
        may_be_empty: bool = False,
    ) -> Iterator[pa.Table]:
        """All rows in batches, so that memory does not grow with the files; can be called again.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to read, in this order; all of them when not given.
        schema : Schema, optional
            Columns of training. It fixes the types in CSV, whatever a batch holds: number columns are float64, all
            others text for `Schema.align` to parse. Without it every CSV column is text.
        batch_rows : int
            Rows of a batch, fewer in the last one of a file and in tables of more than 64 columns.
        may_be_empty : bool
            Whether a file with columns but no rows gives no batch. By default it is an error.
        """
        names, _ = self._wanted(columns, None)
        for file in self.files:
            yield from files.open_batches(
                file,
                schema=schema,
                columns=names,
                batch_rows=batch_rows,
                may_be_empty=may_be_empty,
                dialect=self.dialects.get(file),
            )

    def parts(
        self,
        columns: Sequence[str] | None = None,
        *,
        label_column: str | None = None,
        text: Sequence[str] = (),
        on_bytes: Callable[[int], None] | None = None,
    ) -> list[Part]:
        """Parts that can be read apart and in any order, with the same types in all of them.

        CSV is read once for it, which `on_bytes` can watch. `columns`, `label_column` and `text` as for `read`; a part
        has `file`, `n_rows` and `batches(names, n_rows)`, which gives record batches of at most so many rows.
        """
        names, _ = self._wanted(columns, label_column)
        return parts.parts_of(
            self.files, names, label_column=label_column, text=text, on_bytes=on_bytes, dialects=self.dialects
        )

    def _wanted(
        self, columns: Sequence[str] | None, label_column: str | None
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the columns to read and of the label column, all of them in every file."""
        labels = () if label_column is None else (label_column,)
        names = tuple(name for name in self.names if name not in labels) if columns is None else tuple(columns)
        first, others = self.files[0], dict[str, Path]()
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
            others |= {name: file for name in given if name not in self.names}
        if others:
            name, file = next(iter(others.items()))
            message = f"Columns that {str(first)!r} does not have are left out: {name!r} of {str(file)!r}"
            warnings.warn(message + (f" and {len(others) - 1} more." if len(others) > 1 else "."), stacklevel=3)
        return names, labels
