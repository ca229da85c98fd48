"""Who may use the page: links that work once, and the logins they open."""

import hashlib
import secrets
import threading
from typing import Final

from esad.review.judgements import check_reviewer

__all__ = ["Access"]

MAX_LINKS: Final = 100  # not used yet
MAX_LOGINS: Final = 1000


class Access:
    """Tokens and logins in memory, as hashes: a new start of the page makes new ones.

    Examples
    --------
    >>> access = Access()
    >>> token = access.new_link("ann")
    >>> login = access.use_link(token)
    >>> access.reviewer_of(login), access.use_link(token), access.reviewer_of("guess")
    ('ann', None, None)
    """

    def __init__(self) -> None:
        self._links: dict[str, str] = {}  # hash of the token -> reviewer
        self._logins: dict[str, str] = {}
        self._lock = threading.Lock()

    def new_link(self, reviewer: str) -> str:
        """A token that lets one browser in as this reviewer, once."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            self._links[_hash(token)] = check_reviewer(reviewer)
            while len(self._links) > MAX_LINKS:
                del self._links[next(iter(self._links))]
        return token

    def use_link(self, token: str) -> str | None:
        """Trade a token for a login; None where it is unknown or was used before."""
        with self._lock:
            reviewer = self._links.pop(_hash(token), None)
            if reviewer is None:
                return None
            login = secrets.token_urlsafe(32)
            self._logins[_hash(login)] = reviewer
            while len(self._logins) > MAX_LOGINS:
                del self._logins[next(iter(self._logins))]
            return login

    def reviewer_of(self, login: str) -> str | None:
        """Who a login belongs to."""
        with self._lock:
            return self._logins.get(_hash(login))


def _hash(secret: str) -> str:
    """Looked up by hash: how long a look takes tells nothing about the secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
