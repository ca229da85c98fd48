"""Any change of any byte of a model file is found, and a renewed checksum does not help."""

import json
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from forging import (
    COMMENT_SIZE,
    DTYPES,
    TENSORS,
    assert_refused,
    assert_same,
    entry,
    forge,
    forge_contents,
    json_values,
    parts,
    read_bytes,
    safetensors_bytes,
    sign,
)
from hypothesis import example, given
from hypothesis import strategies as st

from esad.errors import ModelFileError
from esad.persist import bundle

# --- damage: any change of any byte is found


def test_every_flipped_byte_is_found(folder, original):
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 0x20  # turns a into A: the checksum must not be compared case-blind
        assert_refused(folder, bytes(damaged))


@given(data=st.data())
def test_every_flipped_bit_is_found(folder, original, data):
    position = data.draw(st.integers(0, len(original) - 1))
    damaged = bytearray(original)
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    assert_refused(folder, bytes(damaged))


def test_every_cut_is_found(folder, original):
    for length in range(len(original)):
        assert_refused(folder, original[:length])


@given(data=st.data(), inserted=st.binary(min_size=1, max_size=200))
def test_every_insertion_is_found(folder, original, data, inserted):
    position = data.draw(st.integers(0, len(original)))
    assert_refused(folder, original[:position] + inserted + original[position:])


@given(data=st.data())
def test_every_removed_stretch_is_found(folder, original, data):
    start = data.draw(st.integers(0, len(original) - 1))
    stop = data.draw(st.integers(start + 1, len(original)))
    assert_refused(folder, original[:start] + original[stop:])


@given(junk=st.binary(max_size=500))
@example(b"PK\x03\x04")
def test_random_bytes_are_refused(folder, junk):
    assert_refused(folder, junk)


# --- forgery: a renewed checksum does not help


@given(data=st.data())
def test_forged_bytes_with_a_valid_checksum_are_refused(folder, original, data):
    forged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(original) - COMMENT_SIZE - 1))
        forged[position] = data.draw(st.integers(0, 255))
    signed = sign(bytes(forged))
    if signed == original:
        return
    # A changed content no longer fits the zip's own checksums, and a changed frame is not the one that follows.
    assert_refused(folder, signed)


@given(data=st.data())
def test_forged_contents_in_a_valid_zip_are_refused_or_read_strictly(folder, original, data):
    name = data.draw(st.sampled_from(["manifest.json", "weights.safetensors"]))
    content = bytearray(parts(original)[name])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    key = "manifest" if name == "manifest.json" else "weights"
    forged = forge_contents(original, **{key: bytes(content)})
    try:
        manifest, tensors = read_bytes(folder, forged)
    except ModelFileError:
        return
    assert manifest["format"] == "esad-model"
    assert {tensor.dtype for tensor in tensors.values()} <= {np.dtype(dtype) for dtype in DTYPES}
    assert sum(tensor.nbytes for tensor in tensors.values()) < len(forged)


@given(value=json_values, version=json_values)
def test_forged_manifests_are_refused_or_returned_as_they_are(folder, original, value, version):
    stated = {"format": "esad-model", "format_version": version, "esad_version": "1"}
    for forged in (value, {**stated, "value": value}):
        signed = forge_contents(original, manifest=json.dumps(forged).encode())
        if forged is not value and type(version) is int and version == 1:
            assert read_bytes(folder, signed)[0] == forged
        else:
            assert_refused(folder, signed)


@pytest.mark.parametrize(
    ("manifest", "match"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"\xff\xfe{}", "cannot be read"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"3", "not a JSON object"),
        (b"{}", "not an esad model"),
        (b'{"format": "other"}', "not an esad model"),
        (b'{"format": "esad-model", "format": "esad-model", "format_version": 1, "esad_version": "1"}', "twice"),
        (b'{"x": NaN}', "NaN"),
        (b'{"x": -Infinity}', "Infinity"),
        (b'{"x": 1e999}', "1e999"),
        (b'{"x": ' + b"1" * 5000 + b"}", "cannot be read"),
        (b'{"x": "\x1b[31m"}', "cannot be read"),
        (b"[" * 100_000 + b"]" * 100_000, "cannot be read"),
        (b'{"x":' * 100_000 + b"1" + b"}" * 100_000, "cannot be read"),
        (b'{"x":' + b"[" * 300 + b"]" * 300 + b"}", "nested too deeply"),
        (b'{"format": "esad-model", "format_version": 0, "esad_version": "1"}', "format version"),
        (b'{"format": "esad-model", "format_version": true, "esad_version": "1"}', "format version"),
        (b'{"format": "esad-model", "format_version": 1.0, "esad_version": "1"}', "format version"),
        (b'{"format": "esad-model", "esad_version": "1"}', "format version"),
        (b'{"format": "esad-model", "format_version": 1}', "which esad wrote it"),
        (b'{"format": "esad-model", "format_version": ' + b"9" * 4000 + b"}", "newer esad"),
    ],
)
def test_bad_manifests_are_refused(folder, original, manifest, match):
    assert_refused(folder, forge_contents(original, manifest=manifest), match)


def test_newer_format_says_to_upgrade_even_if_the_layout_changed(folder):
    number = bundle.FORMAT_VERSION + 1
    manifest = json.dumps({"format": "esad-model", "format_version": number, "esad_version": "9.0"}).encode()
    newer = forge([("manifest.json", manifest), ("tensors.bin", b"x" * 100), ("third", b"")])
    assert_refused(folder, newer, rf"was written by a newer esad \(format {number}\); .* Upgrade")


def test_older_format_is_read(folder, original, monkeypatch):
    written = bundle.FORMAT_VERSION
    monkeypatch.setattr(bundle, "FORMAT_VERSION", written + 1)
    manifest, tensors = read_bytes(folder, original)
    assert manifest["format_version"] == written
    assert_same(tensors, TENSORS)


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (b"", "weights"),
        (b"\x00" * 8, "weights"),
        (struct.pack("<Q", 2**63) + b"{}", "weights"),
        (struct.pack("<Q", 10**9) + b"{}", "weights"),
        (safetensors_bytes(b"[" * 100_000), "weights"),
        (safetensors_bytes({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}), "weights"),
        (safetensors_bytes({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}, b"1234"), "weights"),
        (safetensors_bytes({"a": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}), "weights"),
        (safetensors_bytes({"a": {"dtype": "F32", "shape": [1] * 100, "data_offsets": [0, 4]}}, b"1234"), "weights"),
        (safetensors_bytes({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"1234"), "weights"),
        (safetensors_bytes({}, b"trailing"), "weights"),
        (safetensors_bytes({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"1234"), "BF16"),
        (safetensors_bytes({"a": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}}, b"1234"), "float16"),
        (safetensors_bytes({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, b"12345678"), "complex64"),
        (safetensors_bytes({"a": {"dtype": "O\n\x1b", "shape": [1], "data_offsets": [0, 1]}}, b"1"), "weights"),
        (safetensors_bytes({"a": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}}, b"\x01\x02"), "neither"),
        (
            safetensors_bytes(
                {
                    "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                    "b": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
                },
                b"1234",
            ),
            "weights",
        ),
    ],
)
def test_bad_weights_are_refused(folder, original, weights, match):
    assert_refused(folder, forge_contents(original, weights=weights), match)


def test_other_entries_are_refused(folder, original):
    manifest, weights = parts(original).items()
    deflated = (entry("weights.safetensors", method=zipfile.ZIP_DEFLATED), b"\0" * 10_000)
    dated = zipfile.ZipInfo("manifest.json", (2024, 1, 1, 0, 0, 0))
    for entries in (
        [],
        [manifest],
        [weights],
        [weights, manifest],
        [manifest, weights, ("extra.py", b"")],
        [manifest, deflated],
        [(entry("manifest.json", method=zipfile.ZIP_DEFLATED), manifest[1]), weights],
        [(dated, manifest[1]), weights],
        [manifest, ("../weights.safetensors", weights[1])],
    ):
        assert_refused(folder, forge(entries))


@pytest.mark.filterwarnings("ignore:Duplicate name")  # the standard library's, about what is built here on purpose
def test_doubled_entries_are_refused(folder, original):
    manifest, weights = parts(original).items()
    for entries in ([manifest, manifest], [manifest, manifest, weights], [manifest, weights, weights]):
        assert_refused(folder, forge(entries))


@given(field=st.sampled_from([18, 22]), size=st.integers(0, 2**32 - 1))
def test_forged_sizes_are_refused(folder, original, field, size):
    """Bytes 18 and 22 hold the stored and the plain size of the manifest."""
    forged = bytearray(original)
    if forged[field : field + 4] == struct.pack("<I", size):
        return
    forged[field : field + 4] = struct.pack("<I", size)
    assert_refused(folder, sign(bytes(forged)))


def test_refusing_a_forged_size_allocates_little(folder, original):
    forged = bytearray(original)
    forged[18:26] = struct.pack("<II", 2**32 - 1, 2**32 - 1)
    huge_shape = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
    for data in (sign(bytes(forged)), forge_contents(original, weights=safetensors_bytes(huge_shape))):
        tracemalloc.start()
        try:
            assert_refused(folder, data)
            assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
        finally:
            tracemalloc.stop()


BOMBS = {  # what each byte of these becomes in memory is ten to thirty
    "lists": {"manifest": b'{"x":[' + b"[]," * 2**21 + b"1]}"},
    "objects": {"manifest": b'{"x":[' + b'{"a":1},' * 2**20 + b"1]}"},
    "keys": {"manifest": b"{" + b",".join(b'"%d":1' % number for number in range(2**21 + 1)) + b"}"},
    "tensors": {
        "weights": safetensors_bytes(
            {f"{number}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for number in range(30_000)}
        )
    },
    "axes": {"weights": safetensors_bytes({"a": {"dtype": "U8", "shape": [0] + [1] * 10**6, "data_offsets": [0, 0]}})},
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_before_they_are_unpacked(folder, original, bomb):
    data = forge_contents(original, **bomb)
    tracemalloc.start()
    try:
        assert_refused(folder, data, "than any model needs")
        assert tracemalloc.get_traced_memory()[1] < 3 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [2**28, 2**40])
def test_refusing_a_huge_file_allocates_little(tmp_path, original, size):
    path = tmp_path / "huge.esad"
    with path.open("wb") as file:
        file.write(original[:200])
        file.truncate(size)  # sparse: takes no room on the disk
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match="damaged"):
            bundle.read(path)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()
