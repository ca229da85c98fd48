"""Tables become finite float32 features, the same way every time and for every row alone."""

import copy
import datetime as dt
import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.data.frame import Schema, Table
from esad.errors import InputError, ModelFileError, SchemaError
from esad.preprocess.tabular import TabularPreprocessor

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
    reference = np.array(data.draw(st.lists(st.booleans(), min_size=table.n_rows, max_size=table.n_rows)))
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


def test_numbers_are_standardised_by_the_finite_values_of_the_reference_rows():
    values = np.random.default_rng(0).normal(5.0, 3.0, size=(100, 2))
    values[90:] = 1e300
    values[0] = np.inf, -np.inf
    reference = np.arange(100) < 90
    features = TabularPreprocessor().fit(Table.from_any(values), reference).transform(Table.from_any(values))
    np.testing.assert_allclose(features[1:90].mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(features[1:90].std(axis=0), 1.0, atol=1e-6)
    assert (features[90:] == 10.0).all()
    assert features[0].tolist() == [10.0, -10.0]


def test_without_a_reference_row_all_rows_count():
    table = Table.from_any([[1.0], [3.0]])
    nobody = TabularPreprocessor().fit(table, np.zeros(2, dtype=bool))
    assert nobody.transform(table).tolist() == [[-1.0], [1.0]]


@pytest.mark.parametrize("mask", [np.ones(3, dtype=bool), np.ones(2), np.ones((2, 1), dtype=bool)])
def test_a_mask_that_does_not_fit_is_refused(mask):
    with pytest.raises(InputError, match="`reference_mask` must be 2 truth values"):
        TabularPreprocessor().fit(Table.from_any([[1.0], [3.0]]), mask)


def test_a_constant_column_keeps_its_scale():
    preprocessor = TabularPreprocessor().fit(Table.from_any([[5.0], [5.0]]))
    assert preprocessor.transform(Table.from_any([[5.0], [6.5], [-99.0]])).tolist() == [[0.0], [1.5], [-10.0]]


def test_missing_numbers_become_zero_and_get_a_mark_if_training_had_some():
    preprocessor = TabularPreprocessor().fit(Table.from_any([[1.0, 1.0], [np.nan, 3.0], [3.0, 5.0], [2.0, 3.0]]))
    assert preprocessor.feature_names_out() == ("x0", "x1", "x0 is missing")
    assert preprocessor.feature_sources_.tolist() == [0, 1, 0]
    missing, present = preprocessor.transform(Table.from_any([[np.nan, np.nan], [2.0, 3.0]]))
    assert missing[:2].tolist() == [0.0, 0.0]
    assert missing[2] == pytest.approx(0.75 / np.sqrt(0.25 * 0.75))
    assert present[2] == pytest.approx(-0.25 / np.sqrt(0.25 * 0.75))


def test_rare_and_unseen_categories_share_a_mark():
    words = [f"w{index:02d}" for index in range(40)]
    training = pd.DataFrame({"a": [word for index, word in enumerate(words) for _ in range(50 - index)]})
    preprocessor = TabularPreprocessor().fit(Table.from_any(training))
    names = preprocessor.feature_names_out()
    assert names == (*(f"a = {word}" for word in words[:32]), "a = (other)")
    rare, unseen, missing, frequent = preprocessor.transform(
        Table.from_any(pd.DataFrame({"a": ["w39", "new", None, "w00"]}))
    )
    assert rare.tolist() == unseen.tolist() == missing.tolist()
    assert (rare > 0).nonzero()[0].tolist() == [32]
    assert (frequent > 0).nonzero()[0].tolist() == [0]


def test_marks_are_standardised_with_a_deviation_of_at_least_a_tenth():
    training = pd.DataFrame({"a": ["x"] * 50 + ["y"] * 50})
    preprocessor = TabularPreprocessor().fit(Table.from_any(training))
    (features,) = preprocessor.transform(Table.from_any(training[:1]))
    np.testing.assert_allclose(features, [1.0, -1.0, 0.0], atol=1e-6)
    (unseen,) = preprocessor.transform(Table.from_any(pd.DataFrame({"a": ["z"]})))
    np.testing.assert_allclose(unseen, [-1.0, -1.0, 10.0], atol=1e-6)


def test_ties_between_categories_do_not_depend_on_row_order():
    words = [f"w{index}" for index in range(40)]
    there, back = ({"a": order} for order in (words, words[::-1]))
    fitted = [
        TabularPreprocessor().fit(Table.from_any(pd.DataFrame(frame))).feature_names_out() for frame in (there, back)
    ]
    assert fitted[0] == fitted[1]


@pytest.mark.parametrize(("trained", "later"), [("3.0", 3.0), ("3", 3.0), ("003", 3), ("3", "3"), ("2.50", 2.5)])
def test_a_number_finds_the_category_that_spells_it(trained, later):
    preprocessor = TabularPreprocessor().fit(Table.from_any(pd.DataFrame({"a": [trained, "red"]})))
    (features,) = preprocessor.transform(Table.from_any(pd.DataFrame({"a": [later]})))
    assert features[0] > 0


def test_a_number_that_two_categories_spell_is_other():
    preprocessor = TabularPreprocessor().fit(Table.from_any(pd.DataFrame({"a": ["03", "003", "red"]})))
    (features,) = preprocessor.transform(Table.from_any(pd.DataFrame({"a": [3]})))
    assert features[3] > 0


def dates(start: dt.datetime, step: dt.timedelta, n: int) -> pd.DataFrame:
    return pd.DataFrame({"when": [start + index * step for index in range(n)]})


@pytest.mark.parametrize(
    ("step", "cycles"),
    [
        (dt.timedelta(minutes=10), ["day"]),
        (dt.timedelta(days=1), ["week"]),
        (dt.timedelta(days=30), ["week", "year"]),
        (dt.timedelta(days=30, hours=1), ["day", "week", "year"]),
        (dt.timedelta(0), []),
    ],
)
def test_dates_give_time_and_the_cycles_they_cover(step, cycles):
    preprocessor = TabularPreprocessor().fit(Table.from_any(dates(dt.datetime(2024, 1, 1), step, 20)))
    waves = [f"when {wave} of {cycle}" for cycle in cycles for wave in ("sine", "cosine")]
    assert preprocessor.feature_names_out() == ("when", *waves)


def test_the_same_time_on_another_day_has_the_same_place_in_the_day():
    preprocessor = TabularPreprocessor().fit(Table.from_any(dates(dt.datetime(2024, 1, 1), dt.timedelta(hours=1), 48)))
    one, other = preprocessor.transform(Table.from_any(dates(dt.datetime(1950, 5, 5, 6), dt.timedelta(days=7), 2)))
    assert one[1:].tolist() == other[1:].tolist()
    assert one[1] > 1.0  # six in the morning: the sine is at its top


def test_missing_dates_are_zero_with_a_mark():
    frame = pd.DataFrame({"when": ["2024-01-01", None, "2024-01-03"]})
    preprocessor = TabularPreprocessor().fit(Table.from_any(frame))
    features = preprocessor.transform(Table.from_any(frame))
    assert features[1, 0] == 0.0
    assert features[1, 1] == pytest.approx(np.sqrt(2.0))


def test_text_categories_that_look_like_dates_in_a_later_table_stay_text():
    preprocessor = TabularPreprocessor().fit(Table.from_any(pd.DataFrame({"a": ["2024-01-01", "unknown"]})))
    (features,) = preprocessor.transform(Table.from_any(pd.DataFrame({"a": ["2024-01-01"]})))
    assert features[0] > 0


def fitted_state():
    frame = pd.DataFrame({"a": [1.0, None], "b": ["x", "y"], "c": ["2024-01-01", "2024-06-01"]})
    return TabularPreprocessor().fit(Table.from_any(frame)).state()


BAD_TENSORS = {
    "no mean": lambda t: t.pop("mean"),
    "one more": lambda t: t.update(more=t["mean"]),
    "short": lambda t: t.update(mean=t["mean"][:-1]),
    "long": lambda t: t.update(scale=np.append(t["scale"], 1.0)),
    "2-D": lambda t: t.update(mean=t["mean"][:, None]),
    "float32": lambda t: t.update(mean=t["mean"].astype(np.float32)),
    "big-endian": lambda t: t.update(mean=t["mean"].astype(">f8")),
    "object": lambda t: t.update(mean=t["mean"].astype(object)),
    "list": lambda t: t.update(mean=t["mean"].tolist()),
    "nan": lambda t: t["mean"].__setitem__(0, np.nan),
    "inf": lambda t: t["scale"].__setitem__(0, np.inf),
    "zero scale": lambda t: t["scale"].__setitem__(1, 0.0),
    "negative scale": lambda t: t["scale"].__setitem__(1, -1.0),
}
BAD_META = {
    "no schema": lambda m: m.pop("schema"),
    "one more": lambda m: m.update(more=1),
    "format": lambda m: m.update(format=2),
    "format true": lambda m: m.update(format=True),
    "features short": lambda m: m["features"].pop(),
    "features no list": lambda m: m.update(features={}),
    "part no dict": lambda m: m["features"].__setitem__(0, None),
    "mark": lambda m: m["features"][0].update(marks_missing=1),
    "mark off": lambda m: m["features"][0].update(marks_missing=False),
    "doubled": lambda m: m["features"][1].update(categories=["x", "x"]),
    "numbers": lambda m: m["features"][1].update(categories=["x", 1]),
    "too many": lambda m: m["features"][1].update(categories=[str(i) for i in range(33)]),
    "categories of a number": lambda m: m["features"][0].update(categories=["x"]),
    "cycles of a number": lambda m: m["features"][0].update(cycles=["day"]),
    "cycle order": lambda m: m["features"][2].update(cycles=["week", "day"]),
    "cycle twice": lambda m: m["features"][2].update(cycles=["day", "day"]),
    "cycle name": lambda m: m["features"][2].update(cycles=["month"]),
    "cycle type": lambda m: m["features"][2].update(cycles=[["day"]]),
    "kind": lambda m: m["schema"]["columns"][0].update(kind="tensor"),
}


@pytest.mark.parametrize("damage", BAD_TENSORS.values(), ids=BAD_TENSORS.keys())
def test_damaged_arrays_are_refused(damage):
    tensors, meta = fitted_state()
    damage(tensors)
    with pytest.raises(ModelFileError, match="damaged"):
        TabularPreprocessor.from_state(tensors, meta)


@pytest.mark.parametrize("damage", BAD_META.values(), ids=BAD_META.keys())
def test_damaged_metadata_is_refused(damage):
    tensors, meta = fitted_state()
    damage(meta)
    with pytest.raises(ModelFileError, match="damaged"):
        TabularPreprocessor.from_state(tensors, meta)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["number", "date", "day"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.data())
def test_forged_metadata_is_refused_or_gives_finite_features(data):
    tensors, meta = fitted_state()
    forged = copy.deepcopy(meta)
    place, key = {"root": forged}, "root"
    while data.draw(st.booleans()) or key == "root":
        inner = place[key]
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
        if not keys:
            break
        place, key = inner, data.draw(st.sampled_from(keys))
    place[key] = data.draw(JSON_VALUES)
    try:
        read = TabularPreprocessor.from_state(tensors, forged)
    except ModelFileError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            features = read.transform(Table.from_any([[1.0, "x", "2024-01-01"]]))
        except SchemaError:
            return
    assert np.isfinite(features).all()


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


@pytest.mark.parametrize("placeholder", [1e15, -999999.0, 1e300])
def test_a_placeholder_value_does_not_set_the_scale_of_its_column(placeholder):
    values = np.random.default_rng(0).normal(size=(300, 2))
    values[7, 0] = placeholder
    features = TabularPreprocessor().fit(Table.from_any(values)).transform(Table.from_any(values))
    assert abs(features[7, 0]) == 10.0
    assert np.delete(features[:, 0], 7).std() == pytest.approx(1.0, rel=0.01)
    np.testing.assert_allclose(features[:, 1].std(), 1.0, rtol=1e-5)
