"""Many requests at one time: merged, each with its own answer, and refused where there are too many."""

import asyncio
import time

import httpx
import numpy as np
from serving import ROWS, refused

from esad.serve.app import Service, ServiceSettings


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
    assert refused(together.pop(7), 422)
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
    detector = service.model_file.current.detector
    score = detector.score_with_p_values

    def fails(X):
        time.sleep(0.05)
        if X.column(0).max() > 100:
            raise RuntimeError("secret")
        return score(X)

    monkeypatch.setattr(detector, "score_with_p_values", fails)
    sent = [("/score", {"rows": [[value, 0, 0]]}) for value in (1, 2, 3, 1000, 4)]
    statuses = [answer.status_code for answer in crowd(service, sent)]
    assert statuses == [200, 200, 200, 500, 200]


def test_who_would_wait_too_long_is_refused_at_once_and_the_others_keep_their_turn(numbers, monkeypatch):
    service = Service(numbers)
    service._batcher._queue._max_seconds = 1.0
    detector = service.model_file.current.detector
    score = detector.score_with_p_values
    monkeypatch.setattr(detector, "score_with_p_values", lambda X: (time.sleep(0.3), score(X))[1])
    body = {"rows": [[1, 2, 3]] * 5000}
    for _ in range(8):  # until it is known how long a row takes
        crowd(service, [("/score", body)])
    assert service._batcher._queue._unit_seconds > 0.2 / 5064
    answers = crowd(service, [("/score", body)] * 12)
    busy = [answer for answer in answers if answer.status_code == 503]
    assert 0 < len(busy) < 10
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in busy)
    assert all("waiting" in refused(answer, 503) for answer in busy)
    assert {answer.status_code for answer in answers} == {200, 503}
    assert not service._batcher.is_full


def test_a_service_that_is_full_is_not_ready(asking, numbers, monkeypatch):
    ask = asking(numbers)
    assert ask("GET", "/ready").json() == {"status": "ready"}
    monkeypatch.setattr(ask.service._batcher._queue, "cost", 10**6)
    monkeypatch.setattr(ask.service._batcher._queue, "_unit_seconds", 1e-3)
    assert refused(ask("GET", "/ready"), 503)
    assert ask("GET", "/health").status_code == 200


def test_a_slow_model_is_told(numbers, monkeypatch):
    service = Service(numbers, ServiceSettings(seconds=0.3))
    detector = service.model_file.current.detector
    score = detector.score_with_p_values
    monkeypatch.setattr(detector, "score_with_p_values", lambda X: (time.sleep(0.6), score(X))[1])
    assert "longer than 0.3 s" in refused(crowd(service, [("/score", {"rows": [[1, 2, 3]]})])[0], 503)
    monkeypatch.setattr(detector, "score_with_p_values", score)
    time.sleep(0.5)
    assert crowd(service, [("/score", {"rows": [[1, 2, 3]]})])[0].status_code == 200


def test_reasons_for_which_one_would_wait_too_long_are_refused(numbers):
    service = Service(numbers)
    service._explaining._queue._max_seconds = 0.0
    crowd(service, [("/explain", ROWS)] * 3)  # until it is known how long a row takes
    answers = crowd(service, [("/explain", ROWS)] * 5)
    assert sorted(answer.status_code for answer in answers) == [200] * 2 + [503] * 3
    assert all("retry-after" in answer.headers for answer in answers if answer.status_code == 503)
