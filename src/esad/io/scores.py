"""The scores file: id, score, alarm and p-value of every row, streamed, and there only when it is complete."""

import contextlib
import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import ArrayLike

from esad.core.atomic import atomic_path, check_out
from esad.errors import InputError, OutputError
from esad.io.excel import ExcelSink
from esad.table.columns import as_texts, decode_categories, is_text_type

_CSV = (".csv", ".csv.gz")
_SUFFIXES = (*_CSV, ".parquet", ".pq", ".xlsx")


class ScoreWriter:
    r"""Write scores in batches to CSV, Parquet or Excel; the file appears when the block ends well.

    Parameters
    ----------
    path : str or path-like
        File to write, its name ending in .csv, .csv.gz, .parquet, .pq or .xlsx.
    id_name : str, optional
        Name of the first column, which holds the ids given. Without it the column is `row`, counted from 0.
    inputs : sequence of paths
        Files being read; none of them may be `path`.
    p_values : bool
        Whether there is a column `p_value`.
    row_numbers : bool
        Whether there is a last column `row`, counted from 0, beside the ids: where these do not tell rows apart.
    data : sequence of str, optional
        Columns of the scored file that go along, before the score; the ids are among them, and `line` says where the
        row stands in a spreadsheet, the header being line 1.
    separator, decimal : str
        Of CSV: what stands between cells, and before the decimals of scores.

    Raises
    ------
    OutputError
        The file cannot be written: unknown suffix, missing or read-only folder, one of `inputs`, a full disk. What lay
        at `path` before is left as it was.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "scores.csv"
    ...     with ScoreWriter(target, id_name="patient") as writer:
    ...         writer.write([0.5, 7.25], [False, True], ids=["a", "b"])
    ...     target.read_text()
    'patient,score,anomaly\na,0.5,false\nb,7.25,true\n'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        id_name: str | None = None,
        inputs: Sequence[str | os.PathLike[str]] = (),
        p_values: bool = False,
        row_numbers: bool = False,
        data: Sequence[str] | None = None,
        separator: str = ",",
        decimal: str = ".",
    ) -> None:
        self.path = path
        self.id_name = id_name
        self.inputs = inputs
        self.p_values = p_values
        self.row_numbers = row_numbers and id_name not in (None, "row") and data is None
        self.data = data
        self.separator = separator
        self.decimal = decimal
        self.n_rows = 0  # written so far

    def __enter__(self) -> Self:
        check_out(self.path, self.inputs, _SUFFIXES, "scores")
        own = self._own_columns()
        if self.data is None and len(own) < 3 + self.p_values + self.row_numbers:
            raise InputError(
                f"The id column cannot be named {self.id_name!r}: the scores file has a column of that name. Rename it."
            )
        doubled = [name for name in self.data or () if name in own]
        if doubled:
            raise InputError(
                f"The file has a column {doubled[0]!r}, and so have scores with its data. Rename it, or write the "
                "scores alone."
            )
        first = next(iter(own))
        self._columns = {first: own.pop(first), **dict.fromkeys(self.data or (), pa.string()), **own}
        self._context = _open_sink(self.path, self._columns, self.separator, self.decimal)
        self._sink = self._context.__enter__()
        return self

    def write(
        self,
        scores: ArrayLike,
        anomaly: ArrayLike,
        *,
        ids: Any = None,
        p_values: ArrayLike | None = None,
        data: pa.Table | None = None,
        reasons: Sequence[str | None] = (),
    ) -> None:
        """Append rows.

        Parameters
        ----------
        scores : array-like of float
            Anomaly scores, higher is more anomalous.
        anomaly : array-like of bool
            Whether each row is an alarm.
        ids : array-like or pyarrow array
            Ids of the rows, when `id_name` was given.
        p_values : array-like of float
            p-values of the rows, when the writer has a column for them.
        data : pyarrow.Table
            The cells that the rows come from, when the writer was made with their columns; the ids are among them.
        reasons : sequence of str or None
            With `data`: what makes each row an alarm.
        """
        values, alarms = np.asarray(scores, dtype=np.float64), np.asarray(anomaly, dtype=np.bool_)
        has_data = self.data is not None
        for name, given, is_wanted in (
            ("ids", ids, self.id_name is not None and not has_data),
            ("p_values", p_values, self.p_values),
            ("data", data, has_data),
        ):
            if (given is not None) != is_wanted:
                raise InputError(f"`{name}` must be given if, and only if, the writer has a column for them.")
        rows = np.arange(self.n_rows, self.n_rows + len(values))
        cells: dict[str, Any] = {"line": rows + 2, "row": rows, "score": values, "anomaly": alarms}
        if p_values is not None:
            cells["p_value"] = np.asarray(p_values, dtype=np.float64)
        if data is not None:
            cells["reasons"] = pa.array(reasons, pa.string())
            cells |= zip(data.column_names, data.columns, strict=True)
        if ids is not None:
            cells["row" if self.id_name is None else self.id_name] = _id_array(ids)
        lengths = [len(values), len(alarms), len(cells[next(iter(self._columns))])]
        if len(set(lengths)) > 1:
            raise InputError(f"Scores, alarms and ids must go together. Got {', '.join(map(str, lengths))}.")
        self._sink.write(pa.table({name: cells[name] for name in self._columns}))
        self.n_rows += len(values)

    def _own_columns(self) -> dict[str, pa.DataType]:
        """Columns of the file but for `data`, with their types; that of the ids is only known when some come."""
        ids = "row" if self.id_name is None else self.id_name
        first = {ids: pa.string()} if self.data is None else {"line": pa.int64()}
        columns = first | {"score": pa.float64(), "anomaly": pa.bool_()}
        columns |= {"p_value": pa.float64()} if self.p_values else {}
        columns |= {} if self.data is None else {"reasons": pa.string()}
        return columns | ({"row": pa.int64()} if self.row_numbers else {})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._context.__exit__(kind, error, traceback)


class _CsvSink:
    """Rows as CSV text, quoted only where it is needed."""

    def __init__(self, file: Any, columns: dict[str, pa.DataType], separator: str, decimal: str) -> None:
        self._file, self._separator, self._decimal = file, separator, decimal
        header = io.StringIO()
        csv.writer(header, delimiter=separator, lineterminator="\n").writerow(columns)
        file.write(header.getvalue().encode())

    def write(self, rows: pa.Table) -> None:
        rows = pa.table({name: _write_plainly(rows[name], self._decimal) for name in rows.column_names})
        texts = [column for column in rows.columns if is_text_type(column.type)]
        plain = not any(
            pc.any(pc.match_substring_regex(column, f'[{self._separator}"\r\n]')).as_py() for column in texts
        )
        quoting = "none" if plain else "needed"
        options = pa_csv.WriteOptions(include_header=False, quoting_style=quoting, delimiter=self._separator)
        pa_csv.write_csv(rows, self._file, options)

    def close(self) -> None:
        pass


def _write_plainly(cells: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Cells as people write them: bytes as text, moments without a fraction of a second, or as days, where none has."""
    cells = decode_categories(cells)
    if pa.types.is_binary(cells.type) or pa.types.is_large_binary(cells.type):
        return as_texts(cells.to_pylist())
    if decimal != "." and pa.types.is_floating(cells.type):
        return pc.replace_substring(cells.cast(pa.string()), ".", decimal)
    if not pa.types.is_timestamp(cells.type) or cells.type.tz is not None:
        return cells
    for unit, type_ in (("day", pa.date32()), ("second", pa.timestamp("s"))):
        if pc.all(pc.equal(cells, pc.floor_temporal(cells, unit=unit))).as_py() is not False:
            return cells.cast(type_)
    return cells


class _ParquetSink:
    """Rows as Parquet, the type of the ids being that of the first batch."""

    def __init__(self, file: Any, columns: dict[str, pa.DataType]) -> None:
        self._file = file
        self._columns = columns
        self._writer: pq.ParquetWriter | None = None

    def write(self, rows: pa.Table) -> None:
        if self._writer is None:
            # Ids and scores hardly repeat: a dictionary of them costs time and space.
            repeating = [name for name in rows.column_names if name == "p_value"]
            self._writer = pq.ParquetWriter(self._file, rows.schema, use_dictionary=repeating)
        self._writer.write_table(rows.cast(self._writer.schema))

    def close(self) -> None:
        if self._writer is None:  # no batch came: still a table with its columns
            self.write(pa.schema(self._columns).empty_table())
        assert self._writer is not None
        self._writer.close()


@contextlib.contextmanager
def _open_sink(
    path: str | os.PathLike[str], columns: dict[str, pa.DataType], separator: str, decimal: str
) -> Iterator[_CsvSink | _ParquetSink | ExcelSink]:
    """Open a temporary file that is closed, then renamed to `path`, or removed."""
    name = _lower_name(path)
    with atomic_path(path) as temporary, contextlib.ExitStack() as opened:
        if name.endswith(".xlsx"):
            with contextlib.closing(ExcelSink(temporary, columns)) as sheet:
                yield sheet
            return
        file: Any = opened.enter_context(pa.OSFile(str(temporary), "wb"))
        if name.endswith(".gz"):
            file = opened.enter_context(pa.CompressedOutputStream(file, "gzip"))
        sink = _CsvSink(file, columns, separator, decimal) if is_csv(path) else _ParquetSink(file, columns)
        yield opened.enter_context(contextlib.closing(sink))


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether scores go to CSV, by the name of their file."""
    return _lower_name(path).endswith(_CSV)


def _lower_name(path: str | os.PathLike[str]) -> str:
    return os.path.basename(os.fspath(path)).lower()


def _id_array(ids: Any) -> pa.Array | pa.ChunkedArray:
    """Ids as an arrow array; text in one type, whatever library it comes from."""
    try:
        array = ids if isinstance(ids, pa.Array | pa.ChunkedArray) else pa.array(ids)
    except UnicodeEncodeError:  # names of files that are no text
        array = pa.array([str(each).encode(errors="backslashreplace").decode() for each in ids])
    array = decode_categories(array)
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type) or pa.types.is_null(array.type):
        array = array.cast(pa.string())
    return array


def write_arrow(path: Path, table: pa.Table) -> None:
    """Write CSV or Parquet, whole or not at all."""
    if path.suffix not in (".csv", ".parquet"):
        raise OutputError(f"Cannot write {str(path)!r}: its name must end in .csv or .parquet.")
    with atomic_path(path) as temporary:
        if path.suffix == ".csv":
            pa_csv.write_csv(table, str(temporary), pa_csv.WriteOptions(quoting_style="needed"))
        else:
            pq.write_table(table, str(temporary))
