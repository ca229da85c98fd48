"""Arrays of pictures in any usual layout are brought into one form, and tables are not taken for pictures."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from esad.errors import InputError
from esad.preprocess.image import as_images
from esad.preprocess.inputs import is_images


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 28, 20), (5, 1, 28, 20)),
        ((5, 28, 20, 1), (5, 1, 28, 20)),
        ((5, 28, 20, 3), (5, 3, 28, 20)),
        ((5, 28, 20, 4), (5, 3, 28, 20)),
        ((5, 1, 28, 20), (5, 1, 28, 20)),
        ((5, 3, 28, 20), (5, 3, 28, 20)),
        ((5, 3, 3, 3), (5, 3, 3, 3)),
        ((5, 3, 28, 3), (5, 3, 3, 28)),  # the last axis goes first
        ((5, 1, 1), (5, 1, 1, 1)),
    ],
)
def test_layouts_are_told_by_their_axes(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert is_images(np.zeros(shape))
    assert as_images(np.zeros(shape)).shape == expected


def test_pixels_keep_their_place() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, size=(4, 3, 6, 5)).astype(np.uint8)
    last = np.moveaxis(first, 1, 3)
    alpha = np.concatenate([last, np.zeros_like(last[..., :1])], axis=3)
    for given_as in (first, last, alpha, last.tolist(), [picture for picture in last]):
        np.testing.assert_array_equal(as_images(given_as), first)


@pytest.mark.parametrize("shape", [(5, 28, 20, 2), (5, 2, 28, 20), (5, 4, 28, 20), (5, 3), (5,), (), (2, 3, 4, 5, 6)])
def test_other_shapes_are_refused_with_those_allowed(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"\(n, height, width\), \(n, height, width, channels\) or .*Got \("):
        as_images(np.zeros(shape))


@pytest.mark.parametrize("shape", [(0, 28, 28), (5, 0, 28), (0, 28, 28, 3)])
def test_nothing_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="at least one is needed"):
        as_images(np.zeros(shape))


def test_bytes_are_not_copied() -> None:
    pictures = np.zeros((5, 8, 8), dtype=np.uint8)
    assert np.shares_memory(as_images(pictures), pictures)


def test_truth_values_become_black_and_white() -> None:
    images = as_images(np.array([[[True, False]]]))
    assert images.dtype == np.uint8
    assert images.ravel().tolist() == [255, 0]


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int64", "uint16", ">f8", "object", "longdouble"]
)
def test_other_numbers_become_float32_of_the_same_value(dtype: str) -> None:
    images = as_images(np.array([[[1, 100]]]).astype(dtype))
    assert images.dtype == np.float32
    assert images.dtype.isnative
    assert images.ravel().tolist() == [1.0, 100.0]


def test_tensors_and_read_only_arrays_are_fine() -> None:
    assert as_images(torch.zeros(2, 3, 8, 8)).shape == (2, 3, 8, 8)
    frozen = np.zeros((2, 8, 8))
    frozen.setflags(write=False)
    assert as_images(frozen).shape == (2, 1, 8, 8)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_not_a_number_and_infinity_are_refused(value: float, dtype: type[np.floating[Any]]) -> None:
    pictures = np.zeros((3, 4, 4), dtype=dtype)
    pictures[1, 2, 3] = value
    with pytest.raises(InputError, match="NaN or infinite"):
        as_images(pictures)


def test_numbers_beyond_float32_are_refused_not_made_infinite() -> None:
    with pytest.raises(InputError, match="too large for float32"):
        as_images(np.full((1, 2, 2), -1e300))


@pytest.mark.parametrize(
    "pictures",
    [
        [np.zeros((4, 4)), np.zeros((5, 4))],
        np.array([[["a"]]]),
        np.zeros((1, 2, 2), dtype=complex),
        np.zeros((1, 2, 2), dtype="datetime64[s]"),
        np.array([[[None, "x"]]], dtype=object),
        torch.zeros(1, 2, 2, requires_grad=True),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(pictures: object) -> None:
    assert is_images(pictures)
    with pytest.raises(InputError, match="Pictures must") as caught:
        as_images(pictures)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "other",
    [
        np.zeros((3, 2)),
        np.zeros(3),
        [[1.0, 2.0]],
        [[1.0, "red"]],
        [],
        [[]],
        "text",
        None,
        pd.DataFrame({"a": [1]}),
        pa.table({"a": [1]}),
        {"a": [1]},
    ],
)
def test_tables_are_no_images(other: object) -> None:
    assert not is_images(other)


def test_nested_lists_and_lists_of_arrays_are_images() -> None:
    assert is_images([[[0, 1], [1, 0]]])
    assert is_images([np.zeros((8, 8))])
    assert is_images([np.zeros((8, 8, 3))])
    assert not is_images([np.zeros(8)])


@settings(deadline=None)
@given(
    n=st.integers(1, 3),
    height=st.integers(5, 7),
    width=st.integers(5, 7),
    channels=st.sampled_from([1, 3]),
    deep=st.booleans(),
)
def test_channels_first_and_last_mean_the_same(n: int, height: int, width: int, channels: int, deep: bool) -> None:
    rng = np.random.default_rng(n * height * width)
    pictures = rng.integers(0, 256, size=(n, channels, height, width)).astype(np.float64 if deep else np.uint8)
    images = as_images(pictures)
    np.testing.assert_array_equal(as_images(np.moveaxis(pictures, 1, 3)), images)
    np.testing.assert_array_equal(as_images(images), images)
