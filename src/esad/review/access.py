"""Who may use the page: links that work once, and the logins they open."""

import hashlib
import math
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from esad.review.judgements import check_reviewer

MAX_LINKS: Final = 100  # not used yet
MAX_LOGINS: Final = 1000
LINK_SECONDS: Final = 24 * 3600.0
LOGIN_SECONDS: Final = 12 * 3600.0  # in which nothing is done
LONGEST_SECONDS: Final = 7 * 24 * 3600.0  # of a login, whatever is done

_Grants = dict[str, tuple[str, float, float]]  # by the hash of the secret: reviewer, end, latest end after extensions
_NO_GRANT: Final = ("", -math.inf, -math.inf)


class Access:
    """Links and logins in memory, as hashes: a new start of the page makes new ones. Both end by themselves.

    Parameters
    ----------
    owner : str, optional
        Who started the review, and may make links in everybody's name.
    clock : callable
        Seconds; another one in tests.

    Examples
    --------
    >>> access = Access()
    >>> token = access.new_link("ann")
    >>> login = access.use_link(token)
    >>> access.reviewer_of(login), access.use_link(token), access.reviewer_of("guess")
    ('ann', None, None)
    """

    def __init__(self, owner: str | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.owner, self._clock = owner, clock
        self._links: _Grants = {}
        self._logins: _Grants = {}
        self._lock = threading.Lock()

    def new_link(self, reviewer: str, *, is_new: bool = True) -> str:
        """A token that lets one browser in as this reviewer, once; `is_new` where nobody had the name before."""
        with self._lock:
            name = check_reviewer(reviewer, is_new=is_new)
            return self._grant(self._links, name, LINK_SECONDS, LINK_SECONDS, MAX_LINKS)

    def use_link(self, token: str) -> str | None:
        """Trade a token for a login; None where it is unknown, too old, or was used before."""
        with self._lock:
            reviewer, until, _ = self._links.pop(_hash(token), _NO_GRANT)
            if until < self._clock():
                return None
            return self._grant(self._logins, reviewer, LOGIN_SECONDS, LONGEST_SECONDS, MAX_LOGINS)

    def reviewer_of(self, login: str, *, renew: bool = True) -> str | None:
        """Return whose login this is, None if it has ended; extend it unless `renew` is false."""
        with self._lock:
            reviewer, until, end = self._logins.get(_hash(login), _NO_GRANT)
            if until < self._clock():
                return None
            if renew:
                self._logins[_hash(login)] = reviewer, min(self._clock() + LOGIN_SECONDS, end), end
            return reviewer

    def log_out(self, login: str) -> None:
        """End a login."""
        with self._lock:
            self._logins.pop(_hash(login), None)

    def reviewers(self) -> set[str]:
        """Everybody who has a link or a login."""
        with self._lock:
            return {reviewer for reviewer, *_ in (*self._links.values(), *self._logins.values())}

    def _grant(self, grants: _Grants, reviewer: str, seconds: float, longest: float, most: int) -> str:
        """Make and store a new secret; the oldest are dropped where there are too many."""
        secret = secrets.token_urlsafe(24 if grants is self._links else 32)
        grants[_hash(secret)] = reviewer, self._clock() + seconds, self._clock() + longest
        while len(grants) > most:
            del grants[next(iter(grants))]
        return secret


def _hash(secret: str) -> str:
    """Return the hash that a secret is looked up by, so that the time of a lookup tells nothing about it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
