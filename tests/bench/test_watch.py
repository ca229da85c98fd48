"""Trainings on pictures are watched, and cut short by a budget without losing what they did."""

import time

import numpy as np
import pytest

from esad import registry
from esad.bench.execute import N_LOOKS, OutOfTime, _make_detector, execute
from esad.bench.grid import Cell
from esad.bench.run import run
from esad.bench.store import ResultStore

SCENARIO = {"kind": "images", "normal_class": 1, "labelled_offset": 6, "labelled_ratio": 0.05}
NETWORK = {"hidden": [2, 4], "latent": 2, "n_epochs": 4, "batch_size": 32}


def cell(**changes) -> Cell:
    return Cell("esad", "digits", SCENARIO, 0, NETWORK | changes)


def test_the_test_auc_is_noted_on_the_way_and_changes_nothing():
    from esad.datasets import scenario

    watched = execute(cell())
    assert len(watched.curves["test_auc"]) == N_LOOKS - 1
    drawn = scenario.images(
        registry.load_data_set("digits"), normal_class=1, labelled_classes=(7,), labelled_ratio=0.05, seed=0
    )
    arguments = NETWORK | {"hidden": (2, 4)}
    alone = registry.method("esad")(random_state=0, **arguments).fit(drawn.X_train, drawn.y_train)
    scores = alone.anomaly_score(drawn.X_test)
    normal, anomalous = scores[~drawn.truth_test], scores[drawn.truth_test]
    auc = np.mean(anomalous[:, None] > normal) + np.mean(anomalous[:, None] == normal) / 2
    assert watched.auc == pytest.approx(auc, abs=1e-12)


def test_what_searches_for_every_score_is_not_looked_at():
    settings = {"hidden": [2], "latent": 2, "n_epochs": 4, "n_starts": 1, "search_steps": 1}
    assert "test_auc" not in execute(Cell("adgan", "digits", SCENARIO, 0, settings)).curves


def test_a_variant_names_a_data_set_as_reference(monkeypatch):
    monkeypatch.setattr("esad.bench.execute.MAX_REFERENCE", 100)
    settings = {"reference": "digits", "hidden": [2, 4], "latent": 2, "pretrain_epochs": 1, "n_epochs": 1}
    one = Cell("tlsad", "digits", SCENARIO, 0, settings)
    detector = _make_detector(one)
    assert detector.reference.shape == (100, 8, 8)
    assert set(detector.reference_classes) == set(range(10))
    assert one.describe()["settings"]["reference"] == "digits"
    assert 0 <= execute(one).auc <= 1


def test_a_training_that_the_budget_cuts_short_goes_on_later(tmp_path):
    whole = execute(cell(n_epochs=30))
    with pytest.raises(OutOfTime):
        execute(cell(n_epochs=30), checkpoints=tmp_path, deadline=time.monotonic() + 0.4)
    left = list(tmp_path.iterdir())
    assert [path.suffix for path in left] == [".checkpoint"]
    resumed = execute(cell(n_epochs=30), checkpoints=tmp_path)
    assert not any(tmp_path.iterdir())
    assert resumed.auc == whole.auc
    assert resumed.curves == whole.curves


def test_a_run_says_what_is_left_and_keeps_its_checkpoint(tmp_path):
    with ResultStore(tmp_path / "store.db") as store:
        first = run([cell(n_epochs=200), cell(n_epochs=201)], store, budget=1.0)
        assert (first.n_done, first.n_left) == (0, 2)
        assert [path.stem for path in store.checkpoints.iterdir()] == [cell(n_epochs=200).name]
        second = run([cell(n_epochs=1)], store)
        assert second.n_done == 1
        assert store.claim(cell(n_epochs=200).name)  # nobody holds it any more
