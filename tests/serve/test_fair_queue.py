"""Fair queueing: who asks for little, or with another key, does not wait for all that somebody else has asked for."""

import asyncio
import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import KEY, bearer

from esad.errors import RequestError
from esad.serve import fair_queue
from esad.serve.app import Service, ServiceSettings
from esad.serve.fair_queue import FairPlaces, FairQueue, Gate
from esad.serve.keys import Keys
from esad.web.guard import Limits


def order(requests):
    queue = FairQueue(max_seconds=1.0)
    for number, (caller, cost) in enumerate(requests):
        queue.put((number, caller, cost), caller=caller, cost=cost)
    return [queue.pop() for _ in requests]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 1000)), max_size=30))
def test_callers_keep_their_own_order_and_get_equal_shares(requests):
    served = order(requests)
    assert sorted(served) == [(number, *request) for number, request in enumerate(requests)]
    left = {caller: sum(cost for _, other, cost in served if other == caller) for caller in "abc"}
    largest = max((cost for _, _, cost in served), default=0)
    got = dict.fromkeys("abc", 0)
    for number, caller, cost in served:
        assert all(
            other < number for other, name, _ in served[: served.index((number, caller, cost))] if name == caller
        )
        got[caller] += cost
        left[caller] -= cost
        waiting = [name for name in "abc" if left[name]]
        for one, other in itertools.permutations(waiting, 2):
            assert got[one] - got[other] <= 2 * largest


def test_who_asks_for_less_than_others_does_not_wait_for_a_crowd_that_came_at_once():
    queue = FairQueue(max_seconds=1.0)
    for number in range(200):
        queue.put(number, caller=number, cost=1000)
    waits, asked = [], 3
    for turn in range(2000):  # whoever is served asks again: the crowd at once, the other one 30 turns later
        if turn == asked:
            queue.put("small", caller="small", cost=100)
        served = queue.pop()
        if served == "small":
            waits.append(turn - asked)
            asked = turn + 30
        else:
            queue.put(served, caller=served, cost=1000)
    assert len(waits) > 50 and max(waits) <= 20  # a tenth of a round: that much larger are the others' requests


def test_callers_who_are_gone_are_forgotten():
    queue = FairQueue(max_seconds=1.0)
    queue.put("first", caller="first", cost=1)
    for number in range(10_000):
        queue.put(number, caller=number, cost=1)
        queue.pop()
    assert len(queue._stamps) <= 2 * fair_queue._MIN_STAMPS


def test_one_caller_is_served_in_the_order_of_coming():
    assert [number for number, _, _ in order([("a", 9), ("a", 1), ("a", 5)])] == [0, 1, 2]


def test_who_would_wait_too_long_is_told_when_to_come_again_and_another_caller_is_let_in():
    queue = FairQueue(max_seconds=10.0)
    queue.learn(1.0, cost=1.0)
    for _ in range(11):
        queue.put(None, caller="greedy", cost=1)
    assert queue.is_full
    with pytest.raises(RequestError, match="waiting") as caught:
        queue.put(None, caller="greedy", cost=1)
    assert (caught.value.status, caught.value.headers) == (503, {"retry-after": "1"})
    queue.put("modest", caller="modest", cost=0.5)
    assert queue.pop() == "modest"


def test_a_place_of_somebody_who_gave_up_is_not_lost():
    async def once():
        gate = Gate(1, max_seconds=1.0)
        leave = asyncio.Event()
        entered = []

        async def enter(name):
            async with gate.enter(name, cost=1):
                entered.append(name)
                await leave.wait()

        tasks = [asyncio.create_task(enter(name)) for name in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        leave.set()
        await asyncio.wait(tasks)
        async with gate.enter("d", cost=1):
            return entered

    assert asyncio.run(once()) == ["a", "c"]


def test_how_fast_places_come_free_tells_how_long_others_wait(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(fair_queue, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    async def once():
        gate = Gate(2, max_seconds=10.0)
        leave = [asyncio.Event() for _ in range(5)]

        async def enter(event):
            async with gate.enter("a", cost=5.0):
                await event.wait()

        tasks = [asyncio.create_task(enter(event)) for event in leave]
        await asyncio.sleep(0)
        for event, task in zip(leave, tasks, strict=True):
            clock[0] += 1.0
            event.set()
            await task
        return gate._queue._unit_seconds

    assert asyncio.run(once()) == pytest.approx(1.0 / 5.0)  # one a second, though each is inside for two


@given(st.integers(1, 40), st.lists(st.sampled_from("abcd"), max_size=80))
def test_there_is_a_place_for_every_caller(n_places, askers):
    shares = FairPlaces(n_places)
    taken = {}
    for caller in askers:
        if shares.take(caller):
            taken[caller] = taken.get(caller, 0) + 1
    assert set(taken) == set(askers)
    for caller, n in taken.items():
        for _ in range(n):
            shares.give_back(caller)
    assert shares.take("newcomer")


OTHER = "another-key-of-tests"


class Crowd:
    """Requests that are sent at once, and the order in which they are answered."""

    def __init__(self, service):
        import httpx

        self._transport = httpx.ASGITransport(service.guard, raise_app_exceptions=False)
        self._httpx = httpx

    def send(self, keys, rows):
        async def once():
            done = []
            async with self._httpx.AsyncClient(transport=self._transport, base_url="http://127.0.0.1") as client:

                async def ask(key):
                    answer = await client.post("/score", json={"rows": rows[key]}, headers=bearer(key))
                    done.append((key, answer))

                await asyncio.gather(*map(ask, keys))
            return done

        return asyncio.run(once())


def test_a_key_with_a_pile_of_requests_does_not_keep_another_waiting(numbers):
    service = Service(numbers, ServiceSettings(keys=Keys([f"{KEY} greedy", f"{OTHER} modest"])))
    rows = {KEY: [[1, 2, 3]] * 1500, OTHER: [[1, 2, 3]]}
    answered = Crowd(service).send([KEY] * 40 + [OTHER], rows)
    service.close()
    assert {answer.status_code for _, answer in answered} == {200}
    assert [key for key, _ in answered].index(OTHER) < 20


def test_a_key_cannot_take_all_places(numbers):
    settings = ServiceSettings(keys=Keys([f"{KEY} greedy", f"{OTHER} modest"]), limits=Limits(requests=20))
    service = Service(numbers, settings)
    rows = {KEY: [[1, 2, 3]] * 1500, OTHER: [[1, 2, 3]]}
    answered = Crowd(service).send([KEY] * 18 + [OTHER], rows)
    refused = [answer for key, answer in answered if key == KEY and answer.status_code == 503]
    assert len(refused) == 8
    assert all(answer.headers["retry-after"] == "1" for answer in refused)
    assert [answer.status_code for key, answer in answered if key == OTHER] == [200]
    again = Crowd(service).send([KEY] * 10, rows)  # places come back
    service.close()
    assert {answer.status_code for _, answer in again} == {200}
