"""Reasons are true on real data: what is named first matters, and planted squares are found."""

import importlib.util
import sys
from pathlib import Path

import pytest

from esad import ESAD
from esad.datasets import scenario
from esad.datasets.sources import adbench, mnist

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"

pytestmark = pytest.mark.extra


@pytest.fixture
def benchmark(monkeypatch):
    """The script that the published figures are made with."""
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("benchmark_explain", FOLDER / "explain.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in ("runs", "methods"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["42_WBC", "37_Stamps", "46_WPBC"])
@pytest.mark.parametrize("kind", ["shift", "swap", "real"])
def test_first_ranked_columns_matter_more_than_random_ones(benchmark, data_folder, name, kind):
    drawn = scenario.natural(adbench.load(name), seed=0)
    detector = ESAD(random_state=0).fit(drawn.X_train, drawn.y_train)
    run = benchmark.judge_table(detector, drawn, kind, seed=0)
    assert run["fall_ranked"] > 2 * max(run["fall_random"], 0)
    if kind == "shift":
        assert run["found"] > 0.7


def test_squares_in_pictures_are_found(benchmark, data_folder):
    data = mnist.load("fashion_mnist")
    drawn = scenario.images(data, normal_class=1, labelled_classes=(2,), n_normal=2000, labelled_ratio=0.05, seed=0)
    detector = ESAD(random_state=0).fit(drawn.X_train, drawn.y_train)
    run = benchmark.judge_pictures(detector, drawn.X_test[~drawn.truth_test], seed=0)
    assert run["pixel_auc"] >= 0.9
