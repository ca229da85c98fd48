"""Pictures are scaled to [0, 1] the same way in training and in scoring."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from esad.errors import ModelFileError, SchemaError
from esad.preprocess.image import ImagePreprocessor, as_images

BYTES = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5) * 2


def test_bytes_are_divided_by_255() -> None:
    rows = ImagePreprocessor().fit(BYTES).transform(BYTES)
    np.testing.assert_array_equal(rows, BYTES.astype(np.float32) / np.float32(255))
    assert rows.dtype == np.float32


def test_floats_within_the_unit_interval_stay() -> None:
    pictures = np.array([[[[0.25, 0.5]]]], dtype=np.float32)  # not stretched to [0, 1]
    np.testing.assert_array_equal(ImagePreprocessor().fit(pictures).transform(pictures), pictures)


def test_other_floats_are_mapped_by_the_range_of_the_reference_rows() -> None:
    pictures = np.array([-1, 3, 1000], dtype=np.float32).reshape(3, 1, 1, 1)
    rows = ImagePreprocessor().fit(pictures, np.array([True, True, False])).transform(pictures)
    assert rows.ravel().tolist() == [0.0, 1.0, 1.0]
    everything = ImagePreprocessor().fit(pictures)
    assert (everything.low_, everything.high_) == (-1.0, 1000.0)


def test_bytes_and_unit_floats_mean_the_same_after_training_on_either() -> None:
    floats = BYTES / np.float32(255)
    for trained in (BYTES, floats):
        preprocessor = ImagePreprocessor().fit(trained)
        np.testing.assert_allclose(preprocessor.transform(BYTES), preprocessor.transform(floats), atol=1e-7)


def test_bytes_are_plain_numbers_after_training_on_a_range() -> None:
    preprocessor = ImagePreprocessor().fit(np.array([0, 200], dtype=np.float32).reshape(2, 1, 1, 1))
    assert preprocessor.transform(np.full((1, 1, 1, 1), 100, dtype=np.uint8)).item() == 0.5


def test_floats_on_another_scale_are_refused_and_small_excesses_clipped() -> None:
    preprocessor = ImagePreprocessor().fit(BYTES)
    with pytest.raises(SchemaError, match=r"Training saw uint8, .* Got floats from 0 to 238"):
        preprocessor.transform(BYTES.astype(np.float32))
    assert preprocessor.transform(np.full((1, 3, 4, 5), 1.25, dtype=np.float32)).max() == 1.0


@pytest.mark.parametrize("value", [0.0, 7.0, -3.0])
def test_constant_pictures_stay_finite(value: float) -> None:
    pictures = np.full((2, 1, 3, 3), value, dtype=np.float32)
    rows = ImagePreprocessor().fit(pictures).transform(pictures)
    assert np.isin(rows, [0.0]).all()


def test_channel_last_views_come_out_contiguous() -> None:
    rows = ImagePreprocessor().fit(BYTES).transform(as_images(np.ascontiguousarray(np.moveaxis(BYTES, 1, 3))))
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, ImagePreprocessor().fit(BYTES).transform(BYTES))


def test_input_is_left_as_it_was() -> None:
    pictures = np.array([[[[-5.0, 5.0]]]], dtype=np.float32)
    copy = pictures.copy()
    ImagePreprocessor().fit(pictures).transform(pictures)
    np.testing.assert_array_equal(pictures, copy)


@pytest.mark.parametrize("shape", [(2, 1, 4, 5), (2, 3, 5, 4), (2, 3, 4, 6)])
def test_another_size_is_refused_with_both_sizes(shape: tuple[int, ...]) -> None:
    with pytest.raises(SchemaError, match=r"\(3, 4, 5\)\. Got \("):
        ImagePreprocessor().fit(BYTES).transform(np.zeros(shape, dtype=np.uint8))


PICTURES = st_numpy.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.sampled_from([1, 3]), st.just(2), st.just(3)),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


@settings(deadline=None)
@given(pictures=PICTURES)
def test_result_is_within_the_unit_interval_keeps_order_and_survives_saving(pictures: np.ndarray) -> None:
    preprocessor = ImagePreprocessor().fit(pictures)
    rows = preprocessor.transform(pictures)
    assert rows.min() >= 0.0
    assert rows.max() <= 1.0
    order = np.argsort(pictures, axis=None, kind="stable")
    assert (np.diff(rows.ravel()[order]) >= 0).all()
    tensors, meta = preprocessor.state()
    again = ImagePreprocessor.from_state(tensors, json.loads(json.dumps(meta)))
    np.testing.assert_array_equal(again.transform(pictures), rows)
    one_by_one = [preprocessor.transform(pictures[index : index + 1]) for index in range(len(pictures))]
    np.testing.assert_array_equal(np.concatenate(one_by_one), rows)


GOOD = {"format": 1, "shape": [3, 4, 5], "scale": "bytes"}
RANGE = {"range": np.array([0.0, 255.0])}


@pytest.mark.parametrize(
    ("tensors", "meta"),
    [
        (RANGE, None),
        (RANGE, []),
        (RANGE, {}),
        (RANGE, GOOD | {"more": 1}),
        (RANGE, GOOD | {"format": 2}),
        (RANGE, GOOD | {"format": True}),
        (RANGE, GOOD | {"shape": [3, 4]}),
        (RANGE, GOOD | {"shape": [3, 4, 0]}),
        (RANGE, GOOD | {"shape": [3, 4, 1.0]}),
        (RANGE, GOOD | {"shape": [3, 4, 1 << 40]}),
        (RANGE, GOOD | {"shape": [2, 4, 5]}),
        (RANGE, GOOD | {"shape": "345"}),
        (RANGE, GOOD | {"scale": "other"}),
        (RANGE, GOOD | {"scale": []}),
        (RANGE, GOOD | {"scale": "unit"}),
        ({}, GOOD),
        (RANGE | {"more": np.zeros(1)}, GOOD),
        ({"range": np.array([0, 255])}, GOOD),
        ({"range": np.array([0.0, 255.0, 1.0])}, GOOD),
        ({"range": np.array([0.0, np.nan])}, GOOD | {"scale": "range"}),
        ({"range": np.array([0.0, np.inf])}, GOOD | {"scale": "range"}),
        ({"range": np.array([1.0, 0.0])}, GOOD | {"scale": "range"}),
        ({"range": np.array([0.0, 254.0])}, GOOD),
    ],
)
def test_damaged_state_is_refused(tensors: dict[str, Any], meta: Any) -> None:
    assert ImagePreprocessor.from_state(RANGE, GOOD).shape_ == (3, 4, 5)
    with pytest.raises(ModelFileError, match="preprocessing is damaged"):
        ImagePreprocessor.from_state(tensors, meta)
