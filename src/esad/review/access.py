"""Who may use the page: links that work once, and the sessions they open."""

import hashlib
import secrets
import threading
from typing import Final

from esad.review.book import check_reviewer

__all__ = ["Access"]

MAX_LINKS: Final = 100  # not used yet
MAX_SESSIONS: Final = 1000


class Access:
    """Tokens and sessions in memory, as hashes: a new start of the page makes new ones.

    Examples
    --------
    >>> access = Access()
    >>> token = access.new_link("ann")
    >>> session = access.use(token)
    >>> access.reviewer(session), access.use(token), access.reviewer("guess")
    ('ann', None, None)
    """

    def __init__(self) -> None:
        self._links: dict[str, str] = {}  # hash of the token -> reviewer
        self._sessions: dict[str, str] = {}
        self._lock = threading.Lock()

    def new_link(self, reviewer: str) -> str:
        """A token that lets one browser in as this reviewer, once."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            self._links[_hashed(token)] = check_reviewer(reviewer)
            while len(self._links) > MAX_LINKS:
                del self._links[next(iter(self._links))]
        return token

    def use(self, token: str) -> str | None:
        """Trade a token for a session; None where it is unknown or was used before."""
        with self._lock:
            reviewer = self._links.pop(_hashed(token), None)
            if reviewer is None:
                return None
            session = secrets.token_urlsafe(32)
            self._sessions[_hashed(session)] = reviewer
            while len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            return session

    def reviewer(self, session: str) -> str | None:
        """Who a session belongs to."""
        with self._lock:
            return self._sessions.get(_hashed(session))


def _hashed(secret: str) -> str:
    """Looked up by hash: how long a look takes tells nothing about the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
