"""Reasons are found ahead of the reader: the item that is looked at first, then those held ready, none twice."""

import threading

import numpy as np
import pytest

from esad import IsolationForest
from esad.review.ranking import AT_ONCE, Explanations, Ranking


@pytest.fixture
def slow(make_session, kit, monkeypatch):
    """A model whose reasons wait to be let go, and the rows that were explained, in order."""
    let_go, done, explain = threading.Semaphore(0), [], Explanations._explain

    def explained(explanations, rows):
        let_go.acquire()
        done.extend(rows)
        return explain(explanations, rows)

    monkeypatch.setattr(Explanations, "_explain", explained)
    monkeypatch.setitem(AT_ONCE, "row", 1)
    explanations = make_session().explanations
    yield explanations, let_go, done
    let_go.release(1000)


def test_what_is_looked_at_comes_before_what_is_held_ready(slow, kit):
    explanations, let_go, done = slow
    explanations.request([0], first=False)
    kit.wait_for(lambda: explanations._under_way == [0])
    explanations.request([1, 2, 3], first=False)
    explanations.request([4], first=False)
    explanations.request([3])
    for _ in range(5):  # asked for again and again, as the page does
        explanations.request([0, 3, 1])
    let_go.release(5)
    kit.wait_for(lambda: len(done) == 5 and not explanations.is_pending(4))
    assert done == [0, 3, 1, 2, 4]


def test_a_row_that_cannot_be_explained_can_still_be_judged(make_session, kit, monkeypatch):
    def broken(explanations, rows):
        raise ValueError("no reasons")

    monkeypatch.setattr(Explanations, "_explain", broken)
    session = make_session()
    (item,) = session.items([5], "ann")
    assert (item["pending"], item["reasons"]) == (True, None)
    kit.wait_for(lambda: not session.explanations.is_pending(5))
    assert session.items([5], "ann")[0]["reasons"] is None
    session.judge("r", 5, "ann", "normal")
    assert session.labels()[5] == 1


@pytest.mark.parametrize(
    ("scores", "origin"),
    [
        (np.arange(1.0, 101.0), None),
        (np.arange(-50.0, 51.0), None),
        (np.append(-1000.0, np.arange(1.0, 101.0)), None),  # one far below all others is no reason
        (np.append(np.zeros(60), np.geomspace(1, 1e4, 40)), None),  # nor are most of them alike
        (np.geomspace(1, 1e4, 100), 0.0),
        (np.geomspace(1, 1e4, 101) - 11.0, -109.0),  # from -10 on, the median is 89
    ],
)
def test_the_axis_is_logarithmic_where_scores_are_skewed(scores, origin):
    detector = IsolationForest(random_state=0).fit(np.random.default_rng(0).normal(size=(20, 1)))
    detector.offset_ = -float(scores[90])
    found = Ranking(detector, scores, None).histogram
    assert found["origin"] == (None if origin is None else pytest.approx(origin))
    if origin is not None:
        assert sum(height > 0 for height in found["heights"]) > 20  # they are spread over the axis
    assert found["low"] < scores.min() < scores.max() < found["high"]  # its ends are true
    assert not found["is_cut"]


def test_the_axis_ends_before_a_few_among_very_many_and_says_so():
    detector = IsolationForest(random_state=0).fit(np.random.default_rng(0).normal(size=(20, 1)))
    found = Ranking(detector, np.append(np.arange(-3000.0, 0.0), 1e9), None).histogram
    assert found["is_cut"]
    assert found["high"] < 1e6
