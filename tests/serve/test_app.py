"""The routes: who is let in, and what they tell."""

import json
import logging

import numpy as np
import pyarrow as pa
import pytest
from serving import KEY, ROWS, bearer, npy, refused, table

import esad
from esad.serve import app as serve_app
from esad.serve import keys as keys_module
from esad.serve.keys import Keys

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
    rows = ask.service._bodies.read("text/csv", text.encode(), ask.service.model_file.current, max_rows=10)
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
    assert refused(ask("POST", "/explain", json={"rows": [[1, 2, 3]] * 4}), 413)
    for top in ("0", "-1", "x", "1e9", "99999999999999999999"):
        assert refused(ask("POST", "/explain", params={"top": top}, json=ROWS), 422)


# ---------------------------------------------------------------------- keys


def test_only_health_is_open_where_there_are_keys(asking, numbers):
    ask = asking(numbers, keys=Keys([KEY, "another-key-of-tests"]))
    assert ask("GET", "/health").status_code == 200
    routes = [
        ("POST", "/score"),
        ("POST", "/explain"),
        ("GET", "/metrics"),
        ("POST", "/reload"),
        ("GET", "/model"),
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
    assert refused(
        asking(numbers, keys=Keys([KEY]))("POST", "/score", content=b"{", headers={"content-type": "x/y"}), 401
    )


def test_keys_come_from_a_file_or_the_environment(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"# ours\n\n{KEY}\n  another-key-of-tests  \n")
    for keys in (Keys.read(path, {}), Keys.read(None, {"ESAD_API_KEYS": f"{KEY} another-key-of-tests"})):
        assert len(keys) == 2
        assert keys.find(KEY)
        assert keys.find("another-key-of-tests")
        assert not keys.find("# ours")
        assert not keys.find("")
        assert not keys.find(KEY[:-1])
    assert Keys.read(None, {}) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "none"),
        (b"# only\n", "none"),
        (b"short\n", "16"),
        (b"with a blank inside it\n", "16"),
        (b"\xff\xfe" * 20, "UTF-8"),
        (b"a-key-of-the-tests-01 billing fly\n", "score, explain, reload, metrics. Got 'fly'"),
        (b"a-key-of-the-tests-01 billing score often\n", "positive rate. Got 'often'"),
        (b"a-key-of-the-tests-01 billing score 0\n", "positive rate"),
        (b"a-key-of-the-tests-01 billing score 5 more\n", "SCOPES"),
        (b"a-key-of-the-tests-01 one\nanother-key-of-tests one\n", "Several API keys have the name 'one'"),
    ],
)
def test_files_of_keys_that_are_refused(tmp_path, content, words):
    path = tmp_path / "keys.txt"
    path.write_bytes(content)
    with pytest.raises(esad.errors.InputError, match=words) as caught:
        Keys.read(path, {})
    assert "blank inside" not in str(caught.value)


SCORING = "a-key-that-scores-only"


def test_a_key_may_do_what_its_scopes_say(asking, numbers):
    ask = asking(numbers, keys=Keys([f"{SCORING} clerk score,metrics", KEY]))
    assert ask("POST", "/score", json=ROWS, headers=bearer(SCORING)).status_code == 200
    assert ask("GET", "/metrics", headers=bearer(SCORING)).status_code == 200
    assert ask("GET", "/openapi.json", headers=bearer(SCORING)).status_code == 200
    for route in ("/explain", "/reload", "/rollback"):
        assert "score" in refused(ask("POST", route, json=ROWS, headers=bearer(SCORING)), 403)
        assert ask("POST", route, json=ROWS, headers=bearer()).status_code in (200, 409)


def test_a_key_that_asks_too_often_is_refused_and_another_is_not(asking, numbers, monkeypatch):
    ask = asking(numbers, keys=Keys([f"{SCORING} clerk score 5", KEY], rate=1000.0))
    clock = [100.0]
    monkeypatch.setattr(keys_module.time, "monotonic", lambda: clock[0])
    statuses = [ask("POST", "/score", json=ROWS, headers=bearer(SCORING)).status_code for _ in range(7)]
    assert statuses == [200] * 5 + [429] * 2
    answer = ask("POST", "/score", json=ROWS, headers=bearer(SCORING))
    assert "5 times a second" in refused(answer, 429)
    assert answer.headers["retry-after"] == "1"
    assert ask("POST", "/score", json=ROWS, headers=bearer()).status_code == 200
    clock[0] += 0.41
    statuses = [ask("POST", "/score", json=ROWS, headers=bearer(SCORING)).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


# ---------------------------------------------------------------------- the log


def test_every_answer_is_a_line_of_the_access_log(asking, numbers, caplog):
    ask = asking(numbers, keys=Keys([f"{KEY} billing"]))
    with caplog.at_level(logging.INFO, logger=serve_app.ACCESS_LOG):
        answer = ask("POST", "/score", json=ROWS, headers=bearer() | {"x-request-id": "mine"})
        ask("POST", "/score", json=ROWS)
        ask("GET", "/" + "x" * 5000)
    first, second, third = (json.loads(record.getMessage()) for record in caplog.records)
    assert answer.headers["x-request-id"] == "mine"
    assert first.pop("ms") > 0
    assert first.pop("time").startswith("20")
    assert first == {"id": "mine", "key": "billing", "method": "POST", "path": "/score", "status": 200, "rows": 2}
    assert (second["key"], second["rows"], second["status"]) == (None, None, 401)
    assert len(third["path"]) == 200
    assert KEY not in caplog.text


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


# ---------------------------------------------------------------------- the document


@pytest.mark.parametrize("name", ["parts", "numbers", "pictures"])
def test_the_openapi_document_has_examples_that_work(asking, request, name):
    ask = asking(request.getfixturevalue(name))
    document = ask("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    routes = {"/score", "/explain", "/model", "/health", "/ready", "/metrics", "/reload", "/rollback"}
    assert set(document["paths"]) == routes
    content = document["paths"]["/score"]["post"]["requestBody"]["content"]
    kind = "images" if name == "pictures" else "table"
    assert set(content) == set(serve_app.bodies.media_types(kind))
    for media_type, described in content.items():
        if "example" in described:
            example = described["example"]
            body = example if isinstance(example, str) else json.dumps(example)
            answer = ask("POST", "/score", content=body, headers={"content-type": media_type})
            assert answer.status_code == 200, answer.text


def test_examples_work_where_names_of_columns_hold_separators(asking, tmp_path):
    table = pa.table({"size, cm": [1.0, 2.0, 3.0, 4.0] * 10, "a;b|c": ["x", "y"] * 20})
    esad.IsolationForest(random_state=0).fit(table).save(tmp_path / "model.esad")
    ask = asking(tmp_path / "model.esad")
    content = ask("GET", "/openapi.json").json()["paths"]["/score"]["post"]["requestBody"]["content"]
    for media_type in ("text/csv", "text/tab-separated-values"):
        answer = ask("POST", "/score", content=content[media_type]["example"], headers={"content-type": media_type})
        assert answer.status_code == 200, answer.text


def test_errors_of_every_kind_have_the_one_shape(asking, numbers):
    ask = asking(numbers)
    assert refused(ask("GET", "/redoc"), 404)
    assert refused(ask("GET", "/pages/app.py"), 404)
    assert refused(ask("GET", "/../../etc/passwd"), 404)
    assert refused(ask("DELETE", "/score"), 405)
    assert refused(ask("POST", "/health"), 405)
    assert refused(ask("OPTIONS", "/score"), 405)
