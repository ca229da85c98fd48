"""Model files of every earlier version still load and give the scores they gave then."""

import json
from pathlib import Path

import numpy as np
import pytest

import esad
from esad import registry

MODELS = sorted((Path(__file__).parent.parent / "fixtures" / "models").glob("*/*.esad"))


def test_there_are_models_of_every_kind():
    wanted = {"esad-table", "esad-bins", "esad-published", "esad-conv", "esad-lenet", "iforest"}
    for name in set(registry.method_names()) - {"esad", "iforest"}:
        wanted |= {f"{name}-{kind}" for kind in registry.method(name).takes}
    assert {path.stem for path in MODELS} >= wanted, "Run: python tools/model_fixtures.py"


@pytest.mark.parametrize("path", MODELS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_old_model_scores_as_it_did(path):
    wanted = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    X = wanted["X"]
    if path.stem in ("esad-conv", "esad-lenet") or path.stem.endswith("-images"):
        X = np.asarray(X, dtype=np.uint8)
    detector = esad.load(path)
    assert detector.threshold_ == wanted["threshold"]
    np.testing.assert_allclose(detector.anomaly_score(X), wanted["scores"], rtol=1e-3, atol=1e-4)
    if "p_values" in wanted:
        np.testing.assert_allclose(detector.p_value(X), wanted["p_values"])
    else:
        assert detector.calibration_ is None
