"""A real socket: what is no HTTP, who stalls, and the stop that cuts nobody off."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from starlette.requests import Request  # noqa: E402
from starlette.responses import Response  # noqa: E402

from esad.errors import InputError  # noqa: E402
from esad.web import server  # noqa: E402
from esad.web.answers import make_application  # noqa: E402
from esad.web.guard import Guard  # noqa: E402

PROGRAM = """
import asyncio, gc
from esad.web import server
from esad.web.answers import make_application
from esad.web.guard import Guard

app = make_application("example")

@app.get("/slow")
async def slow(seconds: float = 0.5) -> str:
    print("asked", flush=True)
    await asyncio.sleep(seconds)
    return "done"

@app.get("/garbage")
def garbage() -> list[int]:
    return [gc.get_freeze_count(), gc.get_threshold()[0]]

before = garbage()
listener = server.bind()
server.run(
    Guard(app),
    listener,
    ready=lambda: print(server.url_of(listener), flush=True),
    hang_up=lambda: print("hung up", flush=True),
)
print("ended", garbage() == before, flush=True)
"""


@pytest.fixture
def program():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def address():
    with server.in_background(Guard(make_application("example"))) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])


def raw(address, *parts: bytes, pause: float = 0.0) -> bytes:
    with socket.create_connection(address, timeout=10) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        with contextlib.suppress(OSError):  # refused and closed by now
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS to a plain port
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20_000,
    ],
)
def test_what_is_no_http_is_told_in_the_one_shape(address, sent):
    head, _, body = raw(address, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 4"), head
    assert json.loads(body)["error"]["status"] in (400, 421, 431)
    for header in (
        b"content-security-policy: default-src 'none'",
        b"x-content-type-options: nosniff",
        b"cache-control",
    ):
        assert header in head


def test_a_body_with_two_ends_is_refused(address):
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = raw(address, head + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400"), answer


def test_clients_that_go_away_are_no_defect(caplog):
    app = make_application("example")

    @app.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    with server.in_background(Guard(app)) as url:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10) as connection:
                connection.sendall(b"POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nhalf")
        assert httpx.post(f"{url}/length", content=b"whole").json() == 5
    assert not caplog.records


def test_a_head_that_does_not_come_is_given_up(address, monkeypatch):
    monkeypatch.setattr(server, "_HEADER_SECONDS", 0.2)
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_client_that_does_not_take_its_answer_is_let_go(monkeypatch):
    monkeypatch.setattr(server, "_KEEP_ALIVE_SECONDS", 0.3)
    app = make_application("example")

    @app.get("/much")
    async def much() -> Response:
        return Response(bytes(50_000_000))

    with server.in_background(Guard(app)) as url, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        connection.sendall(b"GET /much HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(1.0)
        n_bytes = 0
        with contextlib.suppress(ConnectionResetError):
            while part := connection.recv(1_000_000):
                n_bytes += len(part)
        assert n_bytes < 50_000_000


def test_connections_have_a_limit(address, monkeypatch):
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 2)
    opened = [socket.create_connection(address, timeout=10) for _ in range(3)]
    answer = opened[2].recv(2000)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"\r\nretry-after: 1\r\n" in answer
    for connection in opened:
        connection.close()


def test_a_taken_port_and_wrong_ones():
    with server.bind() as listener:
        assert server.is_local(listener)
        port = listener.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: another program is using it"):
            server.bind(port=port)
    for port in (-1, 65536):
        with pytest.raises(InputError, match="from 0"):
            server.bind(port=port)
    with pytest.raises(InputError, match="no such address"):
        server.bind("no such host.invalid")
    with pytest.raises(InputError, match="this machine has no such address"):
        server.bind("192.0.2.1")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.extra)])
def test_the_stop_answers_what_is_under_way_and_refuses_what_is_new(program, number):
    url = program.stdout.readline().strip()
    answers = []
    slow = threading.Thread(target=lambda: answers.append(httpx.get(f"{url}/slow", params={"seconds": 0.8})))
    with httpx.Client() as known:
        assert known.get(f"{url}/slow", params={"seconds": 0}).status_code == 200  # its connection stays open
        frozen, n_objects = known.get(f"{url}/garbage").json()  # bodies are many objects, of which none are in circles
        assert frozen > 10_000
        assert n_objects > 10_000
        slow.start()
        assert [program.stdout.readline() for _ in range(2)] == ["asked\n"] * 2
        program.send_signal(number)
        time.sleep(0.25)
        late = known.get(f"{url}/slow")
        assert (late.status_code, late.headers["connection"]) == (503, "close")
    slow.join()
    assert [answer.json() for answer in answers] == ["done"]
    assert program.stdout.read() == "ended True\n"
    assert program.wait(10) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/slow")


@pytest.mark.extra
def test_hanging_up_is_no_stop(program):
    url = program.stdout.readline().strip()
    program.send_signal(signal.SIGHUP)
    assert program.stdout.readline() == "hung up\n"
    assert httpx.get(f"{url}/slow", params={"seconds": 0}).json() == "done"


@pytest.mark.extra
def test_a_terminal_that_is_closed_is_a_stop():
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        assert process.stdout.readline() == "hung up\n"
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        assert process.stdout.read() == "ended True\n"
    assert process.returncode == 0
