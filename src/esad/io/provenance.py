"""Which data a model was trained on: where it lay and a fingerprint of its bytes, kept among the model's notes."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from esad.errors import DataFileError
from esad.io.files import find_tables

__all__ = ["DataSource", "fingerprint_data", "note_sources", "sources_in"]

_KEYS: Final = {"path": "training_data", "fingerprint": "training_fingerprints", "judgements": "training_judgements"}


@dataclass(frozen=True)
class DataSource:
    r"""Data that a model learned from.

    Attributes
    ----------
    path : str
        The file, folder or pattern, from the root of the file system.
    fingerprint : str
        Of its bytes.
    judgements : str
        The file of judgements of a review, where only the rows judged in it were learned from; else empty.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "a.csv"
    ...     _ = file.write_text("x\n1\n")
    ...     source = DataSource.of(file)
    ...     _ = file.write_text("x\n2\n")
    ...     source.is_unchanged(), sources_in(note_sources({}, [source])) == [source]
    (False, True)
    """

    path: str
    fingerprint: str
    judgements: str = ""

    @classmethod
    def of(cls, path: str | os.PathLike[str], judgements: str | os.PathLike[str] = "") -> "DataSource":
        """The data that lies at a path now."""
        where = os.path.abspath(judgements) if judgements else ""
        return cls(os.path.abspath(path), fingerprint_data(path), where)

    def is_unchanged(self, path: str | os.PathLike[str] | None = None) -> bool:
        """Whether the data lies where it lay, or at another path, just as it was."""
        try:
            return fingerprint_data(self.path if path is None else path) == self.fingerprint
        except (OSError, DataFileError):
            return False


def fingerprint_data(path: str | os.PathLike[str]) -> str:
    """A hash of the bytes of a file, of all tables that a folder or pattern means, or of all files of a folder."""
    root = Path(path)
    files = find_tables(root) or sorted(file for file in root.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        if len(files) > 1:
            digest.update(file.name.encode("utf-8", "surrogateescape"))
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:32]


def note_sources(notes: Mapping[str, Any], sources: Sequence[DataSource]) -> dict[str, Any]:
    """The notes of a model that learned from these."""
    found = {key: [getattr(source, name) for source in sources] for name, key in _KEYS.items()}
    others = {name: value for name, value in notes.items() if name not in found}
    return others | {key: values for key, values in found.items() if any(values)}


def sources_in(notes: Mapping[str, Any]) -> list[DataSource]:
    """What a model learned from, as its notes say; nothing where they do not."""
    lists = [notes.get(key) for key in _KEYS.values()]
    paths = lists[0] if isinstance(lists[0], list) else []
    columns = [paths, *(values or [""] * len(paths) for values in lists[1:])]
    if not all(isinstance(values, list) and len(values) == len(paths) for values in columns):
        return []
    return [DataSource(*map(str, values)) for values in zip(*columns, strict=True)]
