"""API keys: what each may do and how often, kept as digests and compared in constant time."""

import hashlib
import hmac
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from esad.core.atomic import read_text
from esad.core.text import list_text
from esad.errors import InputError

VARIABLE = "ESAD_API_KEYS"
SCOPES = ("score", "explain", "reload", "metrics")
_MIN_LENGTH = 16


@dataclass(eq=False)
class Key:
    """What one key may do.

    Attributes
    ----------
    name : str
        What the log calls it.
    scopes : frozenset of str
        Some of `SCOPES`.
    rate : float or None
        Requests per second; a second's worth may come at once.
    """

    name: str
    scopes: frozenset[str] = frozenset(SCOPES)
    rate: float | None = None
    _tokens: float | None = None
    _refilled: float = 0.0

    def wait_seconds(self) -> float:
        """Count a request: 0 if it may be answered, otherwise the seconds until one may."""
        if self.rate is None:
            return 0.0
        now, most = time.monotonic(), max(1.0, self.rate)
        tokens = most if self._tokens is None else min(most, self._tokens + self.rate * (now - self._refilled))
        self._refilled = now
        self._tokens = tokens - 1 if tokens >= 1 else tokens
        return 0.0 if tokens >= 1 else (1 - tokens) / self.rate


class Keys:
    """The keys that are let in.

    Parameters
    ----------
    lines : iterable of str
        "KEY", or "KEY NAME", "KEY NAME SCOPES", "KEY NAME SCOPES RATE": a key of 16 printable ASCII characters or more,
        a name for the log, what it may do (of score, explain, reload and metrics, parted by commas; all by default) and
        its requests per second.
    rate : float, optional
        Requests per second of keys that have no rate of their own.

    Examples
    --------
    >>> keys = Keys(["correct-horse-battery", "another-long-enough-key billing score 50"])
    >>> keys.find("another-long-enough-key").name, keys.find("wrong")
    ('billing', None)
    """

    def __init__(self, lines: Iterable[str], *, rate: float | None = None) -> None:
        self._keys: list[tuple[bytes, Key]] = []
        for number, line in enumerate(lines, 1):
            secret, key = _read_line(line, number, rate)
            self._keys.append((_digest(secret), key))
        if not self._keys:
            raise InputError("API keys are asked for, and there is none. Give one at least.")
        names = [key.name for _, key in self._keys]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise InputError(f"Several API keys have the name {list_text(sorted(doubled))}. Give each its own.")

    def __len__(self) -> int:
        return len(self._keys)

    @classmethod
    def read(cls, path: Path | None, environment: Mapping[str, str], *, rate: float | None = None) -> "Keys | None":
        """The keys of a file, one a line, or of the variable ESAD_API_KEYS, parted by blanks; None if there is neither.

        Lines that begin with # are left out.
        """
        if path is None:
            return cls(environment[VARIABLE].split(), rate=rate) if VARIABLE in environment else None
        lines = read_text(path, "the API keys").splitlines()
        return cls((line for line in lines if line.strip() and not line.startswith("#")), rate=rate)

    def find(self, secret: str) -> Key | None:
        """The key that was sent; the time taken does not tell which, nor how near a wrong one is."""
        given = _digest(secret)
        found = None
        for digest, key in self._keys:
            if hmac.compare_digest(digest, given):
                found = key
        return found


def _read_line(line: str, number: int, rate: float | None) -> tuple[str, Key]:
    """A key and what it may do; keys themselves are never shown."""
    fields = line.split()
    secret, name, scopes, own_rate = [*fields, *[""] * 4][:4]
    if len(secret) < _MIN_LENGTH or not re.fullmatch(r"[!-~]+", secret):
        raise InputError(
            f"API key {number} must have {_MIN_LENGTH} printable ASCII characters or more. Make one with: "
            "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
    name = name or f"key-{number}"
    allowed = f"The line of API key {number} must be: KEY [NAME [SCOPES [REQUESTS PER SECOND]]]"
    if len(fields) > 4 or not name.isprintable():
        raise InputError(f"{allowed}.")
    chosen = frozenset(scopes.split(",")) if scopes else frozenset(SCOPES)
    if unknown := chosen - set(SCOPES):
        raise InputError(f"{allowed}, with scopes of {', '.join(SCOPES)}. Got {list_text(sorted(unknown))}.")
    if own_rate:
        try:
            rate = float(own_rate)
        except ValueError:
            rate = 0.0
        if not 0 < rate < float("inf"):
            raise InputError(f"{allowed}, with a positive rate. Got {own_rate!r}.")
    return secret, Key(name, chosen, rate)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", errors="surrogatepass")).digest()
