"""ONNX files: what goes in, what comes out, and that nothing but onnxruntime is needed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
from exported import FRAME, ODD_NAME, PICTURES, N, feeds, outputs
from support import tiny

import esad
from esad import ESAD, DeepSAD, errors

rng = np.random.default_rng(1)


@pytest.fixture(scope="module")
def session(onnx_file):
    return onnxruntime.InferenceSession(onnx_file)


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


def test_a_column_of_many_texts(tmp_path):
    texts = np.repeat([f"shop {number}" for number in range(60)], np.r_[np.full(40, 20), np.full(20, 2)])
    X = pd.DataFrame({"shop": texts, "size": rng.normal(size=len(texts))})
    assert esad.export(tiny("iforest").fit(X), tmp_path / "shops.onnx", X=X).holds


@pytest.mark.parametrize("n_rows", [1, 2, 10_000])
def test_any_number_of_rows(session, detector, n_rows):
    frame = FRAME.iloc[rng.integers(0, N, n_rows)].reset_index(drop=True)
    found, wanted = outputs(session, feeds(frame)), detector.anomaly_score(frame)
    np.testing.assert_allclose(found["score"], wanted, rtol=1e-4)
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
    np.testing.assert_allclose(found["score"], wanted, rtol=1e-4)


def test_a_score_of_almost_nothing_is_the_library_s(session, detector):
    normal = FRAME.iloc[[np.argmin(detector.anomaly_score(FRAME))]]

    def score(value):
        return detector.anomaly_score(normal.assign(**{ODD_NAME: value}))[0]

    low, high = normal[ODD_NAME].item(), 9.0
    assert score(low) < 0 < score(high)
    for _ in range(25):  # towards the place where the score is 0
        middle = (low + high) / 2
        low, high = (middle, high) if score(middle) < 0 else (low, middle)
        found = outputs(session, feeds(normal.assign(**{ODD_NAME: middle})))["score"][0]
        np.testing.assert_allclose(found, score(middle), rtol=1e-4)
    assert abs(score(low)) < 1e-5


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


def test_nothing_is_in_the_graph_that_is_not_used(onnx_file):
    graph = onnx.load(onnx_file).graph
    used = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    assert {constant.name for constant in graph.initializer} <= used  # onnxruntime warns of others at every start


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
    np.testing.assert_allclose(found["score"], detector.anomaly_score(FRAME), rtol=1e-4)


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
