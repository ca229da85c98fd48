"""What the guard lets through, what it refuses, and what every answer carries."""

import asyncio
import errno
import json
import logging

import pytest

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from serving import refused  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import JSONResponse, Response  # noqa: E402

from esad.errors import InputError, RequestError, SchemaError  # noqa: E402
from esad.web.answers import make_application  # noqa: E402
from esad.web.guard import Guard, Limits  # noqa: E402

LIMITS = Limits(body_bytes=1000, held_bytes=1500, requests=3, body_seconds=0.3)


def example() -> Guard:
    app = make_application("example")

    @app.post("/length")
    async def length(request: Request) -> Response:
        return JSONResponse({"length": len(await request.body())})

    @app.get("/number")
    async def number(value: int) -> int:
        return value

    @app.get("/fail/{name}")
    async def fail(name: str) -> None:
        raise {
            "input": InputError("two\nlines"),
            "schema": SchemaError("lacks a column"),
            "request": RequestError(429, "slow down", {"retry-after": "7"}),
            "defect": RuntimeError("secret internals"),
            "disk": OSError(errno.ENOSPC, "No space left on device", "/tmp/secret"),
        }[name]

    return Guard(app, names=["Scores.example"], limits=LIMITS)


def ask(method: str, path: str, *, guard: Guard | None = None, **options) -> httpx.Response:
    async def once() -> httpx.Response:
        transport = httpx.ASGITransport(guard or example(), raise_app_exceptions=False)
        base = options.pop("base_url", "http://127.0.0.1:8000")
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, path, **options)

    return asyncio.run(once())


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "LOCALHOST",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]:8000",
        "10.1.2.3:80",
        "scores.example:8",
    ],
)
def test_names_of_ours_are_answered(host):
    assert ask("POST", "/length", content=b"abc", headers={"host": host}).json() == {"length": 3}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "",
        "localhost@evil.example",
        "evil.example#localhost",
        "localhost:",
        "localhost:x",
        "[::1",
        "localhost/evil",
        "0x7f.1",
        "2130706433",
    ],
)
def test_other_names_are_refused(host):
    assert "name" in refused(ask("POST", "/length", content=b"abc", headers={"host": host}), 421)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://[", ""])
def test_other_sites_pages_may_not_ask(origin):
    assert refused(ask("POST", "/length", content=b"", headers={"origin": origin}), 403)


def test_pages_of_our_own_may_ask():
    assert ask("POST", "/length", content=b"x", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


def test_every_answer_carries_the_headers():
    for answer in (
        ask("POST", "/length"),
        ask("GET", "/nothing"),
        ask("GET", "/fail/defect"),
        ask("GET", "/", base_url="http://e"),
    ):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"


def test_a_connection_stays_open_unless_a_body_was_not_read():
    assert "connection" not in ask("GET", "/number", params={"value": 1}).headers
    assert "connection" not in ask("POST", "/length", content=b"abc").headers
    assert ask("POST", "/nothing", content=b"abc").headers["connection"] == "close"


def test_errors_have_one_shape(caplog):
    assert refused(ask("GET", "/fail/input"), 422) == "two lines"
    assert refused(ask("GET", "/fail/schema"), 422) == "lacks a column"
    answer = ask("GET", "/fail/request")
    assert refused(answer, 429) == "slow down"
    assert answer.headers["retry-after"] == "7"
    assert "'/nothing'" in refused(ask("GET", "/nothing"), 404)
    wrong = ask("GET", "/length")
    assert "GET" in refused(wrong, 405)
    assert wrong.headers["allow"] == "POST"
    assert "query.value" in refused(ask("GET", "/number", params={"value": "x"}), 422)
    with caplog.at_level(logging.ERROR, logger="esad.web.answers"):
        message = refused(ask("GET", "/fail/defect"), 500)
    assert "secret" not in message
    assert [record for record in caplog.records if "secret internals" in record.getMessage()]
    assert message.rstrip(".").rpartition(" ")[2] in caplog.text


def test_a_full_disk_is_no_defect(caplog):
    with caplog.at_level(logging.ERROR, logger="esad.web.answers"):
        answer = ask("GET", "/fail/disk")
    assert "no room on the disk" in refused(answer, 503)
    assert "secret" not in answer.text
    assert answer.headers["retry-after"] == "5"
    (record,) = caplog.records
    assert record.exc_info is None
    assert "/fail/disk" in record.getMessage()


def test_what_was_sent_is_not_sent_back_at_length():
    assert len(ask("GET", "/" + "x" * 50_000).content) < 500
    assert len(ask("POST", "/length", headers={"host": "x" * 50_000}).content) < 500
    assert len(ask("POST", "/length", headers={"origin": "http://" + "x" * 50_000}).content) < 500


def test_two_hosts_are_one_too_many():
    assert refused(ask("POST", "/length", headers=[("host", "localhost"), ("host", "evil.example")]), 400)


def test_every_answer_has_a_name_that_the_client_may_choose():
    guard = example()
    names = {ask("GET", "/nothing", guard=guard).headers["x-request-id"] for _ in range(3)}
    assert len(names) == 3
    chosen = ask("GET", "/nothing", headers={"x-request-id": "my-request.1"})
    assert chosen.headers["x-request-id"] == "my-request.1"
    assert ask("GET", "/nothing", headers={"x-request-id": "x" * 65}).headers["x-request-id"] != "x" * 65


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "GZIP", "identity, gzip"])
def test_compressed_bodies_are_refused(encoding):
    assert refused(ask("POST", "/length", content=b"x", headers={"content-encoding": encoding}), 415)


def test_a_body_may_have_exactly_the_limit():
    assert ask("POST", "/length", content=bytes(1000)).json() == {"length": 1000}
    assert "MiB" in refused(ask("POST", "/length", content=bytes(1001)), 413)


def test_a_body_without_a_length_is_counted_as_it_arrives():
    n_sent = 0

    async def endless():
        nonlocal n_sent
        while n_sent < 100_000:
            n_sent += 100
            yield bytes(100)

    # ASGITransport asks for the parts one by one: after the refusal the rest is read for a moment and thrown away.
    assert refused(ask("POST", "/length", content=endless()), 413)


@pytest.mark.parametrize("length", ["99999999999999999999999999", "1001"])
def test_a_length_that_is_too_large_is_refused_at_once(length):
    answer = ask("POST", "/length", content=b"x", headers={"content-length": length})
    assert refused(answer, 413)


def talk(guard: Guard, parts, *, pause: float = 0.0):
    """Send a body part by part, as ASGI messages, and give the status."""

    async def once():
        messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        sent = []

        async def receive():
            if messages:
                return messages.pop(0)
            await asyncio.sleep(pause or 3600)
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/length", "raw_path": b"/length", "query_string": b"",
            "headers": [(b"host", b"localhost"), (b"expect", b"100-continue"), (b"transfer-encoding", b"chunked")],
            "http_version": "1.1", "scheme": "http", "root_path": "",
        }  # fmt: skip
        await guard(scope, receive, send)
        return sent

    return once()


def test_a_body_that_does_not_come_is_given_up():
    sent = asyncio.run(talk(example(), [b"abc"]))
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert json.loads(sent[1]["body"])["error"]["code"] == "request_timeout"


def test_all_bodies_together_have_a_limit_that_is_given_back():
    guard = example()

    async def crowd():
        return await asyncio.gather(*(talk(guard, [bytes(800)], pause=0.1) for _ in range(2)))

    for _ in range(2):
        assert sorted(sent[0]["status"] for sent in asyncio.run(crowd())) == [200, 503]
    assert guard.n_active == 0


def test_requests_at_one_time_have_a_limit():
    guard = example()

    async def crowd():
        return await asyncio.gather(*(talk(guard, [b"x"], pause=0.1) for _ in range(5)))

    statuses = sorted(sent[0]["status"] for sent in asyncio.run(crowd()))
    assert statuses == [200, 200, 200, 503, 503]


def test_a_server_that_stops_refuses_what_is_new():
    guard = example()
    guard.stopping = True
    answer = ask("POST", "/length", guard=guard, content=b"x")
    assert "stopping" in refused(answer, 503)
    assert answer.headers["connection"] == "close"
    assert answer.headers["retry-after"] == "1"
