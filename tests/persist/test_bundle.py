"""The model file: what was written comes back, and files of another kind are refused."""

import hashlib
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from forging import (
    COMMENT_SIZE,
    DTYPES,
    MANIFEST,
    TENSORS,
    assert_refused,
    assert_same,
    forge,
    json_values,
    parts,
    read_bytes,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from esad.errors import InputError, ModelFileError, OutputError
from esad.persist import bundle

manifests = st.dictionaries(st.text().filter(lambda key: key not in bundle._STATED), json_values, max_size=5)
tensor_sets = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name != "__metadata__"),
    st.sampled_from(DTYPES).flatmap(lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, min_side=0))),
    max_size=4,
)


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
    with pytest.raises(OutputError, match="2 million values"):
        bundle.write(tmp_path / "model.esad", {"values": [0] * 2**21}, {})
    assert list(tmp_path.iterdir()) == []


def test_unwritable_place_is_an_output_error(tmp_path):
    with pytest.raises(OutputError):
        bundle.write(tmp_path / "absent" / "model.esad", MANIFEST, TENSORS)


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
