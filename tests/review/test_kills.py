"""No acknowledged label is lost and none is doubled, whenever the server is killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from esad.review.store import JudgementStore

pytestmark = pytest.mark.extra

N_MOMENTS = 200
SERVER = Path(__file__).with_name("killed_server.py")


def test_nothing_acknowledged_is_lost_and_nothing_is_doubled(tmp_path):
    """Labels are posted one after the other; the server is killed and started again, the last request sent again."""
    rng = np.random.default_rng(0)
    zygote = subprocess.Popen(
        [sys.executable, SERVER, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def start() -> dict:
        zygote.stdin.write("start\n")
        zygote.stdin.flush()
        return json.loads(zygote.stdout.readline())

    about = json.loads(zygote.stdout.readline())
    n_rows, acknowledged, sent, n_cut_off = about["n_rows"], [], 0, 0
    unanswered: dict | None = None
    try:
        for _ in range(N_MOMENTS):
            found = start()
            killed = False
            with httpx.Client(base_url=found["url"], timeout=5) as client:
                client.get(found["link"])
                deadline = time.monotonic() + rng.uniform(0.0, 0.15)
                while not killed:
                    if unanswered is None:
                        verdict = str(rng.choice(["anomaly", "normal"]))
                        unanswered = {"request": f"r{sent}", "row": sent % n_rows, "verdict": verdict}
                        sent += 1
                    if time.monotonic() > deadline:
                        killer = subprocess.Popen(["kill", "-9", str(found["pid"])])  # while the request is under way
                        killed = True
                    with contextlib.suppress(httpx.TransportError):
                        answer = client.post("/api/judgements", json=unanswered)
                        assert answer.json()["saved"] == unanswered["request"]
                        acknowledged.append(unanswered)
                        unanswered = None
                        continue
                    n_cut_off += 1
                    break
            killer.wait()
            with contextlib.suppress(ProcessLookupError):
                os.kill(found["pid"], signal.SIGKILL)
    finally:
        zygote.communicate(timeout=30)
    with JudgementStore(tmp_path / "labels.db", fingerprint=about["fingerprint"], n_rows=n_rows) as store:
        entries = dict(store._database.execute("select request, item || entry from journal").fetchall())
        assert len(store) == len(entries)  # none twice
        for said in acknowledged:
            assert entries[said["request"]] == f"{said['row']}{said['verdict']}"
        assert len(acknowledged) <= len(entries) <= len(acknowledged) + 1  # at most the one under way at the end
        verdicts = store.judgements.verdicts()
    last = {said["row"]: said["verdict"] for said in acknowledged}
    for row, verdict in last.items():
        if unanswered is None or row != unanswered["row"]:
            assert verdicts[row] == {"ann": verdict}
    assert len(acknowledged) > N_MOMENTS
    assert n_cut_off > 0  # some kills did hit a request
