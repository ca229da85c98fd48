"""Any table in, typed columns out: arrays, lists, pandas, polars and arrow tables become one `Table`.

A `Schema` says what the columns of a training table are, and brings later tables into that form.
"""

import math
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, get_args

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from esad.core.machine import data_limit
from esad.errors import InputError, ModelFileError, SchemaError
from esad.table.columns import Kind, Values, read_array, read_cells, read_series

if TYPE_CHECKING:
    from esad.table.statistics import TableStatistics  # which describes the columns by what it counts

KINDS: tuple[Kind, ...] = get_args(Kind)
_MEANING = {
    "number": "numbers",
    "boolean": "truth values (true, false, 1 or 0)",
    "category": "text categories",
    "date": "dates (ISO text such as 2024-02-29 or date types)",
}
_RESHAPE = (
    "Reshape your data either using array.reshape(-1, 1) if your data has a single feature "
    "or array.reshape(1, -1) if it contains a single sample."
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """Columns of one kind each, read from any library's table.

    Parameters
    ----------
    names : tuple of str
        Column names; x0, x1, … when the data came without names.
    named : bool
        Whether the data came with names. A pandas table whose labels are 0, 1, 2, … did not.
    matrix : ndarray of shape (n_rows, n_columns) or None
        A numeric array is kept whole, as given.
    columns : tuple of Values or None
        Otherwise the values of each column.
    statistics : TableStatistics or None
        Of these very rows, where somebody has counted them.

    Examples
    --------
    >>> table = Table.from_any([[1.5, "red"], [None, "blue"]])
    >>> table.names, table.kinds, table.n_rows
    (('x0', 'x1'), ('number', 'category'), 2)
    >>> table.column(0)
    array([1.5, nan])
    """

    names: tuple[str, ...]
    named: bool
    matrix: NDArray[Any] | None = None
    columns: tuple[Values, ...] = ()
    statistics: "TableStatistics | None" = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.matrix if self.matrix is not None else self.columns[0])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.names)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and columns."""
        return self.n_rows, self.n_columns

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What each column holds as it came; text that spells dates is still "category", `Schema` decides on it."""
        if self.matrix is not None:
            return ("boolean" if self.matrix.dtype.kind == "b" else "number",) * self.n_columns
        return tuple(values.kind for values in self.columns)

    @classmethod
    def from_any(cls, X: Any) -> "Table":
        """Read a 2-D array, a list of rows, a sparse matrix, records, or a pandas, polars or arrow table.

        Parameters
        ----------
        X : array-like or table of shape (n_rows, n_columns)
            Numbers, truth values, text, dates, durations (read as seconds) and missing values. A sparse matrix of scipy
            is spelled out, zeros and all. Records are a structured array, a list of dicts (a key that a row lacks is
            missing there), or a dict of columns.

        Returns
        -------
        Table
            Numeric arrays are kept as they are, without a copy.

        Raises
        ------
        InputError
            Not a table of at least one row and one column, complex, or sparse and too large to be spelled out.
        SchemaError
            Two columns share a name, or a column holds something other than the above.

        Examples
        --------
        >>> Table.from_any(np.zeros((4, 2))).names
        ('x0', 'x1')
        >>> Table.from_any([{"size": 1.5, "colour": "red"}, {"size": 2.5}]).names
        ('size', 'colour')
        """
        X = nw.to_native(X, pass_through=True)
        if nw.dependencies.is_pandas_dataframe(X):  # by position: pandas allows doubled and nameless columns
            return cls._from_series([X.iloc[:, i] for i in range(X.shape[1])], list(X.columns), X.shape)
        X = pa.Table.from_batches([X]) if isinstance(X, pa.RecordBatch) else X
        if isinstance(X, pa.Table):  # so does arrow
            return cls._from_series(X.columns, X.column_names, X.shape)
        frame = nw.from_native(X, pass_through=True, allow_series=True)
        if isinstance(frame, nw.LazyFrame):
            raise InputError(f"X must be a table in memory. Got a lazy {type(X).__name__}. Collect it first.")
        if isinstance(frame, nw.Series):
            raise InputError(f"Expected 2D array, got 1D {type(X).__name__} instead. {_RESHAPE}")
        if isinstance(frame, nw.DataFrame):
            return cls._from_series(list(frame.iter_columns()), frame.columns, frame.shape)
        if (records := _columns_of_records(X)) is not None:
            return cls._from_records(records)
        return cls._from_array(_as_array(X))

    @classmethod
    def _from_series(cls, series: Sequence[Any], labels: Sequence[Any], shape: tuple[int, int]) -> "Table":
        _check_shape(shape)
        named = labels != list(range(len(labels)))
        names = _as_names(labels) if named else _number_names(len(labels))
        read = (
            read_series(nw.from_native(one, series_only=True), name) for one, name in zip(series, names, strict=True)
        )
        return cls(names=names, named=named, columns=tuple(read))

    @classmethod
    def _from_records(cls, columns: Mapping[Any, Any]) -> "Table":
        records = dict(zip(_as_names(list(columns)), columns.values(), strict=True))
        for name, cells in records.items():
            if isinstance(cells, np.ndarray) and cells.ndim != 1:
                raise InputError(f"A column must have one cell per row. Got {name!r} of shape {cells.shape}.")
        lengths = {name: len(cells) for name, cells in records.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"Columns must be of one length. Got {lengths}.")
        _check_shape((next(iter(lengths.values()), 0), len(lengths)))
        read = (
            read_array(cells, name) if isinstance(cells, np.ndarray) else read_cells(cells, name=name)
            for name, cells in records.items()
        )
        return cls(names=tuple(records), named=True, columns=tuple(read))

    @classmethod
    def _from_array(cls, array: NDArray[Any]) -> "Table":
        if array.ndim < 2:
            raise InputError(f"Expected 2D array, got {array.ndim}D array instead:\narray={array}.\n{_RESHAPE}")
        if array.ndim > 2:
            raise InputError(f"Found array with dim {array.ndim}, while dim <= 2 is required.")
        _check_shape(array.shape)
        names = _number_names(array.shape[1])
        if array.dtype.kind in "fiub":
            return cls(names=names, named=False, matrix=array)
        columns = tuple(read_array(array[:, index], name) for index, name in enumerate(names))
        return cls(names=names, named=False, columns=columns)

    def column(self, index: int) -> NDArray[Any]:
        """One column: float64 (NaN missing), object array of str or None, or datetime64[us].

        Examples
        --------
        >>> Table.from_any([[True], [False]]).column(0)
        array([1., 0.])
        """
        return self.values(index).to_numpy()

    def values(self, index: int) -> Values:
        """One column as it is held: numbers and truth values in the type they came in."""
        return self.columns[index] if self.matrix is None else read_array(self.matrix[:, index], self.names[index])

    def numbers(self, rows: slice, indices: NDArray[np.intp], out: NDArray[np.float64]) -> NDArray[np.float64]:
        """Copy a block of rows of the number and boolean columns `indices` into `out`, shape (n, len(indices)).

        Examples
        --------
        >>> Table.from_any([[1, 2], [3, 4]]).numbers(slice(0, 2), np.array([1]), np.empty((2, 1)))
        array([[2.],
               [4.]])
        """
        with np.errstate(over="ignore"):
            if self.matrix is not None:
                whole = np.array_equal(indices, np.arange(self.n_columns))
                np.copyto(out, self.matrix[rows] if whole else self.matrix[rows][:, indices], casting="same_kind")
            else:
                for position, index in enumerate(indices):
                    out[:, position] = self.columns[index].array[rows]
        return out

    def take(self, rows: Any) -> "Table":
        """The given rows only, by slice, row numbers or mask.

        Examples
        --------
        >>> Table.from_any([[1.0], [2.0], [3.0]]).take([2, 0]).column(0)
        array([3., 1.])
        """
        rows = rows if isinstance(rows, slice) else np.asarray(rows)
        if isinstance(rows, np.ndarray) and rows.size == 0:
            rows = rows.astype(np.intp)
        if self.matrix is not None:
            return Table(names=self.names, named=self.named, matrix=self.matrix[rows])
        columns = tuple(values.take(rows) for values in self.columns)
        return Table(names=self.names, named=self.named, columns=columns)

    def settle(self) -> "Table":
        """The same rows, of which any part is read as all of them: a part has dates, or text, only where all have."""
        if self.matrix is not None:
            return self
        columns = tuple(values.settle() for values in self.columns)
        return Table(names=self.names, named=self.named, columns=columns)

    def select(self, names: Sequence[str]) -> "Table":
        """Some columns, in this order."""
        place = {name: index for index, name in enumerate(self.names)}
        return Table(names=tuple(names), named=self.named, columns=tuple(self.values(place[name]) for name in names))

    @classmethod
    def join(cls, tables: Sequence["Table"]) -> "Table":
        """Tables of the same columns and kinds, one below the other.

        Examples
        --------
        >>> Table.join([Table.from_any([[1.0, "a"]]), Table.from_any([[2.0, "b"]])]).column(0)
        array([1., 2.])
        """
        first = tables[0]
        matrices = [table.matrix for table in tables if table.matrix is not None]
        if len(matrices) == len(tables):
            return cls(names=first.names, named=first.named, matrix=np.concatenate(matrices))
        columns = tuple(Values.join([table.values(index) for table in tables]) for index in range(first.n_columns))
        return cls(names=first.names, named=first.named, columns=columns)


# ---------------------------------------------------------------------- what can be a table


def take_rows(X: Any, rows: NDArray[Any]) -> Any:
    """The given rows of any library's table, an array or a list, in the form they came in.

    Of a `Table` and an array they may be marked by truth values, too.

    Examples
    --------
    >>> take_rows([[1.0], [2.0], [3.0]], np.array([2, 0]))
    [[3.0], [1.0]]
    """
    if isinstance(X, Table | pa.Table):
        return X.take(rows)
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return frame[rows].to_native()
    if _is_sparse(X):
        return X.tocsr()[rows]
    return [X[row] for row in rows] if isinstance(X, list | tuple) else np.asanyarray(X)[rows]


def join_rows(parts: Sequence[Any]) -> Any:
    """Arrow tables or arrays, one below the other."""
    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts, promote_options="permissive")
    return np.concatenate(parts)


def _number_names(n_columns: int) -> tuple[str, ...]:
    """Names of columns that came without any."""
    return tuple(f"x{index}" for index in range(n_columns))


def _as_names(labels: Sequence[Any]) -> tuple[str, ...]:
    """Names of columns as text; those that are then the same are refused."""
    names = tuple(map(str, labels))
    if len(set(names)) < len(names):
        doubled = sorted({name for name in names if names.count(name) > 1})
        raise SchemaError(f"Column names must differ. Got more than one of {doubled}. Rename or drop them.")
    return names


def _check_shape(shape: tuple[int, ...]) -> None:
    """At least one row and one column, in scikit-learn's words."""
    for count, unit in ((shape[0], "sample"), (shape[1], "feature")):
        if count == 0:
            raise InputError(f"Found array with 0 {unit}(s) (shape={shape}) while a minimum of 1 is required.")


def _is_sparse(X: Any) -> bool:
    """Whether it is a sparse matrix of scipy; by its methods, so that scipy need not be loaded."""
    return hasattr(X, "toarray") and hasattr(X, "nnz")


def _spell_out(X: Any) -> NDArray[Any]:
    """A sparse matrix with its zeros, if that is not too large."""
    n_bytes = math.prod(X.shape) * X.dtype.itemsize
    if n_bytes > data_limit():
        shape = " x ".join(f"{n:,}" for n in X.shape)
        raise InputError(
            f"A sparse X of {shape} takes {n_bytes / 2**30:,.1f} GiB once its zeros are spelled out, as all methods "
            f"here need it. This machine allows {data_limit() / 2**30:,.1f} GiB. Reduce its columns first, say with "
            "sklearn.decomposition.TruncatedSVD, or give fewer rows at a time."
        )
    return np.asarray(X.toarray())


def _columns_of_records(X: Any) -> Mapping[Any, Any] | None:
    """The columns of a structured array, a list of dicts or a dict of columns; None for anything else."""
    if isinstance(X, np.ndarray) and X.dtype.names and X.ndim == 1:
        return {name: X[name] for name in X.dtype.names}
    if isinstance(X, list) and X and all(isinstance(row, dict) for row in X):
        names = dict.fromkeys(name for row in X for name in row)
        return {name: [row.get(name) for row in X] for name in names}
    if isinstance(X, dict) and all(isinstance(cells, list | tuple | np.ndarray) for cells in X.values()):
        return X
    return None


def _as_array(X: Any) -> NDArray[Any]:
    """A numpy array of what was given; rows given as a list keep the type of each cell."""
    if _is_sparse(X):
        X = _spell_out(X)
    if isinstance(X, str | os.PathLike):
        raise InputError("X must be a 2-D array or a table. Got a path: `TrainingData.from_file(path)` reads files.")
    if isinstance(X, bytes | dict | set) or X is None:
        raise InputError(f"X must be a 2-D array or a table. Got {type(X).__name__}.")
    if isinstance(X, np.ma.MaskedArray):
        numeric = X.dtype.kind in "fiub"
        return np.asarray(np.ma.filled(X.astype(np.float64 if numeric else object), np.nan))
    try:
        array = np.asarray(X)
        if array.dtype.kind in "USmM" and not hasattr(X, "__array__"):
            array = np.asarray(X, dtype=object)  # a list: [["a", 1.5]] must not turn 1.5 into text
    except (TypeError, ValueError, RuntimeError) as error:  # uneven rows, or a tensor that numpy cannot hold
        raise InputError(
            f"X must be a 2-D array or a table with rows of one length. Got {type(X).__name__}: {error}"
        ) from error
    if array.dtype.kind == "c":
        raise InputError(f"Complex data not supported: X is {array.dtype}. Split it in real and imaginary parts.")
    if array.dtype.kind == "V":
        raise InputError("X must be a 2-D array or a table. Got a structured array. Make it a table first.")
    return array


# ---------------------------------------------------------------------- schema


@dataclass(frozen=True)
class Column:
    """How one training column was read.

    Parameters
    ----------
    name : str
        Column name.
    kind : {"number", "boolean", "category", "date"}
        What it holds.
    n_missing : int
        Rows without a value.
    n_distinct : int or None
        Different values among the others; counted for categories and truth values only.
    is_constant : bool
        Whether there is at most one value.
    proposes_id : bool
        Whether it looks like a row identifier: text, never missing, all different, in more than 20 rows.

    Examples
    --------
    >>> Schema.infer(Table.from_any([["red"], ["red"]])).columns[0]
    Column(name='x0', kind='category', n_missing=0, n_distinct=1, is_constant=True, proposes_id=False)
    """

    name: str
    kind: Kind
    n_missing: int
    n_distinct: int | None
    is_constant: bool
    proposes_id: bool


@dataclass(frozen=True)
class Schema:
    """Columns of the training table, and the form later tables must take.

    Parameters
    ----------
    columns : tuple of Column
        In training order.
    named : bool
        Whether training data had column names; otherwise columns go by position.
    n_rows : int
        Training rows, the base of `Column.n_missing`.

    Examples
    --------
    >>> table = Table.from_any([[1.5, "2024-01-01"], [2.5, "2024-01-02"]])
    >>> schema = Schema.infer(table)
    >>> [(column.name, column.kind) for column in schema.columns]
    [('x0', 'number'), ('x1', 'date')]
    >>> schema.align(table).kinds
    ('number', 'date')
    """

    columns: tuple[Column, ...]
    named: bool
    n_rows: int

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in training order."""
        return tuple(column.name for column in self.columns)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Column kinds in training order."""
        return tuple(column.kind for column in self.columns)

    @classmethod
    def infer(cls, table: Table) -> "Schema":
        """Read off what each column of a training table holds."""
        from esad.table.statistics import TableStatistics  # which describes the columns by what it counts

        return TableStatistics.of(table).schema

    def align(self, table: Table, *, estimator: str = "ESAD") -> Table:
        """Bring a table into the form of the training table.

        Parameters
        ----------
        table : Table
            Named columns may come in any order; extra ones are left out with one warning. Unnamed ones go by position.
        estimator : str
            Name of the model, for messages.

        Returns
        -------
        Table
            Columns in training order and of training kinds. Numbers given as text, categories given as numbers and
            truth values given as 0, 1 or text are turned; what is not certain is an error.

        Raises
        ------
        SchemaError
            Columns are missing, or one holds something else than in training.
        """
        if self.named and table.named:
            picked = self._pick_by_name(table)
        else:
            self._check_width(table, estimator)
            picked = table
        if picked.kinds == self.kinds or (table.matrix is not None and set(self.kinds) == {"number"}):
            return picked
        columns = tuple(
            _convert(picked.values(index), column=column, estimator=estimator)
            for index, column in enumerate(self.columns)
        )
        return Table(names=self.names, named=self.named, columns=columns)

    def _pick_by_name(self, table: Table) -> Table:
        wanted, given = set(self.names), set(table.names)
        missing = [name for name in self.names if name not in given]
        extra = [name for name in table.names if name not in wanted]
        if missing:
            message = "The feature names should match those that were passed during fit.\n"
            if extra:
                message += f"Feature names unseen at fit time:\n{_list_names(extra)}"
            message += f"Feature names seen at fit time, yet now missing:\n{_list_names(missing)}"
            raise SchemaError(message + "Add the missing columns; other order and extra columns are fine.")
        if extra:
            warnings.warn(f"Columns that were not in training are ignored: {extra}.", UserWarning, stacklevel=4)
        return table if table.names == self.names else table.select(self.names)

    def _check_width(self, table: Table, estimator: str) -> None:
        if table.n_columns != len(self.columns):
            raise SchemaError(
                f"X has {table.n_columns} features, but {estimator} is expecting {len(self.columns)} features as input."
            )
        if table.named:
            warnings.warn(f"X has feature names, but {estimator} was fitted without feature names", stacklevel=4)
        elif self.named:
            message = f"X does not have valid feature names, but {estimator} was fitted with feature names"
            warnings.warn(message, stacklevel=4)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return {"named": self.named, "n_rows": self.n_rows, "columns": [asdict(column) for column in self.columns]}

    @classmethod
    def from_json(cls, value: Any) -> "Schema":
        """Read what `to_json` gave; anything else is a ModelFileError.

        Examples
        --------
        >>> schema = Schema.infer(Table.from_any([[1.0], [2.0]]))
        >>> Schema.from_json(schema.to_json()) == schema
        True
        """
        expect_fields(value, "the columns", named=bool, n_rows=int, columns=list)
        n_rows, columns = value["n_rows"], value["columns"]
        expect(n_rows >= 1 and len(columns) >= 1, "numbers of rows and columns")
        for column in columns:
            optional = type(column) is dict and column.get("n_distinct", 0) is None
            distinct = type(None) if optional else int
            flags = {"is_constant": bool, "proposes_id": bool}
            expect_fields(column, "a column", name=str, kind=str, n_missing=int, n_distinct=distinct, **flags)
            expect(column["kind"] in KINDS and 0 <= column["n_missing"] <= n_rows, "a column")
            expect(optional or 0 <= column["n_distinct"] <= n_rows, "`n_distinct` of a column")
        expect(len({column["name"] for column in columns}) == len(columns), "doubled names of columns")
        return cls(tuple(Column(**column) for column in columns), value["named"], n_rows)


def expect(holds: bool, what: str) -> None:
    """Refuse a model file whose preprocessing is damaged."""
    if not holds:
        raise ModelFileError(f"The model file's preprocessing is damaged: {what}. Train and save the model again.")


def expect_fields(value: Any, what: str, **types: type) -> None:
    """Refuse what is no dictionary with just these keys, and values of just these types."""
    expect(type(value) is dict and value.keys() == types.keys(), f"parts of {what}")
    for name, type_ in types.items():
        expect(type(value[name]) is type_, f"`{name}` of {what}")


def expect_texts(value: Any, n_most: int, what: str) -> None:
    """Refuse what is no list of texts that can be written, all different, and not too many."""
    expect(type(value) is list and all(type(text) is str for text in value), what)
    expect(not re.search("[\ud800-\udfff]", "".join(value)), what)  # a half of a surrogate pair
    expect(len(value) == len(set(value)) <= n_most, f"number of {what}")


def _list_names(names: list[str]) -> str:
    """Names one to a line, at most five, in scikit-learn's form."""
    shown = sorted(names)[:5] + (["..."] if len(names) > 5 else [])
    return "".join(f"- {name}\n" for name in shown)


def _convert(values: Values, *, column: Column, estimator: str) -> Values:
    """One column in its kind of training, or a SchemaError naming the first value that has no certain meaning there."""
    if values.kind == column.kind:
        return values
    converted, bad_row = values.as_kind(column.kind)
    if bad_row is None:
        return converted
    raise SchemaError(
        f"Column {column.name!r} must hold {_MEANING[column.kind]}, as when {estimator} was trained. "
        f"Got {values.cell(bad_row)!r} in row {bad_row}. Convert the column, or train again."
    )
