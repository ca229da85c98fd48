"""Checksums of downloaded files, and a record of those of the finished ones that `sha256sum -c` understands."""

import hashlib
from pathlib import Path
from typing import Final, Literal

from esad.core.atomic import atomic_path
from esad.errors import DataFileError

__all__ = ["RECORD", "State", "digest", "record", "state"]

RECORD: Final = "SHA256SUMS"

State = Literal["missing", "verified", "damaged", "unrecorded"]


def digest(path: Path, kind: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal digits.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "abc"
    ...     _ = path.write_bytes(b"abc")
    ...     digest(path, "md5")
    '900150983cd24fb0d6963f7d28e17f72'
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def record(folder: Path, file: str) -> str:
    """Note the checksum of a finished file of the data folder, and give it."""
    known = _read(folder) | {file: digest(folder / file)}
    with atomic_path(folder / RECORD) as temporary:
        temporary.write_text("".join(f"{known[name]}  {name}\n" for name in sorted(known)), encoding="utf-8")
    return known[file]


def state(folder: Path, file: str) -> State:
    """Whether a file of the data folder is still what was noted when it was finished."""
    if not (folder / file).is_file():
        return "missing"
    noted = _read(folder).get(file)
    if noted is None:
        return "unrecorded"
    return "verified" if digest(folder / file) == noted else "damaged"


def _read(folder: Path) -> dict[str, str]:
    """{file: checksum}."""
    path = folder / RECORD
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return {name: noted for noted, name in (line.split(maxsplit=1) for line in lines if line.strip())}
    except (OSError, ValueError) as error:
        raise DataFileError(f"Cannot read the checksums in {str(path)!r}: {error}. Remove the file.") from error
