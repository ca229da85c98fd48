"""A fitted state that is damaged or forged is refused, or gives finite features."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.errors import ModelFileError, SchemaError
from esad.table.encode import TabularPreprocessor
from esad.table.table import Table


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
    "half a surrogate pair": lambda m: m["features"][1].update(categories=["x", "\ud800"]),
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
