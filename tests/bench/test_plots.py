"""Figures from stored results, and the codes that maps are made of."""

import json

import numpy as np
import pytest

from esad import registry
from esad.bench import tables
from esad.bench.execute import draw_rows, execute, map_codes
from esad.bench.grid import read_experiment
from esad.bench.plots import draw, draw_over_axis
from esad.bench.run import run
from esad.bench.store import ResultStore, read_results, to_text
from esad.cli.app import run as esad

EXPERIMENT = """
name = "small"
title = "Small"
data = ["digits"]
seeds = 1
codes = 40

[scenario]
kind = "images"
normal_class = 1
labelled_offset = 6

[axes]
"scenario.labelled_ratio" = [0.0, 0.05]

[[variants]]
name = "ESAD"
method = "esad"
settings = { hidden = [2, 4], latent = 2, n_epochs = 2 }

[[variants]]
name = "Deep SAD"
method = "deep_sad"
settings = { pretrain_epochs = 1, n_epochs = 1, hidden = [2, 2], latent = 4 }
"""


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiment") / "small.toml"
    path.write_text(EXPERIMENT)
    return path


@pytest.fixture(scope="module")
def store(experiment):
    path = experiment.with_name("small.db")
    with ResultStore(path) as store:
        assert run([cell for _, cell in read_experiment(experiment).cells()], store).n_done == 4
    return path


def test_maps_hold_both_kinds_and_the_scores_that_the_detector_gives(experiment):
    _, cell = next(read_experiment(experiment).cells())
    rows = draw_rows(cell)
    settings = {**cell.settings, "hidden": (2, 4)}
    detector = registry.method("esad")(random_state=0, **settings).fit(rows.X_train, rows.y_train)
    found = map_codes(detector, rows, 40, seed=0)
    assert {"map z x", "map z y", "map z^ x", "map z^ y"} <= found.keys()
    assert sum(found["map truth"]) == 20
    chosen = np.array(found["map row"]).astype(int)
    np.testing.assert_allclose(found["map score"], detector.anomaly_score(rows.X_test)[chosen], rtol=1e-5)
    assert [float(truth) for truth in rows.truth_test[chosen]] == found["map truth"]
    assert execute(cell).curves["map z x"] == found["map z x"]


def test_every_figure_is_drawn_and_the_text_export_draws_the_same(store, experiment, tmp_path):
    with ResultStore(store) as opened:
        results = opened.results()
    text = tmp_path / "small.jsonl"
    text.write_text(to_text(results))
    names = {"small_axis.png", "small_training.png", "small_codes.png", "small_samples.png"}
    sizes = []
    for folder, source in (("a", results), ("b", read_results(text))):
        found = tables.collect_figures(read_experiment(experiment), source, tables.PaperFigures(None))
        paths = draw_over_axis("small", found, tmp_path / folder) + draw(
            read_experiment(experiment), source, tmp_path / folder
        )
        assert {path.name for path in paths} == names
        assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
        sizes.append([path.stat().st_size for path in paths])
    np.testing.assert_allclose(*sizes, rtol=0.02)


def test_the_report_links_its_figures(store, experiment, tmp_path, capsys):
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    arguments = ["bench", "report", str(experiment), "--store", str(store), "--out", str(page)]
    assert esad([*arguments, "--figures", str(tmp_path / "images"), "--json"]) == 0
    assert "![Small](../images/small_codes.png)" in page.read_text()
    assert {row["n_finished"] for row in json.loads(capsys.readouterr().out)["experiments"]["small"]} == {1}


def test_nothing_measured_draws_nothing(experiment, tmp_path):
    found = tables.collect_figures(read_experiment(experiment), [], tables.PaperFigures(None))
    assert draw(read_experiment(experiment), [], tmp_path) + draw_over_axis("small", found, tmp_path) == []


def test_a_cell_without_codes_keeps_its_name():
    from esad.bench.grid import Cell

    cell = Cell("iforest", data="cardio", scenario={"kind": "table"}, seed=3)
    assert "codes" not in cell.describe()
    assert Cell(**cell.describe()) == cell
