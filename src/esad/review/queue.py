"""What to judge next, and by whom: the most useful rows first, different ones for different reviewers.

The order is that of `esad.advice.suggest`: some of the most anomalous rows, some at the border, none like another,
found in batches since the labels so far decide which rows are left. A row that is handed out is leased for a while:
other reviewers get other rows as long as there are any.
"""

import time
from collections.abc import Callable, Collection, Container
from typing import Final

import numpy as np
from numpy.typing import NDArray

from esad.advice.suggest import RowsOf, Suggestion, suggest_rows
from esad.review.judgements import is_decided, is_disputed

BATCH: Final = 20  # suggestions found at a time
LEASE_SECONDS: Final = 300.0
# What can be looked through; "next" is the queue, the others are lists.
FILTERS: Final = {
    "next": "most useful first",
    "alarms": "alarms not judged yet",
    "judged": "judged by anybody",
    "second": "judged by others and not by you",
    "skipped": "skipped by you",
    "disagreements": "one says anomaly, another normal",
    "all": "every row, highest first",
}

Verdicts = dict[int, dict[str, str]]


class Queue:
    """Suggestions of one model.

    Parameters
    ----------
    scores : ndarray, (n,)
        Of all rows.
    border : float or None
        Score at which the detector is least sure.
    rows_of : callable
        Preprocessed rows by their numbers.
    clock : callable
        Seconds; another one in tests.

    Examples
    --------
    >>> rows = np.arange(50, dtype=np.float32)[:, None]
    >>> queue = Queue(np.arange(50.0), border=45.0, rows_of=rows.__getitem__)
    >>> is_open = np.ones(50, dtype=bool)
    >>> ann, bob = (queue.take(name, 3, is_open=is_open) for name in ("ann", "bob"))
    >>> len({one.row for one in [*ann, *bob]})
    6
    """

    def __init__(
        self,
        scores: NDArray[np.float64],
        *,
        border: float | None,
        rows_of: RowsOf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scores, self.border = scores, border
        self._rows_of, self._clock = rows_of, clock
        self._found: list[Suggestion] = []
        self._is_found = np.zeros(len(scores), dtype=bool)
        self._leases: dict[int, tuple[str, float]] = {}  # by row: to whom, until when

    def take(self, reviewer: str, n: int, *, is_open: NDArray[np.bool_], have: Container[int] = ()) -> list[Suggestion]:
        """The next open rows for a reviewer who does not have them in hand, leased to them.

        Where all others are leased to somebody else, those come too: nobody waits for somebody who went home.
        """
        now = self._clock()
        free: list[Suggestion] = []
        leased: list[Suggestion] = []
        position = 0
        while len(free) < n:
            if position == len(self._found) and not self._find_batch(is_open):
                break
            one = self._found[position]
            position += 1
            if one.row in have or not is_open[one.row]:
                continue
            whom, until = self._leases.get(one.row, (reviewer, now))
            (leased if whom != reviewer and until > now else free).append(one)
        chosen = [*free, *leased][:n]
        for one in chosen:
            self._leases[one.row] = reviewer, now + LEASE_SECONDS
        return chosen

    def prepare(self, is_open: NDArray[np.bool_]) -> None:
        """Find the first batch before it is asked for."""
        if not self._found:
            self._find_batch(is_open)

    def _find_batch(self, is_open: NDArray[np.bool_]) -> bool:
        """Find another batch, and return whether any rows were left."""
        pool = np.flatnonzero(is_open & ~self._is_found)
        if not len(pool):
            return False
        batch = suggest_rows(self._rows_of, self.scores, pool, where=self.border, n=min(BATCH, len(pool)))
        self._is_found[[one.row for one in batch]] = True
        self._found += _interleave(batch)
        return True


def _interleave(batch: Collection[Suggestion]) -> list[Suggestion]:
    """Mix both groups of a batch evenly, so that every part of it holds some of each."""
    places: list[tuple[float, Suggestion]] = []
    for why in ("top", "border"):
        group = [one for one in batch if one.why == why]
        places += [((index + 0.5) / len(group), one) for index, one in enumerate(group)]
    return [one for _, one in sorted(places, key=lambda place: place[0])]


def filter_rows(
    name: str,
    *,
    order: NDArray[np.intp],
    is_alarm: NDArray[np.bool_],
    is_open: NDArray[np.bool_],
    verdicts: Verdicts,
    reviewer: str,
) -> NDArray[np.intp]:
    """Rows of a filter other than "next", the most anomalous first.

    Parameters
    ----------
    name : str
        One of `FILTERS`.
    order : ndarray of int, (n,)
        All rows, the most anomalous first.
    is_alarm, is_open : ndarray of bool, (n,)
        Which raise an alarm, and which nobody has decided on.
    verdicts : dict
        By row and reviewer.
    reviewer : str
        Who asks.

    Examples
    --------
    >>> asked = dict(order=np.array([2, 0, 1]), is_alarm=np.array([True, False, True]), is_open=np.arange(3) < 2)
    >>> filter_rows("alarms", verdicts={2: {"ann": "normal"}}, reviewer="bob", **asked)
    array([0])
    >>> filter_rows("second", verdicts={2: {"ann": "normal"}}, reviewer="bob", **asked)
    array([2])
    """
    if name == "all":
        return order
    if name == "alarms":
        chosen = is_alarm & is_open
    else:
        tests: dict[str, Callable[[dict[str, str]], bool]] = {
            "judged": is_decided,
            "second": lambda said: reviewer not in said and is_decided(said),
            "skipped": lambda said: said.get(reviewer) == "skip",
            "disagreements": is_disputed,
        }
        chosen = np.zeros(len(order), dtype=bool)
        chosen[[row for row, said in verdicts.items() if tests[name](said)]] = True
    return np.asarray(order[chosen[order]])
