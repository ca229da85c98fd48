"""The example of docs/adding-a-method.md, saved as a file, is a method like any other."""

import importlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

import esad
import esad.methods
from esad import registry
from esad.cli.app import run
from esad.errors import InputError

PAGE = Path(__file__).resolve().parent.parent / "docs" / "adding-a-method.md"

EXAMPLE = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def method(tmp_path, monkeypatch):
    """The example beside the other methods, as if its file lay in their folder."""
    folder = tmp_path / "methods"
    folder.mkdir()
    (folder / "mahalanobis.py").write_text(EXAMPLE, encoding="utf-8")
    monkeypatch.setattr(esad.methods, "__path__", [*esad.methods.__path__, str(folder)])
    monkeypatch.setattr(esad.methods.__spec__, "submodule_search_locations", esad.methods.__path__)
    registry.method_classes.cache_clear()
    importlib.invalidate_caches()
    yield registry.method("mahalanobis")
    sys.modules.pop("esad.methods.mahalanobis", None)
    registry.method_classes.cache_clear()


def test_it_has_forty_lines_at_most():
    code = [line for line in EXAMPLE.split('"""', 2)[2].splitlines() if line.strip()]
    assert len(code) <= 40


def test_it_is_found_fitted_saved_and_loaded(method, rows, tmp_path):
    X, y = rows
    detector = method().fit(X, y)
    known = X[y >= 0].astype(float)
    scaled = (known - X[y == 0].mean(0)) / X[y == 0].std(0)
    wanted = np.einsum(
        "ij,jk,ik->i",
        scaled - scaled.mean(0),
        np.linalg.inv(np.cov(scaled.T) + 1e-3 * np.eye(X.shape[1])),
        scaled - scaled.mean(0),
    )
    np.testing.assert_allclose(detector.anomaly_score(known), wanted, rtol=1e-3)
    detector.save(tmp_path / "model.esad")
    np.testing.assert_array_equal(esad.load(tmp_path / "model.esad").anomaly_score(X), detector.anomaly_score(X))


@pytest.mark.filterwarnings("ignore")
def test_it_passes_scikit_learns_suite_but_for_the_label_contract(method):
    results = check_estimator(method(), on_fail=None, on_skip=None)
    failed = [result for result in results if result["status"] == "failed"]
    unexplained = [
        r
        for r in failed
        if not any(words in repr(r["exception"]) for words in ("`y` must hold", "LabelError"))
        and "sparse" not in r["check_name"]  # they hide the same refusal
    ]
    assert [(r["check_name"], str(r["exception"])) for r in unexplained] == []


def test_it_is_on_the_command_line(method, tmp_path, capfd):
    assert run(["methods", "--json"]) == 0
    assert "mahalanobis" in [one["name"] for one in json.loads(capfd.readouterr().out)["methods"]]
    table = tmp_path / "table.csv"
    rng = np.random.default_rng(0)
    lines = [
        f"{a:.3f},{b:.3f},{'red' if c else 'blue'}"
        for a, b, c in zip(*rng.normal(size=(2, 60)), rng.random(60) < 0.5, strict=True)
    ]
    table.write_text("a,b,colour\n" + "\n".join(lines) + "\n")
    assert run(["fit", str(table), "--method", "mahalanobis", "--out", str(tmp_path / "model.esad")]) == 0
    assert run(["score", str(tmp_path / "model.esad"), str(table), "--out", str(tmp_path / "scores.csv")]) == 0


def test_pictures_are_refused_by_a_method_for_tables(method):
    with pytest.raises(InputError, match=r"Mahalanobis takes tables\. Got pictures\."):
        method().fit(np.zeros((5, 8, 8)))
