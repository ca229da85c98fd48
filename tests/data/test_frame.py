"""Tables of every library are read alike, and later tables are brought into the form of training."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from esad.data.frame import Schema, Table
from esad.errors import InputError, SchemaError

COLUMNS = {"size": [1.5, None, 3.0], "colour": ["red", None, "blue"], "good": [True, False, None]}


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_table_of_any_library_reads_alike(library):
    table = Table.from_any(library(COLUMNS))
    assert table.names == ("size", "colour", "good")
    assert table.kinds == ("number", "category", "boolean")
    np.testing.assert_array_equal(table.column(0), [1.5, np.nan, 3.0])
    assert table.column(1).tolist() == ["red", None, "blue"]
    np.testing.assert_array_equal(table.column(2), [1.0, 0.0, np.nan])


def test_other_column_order_is_fine_and_extra_columns_warn_once():
    schema = Schema.infer(Table.from_any(pd.DataFrame(COLUMNS)))
    other = pd.DataFrame(COLUMNS).assign(note="x")[["note", "good", "size", "colour"]]
    with pytest.warns(UserWarning, match=r"ignored: \['note'\]") as caught:
        aligned = schema.align(Table.from_any(other))
    assert len(caught) == 1
    assert aligned.names == ("size", "colour", "good")


def test_missing_columns_are_named():
    schema = Schema.infer(Table.from_any(pd.DataFrame(COLUMNS)))
    with pytest.raises(
        SchemaError, match=r"^The feature names should match those that were passed during fit\.\n"
    ) as error:
        schema.align(Table.from_any(pd.DataFrame({"size": [1.0]})))
    assert "now missing:\n- colour\n- good\n" in str(error.value)


def test_another_width_is_told_in_the_words_of_scikit_learn():
    schema = Schema.infer(Table.from_any(np.zeros((4, 3))))
    with pytest.raises(InputError, match="X has 2 features, but ESAD is expecting 3 features as input"):
        schema.align(Table.from_any(np.zeros((4, 2))))
