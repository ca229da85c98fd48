"""Review servers to be killed: everything slow is loaded once, then each one is a fork that starts at once."""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from esad import IsolationForest
from esad.review.access import Access
from esad.review.app import guard_app, review_app
from esad.review.dataset import ReviewDataset
from esad.review.ranking import Ranking
from esad.review.session import ReviewSession
from esad.review.store import JudgementStore
from esad.web.server import bind, run, url_of

N_ROWS = 400
HUNG_SECONDS = 10  # a fork of a process with threads may hang before it serves: nothing of ours


def main(folder: Path) -> None:
    cells = pa.table({"x": np.random.default_rng(0).normal(size=N_ROWS)})
    dataset = ReviewDataset(title="t", X=cells, known=np.zeros(N_ROWS, np.int8), names=None, id_name="row", cells=cells)
    ranking = Ranking.of(IsolationForest(random_state=0).fit(cells), cells)
    fingerprint = dataset.fingerprint()
    print(json.dumps({"n_rows": N_ROWS, "fingerprint": fingerprint}), flush=True)
    child = None
    for _ in sys.stdin:
        if child is not None:
            os.waitpid(child, 0)  # the lock of a killed server is gone when it is
        told = ""
        while not told:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                signal.alarm(HUNG_SECONDS)
                serve(folder, dataset, ranking, fingerprint, writing)
            os.close(writing)
            with os.fdopen(reading) as pipe:
                told = pipe.readline()
            if not told and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != -signal.SIGALRM:
                sys.exit("a server did not start")
        print(told, end="", flush=True)


def serve(folder: Path, dataset: ReviewDataset, ranking: Ranking, fingerprint: str, writing: int) -> None:
    store = JudgementStore(folder / "labels.db", fingerprint=fingerprint, n_rows=N_ROWS)
    access, listener = Access(), bind()
    url = url_of(listener)
    told = {"url": url, "link": f"{url}/?token={access.new_link('ann')}", "pid": os.getpid()}

    def ready() -> None:
        signal.alarm(0)
        os.write(writing, json.dumps(told).encode() + b"\n")

    app = review_app(ReviewSession(dataset, store, ranking, folder / "m.esad"), access)
    run(guard_app(app), listener, ready=ready)
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
