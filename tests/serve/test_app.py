"""The routes: who is let in, what they tell, what becomes of a new model file."""

import asyncio
import json
import logging
import os
import shutil
import time

import numpy as np
import pytest
from serving import npy, refused, table

import esad
from esad.serve import app as serve_app
from esad.serve.app import Service, Settings
from esad.serve.keys import Keys
from esad.web.server import in_background

httpx = pytest.importorskip("httpx")

KEY = "a-key-of-the-tests-01"
ROWS = {"rows": [[0.1, 0.2, 0.3], [9.0, 9.0, 9.0]]}


def bearer(key=KEY):
    return {"authorization": f"Bearer {key}"}


# ---------------------------------------------------------------------- scores and reasons


def test_scores_say_which_model_gave_them(asking, numbers):
    import hashlib

    found = asking(numbers)("POST", "/score", json=ROWS).json()
    assert found["model"]["version"] == hashlib.sha256(numbers.read_bytes()).hexdigest()[:16]
    assert found["model"] | {"loaded_at": ""} == {
        "file": "numbers.esad",
        "version": found["model"]["version"],
        "method": "iforest",
        "loaded_at": "",
    }
    assert [row["row"] for row in found["rows"]] == [0, 1]


@pytest.mark.parametrize("name", ["parts", "forest"])
def test_reasons_are_those_of_the_library(asking, request, name):
    model = request.getfixturevalue(name)
    text = table(4, seed=2)
    ask = asking(model)
    headers = {"content-type": "text/csv"}
    found = ask("POST", "/explain", params={"top": 2}, content=text, headers=headers).json()
    scored = ask("POST", "/score", content=text, headers=headers).json()
    rows = serve_app.bodies.read("text/csv", text.encode(), ask.service.models.current, max_rows=10)
    reasons = esad.load(model).explain(rows.X)
    for number, row in enumerate(found["rows"]):
        assert row["id"] == f"S{number:03d}"
        assert row["score"] == pytest.approx(scored["rows"][number]["score"], rel=1e-6)
        assert [column["column"] for column in row["columns"]] == list(reasons.top(number, 2))
        assert row["columns"][0]["share"] == pytest.approx(float(reasons.total[number].max()), rel=1e-5)
    assert len(ask("POST", "/explain", content=text, headers=headers).json()["rows"][0]["columns"]) == 4


def test_reasons_of_pictures_say_where_to_look(send, pictures):
    image = np.full((1, 10, 12), 50, dtype=np.uint8)
    (row,) = send(pictures, "application/x-npy", npy(image), route="/explain").json()["rows"]
    assert set(row["hottest"]) == {"x", "y", "share_of_pixels"}


def test_reasons_are_for_a_few_rows(asking, numbers):
    ask = asking(numbers, max_explained=3)
    assert ask("POST", "/explain", json={"rows": [[1, 2, 3]] * 3}).status_code == 200
    refused(ask("POST", "/explain", json={"rows": [[1, 2, 3]] * 4}), 413)
    for top in ("0", "-1", "x", "1e9", "99999999999999999999"):
        refused(ask("POST", "/explain", params={"top": top}, json=ROWS), 422)


# ---------------------------------------------------------------------- keys


def test_only_health_is_open_where_there_are_keys(asking, numbers):
    ask = asking(numbers, keys=Keys([KEY, "another-key-of-tests"]))
    assert ask("GET", "/health").status_code == 200
    routes = [
        ("POST", "/score"),
        ("POST", "/explain"),
        ("GET", "/metrics"),
        ("POST", "/reload"),
        ("GET", "/openapi.json"),
    ]
    for method, route in routes:
        body = {"json": ROWS} if route in ("/score", "/explain") else {}
        for headers in ({}, bearer("wrong"), bearer(""), {"authorization": KEY}, {"authorization": f"Basic {KEY}"}):
            answer = ask(method, route, headers=headers, **body)
            assert KEY not in refused(answer, 401)
            assert answer.headers["www-authenticate"] == "Bearer"
        for headers in (
            bearer(),
            bearer("another-key-of-tests"),
            {"x-api-key": KEY},
            {"authorization": f"bearer {KEY}"},
        ):
            assert ask(method, route, headers=headers, **body).status_code == 200, route


def test_no_key_means_no_look_at_the_body(asking, numbers):
    refused(asking(numbers, keys=Keys([KEY]))("POST", "/score", content=b"{", headers={"content-type": "x/y"}), 401)


def test_keys_come_from_a_file_or_the_environment(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"# ours\n\n{KEY}\n  another-key-of-tests  \n")
    for keys in (Keys.find(path, {}), Keys.find(None, {"ESAD_API_KEYS": f"{KEY} another-key-of-tests"})):
        assert len(keys) == 2
        assert keys.admit(KEY)
        assert keys.admit("another-key-of-tests")
        assert not keys.admit("# ours")
        assert not keys.admit("")
        assert not keys.admit(KEY[:-1])
    assert Keys.find(None, {}) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "none"),
        (b"# only\n", "none"),
        (b"short\n", "16"),
        (b"with a blank inside it\n", "16"),
        (b"\xff\xfe" * 20, "UTF-8"),
    ],
)
def test_files_of_keys_that_are_refused(tmp_path, content, words):
    path = tmp_path / "keys.txt"
    path.write_bytes(content)
    with pytest.raises(esad.errors.InputError, match=words) as caught:
        Keys.find(path, {})
    assert "blank inside" not in str(caught.value)


# ---------------------------------------------------------------------- metrics


def test_metrics_count(asking, numbers):
    ask = asking(numbers)
    for _ in range(3):
        ask("POST", "/score", json=ROWS)
    ask("POST", "/score", content=b"x")
    ask("GET", "/nowhere")
    ask("GET", "/score")
    text = ask("GET", "/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['esad_requests_total{route="/score",status="200"}'] == "3.0"
    assert lines['esad_requests_total{route="/score",status="415"}'] == "1.0"
    assert lines['esad_requests_total{route="/score",status="405"}'] == "1.0"
    assert lines['esad_requests_total{route="other",status="404"}'] == "1.0"
    assert lines['esad_rows_total{route="/score"}'] == "6.0"
    assert lines["esad_batch_requests_count"] == "3.0"
    assert lines["esad_batch_rows_sum"] == "6.0"
    assert lines['esad_request_seconds_count{route="/score"}'] == "5.0"
    assert lines["esad_waiting_rows"] == "0.0"
    version = ask("GET", "/health").json()["model"]["version"]
    assert lines[f'esad_model_info{{file="numbers.esad",method="iforest",version="{version}"}}'] == "1.0"


# ---------------------------------------------------------------------- a new model file


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
    assert ask.service.models.changed()
    answer = ask("POST", "/reload", headers=bearer()).json()
    assert answer["outcome"] == "replaced"
    after = ask("POST", "/score", json=ROWS, headers=bearer()).json()
    assert after["model"] == answer["model"] != before["model"]
    scores = esad.load(other).anomaly_score(ROWS["rows"]).tolist()
    assert [row["score"] for row in after["rows"]] == scores != [row["score"] for row in before["rows"]]
    assert not ask.service.models.changed()


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
    assert "SIGHUP" in refused(asking(numbers)("POST", "/reload"), 403)


def test_health_shows_no_path(asking, replaceable):
    ask = asking(replaceable)
    replaceable.write_bytes(b"hello")
    ask.service.models.reload()
    problem = ask("GET", "/health").json()["problem"]
    assert "numbers.esad" in problem
    assert str(replaceable.parent) not in problem


def test_a_new_file_is_found_and_a_damaged_one_tried_once(replaceable, other, caplog):
    service = Service(replaceable, Settings(watch_seconds=0.02))
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
        shutil.copy(other, replaceable)
        wait_for(lambda health: health["model"]["version"] != version and health["problem"] is None)


# ---------------------------------------------------------------------- together


def crowd(service, requests):
    """Answers of requests that are all sent at once."""

    async def once():
        transport = httpx.ASGITransport(service.guard, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await asyncio.gather(*(client.post(route, json=body) for route, body in requests))

    return asyncio.run(once())


def batches(service):
    lines = service.metrics.text().decode().splitlines()
    return {line.split(" ")[0]: float(line.split(" ")[1]) for line in lines if line.startswith("esad_batch")}


def test_requests_at_one_time_are_merged_and_keep_their_own_scores(parts):
    service = Service(parts)
    rng = np.random.default_rng(0)

    def row():
        colour, made = str(rng.choice(["red", "green"])), f"2024-01-{rng.integers(1, 28):02d}"
        return {"size": float(rng.normal()), "colour": colour, "made": made, "checked": bool(rng.integers(2))}

    sent = [{"rows": [row() for _ in range(rng.integers(1, 4))]} for _ in range(40)]
    sent[7] = {"rows": [{"size": "wide", "colour": "", "made": "", "checked": True}]}
    together = crowd(service, [("/score", body) for body in sent])
    refused(together.pop(7), 422)
    del sent[7]
    found = batches(service)
    assert found["esad_batch_requests_sum"] == 39
    assert found["esad_batch_requests_count"] < 39
    alone = [crowd(service, [("/score", body)])[0].json()["rows"] for body in sent]
    assert [answer.json()["rows"] for answer in together] == alone


def test_scores_and_reasons_at_one_time_do_not_disturb_each_other(parts):
    service = Service(parts)
    body = {"rows": [{"size": 1.5, "colour": "red", "made": "2024-03-01", "checked": False}] * 2}
    routes = ["/score", "/explain", "/score", "/score"] * 6
    alone = {route: crowd(service, [(route, body)])[0].json()["rows"] for route in ("/score", "/explain")}
    for route, answer in zip(routes, crowd(service, [(route, body) for route in routes]), strict=True):
        assert answer.json()["rows"] == alone[route]


def test_numbers_and_mixed_rows_are_merged_too(numbers):
    service = Service(numbers)
    sent = [{"rows": [[1.5, 2, None]]}, {"rows": [["1.5", 2, None]]}, {"rows": [[1.5, 2.0, None]]}] * 4
    scores = {answer.json()["rows"][0]["score"] for answer in crowd(service, [("/score", body) for body in sent])}
    assert len(scores) == 1


def test_nobody_pays_for_rows_of_another(numbers, monkeypatch):
    service = Service(numbers)
    detector = service.models.current.detector
    score = detector.anomaly_score

    def fails(X):
        time.sleep(0.05)
        if X.column(0).max() > 100:
            raise RuntimeError("secret")
        return score(X)

    monkeypatch.setattr(detector, "anomaly_score", fails)
    sent = [("/score", {"rows": [[value, 0, 0]]}) for value in (1, 2, 3, 1000, 4)]
    statuses = [answer.status_code for answer in crowd(service, sent)]
    assert statuses == [200, 200, 200, 500, 200]


def test_a_full_queue_and_a_slow_model_are_told(numbers, monkeypatch):
    service = Service(numbers, Settings(seconds=0.3))
    service._batcher._max_waiting = 3
    detector = service.models.current.detector
    score = detector.anomaly_score
    monkeypatch.setattr(detector, "anomaly_score", lambda X: (time.sleep(0.1), score(X))[1])
    answers = crowd(service, [("/score", {"rows": [[1, 2, 3]]})] * 8)
    busy = [answer for answer in answers if answer.status_code == 503]
    assert 0 < len(busy) < 8
    assert {answer.headers["retry-after"] for answer in busy} == {"1"}
    assert all("waiting" in refused(answer, 503) for answer in busy)
    monkeypatch.setattr(detector, "anomaly_score", lambda X: (time.sleep(0.6), score(X))[1])
    assert "longer than 0.3 s" in refused(crowd(service, [("/score", {"rows": [[1, 2, 3]]})])[0], 503)
    monkeypatch.setattr(detector, "anomaly_score", score)
    time.sleep(0.5)
    assert crowd(service, [("/score", {"rows": [[1, 2, 3]]})])[0].status_code == 200


def test_reasons_wait_in_a_short_queue(numbers, monkeypatch):
    service = Service(numbers)
    monkeypatch.setattr(serve_app, "_reasons", lambda rows, top: time.sleep(0.02) or {})
    answers = crowd(service, [("/explain", ROWS)] * 12)
    assert sorted(answer.status_code for answer in answers) == [200] * 8 + [503] * 4


# ---------------------------------------------------------------------- the document


@pytest.mark.parametrize("name", ["parts", "numbers", "pictures"])
def test_the_openapi_document_has_examples_that_work(asking, request, name):
    ask = asking(request.getfixturevalue(name))
    document = ask("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert set(document["paths"]) == {"/score", "/explain", "/health", "/metrics", "/reload"}
    content = document["paths"]["/score"]["post"]["requestBody"]["content"]
    kind = "images" if name == "pictures" else "table"
    assert set(content) == set(serve_app.bodies.media_types(kind))
    for media_type, described in content.items():
        if "example" in described:
            example = described["example"]
            body = example if isinstance(example, str) else json.dumps(example)
            answer = ask("POST", "/score", content=body, headers={"content-type": media_type})
            assert answer.status_code == 200, answer.text


def test_errors_of_every_kind_have_the_one_shape(asking, numbers):
    ask = asking(numbers)
    refused(ask("GET", "/docs"), 404)
    refused(ask("GET", "/../../etc/passwd"), 404)
    refused(ask("DELETE", "/score"), 405)
    refused(ask("POST", "/health"), 405)
    refused(ask("OPTIONS", "/score"), 405)
