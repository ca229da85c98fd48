"""`esad export`: a file that runs without esad, or one line that says why there is none."""

import json
import sys

import numpy as np
import pytest
import torch

from esad.detectors.model_file import load


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    from esad import DeepSAD

    X = np.random.default_rng(0).integers(0, 256, size=(20, 8, 8), dtype=np.uint8)
    path = tmp_path_factory.mktemp("pictures") / "pictures.esad"
    DeepSAD(n_epochs=1, pretrain_epochs=0, hidden=(2,), latent=2, random_state=0).fit(X).save(path)
    return path


def test_a_torch_file_with_all_that_is_known_about_it(esad, model, parts, tmp_path):
    out = tmp_path / "parts.pt2"
    done = esad("export", model, "--format", "torch", "--out", out, "--check", parts, "--json")
    assert (done.code, done.err) == (0, "")
    found = done.json
    assert found["n_checked"] == 2060  # random rows and those of the file
    assert found["difference"] < 1e-4
    assert found["n_bytes"] == out.stat().st_size
    assert [entry["name"] for entry in found["inputs"]] == ["numbers", "codes", "dates"]
    extra = {"esad.json": ""}
    torch.export.load(out, extra_files=extra)
    facts = json.loads(extra["esad.json"])
    assert facts.items() <= found.items()
    assert facts["threshold"] == load(model).threshold_


def test_pictures_and_words_for_people(esad, pictures, tmp_path):
    done = esad("export", pictures, "-f", "torch", "-o", tmp_path / "p.pt2")
    assert done.code == 0
    assert "64 rows: scores differ from the model's by" in done.out
    assert "n x 8 x 8" in done.out
    assert "score (float64), anomaly (bool)" in done.out


@pytest.mark.extra
def test_an_onnx_file_gives_the_scores_of_esad_score(esad, model, parts, kit, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    out = tmp_path / "parts.onnx"
    done = esad("export", model, "--out", out, "--check", parts)
    assert (done.code, done.err) == (0, "")
    assert "colour" in done.out and "category" in done.out
    assert esad("score", model, parts, "--out", tmp_path / "scores.csv").code == 0
    wanted = np.genfromtxt(tmp_path / "scores.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")["score"]
    columns = dict(zip(kit.header, map(list, zip(*kit.rows(), strict=True)), strict=True))
    given = {
        "size": np.array([float(cell or "nan") for cell in columns["size"]]),
        "colour": np.array(columns["colour"], dtype=object),
        "made": np.array(columns["made"], dtype="M8[us]").astype("int64"),
        "checked": np.array([float(cell == "true") for cell in columns["checked"]]),
    }
    (scores,) = runtime.InferenceSession(out).run(["score"], given)
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "m.onnx", "--format", "onx"), "Unknown format 'onx'. Did you mean 'onnx'? There are: onnx, torch."),
        (("--out", "m.pt2"), "'m.pt2': the name of a file of --format onnx must end in .onnx."),
        (("--out", "m.onnx", "-f", "torch"), "must end in .pt2."),
        (("--out", "no/m.onnx"), "the folder 'no' does not exist"),
        (("--out", "folder.onnx"), "it is a folder"),
        ((), "--out"),
    ],
)
def test_what_cannot_be_is_one_line_and_no_file(esad, pictures, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.onnx").mkdir()
    done = esad("export", pictures, *options)
    assert done.code == 2 and done.out == ""
    assert done.err.count("\n") == 1 and words in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["folder.onnx"]


def test_without_the_extra(esad, pictures, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    done = esad("export", pictures, "--out", tmp_path / "m.onnx")
    assert done.code == 2 and done.err.count("\n") == 1
    assert "pip install '.[export]'" in done.err
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_be_exported(esad, kit, parts, tmp_path):
    model, out = tmp_path / "m.esad", tmp_path / "m.pt2"
    recipe = ("-m", "deep_sad", "--set", "n_epochs=1", "--set", "precision=bfloat16")
    fit = ("fit", parts, "-l", "verdict", "-i", "serial", *recipe, "-o", model)
    assert esad(*fit, "--quiet").code == 0
    done = esad("export", model, "-f", "torch", "-o", out)
    assert done.code == 2 and done.err.count("\n") == 1
    assert "computes in bfloat16" in done.err
    assert not out.exists()


def test_those_who_wait_are_told_what_is_done(pictures, tmp_path):
    from esad.detectors.export import export

    told = []
    export(load(pictures), tmp_path / "p.pt2", format="torch", on_stage=told.append)
    assert told == ["tracing", "writing", "comparing scores"]
