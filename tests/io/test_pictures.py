"""One picture file of any mode gives the pixels a viewer shows."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from esad.errors import DataFileError, InputError
from esad.io.pictures import Header, as_images, is_images, read_header, read_pixels

GREY, RGB, DEEP = Header(4, 3, 1, False), Header(4, 3, 3, False), Header(4, 3, 1, True)  # width 4, height 3


def saved(path: Path, image: Image.Image, **options: object) -> Path:
    image.save(path, **options)  # type: ignore[arg-type]
    return path


def grey_ramp() -> np.ndarray:
    return np.arange(12, dtype=np.uint8).reshape(3, 4) * 20


@pytest.mark.parametrize(
    ("mode", "header"),
    [("1", GREY), ("L", GREY), ("LA", GREY), ("P", RGB), ("RGB", RGB), ("RGBA", RGB), ("I;16", DEEP)],
)
def test_header_tells_size_and_form(tmp_path: Path, mode: str, header: Header) -> None:
    assert read_header(saved(tmp_path / "p.png", Image.new(mode, (4, 3)))) == header


def test_grey_is_read_as_it_is_and_as_rgb(tmp_path: Path) -> None:
    file = saved(tmp_path / "p.png", Image.fromarray(grey_ramp()))
    np.testing.assert_array_equal(read_pixels(file, GREY), grey_ramp()[None])
    np.testing.assert_array_equal(read_pixels(file, RGB), np.stack([grey_ramp()] * 3))


def test_colour_keeps_its_channels_and_turns_grey_by_luminance(tmp_path: Path) -> None:
    file = saved(tmp_path / "p.png", Image.new("RGB", (4, 3), (200, 100, 0)))
    assert read_pixels(file, RGB)[:, 0, 0].tolist() == [200, 100, 0]
    assert read_pixels(file, GREY).max() == round(0.299 * 200 + 0.587 * 100)


def test_bilevel_is_black_and_white(tmp_path: Path) -> None:
    image = Image.new("1", (4, 3))
    image.putpixel((3, 0), 1)
    pixels = read_pixels(saved(tmp_path / "p.png", image), GREY)
    assert pixels[0, 0].tolist() == [0, 0, 0, 255]


def test_grey_of_16_bits_keeps_its_depth(tmp_path: Path) -> None:
    values = np.array([[0, 1, 257, 65535]] * 3, dtype=np.uint16)
    file = saved(tmp_path / "p.png", Image.fromarray(values))
    pixels = read_pixels(file, DEEP)
    assert pixels.dtype == np.float32
    np.testing.assert_allclose(pixels[0], values / 65535, rtol=1e-6)
    eight_bits = saved(tmp_path / "q.png", Image.new("L", (4, 3), 255))
    assert read_pixels(eight_bits, DEEP).dtype == np.float32
    assert read_pixels(eight_bits, DEEP).max() == 1.0


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_are_laid_on_white(tmp_path: Path, mode: str) -> None:
    image = Image.new(mode, (4, 3), (0,) * len(mode))
    image.putpixel((0, 0), (50,) * (len(mode) - 1) + (255,))
    for header in (GREY, RGB):
        pixels = read_pixels(saved(tmp_path / "p.png", image), header)
        assert set(pixels[:, 0, 0].tolist()) == {50}
        assert set(pixels[:, 1:].ravel().tolist()) == {255}


def test_palettes_are_looked_up_with_and_without_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (4, 3), 1)
    image.putpalette([0, 0, 0, 10, 200, 30])
    assert read_pixels(saved(tmp_path / "p.png", image), RGB)[:, 0, 0].tolist() == [10, 200, 30]
    clear = saved(tmp_path / "q.png", image, transparency=1)
    assert read_pixels(clear, RGB)[:, 0, 0].tolist() == [255, 255, 255]


def test_one_transparent_colour_is_laid_on_white(tmp_path: Path) -> None:
    file = saved(tmp_path / "p.png", Image.new("RGB", (4, 3), (1, 2, 3)), transparency=(1, 2, 3))
    assert read_pixels(file, RGB).min() == 255


def test_cmyk_jpeg_becomes_rgb(tmp_path: Path) -> None:
    file = saved(tmp_path / "p.jpg", Image.new("CMYK", (4, 3), (0, 255, 255, 0)))
    assert read_header(file) == RGB
    red, green, blue = read_pixels(file, RGB).astype(int).mean(axis=(1, 2))
    assert red > 240
    assert max(green, blue) < 15


def test_jpeg_is_turned_as_the_camera_was(tmp_path: Path) -> None:
    upright = Image.fromarray(np.repeat(np.repeat(np.array([[0, 255]], dtype=np.uint8), 16, axis=0), 8, axis=1))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    file = saved(tmp_path / "p.jpg", upright.crop((0, 0, 16, 8)), exif=exif, quality=95)
    header = read_header(file)
    assert (header.width, header.height) == (8, 16)
    pixels = read_pixels(file, header)[0]
    assert pixels[:8].max() < 20
    assert pixels[8:].min() > 235


def test_suffix_may_lie_but_other_formats_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.png"
    Image.new("L", (4, 3)).save(file, format="JPEG")
    assert read_header(file) == GREY
    Image.new("L", (4, 3)).save(file, format="GIF")
    with pytest.raises(DataFileError, match=r"p\.png': cannot identify"):
        read_header(file)


def png_of(width: int, height: int) -> bytes:
    """Head of a PNG file that says it is this large."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"")
    chunks = [struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (head, data)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("side", [10_000, 20_000, 2**31 - 1])
def test_decompression_bombs_are_refused_before_a_pixel_is_read(tmp_path: Path, side: int) -> None:
    file = tmp_path / "bomb.png"
    file.write_bytes(png_of(side, side))
    with pytest.raises(DataFileError, match=r"Refused the picture '.*bomb\.png': it has more than"):
        read_header(file)
    with pytest.raises(DataFileError, match=r"Refused the picture '.*bomb\.png': it has more than"):
        read_pixels(file, GREY)


@pytest.mark.parametrize("content", [b"", b"no picture", png_of(4, 3)])
def test_unreadable_picture_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "p.png"
    file.write_bytes(content)
    with pytest.raises(DataFileError, match=r"Cannot read the picture '.*p\.png'") as caught:
        read_pixels(file, GREY)
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from(["png", "jpg"]))
def test_damaged_pictures_are_read_or_refused_never_worse(tmp_path: Path, data: st.DataObject, suffix: str) -> None:
    file = saved(
        tmp_path / f"p.{suffix}", Image.fromarray(np.random.default_rng(0).integers(0, 255, (3, 4, 3), np.uint8))
    )
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    try:
        assert read_pixels(file, read_header(file)).dtype in (np.uint8, np.float32)
    except DataFileError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("suffix", ["png", "jpg", "bmp", "tif"])
def test_a_picture_is_scaled_to_the_size_wanted(tmp_path: Path, suffix: str) -> None:
    ramp = np.broadcast_to(np.linspace(0, 255, 640).astype(np.uint8), (480, 640))
    file = saved(tmp_path / f"p.{suffix}", Image.fromarray(ramp))
    pixels = read_pixels(file, Header(64, 48, 1, False))
    assert pixels.shape == (1, 48, 64)
    np.testing.assert_allclose(pixels[0, 0], ramp[0].reshape(64, 10).mean(1), atol=3)


def test_deep_pictures_keep_their_depth_when_scaled(tmp_path: Path) -> None:
    file = saved(tmp_path / "p.tiff", Image.fromarray(np.full((6, 8), 257, dtype=np.uint16)))
    np.testing.assert_allclose(read_pixels(file, DEEP), np.full((1, 3, 4), 257 / 65535, dtype=np.float32))


def test_a_sideways_jpeg_is_scaled_as_it_is_shown(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    stored = np.zeros((300, 400), dtype=np.uint8)
    stored[:, :200] = 250  # the left half, which is shown above
    file = saved(tmp_path / "p.jpg", Image.fromarray(stored), exif=exif)
    assert read_header(file).size == (300, 400)
    pixels = read_pixels(file, Header(3, 4, 1, False))[0]
    np.testing.assert_allclose(pixels[[0, 3]], [[250] * 3, [0] * 3], atol=3)


def test_fractions_are_refused(tmp_path: Path) -> None:
    file = saved(tmp_path / "p.tif", Image.fromarray(np.full((3, 4), 0.5, dtype=np.float32)))
    with pytest.raises(DataFileError, match="fractions"):
        read_header(file)


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
