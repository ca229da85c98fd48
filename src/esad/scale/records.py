"""What is known of a shard that was scored: by which model, from which file, with what outcome.

A record is a small JSON file beside the scores, written after them. Scores without their record, or whose record tells
of another model, file or setting, do not count.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from esad.core.atomic import atomic_path

__all__ = ["Record", "file_hash", "identity", "stamp"]


@dataclass(frozen=True)
class Record:
    """One scored shard.

    Attributes
    ----------
    name : str
        Of the shard.
    identity : str
        Hash of the model, the shard and the settings.
    scores : str
        Name of the file of scores.
    n_bytes : int
        Its size.
    n_rows, n_flagged : int
    seconds : float
        What it took.
    drifted : tuple of str
        Columns that do not look like those of the training rows; "scores" for the scores.
    unknown : tuple of str
        Columns that the model has no use for.
    lost_id : str or None
        The id column of the training file, where the shard lacks it.
    warned : tuple of str
        Warnings that scoring gave.
    """

    name: str
    identity: str
    scores: str
    n_bytes: int
    n_rows: int
    n_flagged: int
    seconds: float
    drifted: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    lost_id: str | None = None
    warned: tuple[str, ...] = ()

    def write(self, path: str) -> None:
        """Keep it."""
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: str) -> Self | None:
        """The record at a path; None if there is none that can be read."""
        try:
            return cls.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """Undo `asdict` and JSON."""
        return cls(**plain | {name: tuple(plain[name]) for name in ("drifted", "unknown", "warned")})

    def vouches(self, identity: str, target: str) -> bool:
        """Whether the scores at `target` are whole and what is asked for."""
        try:
            return self.identity == identity and os.path.getsize(target) == self.n_bytes
        except OSError:
            return False


def identity(*parts: object) -> str:
    """A name for what decides the scores of a shard."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def file_hash(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stamp(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Size and time of change, by which a file is taken to be the same."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
