"""Reasons are found ahead of the reader: the item that is looked at first, then those held ready, none twice."""

import threading

import pytest

from esad.review.judged import AT_ONCE, Judged


@pytest.fixture
def slow(make_desk, kit, monkeypatch):
    """A model whose reasons wait to be let go, and the rows that were explained, in order."""
    let_go, done, explain = threading.Semaphore(0), [], Judged._explain

    def explained(judged, rows):
        let_go.acquire()
        done.extend(rows)
        return explain(judged, rows)

    monkeypatch.setattr(Judged, "_explain", explained)
    monkeypatch.setitem(AT_ONCE, "row", 1)
    judged = make_desk().judged
    yield judged, let_go, done
    let_go.release(1000)


def test_what_is_looked_at_comes_before_what_is_held_ready(slow, kit):
    judged, let_go, done = slow
    judged.want([0], first=False)
    kit.wait_for(lambda: judged._under_way == [0])
    judged.want([1, 2, 3], first=False)
    judged.want([4], first=False)
    judged.want([3])
    for _ in range(5):  # asked for again and again, as the page does
        judged.want([0, 3, 1])
    let_go.release(5)
    kit.wait_for(lambda: len(done) == 5 and not judged.is_pending(4))
    assert done == [0, 3, 1, 2, 4]


def test_a_row_that_cannot_be_explained_can_still_be_judged(make_desk, kit, monkeypatch):
    def broken(judged, rows):
        raise ValueError("no reasons")

    monkeypatch.setattr(Judged, "_explain", broken)
    desk = make_desk()
    (item,) = desk.items([5], "ann")
    assert (item["pending"], item["reasons"]) == (True, None)
    kit.wait_for(lambda: not desk.judged.is_pending(5))
    assert desk.items([5], "ann")[0]["reasons"] is None
    desk.judge("r", 5, "ann", "normal")
    assert desk.labels()[5] == 1
