"""In Chromium: many rows and pictures stay smooth, and what takes long holds nothing up."""

import importlib.util
import threading
from pathlib import Path

import numpy as np
import pytest
from browsing import GLANCE, PATIENCE, READY, press

from esad import IsolationForest
from esad.review.queue import BATCH
from esad.review.ranking import Explanations, Ranking
from esad.review.session import ReviewSession
from esad.review.store import JudgementStore

pytestmark = pytest.mark.extra

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "review_latency.py"
SOON = 2000  # milliseconds; benchmarks/review_latency.py measures, this finds what holds a page up
MAX_ROUNDS = 6


def quick_desk(dataset, folder):
    """A model of a part, since training is not what is measured."""
    X = dataset.X[:2000] if isinstance(dataset.X, np.ndarray) else dataset.X.slice(0, 2000)
    detector = IsolationForest(n_trees=20, random_state=0).fit(X)
    store = JudgementStore(folder / "l.db", fingerprint="many", n_rows=dataset.n_rows)
    return ReviewSession(dataset, store, Ranking.of(detector, dataset.X), folder / "m.esad")


@pytest.fixture
def latency():
    """The script that the published times are made with."""
    specification = importlib.util.spec_from_file_location("review_latency", BENCHMARK)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["rows", "pictures"])
def test_many_stay_smooth(serve, latency, kind, tmp_path):
    """100,000 rows, 20,000 pictures: the first page within a second, the next item within a tenth of one, always.

    What the page is to blame for comes again at the same key press of every round; what other programs do to this
    machine does not.
    """
    session = quick_desk(latency.dataset(kind), tmp_path)
    try:
        with serve(session) as site:
            first = [first_item(site)]
            while min(first) >= SOON and len(first) < MAX_ROUNDS:
                first.append(first_item(site))
            page = site.enter("bob", intercepted=False)
            page.wait_for_selector(READY)
            page.evaluate(latency.WATCH)
            rounds = [judged_in_a_row(page)]
            while np.min(rounds, axis=0).max() >= 100 and len(rounds) < MAX_ROUNDS:
                rounds.append(judged_in_a_row(page))
            page.wait_for_selector("#saved:text-is('saved')")
            assert len(session.store.judgements.verdicts()) == BATCH * len(rounds)
            assert np.min(rounds, axis=0).max() < 100, rounds
            assert min(first) < SOON, first
            assert page.problems == []
    finally:
        session.close()


def judged_in_a_row(page):
    """Milliseconds from each key press to the next item, for as many as the queue finds at a time."""
    n_before = len(page.evaluate("window.spent"))
    for number in range(BATCH):
        page.wait_for_timeout(GLANCE + 50)
        page.keyboard.press("nanns"[number % 5])
        page.wait_for_selector(f'body[data-presses="{n_before + number + 1}"]')
    return page.evaluate("window.spent")[n_before:]


def first_item(site):
    """Milliseconds until a new page has all that its first item needs, by the browser's clock."""
    page = site.enter(intercepted=False)
    return page.evaluate(
        "() => performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
        ".reduce((last, one) => Math.max(last, one.name.includes('/pictures/') ? 0 : one.responseEnd), 0)"
    )


def test_a_heat_map_that_takes_long_holds_nothing_up(make_session, serve, monkeypatch):
    """The picture and the next one are there at once; the place of the heat map is kept for it."""
    go_on, explain = threading.Event(), Explanations._explain

    def slow(explanations, rows):
        go_on.wait(PATIENCE / 1000)
        return explain(explanations, rows)

    monkeypatch.setattr(Explanations, "_explain", slow)
    session = make_session("pictures")
    with serve(session) as site:
        page = site.enter()
        seen = {press(page, key) for key in "nnannsnnan"}
        assert len(seen) == 10
        assert page.locator("#item .pictures img").count() == 1
        assert page.locator("#item .blank").count() == 2
        go_on.set()
        page.wait_for_selector("#item .pictures figure:nth-child(3) img")
        assert page.locator("#item .blank").count() == 0
        assert page.problems == []
