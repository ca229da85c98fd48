"""What becomes of a new model file while the old one serves."""

import logging
import os
import shutil
import time

import httpx
import numpy as np
import pyarrow as pa
import pytest
from serving import KEY, ROWS, bearer, refused

import esad
from esad.serve.app import Service, ServiceSettings
from esad.serve.keys import Keys
from esad.serve.metrics import Metrics
from esad.serve.model import ModelFile
from esad.web.server import in_background


@pytest.fixture
def replaceable(tmp_path, numbers):
    path = tmp_path / "numbers.esad"
    shutil.copy(numbers, path)
    return path


@pytest.fixture(scope="session")
def other(tmp_path_factory):
    path = tmp_path_factory.mktemp("other") / "other.esad"
    esad.IsolationForest(n_trees=5, random_state=1).fit(np.random.default_rng(1).normal(size=(100, 3))).save(path)
    return path


def test_a_new_file_takes_the_place_of_the_old_one(asking, replaceable, other):
    ask = asking(replaceable, keys=Keys([KEY]))
    before = ask("POST", "/score", json=ROWS, headers=bearer()).json()
    assert ask("POST", "/reload", headers=bearer()).json()["outcome"] == "unchanged"
    shutil.copy(other, replaceable)
    assert ask.service.model_file.has_changed()
    answer = ask("POST", "/reload", headers=bearer()).json()
    assert answer["outcome"] == "replaced"
    after = ask("POST", "/score", json=ROWS, headers=bearer()).json()
    assert after["model"] == answer["model"] != before["model"]
    scores = esad.load(other).anomaly_score(ROWS["rows"]).tolist()
    assert [row["score"] for row in after["rows"]] == scores != [row["score"] for row in before["rows"]]
    assert not ask.service.model_file.has_changed()


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "foreign", "folder", "pipe"])
def test_a_damaged_file_changes_nothing_but_what_is_told(asking, replaceable, caplog, damage):
    ask = asking(replaceable, keys=Keys([KEY]))
    before = ask("POST", "/score", json=ROWS, headers=bearer()).json()
    sound = replaceable.read_bytes()
    if damage in ("gone", "folder", "pipe"):
        replaceable.unlink()
        {"gone": lambda path: None, "folder": os.mkdir, "pipe": os.mkfifo}[damage](replaceable)
    else:
        middle = len(sound) // 2
        flipped = sound[:middle] + bytes([sound[middle] ^ 1]) + sound[middle + 1 :]
        replaceable.write_bytes({"flipped": flipped, "cut": sound[:middle], "foreign": b"hello"}[damage])
    with caplog.at_level(logging.ERROR):
        message = refused(ask("POST", "/reload", headers=bearer()), 422)
    assert "stays" in message
    assert "stays" in caplog.text
    assert ask("POST", "/score", json=ROWS, headers=bearer()).json() == before
    assert ask("GET", "/health").json()["problem"]
    text = ask("GET", "/metrics", headers=bearer()).text
    assert 'esad_reloads_total{outcome="failed"} 1.0' in text
    assert "esad_model_stale 1.0" in text
    if damage in ("folder", "pipe"):
        (replaceable.rmdir if damage == "folder" else replaceable.unlink)()
    replaceable.write_bytes(sound)
    ask("POST", "/reload", headers=bearer())
    assert ask("GET", "/health").json()["problem"] is None


def test_reload_needs_keys(asking, numbers):
    for route in ("/reload", "/rollback"):
        assert "SIGHUP" in refused(asking(numbers)("POST", route), 403)


@pytest.fixture(scope="session")
def wider(tmp_path_factory):
    """A model of four columns instead of three."""
    path = tmp_path_factory.mktemp("wider") / "wider.esad"
    esad.IsolationForest(n_trees=5, random_state=1).fit(np.random.default_rng(1).normal(size=(100, 4))).save(path)
    return path


def test_a_model_of_other_columns_does_not_serve_unless_it_may(asking, replaceable, wider):
    ask = asking(replaceable, keys=Keys([KEY]))
    bold = asking(replaceable, keys=Keys([KEY]), accept_new_columns=True)
    shutil.copy(wider, replaceable)
    assert "--accept-new-columns" in refused(ask("POST", "/reload", headers=bearer()), 422)
    assert ask("POST", "/score", json=ROWS, headers=bearer()).status_code == 200
    assert "other columns" in ask("GET", "/health").json()["problem"]
    assert "esad_model_stale 1.0" in ask("GET", "/metrics", headers=bearer()).text
    assert bold("POST", "/reload", headers=bearer()).json()["outcome"] == "replaced"
    assert "esad_model_stale 0.0" in bold("GET", "/metrics", headers=bearer()).text
    assert refused(bold("POST", "/score", json=ROWS, headers=bearer()), 422)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"size": 1.5, "weight": 2.0}, "new: 'weight'; gone: 'colour'"),
        ({"colour": "red", "size": 1.5}, "another order"),
        ({"size": "text", "colour": "red"}, "another kind"),
    ],
)
def test_names_order_and_kinds_of_columns_are_compared(tmp_path, columns, words):
    def save(cells):
        table = pa.table({name: [cell] * 30 for name, cell in cells.items()})
        esad.IsolationForest(n_trees=5, random_state=0).fit(table).save(tmp_path / "model.esad")

    save({"size": 1.5, "colour": "red"})
    models = ModelFile(tmp_path / "model.esad", Metrics())
    save(columns)
    assert models.reload() == "failed"
    assert words in models.problem


def test_the_model_before_comes_back_with_one_request(asking, replaceable, other):
    ask = asking(replaceable, keys=Keys([KEY, "a-key-for-scores-only scores score"]))
    assert refused(ask("POST", "/rollback", headers=bearer()), 409)
    before = ask("POST", "/score", json=ROWS, headers=bearer()).json()
    shutil.copy(other, replaceable)
    ask("POST", "/reload", headers=bearer())
    assert refused(ask("POST", "/rollback", headers=bearer("a-key-for-scores-only")), 403)
    answer = ask("POST", "/rollback", headers=bearer()).json()
    assert (answer["outcome"], answer["model"]) == ("rolled back", before["model"])
    assert ask("POST", "/score", json=ROWS, headers=bearer()).json() == before
    assert not ask.service.model_file.has_changed()  # it stays until the file is another one
    assert "Rolled back" in ask("GET", "/health").json()["problem"]
    assert "esad_model_stale 1.0" in ask("GET", "/metrics", headers=bearer()).text
    assert ask("POST", "/reload", headers=bearer()).json()["outcome"] == "replaced"
    assert ask("GET", "/health").json()["problem"] is None
    for _ in range(2):  # the second takes the first back
        assert ask("POST", "/rollback", headers=bearer()).status_code == 200
    assert ask("GET", "/health").json()["problem"] is None
    assert "esad_model_stale 0.0" in ask("GET", "/metrics", headers=bearer()).text


def test_health_shows_no_path(asking, replaceable):
    ask = asking(replaceable)
    replaceable.write_bytes(b"hello")
    ask.service.model_file.reload()
    problem = ask("GET", "/health").json()["problem"]
    assert "numbers.esad" in problem
    assert str(replaceable.parent) not in problem


def test_a_new_file_is_found_and_a_damaged_one_tried_once(replaceable, other, caplog):
    service = Service(replaceable, ServiceSettings(watch_seconds=0.02))
    with in_background(service.guard) as url, httpx.Client(base_url=url) as client:

        def wait_for(condition):
            end = time.monotonic() + 10
            while not condition(client.get("/health").json()):
                assert time.monotonic() < end
                time.sleep(0.02)

        version = client.get("/health").json()["model"]["version"]
        with caplog.at_level(logging.WARNING):
            replaceable.write_bytes(b"damaged")
            wait_for(lambda health: health["problem"])
            time.sleep(0.2)
            assert caplog.text.count("is not used") == 1
        assert client.post("/score", json=ROWS).json()["model"]["version"] == version
        replaceable.unlink()
        wait_for(lambda health: "There is no model file" in (health["problem"] or ""))
        assert "esad_model_stale 1.0" in client.get("/metrics").text
        shutil.copy(other, replaceable)
        wait_for(lambda health: health["model"]["version"] != version and health["problem"] is None)
