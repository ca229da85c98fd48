"""From a key press to the next item of `esad review`, in Chromium: 100,000 rows and 20,000 pictures.

The page is a process of its own. Keys are pressed as a keyboard does; the browser's own clock counts from the event to
the moment at which the next item is painted, its picture included; reasons and heat maps may come later and are
counted apart. The page's server counts how long its answers take. Run: python benchmarks/review_latency.py
[--presses 60]. Results: benchmarks/results/review_latency.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "review_latency.json"
KINDS = {"rows": 100_000, "pictures": 20_000}
N_COLUMNS, SIDE = 20, 28
PAUSE = 0.3  # seconds between two keys: three judgements a second is faster than anybody judges
KEYS = "nannsnannn"
# Milliseconds from the event until what was drawn is on the screen: a task queued in a frame runs after its paint.
WATCH = """
() => {
  window.spent = [];
  window.withReasons = 0;
  const item = document.getElementById("item");
  const isLoaded = (image) => image.complete && image.naturalWidth > 0;
  const isThere = () => [...item.querySelectorAll(".pictures img")].every(isLoaded);
  const painted = (then) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = then;
    channel.port2.postMessage(null);
  });
  addEventListener("keydown", (event) => {
    const row = item.dataset.row;
    const look = () => painted(() => {
      if (item.dataset.row === row || !isThere()) return look();
      window.withReasons += !item.querySelector(".wait, .blank");
      document.body.dataset.presses = window.spent.push(performance.now() - event.timeStamp);
    });
    look();
  }, { capture: true });
}
"""


def dataset(kind: str) -> Any:
    """Random rows or pictures of which a few stand out."""
    import pyarrow as pa

    from esad.review.dataset import ReviewDataset

    rng, n = np.random.default_rng(0), KINDS[kind]
    known = np.zeros(n, np.int8)
    if kind == "rows":
        X = rng.normal(size=(n, N_COLUMNS))
        X[::500] += 3
        cells = pa.table({f"x{index}": X[:, index] for index in range(N_COLUMNS)})
        return ReviewDataset(title=kind, X=cells, known=known, names=None, id_name="row", cells=cells)
    pictures = rng.integers(0, 120, (n, 1, SIDE, SIDE), dtype=np.uint8)
    pictures[::500, :, 8:20, 8:20] += 100
    names = [f"{number:05d}.png" for number in range(n)]
    return ReviewDataset(title=kind, X=pictures, known=known, names=names, id_name="file", cells=None)


class Clock:
    """Counts how long answers take, by what was asked for."""

    def __init__(self, app: Any) -> None:
        self.app, self.spent = app, defaultdict(list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        began = time.perf_counter()
        await self.app(scope, receive, send)
        if scope["type"] == "http":
            self.spent["/".join(scope["path"].split("/")[:3])].append(1000 * (time.perf_counter() - began))


def serve(kind: str, folder: Path) -> None:
    """The page over a model that saw a part of the data: training is not what is measured."""
    from esad import ESAD
    from esad.review.access import Access
    from esad.review.app import guard_app, review_app
    from esad.review.ranking import Ranking
    from esad.review.session import ReviewSession
    from esad.review.store import JudgementStore
    from esad.web.server import bind, run, url_of

    data = dataset(kind)
    part = data.X[:2000] if isinstance(data.X, np.ndarray) else data.X.slice(0, 2000)
    detector = ESAD(n_epochs=2, random_state=0).fit(part)
    store = JudgementStore(folder / "labels.db", fingerprint=kind, n_rows=data.n_rows)
    session = ReviewSession(data, store, Ranking.of(detector, data.X), folder / "model.esad")
    access, listener = Access(), bind()
    link = f"{url_of(listener)}/?token={access.new_link('ann')}"
    clock = Clock(review_app(session, access))
    run(guard_app(clock), listener, ready=lambda: print(link, flush=True))
    print(json.dumps(clock.spent), flush=True)
    session.close()


def summary(spent: list[float]) -> dict[str, float]:
    """Quantiles in milliseconds."""
    found = {"p50_ms": np.quantile(spent, 0.5), "p95_ms": np.quantile(spent, 0.95), "max_ms": max(spent)}
    return {"n": len(spent)} | {name: round(float(value), 1) for name, value in found.items()}


def measure(kind: str, n_presses: int, browser: Any) -> dict[str, Any]:
    """Open the page, wait until it is at rest, and press keys."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--serve", kind, "--folder", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            link = server.stdout.readline().strip()
            page = browser.new_page(viewport={"width": 1280, "height": 860})
            page.goto(link)
            page.wait_for_selector("#item[data-row]")
            first = page.evaluate("performance.now()")
            page.wait_for_selector("#item :is(td, .pictures:not(:has(.blank)) img)")
            page.wait_for_timeout(3000)
            page.evaluate(WATCH)
            for number in range(n_presses):
                page.keyboard.press(KEYS[number % len(KEYS)])
                page.wait_for_selector(f'body[data-presses="{number + 1}"]', timeout=60_000)
                page.wait_for_timeout(1000 * PAUSE)
            page.wait_for_selector("#saved:text-is('saved')")
            spent, n_explained = page.evaluate("[window.spent, window.withReasons]")
            page.close()
        finally:
            server.terminate()
            told = server.communicate(timeout=60)[0]
    answers = json.loads(told)
    return {
        "n_items": KINDS[kind],
        "first_item_ms": round(first, 1),
        "press_to_next": summary(spent),
        "reasons_there_at_once": n_explained,
        "answers": {path: summary(times) for path, times in sorted(answers.items()) if "api" in path},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--presses", type=int, default=60)
    parser.add_argument("--serve", choices=KINDS)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve, asked.folder)
        return
    from playwright.sync_api import sync_playwright

    found: dict[str, Any] = {"cores": os.cpu_count(), "seconds_between_keys": PAUSE}
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for kind in KINDS:
            found[kind] = measure(kind, asked.presses, browser) | {"load": round(os.getloadavg()[0], 1)}
            print(kind, json.dumps(found[kind], indent=1))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
