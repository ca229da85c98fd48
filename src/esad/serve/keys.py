"""API keys: read from a file or the environment, kept as digests, compared in constant time."""

import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from esad.errors import InputError

__all__ = ["VARIABLE", "Keys"]

VARIABLE = "ESAD_API_KEYS"
_MIN_LENGTH = 16
_MAX_FILE_BYTES = 2**20


class Keys:
    """The keys that are let in.

    Parameters
    ----------
    keys : iterable of str
        Printable ASCII without blanks, 16 characters or more.

    Examples
    --------
    >>> keys = Keys(["correct-horse-battery"])
    >>> keys.admit("correct-horse-battery"), keys.admit("wrong")
    (True, False)
    """

    def __init__(self, keys: Iterable[str]) -> None:
        given = list(keys)
        if not given:
            raise InputError("API keys are asked for, and there is none. Give one at least.")
        for number, key in enumerate(given, 1):  # keys themselves are never shown
            if len(key) < _MIN_LENGTH or not re.fullmatch(r"[!-~]+", key):
                raise InputError(
                    f"API key {number} must have {_MIN_LENGTH} printable ASCII characters or more. Make one with: "
                    "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
                )
        self._digests = [_digest(key) for key in given]

    def __len__(self) -> int:
        return len(self._digests)

    @classmethod
    def find(cls, path: Path | None, environment: Mapping[str, str]) -> "Keys | None":
        """The keys of a file, one a line, or of the variable ESAD_API_KEYS, parted by blanks; None if there is neither.

        Lines that begin with # are left out.
        """
        if path is None:
            return cls(environment[VARIABLE].split()) if VARIABLE in environment else None
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                raise InputError(f"Cannot read API keys from {str(path)!r}: it is too large for a list of keys.")
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise InputError(f"Cannot read API keys from {str(path)!r}: {reason}.") from error
        except UnicodeDecodeError as error:
            raise InputError(f"Cannot read API keys from {str(path)!r}: it is not UTF-8 text.") from error
        return cls(line.strip() for line in lines if line.strip() and not line.startswith("#"))

    def admit(self, key: str) -> bool:
        """Whether a key is one of ours; the time taken does not tell which, nor how near a wrong one is."""
        given = _digest(key)
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(digest, given)
        return found


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", errors="surrogatepass")).digest()
