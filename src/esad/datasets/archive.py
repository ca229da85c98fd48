"""Archives read member by member in memory: nothing is ever unpacked onto the disk, and no size is taken on trust."""

import contextlib
import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from esad.errors import DataFileError

# What the standard library lets through when an archive is cut, damaged or of another kind.
_DAMAGED: Final = (OSError, EOFError, ValueError, zlib.error, tarfile.TarError, zipfile.BadZipFile)


def gunzip(path: Path, *, max_bytes: int) -> bytes:
    """Read a gzip file of which at most so many bytes come out."""
    with _name_damage(path), gzip.open(path, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise DataFileError(f"Refused {str(path)!r}: more than {max_bytes:,} bytes come out of it.")
    return content


def read_tar(path: Path, names: Collection[str], *, max_bytes: int) -> dict[str, bytes]:
    """Read named members of a .tar.gz file, {name: content}.

    Parameters
    ----------
    path : pathlib.Path
        The archive. One that holds links, devices, or names that lead out of it is refused as a whole.
    names : collection of str
        Members wanted.
    max_bytes : int
        At most so many bytes may come out of the whole archive, by what its headers say.
    """
    found = {}
    with _name_damage(path), tarfile.open(path, "r:gz") as archive:
        for member in archive:
            _check_member(path, member.name, is_plain=member.isreg() or member.isdir())
            _check_size(path, member.name, member.offset_data + member.size, max_bytes)
            if member.name in names and (file := archive.extractfile(member)):
                found[member.name] = file.read()
    missing = sorted(set(names) - set(found))
    if missing:
        raise DataFileError(f"{path} must hold {missing[0]}. It does not.")
    return found


def check_zip(path: Path, *, max_bytes: int) -> None:
    """Refuse a zip file, which every .npz file is, before anything is read that its directory makes look unsafe."""
    with _name_damage(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    for member in members:
        _check_member(path, member.filename, is_plain=not stat.S_ISLNK(member.external_attr >> 16))
    _check_size(path, "its directory", sum(member.file_size for member in members), max_bytes)


def _check_member(path: Path, name: str, *, is_plain: bool) -> None:
    if not is_plain:
        raise DataFileError(f"Refused {str(path)!r}: its member {name!r} is a link or a device.")
    if name.startswith(("/", "\\")) or ".." in PurePosixPath(name.replace("\\", "/")).parts:
        raise DataFileError(f"Refused {str(path)!r}: its member {name!r} leads out of the archive.")


def _check_size(path: Path, name: str, n_bytes: int, max_bytes: int) -> None:
    if n_bytes > max_bytes:
        raise DataFileError(f"Refused {str(path)!r}: with {name!r} it unpacks to more than {max_bytes:,} bytes.")


@contextlib.contextmanager
def _name_damage(path: Path) -> Iterator[None]:
    """Turn errors of damaged archives into one line that names the file."""
    try:
        yield
    except DataFileError:
        raise
    except _DAMAGED as error:
        raise DataFileError(f"{path} is damaged or of another kind: {error or type(error).__name__}.") from error
