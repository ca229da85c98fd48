"""A fair queue: callers who ask at the same time get equal shares of the work, whatever the size of their requests.

Weighted fair queueing (Demers, Keshav and Shenker 1989). A request that costs c is stamped

    F = max(V, F of the caller's request before) + c

and the smallest stamp goes first. The clock V says how much each caller would have been given by now if all were served
side by side: a request that is let in moves it on by c / n, where n callers wait. One caller alone is served in the
order of coming, equal callers in turns; a small request passes all large ones that are not due yet.
"""

import asyncio
import collections
import contextlib
import heapq
import itertools
import math
import time
from collections.abc import AsyncIterator, Hashable
from typing import Generic, TypeVar

from esad.errors import RequestError

T = TypeVar("T")
_MIN_STAMPS = 1000  # that are kept before any is dropped
_MEMORY = 0.9  # weight of the earlier seconds and costs at each update


class FairQueue(Generic[T]):
    """A queue of jobs that is fair to callers and refuses a job that would wait too long.

    Parameters
    ----------
    max_seconds : float
        That a request may be expected to wait, by how long others took until now.

    Attributes
    ----------
    cost : float
        Of all that wait.

    Examples
    --------
    >>> queue = FairQueue(max_seconds=15.0)
    >>> for name, caller, cost in [("large", "a", 100), ("large too", "a", 100), ("small", "b", 1)]:
    ...     queue.put(name, caller=caller, cost=cost)
    >>> [queue.pop() for _ in range(3)]
    ['small', 'large', 'large too']
    """

    def __init__(self, *, max_seconds: float) -> None:
        self._max_seconds = max_seconds
        self._unit_seconds = 0.0  # recent seconds per unit of cost
        self._past = (0.0, 0.0)
        self._waiting: list[tuple[float, int, Hashable, float, T]] = []  # a heap by stamp, then by coming
        self._numbers = itertools.count()
        self._clock = 0.0
        self._n_waiting = collections.Counter[Hashable]()  # jobs of every caller who waits
        self._stamps: dict[Hashable, float] = {}  # the latest of every caller, at least where it is above the clock
        self._max_stamps = _MIN_STAMPS  # before those below the clock are dropped
        self.cost = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether the waiting jobs take longer than a caller may wait."""
        return self.cost * self._unit_seconds > self._max_seconds

    def put(self, item: T, *, caller: Hashable, cost: float) -> None:
        """Add a job to the queue.

        Raises
        ------
        RequestError
            503, with Retry-After: what is due before it takes too long.
        """
        stamp = max(self._clock, self._stamps.get(caller, 0.0)) + cost
        ahead = sum(other[3] for other in self._waiting if other[0] <= stamp) if self.is_full else 0.0
        if (late := ahead * self._unit_seconds - self._max_seconds) > 0:
            headers = {"retry-after": str(math.ceil(late))}
            raise RequestError(503, "Too much is waiting. Try again in a moment.", headers)
        self._stamps[caller] = stamp
        self._n_waiting[caller] += 1
        self.cost += cost
        heapq.heappush(self._waiting, (stamp, next(self._numbers), caller, cost, item))

    def peek(self) -> T:
        """Return the next job without taking it."""
        return self._waiting[0][-1]

    def pop(self) -> T:
        """Remove and return the next job."""
        _, _, caller, cost, item = heapq.heappop(self._waiting)
        self.cost -= cost
        self._clock += cost / len(self._n_waiting)
        self._n_waiting[caller] -= 1
        if not self._n_waiting[caller]:
            del self._n_waiting[caller]
        if not self._waiting:  # nobody is behind or ahead any more
            self._clock = 0.0
            self._stamps.clear()
        elif len(self._stamps) > self._max_stamps:
            self._stamps = {caller: stamp for caller, stamp in self._stamps.items() if stamp > self._clock}
            self._max_stamps = 2 * len(self._stamps) + _MIN_STAMPS
        return item

    def learn(self, seconds: float, *, cost: float) -> None:
        """Note how long something took."""
        before_seconds, before_cost = self._past
        self._past = (_MEMORY * before_seconds + seconds, _MEMORY * before_cost + cost)
        self._unit_seconds = self._past[0] / self._past[1]


class Gate:
    """Lets a few in at a time, in turns.

    Parameters
    ----------
    n_places : int
    max_seconds : float
        As `FairQueue` has it.

    Examples
    --------
    >>> async def pass_through(gate):
    ...     async with gate.enter("a caller", cost=1):
    ...         return "inside"
    >>> asyncio.run(pass_through(Gate(1, max_seconds=15.0)))
    'inside'
    """

    def __init__(self, n_places: int, *, max_seconds: float) -> None:
        self._n_free = n_places
        self._since = 0.0  # when a place was last left or, before that, the last one taken
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(max_seconds=max_seconds)

    @property
    def is_full(self) -> bool:
        """As `FairQueue` has it."""
        return self._queue.is_full

    @contextlib.asynccontextmanager
    async def enter(self, caller: Hashable, *, cost: float) -> AsyncIterator[None]:
        """Wait for a turn; how fast places come free while others wait tells how long they will."""
        if not self._n_free:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.put(turn, caller=caller, cost=cost)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():  # it had just come
                    self._leave()
                raise
        else:
            self._n_free -= 1
            self._since = time.monotonic()
        try:
            yield
        finally:
            if len(self._queue):
                self._queue.learn(time.monotonic() - self._since, cost=cost)
            self._since = time.monotonic()
            self._leave()

    def _leave(self) -> None:
        """Give the place to the next who still waits."""
        self._n_free += 1
        while len(self._queue):
            turn = self._queue.pop()
            if not turn.done():
                self._n_free -= 1
                turn.set_result(None)
                return


class FairPlaces:
    """A limited number of places, of which no caller can take all.

    Of n places and k callers who have some, each may have n / (k + 1): a newcomer always finds one.

    Parameters
    ----------
    n_places : int

    Examples
    --------
    >>> shares = FairPlaces(4)
    >>> [shares.take("a") for _ in range(3)], shares.take("b")
    ([True, True, False], True)
    """

    def __init__(self, n_places: int) -> None:
        self._n_places = n_places
        self._taken: collections.Counter[Hashable] = collections.Counter()

    def take(self, caller: Hashable) -> bool:
        """Take a place for the caller until `give_back`; return whether there was one."""
        n_callers = len(self._taken) + (caller not in self._taken)
        if self._taken[caller] >= max(1, self._n_places // (n_callers + 1)):
            return False
        self._taken[caller] += 1
        return True

    def give_back(self, caller: Hashable) -> None:
        """Free one place of the caller."""
        self._taken[caller] -= 1
        if not self._taken[caller]:
            del self._taken[caller]
