"""The queue: most useful first, no row twice, different rows for different reviewers; filters by plain rules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esad.advice.suggest import suggest_rows
from esad.labels import LabelCounts
from esad.review.queue import BATCH, LEASE_SECONDS, Queue, filter_rows

N_ROWS = 70


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def made(n_rows=N_ROWS, **options):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 3)).astype(np.float32)
    scores = np.abs(rows).sum(axis=1).astype(np.float64)
    return Queue(scores, border=float(np.quantile(scores, 0.9)), rows_of=rows.__getitem__, **options), rows, scores


def without(rows, n_rows=N_ROWS):
    return ~np.isin(np.arange(n_rows), list(rows))


def test_the_first_batch_is_what_is_suggested_both_kinds_spread_over_it():
    queue, rows, scores = made()
    taken = queue.take("ann", BATCH, is_open=without([]))
    wanted = suggest_rows(rows.__getitem__, scores, np.arange(N_ROWS), where=queue.border, n=BATCH)
    assert {one.row for one in taken} == {one.row for one in wanted}
    assert [one.why for one in taken[:5]].count("top") in (3, 4)
    assert [one.why for one in taken].count("top") == 14


def test_every_row_comes_once_in_the_end():
    queue, _, _ = made()
    done: set[int] = set()
    for _ in range(N_ROWS):
        (one,) = queue.take("ann", 1, is_open=without(done))
        assert one.row not in done
        done.add(one.row)
    assert queue.take("ann", 1, is_open=without(done)) == []


def test_two_reviewers_get_different_rows_until_a_lease_ends():
    clock, is_open = Clock(), without([], 12)
    queue, _, _ = made(12, clock=clock)
    ann = {one.row for one in queue.take("ann", 6, is_open=is_open)}
    bob = {one.row for one in queue.take("bob", 6, is_open=is_open)}
    assert len(ann | bob) == 12
    assert {one.row for one in queue.take("ann", 6, is_open=is_open)} == ann
    assert len(queue.take("eve", 3, is_open=is_open)) == 3  # all are leased: better one twice than none
    clock.now += LEASE_SECONDS + 1
    assert {one.row for one in queue.take("bob", 12, is_open=is_open)} == ann | bob


def test_rows_in_hand_and_rows_that_are_not_open_do_not_come():
    queue, _, _ = made()
    first = [one.row for one in queue.take("ann", 5, is_open=without([]))]
    more = queue.take("ann", 5, is_open=without(first[:1]), have=first[1:])
    assert set(first).isdisjoint(one.row for one in more)


def test_an_undone_row_comes_again():
    queue, _, _ = made(8)
    done = {one.row for one in queue.take("ann", 3, is_open=without([], 8))}
    queue.take("ann", 3, is_open=without(done, 8))
    back = done.pop()
    assert queue.take("ann", 1, is_open=without(done, 8))[0].row == back


def test_a_row_judged_elsewhere_and_undone_comes_again():
    queue, _, scores = made(60)
    queue.prepare(without([int(np.argmin(scores))], 60))
    done: set[int] = set()
    while found := queue.take("ann", 1, is_open=without(done, 60)):
        done.add(found[0].row)
    assert len(done) == 60


verdicts = st.dictionaries(
    st.integers(0, 9),
    st.dictionaries(st.sampled_from(["ann", "bob"]), st.sampled_from(["anomaly", "normal", "skip"]), min_size=1),
)


@given(verdicts=verdicts, seed=st.integers(0, 99))
@settings(max_examples=50)
@pytest.mark.parametrize("name", ["all", "alarms", "judged", "second", "skipped", "disagreements"])
def test_filters_follow_plain_rules(name, verdicts, seed):
    rng = np.random.default_rng(seed)
    order, is_alarm = rng.permutation(10), rng.random(10) < 0.5
    known = rng.choice(np.array([-1, 0, 0, 1], dtype=np.int8), 10)
    decided_rows = [row for row, said in verdicts.items() if {"anomaly", "normal"} & set(said.values())]
    is_open = (known == 0) & without(decided_rows, 10)
    found = filter_rows(name, order=order, is_alarm=is_alarm, is_open=is_open, verdicts=verdicts, reviewer="ann")

    def belongs(row):
        said, decided = verdicts.get(row, {}), row in decided_rows
        return {
            "all": True,
            "alarms": is_alarm[row] and known[row] == 0 and not decided,
            "judged": decided,
            "second": decided and "ann" not in said,
            "skipped": said.get("ann") == "skip",
            "disagreements": {"anomaly", "normal"} <= set(said.values()),
        }[name]

    assert found.tolist() == [row for row in order.tolist() if belongs(row)]


def test_a_model_that_knows_anomalies_asks_about_its_border_at_once(make_session, kit):
    session = make_session()
    session.ranking.detector.label_counts_ = LabelCounts(n_anomaly=5, n_unlabelled=90, n_normal=0)  # of other rows
    session._use(session.ranking)
    taken = session.queue.take("ann", BATCH, is_open=without([], kit.n_rows))
    assert {one.why for one in taken} == {"top", "border"}
    assert max(session.ranking.ranks[one.row] for one in taken) < 0.7 * kit.n_rows
