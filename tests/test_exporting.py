"""Exported files say what the library says, without the library, and nothing else is ever kept."""

import errno
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from support import methods, small_labels, tiny

import esad
from esad import ESAD, DeepSAD, IFHybrid, errors
from esad.deep import DeepDetector
from esad.persist.graph import ScoreGraph
from esad.persist.interface import by_group
from esad.preprocess.inputs import read

ODD_NAME = "x'\"]; raise SystemExit #"  # a column may be called anything, an output's name included
N = 150
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": rng.normal(1e9, 2, N),
        "colour": rng.choice(["red", "7.0", "grün"], N),
        "score": rng.random(N) < 0.7,
        "made": pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 20_000, N), unit="h"),
        ODD_NAME: rng.normal(size=N),
    }
)
FRAME.loc[::9, "size"] = None
FRAME.loc[::11, "colour"] = None
PICTURES = rng.integers(0, 256, size=(60, 12, 12, 3)).astype(np.uint8)
SMALL_PICTURES = {"hidden": (4, 4), "decoys": 0.0, "restore": "none"}


def fitted(name, kind, **changes):
    X = FRAME if kind == "table" else PICTURES
    changes = (SMALL_PICTURES if kind == "images" else {}) | changes
    detector = tiny(name, **changes).fit(X, small_labels(name, len(X)))
    return detector.calibrate(X[::2])


def feeds(frame):
    """By hand, as a user without esad does it."""
    return {
        "size": frame["size"].to_numpy("float64"),
        "colour": frame["colour"].fillna("").to_numpy(object),
        "score_": frame["score"].to_numpy("float64"),
        "made": frame["made"].to_numpy("M8[us]").astype("int64"),
        ODD_NAME: frame[ODD_NAME].to_numpy("float64"),
    }


@pytest.fixture(scope="module")
def detector():
    return ESAD(n_members=3, n_epochs=20, random_state=0).fit(FRAME).calibrate(alpha=0.1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exported")


@pytest.fixture(scope="module")
def onnx_file(detector, folder):
    path = folder / "table.onnx"
    assert esad.export(detector, path, X=FRAME).holds
    return path


@pytest.fixture(scope="module")
def session(onnx_file):
    return onnxruntime.InferenceSession(onnx_file)


def outputs(session, given):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


# ---------------------------------------------------------------------- every method


CASES = [(kind, name) for kind in ("table", "images") for name in methods(kind)]
AGAIN = [("images", name) for name in methods("table")]  # the same score behind another front
EXPORTED = [(kind, name) for kind, name in CASES if name != "iforest_hybrid"]


@pytest.mark.parametrize(("kind", "name"), EXPORTED)
def test_the_graph_of_every_method_scores_as_the_library_does(kind, name):
    fit = fitted(name, kind, n_epochs=1, pretrain_epochs=1)
    data = read(FRAME if kind == "table" else PICTURES)
    aligned = fit.inputs_.described(data, estimator=name) if kind == "table" else data
    graph = ScoreGraph(fit.inputs_, fit._terms_module().eval(), threshold=fit.threshold_, calibration=fit.calibration_)
    with torch.inference_mode():
        found = graph(*map(torch.from_numpy, by_group(fit.inputs_, aligned)))
    wanted = fit.anomaly_score(data)
    np.testing.assert_allclose(found["score"], wanted, rtol=1e-5, atol=1e-5 * np.std(wanted))
    np.testing.assert_array_equal(found["p_value"][1::2], fit.p_value(data)[1::2])  # the others tie with themselves


@pytest.mark.extra
@pytest.mark.parametrize("format", ["onnx", "torch"])
@pytest.mark.parametrize(("kind", "name"), [case for case in CASES if case not in AGAIN])
def test_every_method_is_exported_or_says_why_not(kind, name, format, tmp_path):
    fit, path = fitted(name, kind), tmp_path / "file"
    if (kind, name) not in EXPORTED:
        with pytest.raises(errors.InputError, match="cannot be exported: its score jumps"):
            esad.export(fit, path, format=format)
        assert not list(tmp_path.iterdir())
        return
    parity = esad.export(fit, path, format=format, X=FRAME if kind == "table" else PICTURES)
    assert parity.n_rows >= 60 and parity.difference < 1e-4 and parity.n_decided_otherwise == 0


def test_a_forest_on_codes_says_why_it_is_not_exported(tmp_path):
    forest = tiny("iforest_hybrid", n_epochs=1).fit(FRAME)
    assert isinstance(forest, IFHybrid)
    with pytest.raises(errors.InputError, match="cannot be exported: its score jumps"):
        esad.export(forest, tmp_path / "file", format="torch")


# ---------------------------------------------------------------------- ONNX, tables


def test_columns_are_inputs_by_their_names(session):
    taken = {entry.name: (entry.type, len(entry.shape)) for entry in session.get_inputs()}
    assert taken == {
        "size": ("tensor(double)", 1),
        "colour": ("tensor(string)", 1),
        "score_": ("tensor(double)", 1),  # "score" is an output
        "made": ("tensor(int64)", 1),
        ODD_NAME: ("tensor(double)", 1),
    }
    given = {entry.name: entry.type for entry in session.get_outputs()}
    assert given == {"score": "tensor(double)", "anomaly": "tensor(bool)", "p_value": "tensor(double)"}


@pytest.mark.parametrize("n_rows", [1, 2, 10_000])
def test_any_number_of_rows(session, detector, n_rows):
    frame = FRAME.iloc[rng.integers(0, N, n_rows)].reset_index(drop=True)
    found, wanted = outputs(session, feeds(frame)), detector.anomaly_score(frame)
    np.testing.assert_allclose(found["score"], wanted, rtol=1e-4, atol=1e-4)
    assert found["anomaly"].shape == found["p_value"].shape == (n_rows,)


def test_alarms_and_p_values_are_the_library_s(session, detector):
    frame = FRAME.assign(**{ODD_NAME: np.linspace(-9, 9, N)})
    found = outputs(session, feeds(frame))
    scores = detector.anomaly_score(frame)
    clear = np.abs(scores - detector.threshold_) > 1e-4
    np.testing.assert_array_equal(found["anomaly"][clear], (detector.predict(frame) < 0)[clear])
    assert 0 < found["anomaly"].sum() < N
    p_values = detector.p_value(frame)
    assert len(np.unique(p_values)) > 20
    np.testing.assert_allclose(found["p_value"], p_values, atol=2 / (detector.calibration_.n_rows + 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"size": np.inf},
        {"size": -np.inf},
        {"size": np.nan},
        {"size": 1e308},
        {"size": 5e-324},
        {ODD_NAME: -1e300},
        {"colour": "never seen"},
        {"colour": None},
        {"colour": " \t\u2003"},
        {"colour": "7"},
        {"colour": "07"},
        {"colour": "Red"},
        {"colour": " red"},
        {"made": pd.NaT},
        {"made": pd.Timestamp("1700-02-28 23:59:59.999999")},
        {"made": pd.Timestamp("2000-12-31")},
    ],
    ids=str,
)
def test_odd_cells_are_read_as_the_library_reads_them(session, detector, changes):
    frame = FRAME.assign(**changes)
    if "made" in changes:
        frame["made"] = frame["made"].astype("M8[us]")
    found, wanted = outputs(session, feeds(frame)), detector.anomaly_score(frame)
    np.testing.assert_allclose(found["score"], wanted, rtol=1e-4, atol=1e-4)


def test_what_the_library_refuses_is_nan_and_an_alarm(session, detector):
    given = feeds(FRAME)
    given["score_"][7] = 2
    found = outputs(session, given)
    assert np.flatnonzero(np.isnan(found["score"])).tolist() == [7]
    assert np.isnan(found["p_value"][7]) and found["anomaly"][7]
    with pytest.raises(errors.SchemaError):
        detector.anomaly_score(FRAME.assign(score=given["score_"]))


def test_the_file_says_what_it_is(onnx_file, detector, session):
    facts = session.get_modelmeta().custom_metadata_map
    assert facts["esad_version"] == esad.__version__
    assert facts["method"] == "esad"
    assert float(facts["threshold"]) == detector.threshold_
    assert json.loads(facts["terms"]) == list(detector.score_terms(FRAME))
    assert facts["data_fingerprint"] == detector.fingerprint_
    listed = {entry["column"]: (entry["name"], entry["kind"]) for entry in json.loads(facts["inputs"])}
    assert listed["score"] == ("score_", "boolean")
    assert set(listed) == set(FRAME.columns)
    onnx.checker.check_model(onnx.load(onnx_file), full_check=True)


def test_nothing_of_this_machine_is_in_a_file(onnx_file, torch_file):
    package, home = Path(esad.__file__).parent, Path.home()
    here = [f"{package}".encode(), f"{home}/".encode(), b"site-packages", b"persist/graph"]
    with zipfile.ZipFile(torch_file) as archive:
        texts = [onnx_file.read_bytes(), *(archive.read(name) for name in archive.namelist())]
    assert [part for part in here if any(part in text for text in texts)] == []


@pytest.mark.extra
def test_the_same_model_gives_the_same_file(detector, onnx_file, tmp_path):
    esad.export(detector, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == onnx_file.read_bytes()


CLEAN = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import onnxruntime
given = dict(np.load(sys.argv[3], allow_pickle=True))
session = onnxruntime.InferenceSession(sys.argv[2])
score, anomaly, p_value = session.run(["score", "anomaly", "p_value"], given)
for name in ("esad", "torch", "onnx", "sklearn", "pandas"):
    try:
        __import__(name)
    except ImportError:
        continue
    raise SystemExit(f"{name} is here")
np.savez(sys.argv[4], score=score, anomaly=anomaly, p_value=p_value)
"""


@pytest.mark.extra
def test_a_file_runs_where_there_is_nothing_but_onnxruntime(onnx_file, detector, tmp_path):
    packages = tmp_path / "packages"  # numpy and onnxruntime of this environment, and nothing else of it
    packages.mkdir()
    installed = Path(onnxruntime.__file__).parents[1]
    for name in ("numpy", "numpy.libs", "onnxruntime", "google", "flatbuffers", "packaging"):
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    np.savez(tmp_path / "given.npz", **feeds(FRAME))
    arguments = [packages, onnx_file, tmp_path / "given.npz", tmp_path / "found.npz"]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CLEAN, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    np.testing.assert_allclose(found["score"], detector.anomaly_score(FRAME), rtol=1e-4, atol=1e-4)


@pytest.mark.extra
def test_a_model_of_an_array_takes_an_array(tmp_path):
    X = np.random.default_rng(1).normal(size=(100, 3))
    fit = DeepSAD(n_epochs=2, n_members=1, random_state=0).fit(X)
    esad.export(fit, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    assert [(entry.name, entry.shape[1]) for entry in session.get_inputs()] == [("X", 3)]
    found = outputs(session, {"X": X})
    assert set(found) == {"score", "anomaly"}
    np.testing.assert_allclose(found["score"], fit.anomaly_score(X), rtol=1e-4)


# ---------------------------------------------------------------------- pictures


@pytest.mark.parametrize(
    ("pictures", "shape"),
    [
        pytest.param(PICTURES, (12, 12, 3), id="colour bytes"),
        pytest.param((PICTURES[..., 0] / 255).astype(np.float32), (12, 12), id="grey floats", marks=pytest.mark.extra),
    ],
)
def test_pictures(pictures, shape, tmp_path):
    fit = tiny("deep_sad", hidden=(4, 4), n_epochs=1, pretrain_epochs=1).fit(pictures)
    esad.export(fit, tmp_path / "m.onnx", X=pictures)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (entry,) = session.get_inputs()
    assert (entry.name, tuple(entry.shape[1:])) == ("pictures", shape)
    many = pictures[np.arange(10_000) % len(pictures)]
    wanted = fit.anomaly_score(pictures)
    for n_pictures in (1, 10_000):
        found = outputs(session, {"pictures": many[:n_pictures]})
        np.testing.assert_allclose(found["score"], wanted[np.arange(n_pictures) % len(pictures)], rtol=1e-4)


def test_float_pictures_cannot_check_a_file_for_bytes(tmp_path):
    fit = tiny("deep_sad", hidden=(4, 4), n_epochs=1, pretrain_epochs=1).fit(PICTURES)
    with pytest.raises(errors.SchemaError, match="takes nothing else"):
        esad.export(fit, tmp_path / "m.pt2", format="torch", X=PICTURES / 255)
    assert not list(tmp_path.iterdir())


@pytest.mark.extra
def test_esad_s_own_recipe_for_colour_pictures(tmp_path):
    fit = ESAD(n_members=1, n_epochs=1, hidden=(4, 4), latent=4, random_state=0).fit(PICTURES)
    assert esad.export(fit, tmp_path / "m.pt2", format="torch", X=PICTURES).holds


# ---------------------------------------------------------------------- torch


@pytest.fixture(scope="module")
def torch_file(detector, folder):
    path = folder / "table.pt2"
    assert esad.export(detector, path, format="torch", X=FRAME).holds
    return path


def test_a_torch_program_takes_columns_by_kind(torch_file, detector):
    extra = {"esad.json": ""}
    program = torch.export.load(torch_file, extra_files=extra).module()
    numbers, codes, dates = json.loads(extra["esad.json"])["inputs"]
    (colour,) = codes["columns"]
    assert (numbers["name"], codes["name"], dates["name"]) == ("numbers", "codes", "dates")
    known = FRAME["colour"].map(colour["codes"]).fillna(colour["other"])
    coded = known.where(FRAME["colour"].notna(), colour["missing"])
    given = (
        torch.tensor(FRAME[numbers["columns"]].to_numpy("float64")),
        torch.tensor(coded.to_numpy("int64"))[:, None],
        torch.tensor(FRAME[dates["columns"]].to_numpy("M8[us]").astype("int64")),
    )
    wanted = detector.anomaly_score(FRAME)
    for n_rows in (1, N):
        found = program(*(part[:n_rows] for part in given))
        np.testing.assert_allclose(found["score"], wanted[:n_rows], rtol=1e-4, atol=1e-4)
        assert found["anomaly"].dtype == torch.bool and found["p_value"].shape == (n_rows,)


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


def test_networks_in_float64_are_exported_in_float32(tmp_path):
    X = FRAME[["size", ODD_NAME]]
    fit = DeepSAD(n_epochs=1, precision="float64", random_state=0).fit(X)
    assert 0 < esad.export(fit, tmp_path / "file", format="torch", X=X).difference < 1e-5


def test_bfloat16_is_refused(tmp_path):
    fit = DeepSAD(n_epochs=1, precision="bfloat16", random_state=0).fit(FRAME[["size"]])
    with pytest.raises(errors.InputError, match="bfloat16"):
        esad.export(fit, tmp_path / "file", format="torch")


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
    with pytest.raises(errors.MissingExtraError, match=rf"{package}.*esad\[export\]"):
        esad.export(plain, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_rows_to_check_that_do_not_fit_are_refused(plain, tmp_path):
    with pytest.raises(errors.SchemaError):
        esad.export(plain, tmp_path / "file", format="torch", X=FRAME[["size"]])
    assert not list(tmp_path.iterdir())
