"""`esad serve` as a command: wrong ones are one line and exit code 2, a right one serves until it is told to stop."""

import json
import os
import re
import signal
import socket
import subprocess
import sys

import pytest

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")


@pytest.fixture
def refused(esad):
    def call(*args):
        done = esad("serve", *args)
        assert (done.code, done.out) == (2, ""), done
        assert done.err.startswith("error: ")
        assert done.err.count("\n") == 1
        return done.err

    return call


def test_models_that_cannot_be_served(refused, model, tmp_path, parts):
    assert "no model file" in refused(tmp_path / "missing.esad")
    (tmp_path / "damaged.esad").write_bytes(model.read_bytes()[:-10])
    assert "damaged" in refused(tmp_path / "damaged.esad")
    assert "is data" in refused(parts)
    assert "is data" in refused(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--port", "-1"), "--port"),
        (("--port", "65536"), "--port"),
        (("--port", "http"), "--port"),
        (("--host", "no such host.invalid"), "no such address"),
        (("--host", "192.0.2.1"), "no such address"),
        (("--max-rows", "0"), "--max-rows"),
        (("--max-body", "0"), "--max-body"),
        (("--max-body", "99999"), "--max-body"),
        (("--timeout", "0"), "--timeout"),
        (("--timeout", "nan"), "--timeout"),
        (("--rate-limit", "0"), "--rate-limit must be a positive number"),
        (("--rate-limit", "2"), "--rate-limit is for each API key"),
        (("--access-log", "missing/log"), "access log"),
        (("--api-keys", "missing.txt"), "missing.txt"),
        (("--prot", "1"), "--port"),
    ],
)
def test_options_that_are_wrong(refused, model, options, words):
    assert words in refused(model, *options)


def test_a_port_that_is_taken(refused, model):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port}: another program is using it" in refused(model, "--port", port)


def test_a_missing_extra_is_named(refused, model, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("esad.serve", "esad.web"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert "pip install '.[web]'" in refused(model)


def test_short_keys_are_refused_unseen(refused, model, tmp_path, monkeypatch):
    (tmp_path / "keys.txt").write_text("swordfish\n")
    assert "swordfish" not in refused(model, "--api-keys", tmp_path / "keys.txt")
    monkeypatch.setenv("ESAD_API_KEYS", "swordfish")
    assert "swordfish" not in refused(model)


def test_it_serves_until_it_is_told_to_stop(model, parts, tmp_path):
    log = tmp_path / "access.jsonl"
    command = [sys.executable, "-m", "esad", "serve", str(model), "--port", "0", "--access-log", str(log)]
    environment = os.environ | {"ESAD_API_KEYS": "a-key-of-the-tests-01"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        url = re.search(r"at (http://127\.0\.0\.1:\d+)$", process.stdout.readline().strip())[1]
        headers = {"content-type": "text/csv", "authorization": "Bearer a-key-of-the-tests-01"}
        answer = httpx.post(f"{url}/score", content=parts.read_bytes(), headers=headers)
        assert answer.json()["n_rows"] == 60
        assert answer.json()["rows"][3]["id"] == "S003"
        assert httpx.get(f"{url}/metrics").status_code == 401
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.endswith("Stopped.\n")
    assert err == ""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["path"], line["status"], line["rows"]) for line in lines] == [
        ("/score", 200, 60),
        ("/metrics", 401, None),
    ]
    assert lines[0]["id"] == answer.headers["x-request-id"]


@pytest.mark.extra
def test_where_it_serves_as_json(model):
    command = [sys.executable, "-m", "esad", "serve", str(model), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = []
        while not lines or lines[-1] != "}\n":
            lines.append(process.stdout.readline())
        found = json.loads("".join(lines))
        assert httpx.get(f"{found['url']}/health").json()["model"] == found["model"]
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
    assert process.returncode == 0
