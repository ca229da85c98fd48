"""What a training table holds is read off it, and later tables are brought into that form or refused."""

import copy
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.errors import ModelFileError, SchemaError
from esad.table.table import KINDS, Column, Schema, Table

ROWS = 30
TRAINING = {
    "size": [1.5, None, *np.arange(2.0, ROWS)],
    "good": [True, False, None] * (ROWS // 3),
    "colour": ["red", None, "blue"] * (ROWS // 3),
    "day": [f"2024-01-{row + 1:02d}" for row in range(ROWS)],
    "key": [f"row {row}" for row in range(ROWS)],
    "same": [7] * ROWS,
    "empty": [np.nan] * ROWS,
}


@pytest.fixture(params=[pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "arrow"])
def schema(request):
    return Schema.infer(Table.from_any(request.param(TRAINING)))


def align_one(column: Column, values) -> np.ndarray:
    """Bring one column, given as an object column, into the form of training."""
    schema = Schema((column,), named=True, n_rows=9)
    return schema.align(Table.from_any(pd.DataFrame({column.name: values}))).column(0)


def column(kind: str) -> Column:
    return Column("a", kind, 0, None, False, False)


def test_the_training_table_is_described(schema):
    assert schema.named
    assert schema.n_rows == ROWS
    assert schema.columns == (
        Column("size", "number", n_missing=1, n_distinct=None, is_constant=False, proposes_id=False),
        Column("good", "boolean", n_missing=10, n_distinct=2, is_constant=False, proposes_id=False),
        Column("colour", "category", n_missing=10, n_distinct=2, is_constant=False, proposes_id=False),
        Column("day", "date", n_missing=0, n_distinct=None, is_constant=False, proposes_id=False),
        Column("key", "category", n_missing=0, n_distinct=ROWS, is_constant=False, proposes_id=True),
        Column("same", "number", n_missing=0, n_distinct=None, is_constant=True, proposes_id=False),
        Column("empty", "number", n_missing=ROWS, n_distinct=None, is_constant=True, proposes_id=False),
    )


def test_few_rows_propose_no_id():
    assert not Schema.infer(Table.from_any(pd.DataFrame({"key": list("abcdefghij")}))).columns[0].proposes_id


def test_text_that_is_all_missing_stays_text():
    assert Schema.infer(Table.from_any(pd.DataFrame({"a": pd.array([None, ""], dtype="string")}))).kinds == (
        "category",
    )


@given(st.data())
def test_a_matrix_is_described_like_its_columns(data):
    n_columns = data.draw(st.integers(1, 4))
    cell = st.sampled_from([0.0, 1.0, np.nan, np.inf])
    rows = data.draw(st.lists(st.lists(cell, min_size=n_columns, max_size=n_columns), min_size=1, max_size=6))
    values = np.repeat(np.array(rows), data.draw(st.sampled_from([1, 3000])), axis=0)
    by_matrix = Schema.infer(Table.from_any(values))
    by_column = Schema.infer(Table.from_any(pd.DataFrame(values)))
    assert by_matrix == by_column
    for index, described in enumerate(by_matrix.columns):
        present = values[~np.isnan(values[:, index]), index]
        assert described.n_missing == len(values) - len(present)
        assert described.is_constant == (len(set(present)) <= 1)


def test_other_column_order_is_fine_and_extra_columns_warn_once(schema):
    frame = pd.DataFrame(TRAINING)
    other = frame.assign(note="x", remark=1)[["note", *frame.columns[::-1], "remark"]]
    with pytest.warns(UserWarning, match=r"ignored: \['note', 'remark'\]") as caught:
        aligned = schema.align(Table.from_any(other))
    assert len(caught) == 1
    assert aligned.names == schema.names
    assert aligned.kinds == schema.kinds
    straight = schema.align(Table.from_any(frame))
    for index in range(len(schema.columns)):
        np.testing.assert_array_equal(aligned.column(index), straight.column(index))


def test_missing_columns_are_named_in_the_words_of_scikit_learn(schema):
    start = "The feature names should match those that were passed during fit.\n"
    with pytest.raises(SchemaError) as error:
        schema.align(Table.from_any(pd.DataFrame({"size": [1.0]})))
    assert str(error.value).startswith(
        start + "Feature names seen at fit time, yet now missing:\n- colour\n- day\n- empty\n- good\n- key\n- ...\n"
    )
    with pytest.raises(SchemaError) as error:
        schema.align(Table.from_any(pd.DataFrame({"another": [1.0]})))
    assert str(error.value).startswith(start + "Feature names unseen at fit time:\n- another\n")


def test_another_width_is_told_in_the_words_of_scikit_learn():
    schema = Schema.infer(Table.from_any(np.zeros((4, 3))))
    with pytest.raises(SchemaError, match=r"^X has 2 features, but DeepSAD is expecting 3 features as input\.$"):
        schema.align(Table.from_any(np.zeros((4, 2))), estimator="DeepSAD")


def test_names_on_one_side_only_warn_and_go_by_position():
    unnamed, named = Table.from_any([[1.0, 2.0]]), Table.from_any(pd.DataFrame({"a": [1.0], "b": [2.0]}))
    with pytest.warns(
        UserWarning, match="^X does not have valid feature names, but ESAD was fitted with feature names$"
    ):
        assert Schema.infer(named).align(unnamed).column(1).tolist() == [2.0]
    with pytest.warns(UserWarning, match="^X has feature names, but ESAD was fitted without feature names$"):
        assert Schema.infer(unnamed).align(named).column(1).tolist() == [2.0]


def test_aligning_the_training_array_copies_nothing():
    table = Table.from_any(np.zeros((4, 3)))
    assert Schema.infer(table).align(table) is table


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("number", ["1.5", None, " 2e3 "], [1.5, np.nan, 2000.0]),
        ("number", [True, False], [1.0, 0.0]),
        ("boolean", ["true", "False", None, "0"], [1.0, 0.0, np.nan, 0.0]),
        ("boolean", [1, 0, None], [1.0, 0.0, np.nan]),
        ("category", [3.0, 2.5, None], ["3", "2.5", None]),
        ("category", [2**60 + 1, 1], [str(2**60 + 1), "1"]),
        ("category", [True, None], ["True", None]),
        ("category", ["2024-01-01"], ["2024-01-01"]),
        ("date", ["2024-01-01", None], np.array(["2024-01-01", "NaT"], "M8[us]")),
        ("date", [np.nan, np.nan], np.array(["NaT", "NaT"], "M8[us]")),
        ("category", [np.nan, np.nan], [None, None]),
        ("number", [None, None], [np.nan, np.nan]),
    ],
)
def test_values_of_certain_meaning_are_turned_into_the_kind_of_training(kind, values, expected):
    got = align_one(column(kind), values)
    if kind == "category":
        assert got.tolist() == expected
    else:
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("kind", "values", "expected", "bad", "row"),
    [
        ("number", ["1", "big"], "numbers", "big", 1),
        ("number", [pd.NaT, pd.Timestamp("2024-01-01")], "numbers", "2024-01-01T00:00:00.000000", 1),
        ("boolean", [0, 1, 2], "truth values", "2", 2),
        ("boolean", ["yes"], "truth values", "yes", 0),
        ("category", [pd.Timestamp("2024-01-01")], "text categories", "2024-01-01T00:00:00.000000", 0),
        ("date", ["2024-01-01", "soon"], "dates", "soon", 1),
        ("date", [np.nan, 20240101], "dates", "20240101.0", 1),
    ],
)
def test_another_kind_is_refused_with_column_kind_and_first_bad_value(kind, values, expected, bad, row):
    with pytest.raises(SchemaError, match=f"^Column 'a' must hold {expected}.* Got '{bad}' in row {row}"):
        align_one(column(kind), values)


def test_an_array_of_numbers_may_stand_for_categories_and_truths():
    schema = Schema.infer(Table.from_any([[True, "3", 1.5], [False, "x", 2.5]]))
    aligned = schema.align(Table.from_any(np.array([[1.0, 3.0, 0.5]])))
    assert aligned.kinds == ("boolean", "category", "number")
    assert aligned.column(1).tolist() == ["3"]
    with pytest.raises(SchemaError, match="Column 'x0' must hold truth values"):
        schema.align(Table.from_any(np.array([[5.0, 3.0, 0.5]])))


def test_json_gives_the_schema_back(schema):
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


FORGED = [None, True, -1, 0, 10**30, 1.5, "", "number", [], {}, [None], {"name": "a"}, ["a", "a"]]


@pytest.mark.parametrize("forged", FORGED, ids=repr)
@pytest.mark.parametrize(
    "path",
    [
        (),
        ("named",),
        ("n_rows",),
        ("columns",),
        ("columns", 0),
        *(("columns", 1, k) for k in ("name", "kind", "n_missing", "n_distinct", "is_constant", "proposes_id")),
    ],
    ids=str,
)
def test_forged_json_is_refused_or_harmless(path, forged):
    value = Schema.infer(Table.from_any(pd.DataFrame(TRAINING))).to_json()
    whole = {"whole": copy.deepcopy(value)}
    place: object = whole
    *way, last = ("whole", *path)
    for step in way:
        place = place[step]
    place[last] = forged
    try:
        schema = Schema.from_json(whole["whole"])
    except ModelFileError:
        return
    assert Schema.from_json(schema.to_json()) == schema
    assert all(column.kind in KINDS for column in schema.columns)


@pytest.mark.parametrize(
    "edit",
    [
        lambda v: v.pop("named"),
        lambda v: v.update(more=1),
        lambda v: v["columns"][0].pop("kind"),
        lambda v: v["columns"].append(v["columns"][0]),
        lambda v: v["columns"].clear(),
        lambda v: v["columns"][0].update(kind="tensor"),
        lambda v: v.update(n_rows=True),
    ],
)
def test_damaged_json_is_refused(edit):
    value = Schema.infer(Table.from_any(pd.DataFrame(TRAINING))).to_json()
    edit(value)
    with pytest.raises(ModelFileError, match="preprocessing is damaged: "):
        Schema.from_json(value)
