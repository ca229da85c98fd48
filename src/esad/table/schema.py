"""What the columns of a training table are, and how later tables are brought into that form."""

import warnings
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from esad.errors import ModelFileError, SchemaError
from esad.table.columns import Kind, Values
from esad.table.table import Table

__all__ = ["KINDS", "Column", "Schema", "Table"]

KINDS: tuple[Kind, ...] = get_args(Kind)
_MEANING = {
    "number": "numbers",
    "boolean": "truth values (true, false, 1 or 0)",
    "category": "text categories",
    "date": "dates (ISO text such as 2024-02-29 or date types)",
}


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
        from esad.table.statistics import TableStatistics  # which describes the columns by what it counted

        return TableStatistics.of(table).schema()

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
            _converted(picked.values(index), column=column, estimator=estimator)
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
                message += f"Feature names unseen at fit time:\n{_listed(extra)}"
            message += f"Feature names seen at fit time, yet now missing:\n{_listed(missing)}"
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
        _expect(type(value) is dict and set(value) == {"named", "n_rows", "columns"}, "its parts")
        n_rows = value["n_rows"]
        _expect(type(value["named"]) is bool, "`named`")
        _expect(type(n_rows) is int and n_rows >= 1, "`n_rows`")
        _expect(type(value["columns"]) is list and len(value["columns"]) >= 1, "`columns`")
        columns = tuple(_column_from_json(column, n_rows) for column in value["columns"])
        _expect(len({column.name for column in columns}) == len(columns), "doubled names")
        return cls(columns, value["named"], n_rows)


def _expect(holds: bool, what: str) -> None:
    """Refuse a damaged column description."""
    if not holds:
        raise ModelFileError(f"The model file's column description is damaged: {what}. Train and save the model again.")


def _column_from_json(value: Any, n_rows: int) -> Column:
    _expect(type(value) is dict and set(value) == {field.name for field in fields(Column)}, "parts of a column")
    n_distinct = value["n_distinct"]
    _expect(type(value["name"]) is str, "`name`")
    _expect(type(value["kind"]) is str and value["kind"] in KINDS, "`kind`")
    _expect(type(value["n_missing"]) is int and 0 <= value["n_missing"] <= n_rows, "`n_missing`")
    _expect(n_distinct is None or (type(n_distinct) is int and 0 <= n_distinct <= n_rows), "`n_distinct`")
    _expect(type(value["is_constant"]) is bool, "`is_constant`")
    _expect(type(value["proposes_id"]) is bool, "`proposes_id`")
    return Column(**value)


def _listed(names: list[str]) -> str:
    """Names one to a line, at most five, in scikit-learn's form."""
    shown = sorted(names)[:5] + (["..."] if len(names) > 5 else [])
    return "".join(f"- {name}\n" for name in shown)


def _converted(values: Values, *, column: Column, estimator: str) -> Values:
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
