"""Tables of every library and type are read alike, and what is no table is refused in scikit-learn's words."""

import datetime as dt
from decimal import Decimal
from pathlib import Path

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
import torch

from esad.errors import InputError, SchemaError
from esad.table.table import Schema, Table, take_rows

NOON = dt.datetime(2024, 2, 29, 12)
LIBRARIES = [pd.DataFrame, pl.DataFrame, pa.table]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_table_of_any_library_reads_alike(library):
    columns = {"size": [1.5, None, 3.0], "colour": ["red", None, " "], "good": [True, False, None]}
    table = Table.from_any(library({**columns, "when": [NOON, None, NOON], "cost": [Decimal("1.5"), None, Decimal(2)]}))
    assert table.named and table.n_rows == 3 and table.n_columns == 5
    assert table.names == ("size", "colour", "good", "when", "cost")
    assert table.kinds == ("number", "category", "boolean", "date", "number")
    np.testing.assert_array_equal(table.column(0), [1.5, np.nan, 3.0])
    assert table.column(1).tolist() == ["red", None, None]
    np.testing.assert_array_equal(table.column(2), [1.0, 0.0, np.nan])
    np.testing.assert_array_equal(table.column(3), np.array([NOON, "NaT", NOON], dtype="M8[us]"))
    np.testing.assert_array_equal(table.column(4), [1.5, np.nan, 2.0])


PANDAS_COLUMNS = {
    "Int64": (pd.array([1, None], dtype="Int64"), "number", [1.0, np.nan]),
    "Float64": (pd.array([1.5, None], dtype="Float64"), "number", [1.5, np.nan]),
    "boolean": (pd.array([True, None], dtype="boolean"), "boolean", [1.0, np.nan]),
    "string": (pd.array(["a", None], dtype="string"), "category", ["a", None]),
    "categorical": (pd.Categorical(["a", None]), "category", ["a", None]),
    "categorical of numbers": (pd.Categorical([3.0, 4.0]), "category", ["3", "4"]),
    "object": (pd.Series([1, "a"], dtype=object), "category", ["1", "a"]),
    "timedelta": (pd.to_timedelta([1.5, None], unit="s"), "number", [1.5, np.nan]),
    "period": (pd.PeriodIndex(["2020", "2021"], freq="Y"), "category", ["2020", "2021"]),
    "sparse": (pd.arrays.SparseArray([0.0, 1.0]), "number", [0.0, 1.0]),
    "arrow int": (pd.array([1, None], dtype="int64[pyarrow]"), "number", [1.0, np.nan]),
    "arrow bool": (pd.array([True, None], dtype="bool[pyarrow]"), "boolean", [1.0, np.nan]),
    "arrow decimal": (
        pd.array([Decimal("1.5"), None], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
        "number",
        [1.5, np.nan],
    ),
    "uint64": (np.array([2**63, 1], dtype=np.uint64), "number", [2.0**63, 1.0]),
    "float16": (np.array([1, np.inf], dtype=np.float16), "number", [1.0, np.inf]),
    "nothing": ([None, None], "category", [None, None]),
}
POLARS_COLUMNS = {
    "categorical": (pl.Series(["a", None], dtype=pl.Categorical), "category", ["a", None]),
    "enum": (pl.Series(["a", None], dtype=pl.Enum(["a"])), "category", ["a", None]),
    "duration": (pl.Series([dt.timedelta(seconds=1.5), None]), "number", [1.5, np.nan]),
    "time": (pl.Series([dt.time(1), None]), "number", [3600.0, np.nan]),
    "null": (pl.Series([None, None]), "category", [None, None]),
    "object": (pl.Series([1, "a"], dtype=pl.Object), "category", ["1", "a"]),
    "int128": (pl.Series([2**70, None], dtype=pl.Int128), "number", [2.0**70, np.nan]),
    "bytes": (pl.Series([b"a", None]), "category", ["a", None]),
}
ARROW_COLUMNS = {
    "dictionary": (pa.array(["a", None]).dictionary_encode(), "category", ["a", None]),
    "dictionary of numbers": (pa.array([1, None]).dictionary_encode(), "category", ["1", None]),
    "string view": (pa.array(["a", None], pa.string_view()), "category", ["a", None]),
    "duration": (pa.array([dt.timedelta(seconds=1.5), None]), "number", [1.5, np.nan]),
    "time": (pa.array([dt.time(1), None]), "number", [3600.0, np.nan]),
    "null": (pa.nulls(2), "category", [None, None]),
    "half float": (pa.array(np.array([1, 2], dtype=np.float16)), "number", [1.0, 2.0]),
    "chunks": (pa.chunked_array([[1], [None]], pa.int64()), "number", [1.0, np.nan]),
}
COLUMNS = [
    *(
        pytest.param(pd.DataFrame({"a": values}), *rest, id=f"pandas {name}")
        for name, (values, *rest) in PANDAS_COLUMNS.items()
    ),
    *(
        pytest.param(pl.DataFrame({"a": values}), *rest, id=f"polars {name}")
        for name, (values, *rest) in POLARS_COLUMNS.items()
    ),
    *(
        pytest.param(pa.table({"a": values}), *rest, id=f"arrow {name}")
        for name, (values, *rest) in ARROW_COLUMNS.items()
    ),
]


@pytest.mark.parametrize(("frame", "kind", "expected"), COLUMNS)
def test_every_column_type_is_read(frame, kind, expected):
    table = Table.from_any(frame)
    assert table.kinds == (kind,)
    if kind == "category":
        assert table.column(0).tolist() == expected
    else:
        assert table.column(0).dtype == np.float64
        np.testing.assert_array_equal(table.column(0), expected)


ZONED = [NOON.replace(tzinfo=dt.UTC), None]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"a": pd.DatetimeIndex([NOON, None], tz="UTC").tz_convert("Asia/Tokyo")}),
        pd.DataFrame({"a": pd.array(ZONED, dtype=pd.ArrowDtype(pa.timestamp("ns", tz="Asia/Tokyo")))}),
        pl.DataFrame({"a": pl.Series(ZONED).dt.convert_time_zone("Asia/Tokyo")}),
        pa.table({"a": pa.array(ZONED, pa.timestamp("ms", tz="Asia/Tokyo"))}),
    ],
    ids=["pandas", "pandas arrow", "polars", "arrow"],
)
def test_moments_with_a_time_zone_come_out_in_utc(frame):
    table = Table.from_any(frame)
    assert table.kinds == ("date",)
    np.testing.assert_array_equal(table.column(0), np.array([NOON, "NaT"], dtype="M8[us]"))


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"a": [dt.date(2024, 2, 29)]}),
        pa.table({"a": pa.array([dt.date(2024, 2, 29)], pa.date64())}),
        pd.DataFrame({"a": [dt.date(2024, 2, 29)]}),
        np.array([["2024-02-29"]], dtype="M8[D]"),
    ],
)
def test_days_are_dates(frame):
    table = Table.from_any(frame)
    assert table.kinds == ("date",)
    assert table.column(0)[0] == np.datetime64("2024-02-29", "us")


@pytest.mark.parametrize(
    "values", [np.ones((3, 2)), np.ones((3, 2), np.float32), np.ones((3, 2), int), np.ones((3, 2), bool)]
)
def test_a_numeric_array_is_kept_without_a_copy(values):
    table = Table.from_any(values)
    assert table.matrix is values
    assert table.kinds == (("boolean" if values.dtype == bool else "number"),) * 2
    assert not table.named


@pytest.mark.parametrize(
    ("X", "kinds"),
    [
        ([["a", 1.5], ["b", 2]], ("category", "number")),
        (np.array([["a", 1.5], ["b", 2]]), ("category", "number")),
        (np.array([[1.5, 2.0]], dtype=object), ("number", "number")),
        (np.array([["1.5", 2.0]], dtype=object), ("category", "number")),
        ([[True, "x"], [None, "y"]], ("boolean", "category")),
        ([[NOON, 1]], ("date", "number")),
        (np.ma.masked_invalid([[1.0, np.inf]]), ("number", "number")),
        (np.array([[1, 2]], dtype="m8[s]"), ("number", "number")),
        (((1, 2), (3, 4)), ("number", "number")),
    ],
)
def test_arrays_and_lists_of_rows_are_read_by_column(X, kinds):
    assert Table.from_any(X).kinds == kinds


def test_masked_cells_are_missing():
    np.testing.assert_array_equal(Table.from_any(np.ma.masked_invalid([[1.0], [np.inf]])).column(0), [1.0, np.nan])
    text = np.ma.array([["a"], ["b"]], mask=[[False], [True]])
    assert Table.from_any(text).column(0).tolist() == ["a", None]


def test_column_labels_of_any_type_become_text():
    frame = pd.DataFrame([[1, 2, 3]], columns=[("a", 1), 7, None])
    assert Table.from_any(frame).names == ("('a', 1)", "7", str(frame.columns[2]))
    assert (
        Table.from_any(pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2)]))).n_columns == 2
    )


def test_default_pandas_labels_are_no_names():
    table = Table.from_any(pd.DataFrame([[1, 2]]))
    assert not table.named
    assert table.names == ("x0", "x1")


@pytest.mark.parametrize("labels", [["a", "a", "b"], [1, "1", 2]])
def test_doubled_names_are_refused(labels):
    with pytest.raises(SchemaError, match=r"Column names must differ\. Got more than one of \['[a1]'\]"):
        Table.from_any(pd.DataFrame([[1, 2, 3]], columns=labels))


@pytest.mark.parametrize("X", [pa.record_batch({"a": [1.0]}), nw.from_native(pd.DataFrame({"a": [1.0]}))])
def test_a_record_batch_and_a_narwhals_frame_are_tables(X):
    assert Table.from_any(X).names == ("a",)


def test_a_tensor_is_an_array():
    assert Table.from_any(torch.ones(2, 3)).kinds == ("number",) * 3


@pytest.mark.parametrize(
    "frame",
    [
        np.array([[2**62], [-(2**62)]], dtype="M8[s]"),
        pd.DataFrame({"a": np.array([2**62, -(2**62)], dtype="M8[s]")}),
        pl.DataFrame({"a": pl.Series([2**31 - 1, -(2**31) + 1], dtype=pl.Int32).cast(pl.Date)}),
        pa.table({"a": pa.array([2**62, -(2**62)], pa.timestamp("s"))}),
        [[np.datetime64(10**12, "Y")], [np.datetime64(-(10**12), "Y")]],
    ],
    ids=["numpy", "pandas", "polars", "arrow", "cells"],
)
def test_dates_beyond_the_calendar_stop_at_its_ends(frame):
    late, early = Table.from_any(frame).column(0)
    assert late.astype(np.int64) == 2**63 - 1
    assert early.astype(np.int64) == -(2**63) + 1


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros(3), "Expected 2D array, got 1D array instead:(.|\n)*Reshape your data"),
        (np.float64(3), "Expected 2D array, got 0D array instead:(.|\n)*Reshape your data"),
        (pd.Series([1.0]), "Reshape your data"),
        (pl.Series([1.0]), "Reshape your data"),
        (pa.chunked_array([[1.0]]), "Reshape your data"),
        (np.zeros((2, 2, 2)), "Found array with dim 3, while dim <= 2 is required"),
        (np.zeros((0, 3)), r"Found array with 0 sample\(s\) \(shape=\(0, 3\)\) while a minimum of 1 is required\."),
        (np.zeros((12, 0)), r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1 is required\."),
        (pd.DataFrame(index=range(12)), r"0 feature\(s\) \(shape=\(12, 0\)\) while a minimum of 1 is required\."),
        (pl.DataFrame({"a": []}), r"0 sample\(s\)"),
        (np.zeros((2, 2), dtype=complex), "^Complex data not supported: X is complex128. Split .* parts.$"),
        (pd.DataFrame({"a": [1j]}), "Complex data not supported"),
        (scipy.sparse.csr_array((2**24, 2**24)), r"A sparse X of 16,777,216 x 16,777,216 takes .*TruncatedSVD"),
        (scipy.sparse.csr_array(np.eye(2, dtype=complex)), "Complex data not supported"),
        ([[1, 2], [3]], "X must be a 2-D array or a table with rows of one length. Got list: "),
        (torch.zeros(2, 2, dtype=torch.bfloat16), "Got Tensor: .*BFloat16"),
        (pl.LazyFrame({"a": [1]}), "Got a lazy LazyFrame. Collect it first"),
        ("rows.csv", r"Got a path: `TrainingData.from_file\(path\)` reads files"),
        (Path("rows.csv"), "Got a path"),
        (None, "X must be a 2-D array or a table. Got NoneType"),
        ({"a": 1}, "X must be a 2-D array or a table. Got dict"),
        ({"a": [1, 2], "b": [1]}, "Columns must be of one length. Got .*'b': 1"),
        ([{}], r"0 sample\(s\)"),
        (np.zeros((2, 2), dtype=[("a", float)]), "Got a structured array"),
        (pl.DataFrame({"a": [[1]]}), "Column 'a' holds a list"),
        (pa.table({"a": [{"b": 1}]}), "Column 'a' holds a dict"),
        (pl.DataFrame({"a": [{"b": 1}]}), "Column 'a' holds a dict"),
    ],
)
def test_what_is_no_table_is_refused(X, message):
    with pytest.raises(InputError, match=message):
        Table.from_any(X)


@pytest.mark.parametrize(
    "X", [np.arange(6.0).reshape(3, 2), pd.DataFrame({"a": [0.0, 2.0, 4.0], "b": ["x", "y", "z"]})]
)
@pytest.mark.parametrize("rows", [slice(1, 3), [1, 2], np.array([False, True, True]), []])
def test_rows_are_taken_by_slice_number_and_mask(X, rows):
    taken = Table.from_any(X).take(rows)
    assert taken.n_rows == (0 if isinstance(rows, list) and not rows else 2)
    assert taken.column(0).tolist() == ([2.0, 4.0] if taken.n_rows else [])


def test_parts_of_a_settled_table_are_read_as_the_whole():
    table = Table.from_any(
        pd.DataFrame({"due": ["2024-02-29", "soon", " "], "paid": ["2024-02-29", None, "2024-03-01"]})
    )
    part = table.settle().take([0, 2])
    assert Schema.infer(table).kinds == part.kinds == Schema.infer(part).kinds == ("category", "date")
    assert Schema.infer(part).align(table.take([1])).column(0).tolist() == ["soon"]
    assert part.values(1).as_kind("category")[0].to_numpy().tolist() == ["2024-02-29", "2024-03-01"]


def test_rows_taken_of_a_masked_array_are_masked():
    masked = np.ma.array([[1.0], [2.0]], mask=[[False], [True]])
    assert np.isnan(Table.from_any(take_rows(masked, np.array([1]))).column(0)).all()


@pytest.mark.parametrize("form", ["csr_array", "csc_matrix", "coo_array", "lil_matrix"])
def test_a_sparse_matrix_is_spelled_out_and_can_be_split(form):
    dense = np.array([[0.0, 1.5], [0.0, 0.0], [np.nan, -2.0]])
    sparse = getattr(scipy.sparse, form)(dense)
    table = Table.from_any(sparse)
    assert table.kinds == ("number", "number")
    np.testing.assert_array_equal(table.matrix, dense)
    np.testing.assert_array_equal(take_rows(sparse, np.array([2, 0])).toarray(), dense[[2, 0]])


@pytest.mark.parametrize(
    "X",
    [
        [{"size": 1.5, "colour": "red"}, {"size": 2.5, "colour": None}],
        [{"size": 1.5, "colour": "red"}, {"size": 2.5}],
        {"size": np.array([1.5, 2.5]), "colour": ["red", None]},
        np.array([(1.5, "red"), (2.5, None)], dtype=[("size", float), ("colour", object)]),
    ],
)
def test_records_are_tables(X):
    table = Table.from_any(X)
    assert (table.names, table.kinds, table.named) == (("size", "colour"), ("number", "category"), True)
    assert [table.column(index).tolist() for index in (0, 1)] == [[1.5, 2.5], ["red", None]]


def test_intervals_of_pandas_cut_are_categories():
    cut = pd.cut(pd.Series([1.0, 9.0, None]), [0, 5, 10])
    table = Table.from_any(pd.DataFrame({"size": cut}))
    assert table.column(0).tolist() == ["(0, 5]", "(5, 10]", None]


def test_categories_of_several_types_are_text():
    column = pd.Categorical([3, "a", None, 3.5, dt.date(2024, 2, 29)], categories=[3, "a", 3.5, dt.date(2024, 2, 29)])
    table = Table.from_any(pd.DataFrame({"size": range(5), "kind": column}))
    assert table.column(1).tolist() == ["3", "a", None, "3.5", "2024-02-29"]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ({"a": np.zeros((3, 2)), "b": np.zeros(3)}, r"one cell per row. Got 'a' of shape \(3, 2\)"),
        ({"a": np.array(1.0)}, r"one cell per row. Got 'a' of shape \(\)"),
        (np.zeros(3, dtype=[("x", float), ("y", int, 2)]), r"one cell per row. Got 'y' of shape \(3, 2\)"),
        ({1: [1.0, 2.0], "1": [3.0, 4.0]}, r"Got more than one of \['1'\]"),
        ([{1: 1.0, "1": 3.0}] * 2, r"Got more than one of \['1'\]"),
        (pa.table([[1.0], [2.0]], names=["a", "a"]), r"Got more than one of \['a'\]"),
    ],
)
def test_records_that_are_no_table_are_refused(records, message):
    with pytest.raises(InputError, match=message):
        Table.from_any(records)
