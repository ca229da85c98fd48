"""Preprocessing as tensors gives the rows of the numpy preprocessing, to the bit, and marks what that refuses."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from esad.errors import InputError
from esad.persist.formats import split_groups
from esad.preprocess.inputs import Inputs, read_rows
from esad.preprocess.tensors import PictureRows, TableRows

N = 80
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": rng.normal(1e9, 0.5, N),  # float32 could not tell these apart
        "colour": rng.choice(["red", "7.0", "grün", None], N),
        "good": rng.random(N) < 0.5,
        "made": pd.Timestamp("2019-03-05 06:07") + pd.to_timedelta(rng.integers(0, 40_000, N), unit="h"),
        "weight": np.where(rng.random(N) < 0.2, np.nan, rng.normal(size=N)),
        "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 3, N), unit="D"),
    }
)
FRAME.loc[::9, "made"] = pd.NaT


def fitted(X, scaling="standard"):
    data = read_rows(X)
    n_rows = len(data) if isinstance(data, np.ndarray) else data.n_rows
    return Inputs.fit(data, np.zeros(n_rows, dtype=np.int8), scaling=scaling)[0]


INPUTS = {scaling: fitted(FRAME, scaling) for scaling in ("standard", "minmax")}


def both(inputs, X):
    """Rows as the library makes them, as tensors make them, and which of these are marked."""
    data = read_rows(X)
    aligned = data if isinstance(data, np.ndarray) else inputs.describe(data)
    module = PictureRows(inputs.preprocessor) if isinstance(data, np.ndarray) else TableRows(inputs)
    rows, refused = module(*map(torch.from_numpy, split_groups(inputs, aligned)))
    return inputs.rows_of(data), rows.numpy(), refused.numpy()


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
DATES = st.none() | st.datetimes(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31))
ROW = st.tuples(
    NUMBERS,
    st.sampled_from(["red", "7.0", "7", "07", "grün", "green", "", "  ", None]),
    st.sampled_from([True, False]),
    DATES,
    NUMBERS,
    DATES,
)


@pytest.mark.parametrize("scaling", INPUTS)
@settings(max_examples=60, deadline=None)
@given(cells=st.lists(ROW, min_size=1, max_size=8))
def test_rows_of_tables_are_the_library_s(scaling, cells):
    columns = [np.array(column, dtype=object) for column in zip(*cells, strict=True)]
    for index in (3, 5):
        columns[index] = columns[index].astype("M8[us]")
    X = pd.DataFrame(dict(zip(FRAME.columns, columns, strict=True)))
    wanted, rows, refused = both(INPUTS[scaling], X)
    names = INPUTS[scaling].preprocessor.feature_names_out()
    is_cycle = np.array([" of " in name for name in names])
    np.testing.assert_array_equal(rows[:, ~is_cycle], wanted[:, ~is_cycle])
    np.testing.assert_allclose(rows[:, is_cycle], wanted[:, is_cycle], rtol=1e-5, atol=2e-6)
    assert not refused.any()


def test_texts_of_a_column_with_many_values_are_rows_of_the_library_too():
    texts = np.repeat([f"shop {number}" for number in range(60)], np.r_[np.full(40, 20), np.full(20, 2)])
    inputs = fitted(pd.DataFrame({"shop": texts}))
    assert len(inputs.preprocessor.features_[0].bands) == 2
    wanted, rows, refused = both(inputs, pd.DataFrame({"shop": ["shop 1", "shop 59", "shop 60", None]}))
    np.testing.assert_array_equal(rows, wanted)
    assert not refused.any()


def test_every_new_year_of_four_centuries_and_the_seconds_around_it():
    years = np.arange("1601", "2401", dtype="M8[Y]").astype("M8[us]")
    moments = np.concatenate([years + np.timedelta64(seconds, "s") for seconds in (-1, 0, 1)])
    X = pd.concat([FRAME.iloc[[0]]] * len(moments), ignore_index=True).assign(made=moments)
    wanted, rows, _ = both(INPUTS["standard"], X)
    np.testing.assert_allclose(rows, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("number", [2.0, -1.0, 0.5, np.inf])
def test_a_truth_value_that_is_none_is_marked(number):
    inputs, aligned = INPUTS["standard"], read_rows(FRAME)
    groups = split_groups(inputs, inputs.describe(aligned))
    groups[0][3, 1] = number
    _, refused = TableRows(inputs)(*map(torch.from_numpy, groups))
    assert np.flatnonzero(refused).tolist() == [3]
    with pytest.raises(InputError):
        inputs.transform(FRAME.assign(good=groups[0][:, 1]))


@pytest.mark.parametrize("code", [-1, 5, 10**9])
def test_a_code_that_nobody_gave_is_marked(code):
    inputs = INPUTS["standard"]
    groups = split_groups(inputs, inputs.describe(read_rows(FRAME)))
    groups[1][2, 0] = code
    _, refused = TableRows(inputs)(*map(torch.from_numpy, groups))
    assert np.flatnonzero(refused).tolist() == [2]


@pytest.mark.parametrize("shape", [(9, 6, 5), (9, 6, 5, 3)])
@pytest.mark.parametrize("kind", ["bytes", "unit", "range"])
def test_rows_of_pictures_are_the_library_s(shape, kind):
    made = {
        "bytes": rng.integers(0, 256, shape).astype(np.uint8),
        "unit": rng.random(shape).astype(np.float32),
        "range": rng.normal(40, 9, shape).astype(np.float32),
    }
    inputs = fitted(made[kind])
    X = made[kind].copy()
    X[0] = X[0] + (X[0].max() if kind == "range" else 0)  # beyond what training has seen
    wanted, rows, refused = both(inputs, X)
    np.testing.assert_array_equal(rows, wanted)
    assert not refused.any()


@pytest.mark.parametrize(("kind", "value"), [("unit", np.nan), ("unit", 2.5), ("unit", -1.5), ("range", np.inf)])
def test_pictures_that_are_refused_are_marked(kind, value):
    X = rng.random((4, 6, 5)).astype(np.float32) * (9 if kind == "range" else 1)
    inputs = fitted(X)
    bad = X.copy()
    bad[1, 2, 3] = value
    _, refused = PictureRows(inputs.preprocessor)(torch.from_numpy(bad))
    assert np.flatnonzero(refused).tolist() == [1]
    with pytest.raises(InputError):
        inputs.transform(bad)
