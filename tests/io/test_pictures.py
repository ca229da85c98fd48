"""One picture file of any mode gives the pixels a viewer shows."""

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from esad.errors import DataFileError
from esad.io.pictures import Header, read_header, read_pixels

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
