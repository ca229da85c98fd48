"""Who may use the page: links that work once, and the logins they open."""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from esad.review.judgements import check_reviewer

__all__ = ["LOGIN_SECONDS", "Access"]

MAX_LINKS: Final = 100  # not used yet
MAX_LOGINS: Final = 1000
LINK_SECONDS: Final = 24 * 3600.0
LOGIN_SECONDS: Final = 12 * 3600.0  # without a request


@dataclass
class _Grant:
    reviewer: str
    until: float


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
        self._links: dict[str, _Grant] = {}  # by the hash of the token
        self._logins: dict[str, _Grant] = {}
        self._lock = threading.Lock()

    def new_link(self, reviewer: str) -> str:
        """A token that lets one browser in as this reviewer, once."""
        with self._lock:
            return self._grant(self._links, check_reviewer(reviewer), LINK_SECONDS, MAX_LINKS)

    def use_link(self, token: str) -> str | None:
        """Trade a token for a login; None where it is unknown, too old, or was used before."""
        with self._lock:
            link = self._links.pop(_hash(token), None)
            if link is None or link.until < self._clock():
                return None
            return self._grant(self._logins, link.reviewer, LOGIN_SECONDS, MAX_LOGINS)

    def reviewer_of(self, login: str) -> str | None:
        """Who a login belongs to; it lasts on."""
        with self._lock:
            found = self._logins.get(_hash(login))
            if found is None or found.until < self._clock():
                return None
            found.until = self._clock() + LOGIN_SECONDS
            return found.reviewer

    def log_out(self, login: str) -> None:
        """End a login."""
        with self._lock:
            self._logins.pop(_hash(login), None)

    def reviewers(self) -> set[str]:
        """Everybody who has a link or a login."""
        with self._lock:
            return {grant.reviewer for grants in (self._links, self._logins) for grant in grants.values()}

    def _grant(self, grants: dict[str, _Grant], reviewer: str, seconds: float, most: int) -> str:
        """A new secret; the oldest go where there are too many."""
        secret = secrets.token_urlsafe(24 if grants is self._links else 32)
        grants[_hash(secret)] = _Grant(reviewer, self._clock() + seconds)
        while len(grants) > most:
            del grants[next(iter(grants))]
        return secret


def _hash(secret: str) -> str:
    """Looked up by hash: how long a look takes tells nothing about the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
