"""The model file: what was written comes back, and nothing else is ever accepted."""

import hashlib
import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from esad.errors import InputError, ModelFileError, OutputError
from esad.persist import bundle

COMMENT_SIZE = len("sha256:") + 64
DTYPES = [np.float64, np.float32, np.int64, np.int32, np.int8, np.uint8, np.bool_]

MANIFEST = {"method": "esad", "columns": ["age", "größe", "\ud800"], "threshold": 0.1, "depth": {"a": [1, None, True]}}
TENSORS = {
    "encoder.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "mean": np.array([0.5, -0.0, np.inf, np.nan]),
    "mask": np.array([True, False]),
    "scalar": np.array(7, dtype=np.int64),
    "empty": np.zeros((0, 3), dtype=np.int32),
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
manifests = st.dictionaries(st.text().filter(lambda key: key not in bundle._STATED), json_values, max_size=5)
tensor_sets = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name != "__metadata__"),
    st.sampled_from(DTYPES).flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0))),
    max_size=4,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def original(folder):
    bundle.write(folder / "original.esad", MANIFEST, TENSORS)
    return (folder / "original.esad").read_bytes()


def read_bytes(folder: Path, data: bytes):
    path = folder / "candidate.esad"
    path.write_bytes(data)
    return bundle.read(path)


def sign(data: bytes) -> bytes:
    """Renew the checksum of a file whose last bytes are an archive comment, as a forger would."""
    body = data[:-COMMENT_SIZE]
    return body + b"sha256:" + hashlib.sha256(body).hexdigest().encode()


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def entry(name: str, *, method: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr, info.compress_type = 3, 0o100644 << 16, method
    return info


def forge(entries: list[tuple[zipfile.ZipInfo | str, bytes]]) -> bytes:
    """A zip written by the standard library, with a valid checksum."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for info, content in entries:
            archive.writestr(entry(info) if isinstance(info, str) else info, content)
        archive.comment = b" " * COMMENT_SIZE
    return sign(buffer.getvalue())


def forge_contents(original: bytes, *, manifest: bytes | None = None, weights: bytes | None = None) -> bytes:
    have = parts(original)
    return forge(
        [
            ("manifest.json", have["manifest.json"] if manifest is None else manifest),
            ("weights.safetensors", have["weights.safetensors"] if weights is None else weights),
        ]
    )


def safetensors_bytes(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == sorted(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].tobytes() == tensor.tobytes()
        assert found[name].flags.writeable


def assert_refused(folder: Path, data: bytes, match: str | None = None) -> None:
    path = folder / "candidate.esad"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=match) as caught:
        bundle.read(path)
    text = str(caught.value)
    assert repr(str(path)) in text
    assert len(text.splitlines()) == 1
    assert text.isprintable()


# --- what is written comes back


@given(manifest=manifests, tensors=tensor_sets)
def test_what_is_written_comes_back(folder, manifest, tensors):
    path = folder / "round.esad"
    bundle.write(path, manifest, tensors)
    found_manifest, found_tensors = bundle.read(path)
    stated = {key: found_manifest.pop(key) for key in bundle._STATED}
    assert stated["format"] == "esad-model"
    assert stated["format_version"] == bundle.FORMAT_VERSION
    assert stated["esad_version"]
    assert found_manifest == manifest
    assert_same(found_tensors, tensors)


def test_same_model_gives_the_same_bytes_in_any_order(folder, original):
    shuffled = folder / "shuffled.esad"
    bundle.write(shuffled, dict(reversed(MANIFEST.items())), dict(reversed(TENSORS.items())))
    assert shuffled.read_bytes() == original


def test_file_is_an_ordinary_stored_zip(original):
    with zipfile.ZipFile(io.BytesIO(original)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", "weights.safetensors"]
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert json.loads(archive.read("manifest.json"))["method"] == "esad"
        assert archive.comment == b"sha256:" + hashlib.sha256(original[:-COMMENT_SIZE]).hexdigest().encode()


def test_standard_zip_writer_gives_the_same_file(original):
    assert forge(list(parts(original).items())) == original


def test_layouts_of_arrays_do_not_matter(folder):
    matrix = np.arange(12.0).reshape(3, 4)
    bundle.write(
        folder / "layout.esad", {}, {"f": np.asfortranarray(matrix), "s": matrix[:, ::2], "b": matrix.astype(">f8")}
    )
    _, found = bundle.read(folder / "layout.esad")
    assert_same(found, {"f": matrix, "s": np.ascontiguousarray(matrix[:, ::2]), "b": matrix})


def test_torch_takes_the_arrays_as_they_come(folder, original):
    _, tensors = read_bytes(folder, original)
    assert torch.from_numpy(tensors["encoder.weight"]).sum() == 276


def test_failed_write_leaves_the_old_file(folder, original):
    path = folder / "kept.esad"
    path.write_bytes(original)
    with pytest.raises(InputError, match="JSON"):
        bundle.write(path, {"threshold": float("nan")}, {})
    assert path.read_bytes() == original


@pytest.mark.parametrize(
    ("manifest", "tensors", "match"),
    [
        ({"format": "mine"}, {}, r"must not hold \['format'\]"),
        ({"x": float("inf")}, {}, "JSON"),
        ({"x": {1, 2}}, {}, "JSON"),
        ({}, {"x": np.zeros(2, dtype=np.complex64)}, "'x' is complex64"),
        ({}, {"x": np.zeros(2, dtype=np.float16)}, "'x' is float16"),
        ({}, {"x": np.array(["a"])}, "'x' is <U1"),
        ({}, {"x": np.array([None])}, "'x' is object"),
        ({}, {"__metadata__": np.zeros(2)}, "__metadata__"),
    ],
)
def test_what_the_format_cannot_hold_is_not_written(tmp_path, manifest, tensors, match):
    with pytest.raises(InputError, match=match):
        bundle.write(tmp_path / "model.esad", manifest, tensors)
    assert list(tmp_path.iterdir()) == []


def test_too_large_a_manifest_is_not_written(tmp_path):
    with pytest.raises(OutputError, match="at most 64 MiB"):
        bundle.write(tmp_path / "model.esad", {"text": "a" * 64 * 2**20}, {})
    assert list(tmp_path.iterdir()) == []


def test_unwritable_place_is_an_output_error(tmp_path):
    with pytest.raises(OutputError):
        bundle.write(tmp_path / "absent" / "model.esad", MANIFEST, TENSORS)


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


# --- files of another kind


class RunsCode:
    def __reduce__(self):
        return (os.mkdir, ("executed",))


def test_foreign_files_are_refused_and_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = io.BytesIO()
    with zipfile.ZipFile(document, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
    checkpoint = io.BytesIO()
    torch.save({"weight": torch.zeros(3)}, checkpoint)
    pickled = pickle.dumps(RunsCode())
    for data, match in [
        (b"", "it is empty"),
        (b"age,score\n1,2\n", "something else"),
        (document.getvalue(), "zip file of another kind"),
        (checkpoint.getvalue(), "zip file of another kind"),
        (pickled, "pickle, which esad never loads"),
    ]:
        assert_refused(tmp_path, data, match)
    hidden = forge([("manifest.json", pickled), ("weights.safetensors", pickled)])
    assert_refused(tmp_path, hidden, "manifest cannot be read")
    assert not Path("executed").exists()


def test_foreign_zip_with_a_manifest_is_refused(folder):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("manifest.json", '{"name": "a browser extension"}' + " " * 300)
    assert_refused(folder, buffer.getvalue(), "checksum is missing")
    assert_refused(folder, forge([("manifest.json", b'{"name": "x"}'), ("a", b"1" * 300)]), "not an esad model")


@pytest.mark.parametrize("name", ["absent.esad", "absent/model.esad"])
def test_missing_file_is_named(tmp_path, name):
    with pytest.raises(ModelFileError, match=r"There is no model file .*absent.* Check the path"):
        bundle.read(tmp_path / name)


def test_folder_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="it is a folder"):
        bundle.read(tmp_path)


@pytest.mark.parametrize("name", ["a\0b", "a" * 5000, "test_bundle.py/model.esad"])
def test_impossible_paths_are_refused(monkeypatch, name):
    monkeypatch.chdir(Path(__file__).parent)
    with pytest.raises(ModelFileError, match="Check the path"):
        bundle.read(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_named_pipe_is_refused_instead_of_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="not a regular file"):
        bundle.read(tmp_path / "pipe")


def test_line_break_in_a_path_stays_on_one_line(tmp_path):
    with pytest.raises(ModelFileError) as caught:
        bundle.read(tmp_path / "two\nlines.esad")
    assert len(str(caught.value).splitlines()) == 1
