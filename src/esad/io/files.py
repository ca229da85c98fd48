"""One table on disk, by its path: a short way through `esad.io.open`."""

import os
from collections.abc import Sequence

import pyarrow as pa

from esad.io.open import TableFiles

__all__ = ["read_table"]


def read_table(
    path: str | os.PathLike[str], *, columns: Sequence[str] | None = None, text: Sequence[str] = ()
) -> pa.Table:
    r"""Read a whole CSV or Parquet file.

    In CSV the separator (comma, semicolon, tab, bar) is told from the header line, the type of a column from all its
    values: one with numbers here and text there is text. Numbers may be written like 1,234.50, 12 % or $5. Dates stay
    text for `esad.table.schema` to parse. Empty fields and NA, NaN, null, None, ? and the like are missing. An unnamed
    pandas index in Parquet is left out.

    Parameters
    ----------
    path : str or path-like
        File whose name ends in .csv, .csv.gz, .tsv, .tsv.gz, .parquet or .pq.
    columns : sequence of str, optional
        Columns to read, in this order; all of them when not given.
    text : sequence of str
        Columns to read as text whatever they hold: codes such as 007.

    Returns
    -------
    pyarrow.Table
        With at least one row.

    Raises
    ------
    DataFileError
        In one line: the file is missing, empty, damaged, of another format, has ragged lines, doubled column names or
        text that cannot be decoded, or lacks one of `columns`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "sizes.csv"
    ...     _ = file.write_text("name;size\nx;1,5\ny;NA\n")
    ...     read_table(file).to_pydict()
    {'name': ['x', 'y'], 'size': [1.5, None]}
    """
    return TableFiles([path]).read(columns, text=text)
