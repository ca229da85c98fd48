"""Every method's file says what the library says, and nothing else is ever kept."""

import errno
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from exported import FRAME, ODD_NAME, PICTURES, fitted
from support import methods

import esad
from esad import DeepSAD, errors
from esad.detectors.deep import DeepDetector
from esad.persist.formats import split_groups
from esad.persist.graph import ScoreGraph
from esad.preprocess.inputs import read_rows

CASES = [(kind, name) for kind in ("table", "images") for name in methods(kind)]
AGAIN = [("images", name) for name in methods("table")]  # the same score behind another front


def promised():
    """The kinds of data with which docs/export.md says that a method is exported."""
    page = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    table = re.findall(r"^\| `(\w+)` \| (yes|no|-) \| (yes|no|-) \|$", page, flags=re.MULTILINE)
    said = {(kind, name): word for name, *words in table for kind, word in zip(("table", "images"), words, strict=True)}
    assert {case for case, word in said.items() if word != "-"} == set(CASES)
    return [case for case in CASES if said[case] == "yes"]


EXPORTED = promised()


@pytest.mark.parametrize(("kind", "name"), EXPORTED)
def test_the_graph_of_every_method_scores_as_the_library_does(kind, name):
    fit = fitted(name, kind, n_epochs=1, pretrain_epochs=1)
    data = read_rows(FRAME if kind == "table" else PICTURES)
    aligned = fit.inputs_.describe(data) if kind == "table" else data
    graph = ScoreGraph(fit.inputs_, fit._terms_module().eval(), threshold=fit.threshold_, calibration=fit.calibration_)
    with torch.inference_mode():
        found = graph(*map(torch.from_numpy, split_groups(fit.inputs_, aligned)))
    wanted = fit.anomaly_score(data)
    near = (1e-5 if kind == "images" else 1e-10) * np.std(wanted)  # a score may be exactly 0
    np.testing.assert_allclose(found["score"], wanted, rtol=1e-4, atol=near)
    np.testing.assert_array_equal(found["p_value"][1::2], fit.p_value(data)[1::2])  # the others tie with themselves


@pytest.mark.extra
@pytest.mark.parametrize("format", ["onnx", "torch"])
@pytest.mark.parametrize(("kind", "name"), [case for case in CASES if case not in AGAIN or case not in EXPORTED])
def test_every_method_is_exported_or_says_why_not(kind, name, format, tmp_path):
    fit, path = fitted(name, kind), tmp_path / "file"
    if (kind, name) not in EXPORTED:
        with pytest.raises(errors.InputError, match=r"cannot be exported: its score (jumps|is a search)"):
            esad.export(fit, path, format=format)
        assert not list(tmp_path.iterdir())
        return
    parity = esad.export(fit, path, format=format, X=FRAME if kind == "table" else PICTURES)
    assert parity.n_rows >= 60 and parity.difference < 1e-4 and parity.n_decided_otherwise == 0


def test_a_forest_on_codes_of_pictures_says_why_it_is_not_exported(tmp_path):
    forest = fitted("iforest_hybrid", "images", n_epochs=1)
    with pytest.raises(errors.InputError, match="of pictures cannot be exported: its score jumps"):
        esad.export(forest, tmp_path / "file", format="torch")


# ---------------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def plain():
    return DeepSAD(n_epochs=1, pretrain_epochs=0, n_members=1, random_state=0).fit(FRAME[["size", ODD_NAME]])


@pytest.mark.parametrize("format", [pytest.param("onnx", marks=pytest.mark.extra), "torch"])
def test_a_file_that_scores_otherwise_is_not_kept(plain, format, tmp_path, monkeypatch):
    right = DeepDetector._terms_module

    class Wrong(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.right = right(plain)

        def forward(self, rows):
            return {name: 1.0005 * term for name, term in self.right(rows).items()}

    monkeypatch.setattr(DeepDetector, "_terms_module", lambda self: Wrong())
    path = tmp_path / "file"
    path.write_text("what was there before")
    with pytest.raises(errors.InputError, match=r"differ from the library's by up to 5\.\de-04"):
        esad.export(plain, path, format=format)
    assert path.read_text() == "what was there before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_exporter_that_fails_is_one_clear_error(plain, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("\n  no such operator\nand much more")

    monkeypatch.setattr(torch.export, "save", fail)
    with pytest.raises(errors.InputError, match=r"cannot be exported to torch: no such operator$"):
        esad.export(plain, tmp_path / "file", format="torch")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_one_clear_error(plain, tmp_path, monkeypatch):
    def fail(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(errors.OutputError, match="No space left on device"):
        esad.export(plain, tmp_path / "file", format="torch")
    assert not list(tmp_path.iterdir())


def test_networks_in_float64_are_exported_in_float64(tmp_path):
    X = FRAME[["size", ODD_NAME]]
    fit = DeepSAD(n_epochs=1, precision="float64", random_state=0).fit(X)
    assert esad.export(fit, tmp_path / "file", format="torch", X=X).difference < 1e-12


def test_a_score_of_too_few_digits_is_not_exported_and_float64_is_named(tmp_path):
    X = np.random.default_rng(0).normal(size=(500, 1))  # one column is rebuilt nearly without error
    arguments = {"hidden": (16,), "latent": 2, "n_epochs": 40, "random_state": 0}
    with pytest.raises(errors.InputError, match=r"Nothing was written\. Fit it with precision='float64'"):
        esad.export(esad.ESAD(**arguments).fit(X), tmp_path / "m.pt2", format="torch")
    parity = esad.export(esad.ESAD(**arguments, precision="float64").fit(X), tmp_path / "m.pt2", format="torch")
    assert parity.difference < 1e-9


def test_bfloat16_is_refused_and_can_be_exported_in_float32(tmp_path):
    X = FRAME[["size"]]
    fit = DeepSAD(n_epochs=1, precision="bfloat16", random_state=0).fit(X)
    with pytest.raises(errors.InputError, match=r"bfloat16.*set_params\(precision='float32'\)"):
        esad.export(fit, tmp_path / "file", format="torch")
    assert esad.export(fit.set_params(precision="float32"), tmp_path / "file", format="torch", X=X).holds


def test_unknown_formats_missing_folders_and_unfitted_detectors(plain, tmp_path):
    with pytest.raises(errors.InputError, match="`format` must be one of onnx, torch"):
        esad.export(plain, tmp_path / "file", format="pickle")
    with pytest.raises(errors.OutputError, match="does not exist"):
        esad.export(plain, tmp_path / "no" / "file", format="torch")
    with pytest.raises(ValueError, match="not fitted"):
        esad.export(DeepSAD(), tmp_path / "file")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named_with_its_extra(plain, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(errors.MissingExtraError, match=rf"{package}.*\[export\]"):
        esad.export(plain, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_rows_to_check_that_do_not_fit_are_refused(plain, tmp_path):
    with pytest.raises(errors.SchemaError):
        esad.export(plain, tmp_path / "file", format="torch", X=FRAME[["size"]])
    assert not list(tmp_path.iterdir())
