"""A real service under load from another process: told to stop, or given new models, it loses nothing."""

import hashlib
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import esad

# Clients of a process of their own. Each asks again as soon as it is answered; all that was sent is accounted for.
CLIENTS = """
import http.client, json, sys, threading, time

port, n_clients, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
body = json.dumps({"rows": [[0.1, 0.2, 0.3]]})
until, counts, versions, lock = time.monotonic() + seconds, {}, {}, threading.Lock()

def count(what):
    with lock:
        counts[what] = counts.get(what, 0) + 1

def client():
    connection = None
    while time.monotonic() < until:
        try:
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
                connection.connect()
        except OSError:
            count("not connected")
            return
        try:
            connection.request("POST", "/score", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            found = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            count(f"lost: {error!r}")
            return
        count(str(answer.status))
        if answer.status == 200:
            with lock:
                versions.setdefault(found["model"]["version"], set()).add(found["rows"][0]["score"])
        if answer.will_close:
            connection = None

threads = [threading.Thread(target=client) for _ in range(n_clients)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps({"counts": counts, "versions": {version: sorted(scores) for version, scores in versions.items()}}))
"""


@pytest.fixture
def service(numbers, tmp_path):
    model = tmp_path / "model.esad"
    shutil.copy(numbers, model)
    command = [sys.executable, "-m", "esad", "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            process.port = int(re.search(r":(\d+)$", process.stdout.readline().strip())[1])
            process.model = model
            yield process
        finally:
            process.kill()


def asking(port, n_clients, seconds):
    command = [sys.executable, "-c", CLIENTS, str(port), str(n_clients), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.extra
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_loses_nothing(service, number):
    clients = asking(service.port, 16, 20)
    time.sleep(2.5)
    service.send_signal(number)
    _, err = service.communicate(timeout=30)
    assert (service.returncode, err) == (0, "")
    counts = json.loads(clients.communicate(timeout=30)[0])["counts"]
    assert counts.pop("200") > 100
    assert counts.pop("not connected") == 16
    assert set(counts) <= {"503"}, counts


@pytest.mark.extra
def test_new_models_under_load_lose_nothing(service, tmp_path):
    kinds = []
    for seed in range(2):
        X = np.random.default_rng(seed).normal(size=(150, 3))
        kinds.append(tmp_path / f"{seed}.esad")
        esad.IsolationForest(n_trees=10, random_state=seed).fit(X).save(kinds[-1])
    expected = {}
    clients = asking(service.port, 8, 8)
    stop = threading.Event()
    threading.Timer(7, stop.set).start()
    beside = tmp_path / "beside"
    for turn in range(1000):
        if stop.wait(0.3):
            break
        if turn % 3 == 2:
            service.model.write_bytes(b"damaged")
        else:
            shutil.copy(kinds[turn % 2], beside)
            beside.replace(service.model)
        service.send_signal(signal.SIGHUP)
    found = json.loads(clients.communicate(timeout=60)[0])
    service.send_signal(signal.SIGTERM)
    _, err = service.communicate(timeout=30)
    assert service.returncode == 0
    assert "is not used" in err
    assert set(found["counts"]) == {"200"}, found["counts"]
    assert len(found["versions"]) >= 2
    for path in kinds:  # every answer is of one model, the one that it names
        version = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        expected[version] = [float(esad.load(path).anomaly_score([[0.1, 0.2, 0.3]])[0])]
    assert {version: scores for version, scores in found["versions"].items() if version in expected} == expected
