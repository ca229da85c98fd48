"""Tables become finite float32 features, the same way every time and for every row alone."""

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.errors import SchemaError
from esad.table.encode import TabularPreprocessor
from esad.table.table import Schema, Table

CELLS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.sampled_from([1e300, -1e300, 5e-324, 1.7e308, np.inf, -np.inf, 0.1, 3.0])
    | st.text(max_size=3)
    | st.sampled_from(["red", "blue", "", "3", "3.0", "nan", "2024-01-01"])
    | st.datetimes()
    | st.dates()
    | st.timedeltas()
    | st.times()
    | st.decimals()
)
COLUMN_CELLS = [
    CELLS,
    st.floats() | st.none(),
    st.sampled_from(["red", "blue", None]),
    st.datetimes() | st.none(),
    st.booleans(),
]


@st.composite
def frames(draw, min_rows=1):
    """pandas tables of object columns of any mix of values."""
    n_rows = draw(st.integers(min_rows, 12))
    kinds = draw(st.lists(st.sampled_from(COLUMN_CELLS), min_size=1, max_size=4))
    columns = {
        f"c{index}": draw(st.lists(cells, min_size=n_rows, max_size=n_rows)) for index, cells in enumerate(kinds)
    }
    return pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in columns.items()})


@given(frames(), st.data())
def test_features_are_finite_for_any_mix_of_values(frame, data):
    table = Table.from_any(frame)
    reference = np.array(data.draw(st.lists(st.booleans(), min_size=table.n_rows, max_size=table.n_rows).filter(any)))
    preprocessor = TabularPreprocessor().fit(table, reference)
    features = preprocessor.transform(table)
    assert features.shape == (table.n_rows, preprocessor.n_features_out_)
    assert features.dtype == np.float32
    assert features.flags.c_contiguous
    assert np.isfinite(features).all()
    assert np.abs(features).max(initial=0.0) <= 10.0
    assert len(preprocessor.feature_names_out()) == len(preprocessor.feature_sources_) == preprocessor.n_features_out_


@given(frames(), frames())
def test_other_rows_give_finite_features_or_a_schema_error(training, later):
    preprocessor = TabularPreprocessor().fit(Table.from_any(training))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            features = preprocessor.transform(Table.from_any(later))
        except SchemaError:
            return
    assert np.isfinite(features).all()


@given(frames(), st.randoms(use_true_random=False))
def test_column_order_does_not_matter(frame, random):
    preprocessor = TabularPreprocessor().fit(Table.from_any(frame))
    names = list(frame.columns)
    random.shuffle(names)
    expected = preprocessor.transform(Table.from_any(frame))
    assert preprocessor.transform(Table.from_any(frame[names])).tobytes() == expected.tobytes()


@given(frames(), st.data())
def test_a_rows_features_do_not_depend_on_the_other_rows(frame, data):
    table = Table.from_any(frame)
    preprocessor = TabularPreprocessor().fit(table)
    rows = data.draw(st.lists(st.integers(0, table.n_rows - 1), max_size=20))
    features = preprocessor.transform(table)
    assert preprocessor.transform(table.take(rows)).tobytes() == features[rows].tobytes()
    row = data.draw(st.integers(0, table.n_rows - 1))
    alone = frame.iloc[[row]]
    assert preprocessor.transform(Table.from_any(alone)).tobytes() == features[[row]].tobytes()


@given(frames())
def test_state_through_json_gives_the_same_bits_back(frame):
    table = Table.from_any(frame)
    fitted = TabularPreprocessor().fit(table)
    tensors, meta = fitted.state()
    again = TabularPreprocessor.from_state(tensors, json.loads(json.dumps(meta)))
    assert again.transform(table).tobytes() == fitted.transform(table).tobytes()
    assert again.feature_names_out() == fitted.feature_names_out()
    assert again.feature_sources_.tolist() == fitted.feature_sources_.tolist()
    assert again.state()[1] == meta


def test_blocks_leave_no_trace_in_the_features():
    values = np.random.default_rng(0).normal(size=(100_003, 3))
    values[::7, 1] = np.nan
    frame = pd.DataFrame(values, columns=list("abc")).assign(d=np.where(values[:, 0] > 0, "red", "blue"))
    preprocessor = TabularPreprocessor().fit(Table.from_any(frame))
    features = preprocessor.transform(Table.from_any(frame))
    one = preprocessor.transform(Table.from_any(frame.iloc[70_000:70_010]))
    assert features[70_000:70_010].tobytes() == one.tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64, np.longdouble, np.uint8])
@pytest.mark.parametrize("order", ["C", "F"])
def test_one_number_has_one_feature_whatever_its_type_and_library(dtype, order):
    values = np.random.default_rng(0).integers(0, 100, size=(500, 3))
    expected = (
        TabularPreprocessor().fit(Table.from_any(values.astype(float))).transform(Table.from_any(values.astype(float)))
    )
    array = np.asarray(values, dtype=dtype, order=order)
    array.flags.writeable = False
    readable = dtype not in (np.longdouble, np.float16)
    frames = [
        library({name: array[:, i] for i, name in enumerate("abc")}) for library in (pl.DataFrame, pa.table) if readable
    ]
    for X in [array, array.astype(object), pd.DataFrame(array), *frames]:
        table = Table.from_any(X)
        assert TabularPreprocessor().fit(table).transform(table).tobytes() == expected.tobytes()


@pytest.mark.parametrize("n_texts", [3, 100], ids=["categories", "bands"])
def test_a_code_finds_its_category_when_written_with_a_point(n_texts):
    codes = [str(1 + row % (1 + row % n_texts)) for row in range(400)]
    preprocessor = TabularPreprocessor().fit(Table.from_any(pa.table({"region": codes})))
    later = [preprocessor.transform(Table.from_any(pa.table({"region": [text]}))) for text in ("2", "2.0", "2.5")]
    assert (later[0] == later[1]).all()
    assert (later[0] != later[2]).any()


def test_nothing_given_is_changed():
    values = np.array([[1.0, np.nan], [np.inf, 2.0]])
    before = values.copy()
    table = Table.from_any(values)
    preprocessor = TabularPreprocessor().fit(table)
    preprocessor.transform(table)
    np.testing.assert_array_equal(values, before)
    tensors, meta = preprocessor.state()
    tensors["mean"][:] = 99.0
    assert preprocessor.mean_[0] != 99.0
    assert Schema.from_json(meta["schema"]) == preprocessor.schema_
