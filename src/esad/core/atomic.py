"""Files: written whole or not at all, beside the target and then renamed over it; small ones read; their checksums."""

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.errors import DataFileError, OutputError

if TYPE_CHECKING:
    import sqlite3

# What the operating system says when the place written to is full, failing or read-only.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})  # numbers of errors
_WRITE_FAILURES = DISK_FULL | {errno.EFBIG, errno.EIO, errno.EROFS, errno.ENXIO}


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    r"""Yield a temporary path beside `path` that takes its place when the block ends well.

    The temporary file is empty, lies in the same folder and keeps the suffix. At the end of the block it is flushed
    to disk and renamed over `path`; after any failure, Ctrl-C included, it is removed and `path` is left as it was.
    A symbolic link is followed: the file it points to is replaced, the link stays.

    Parameters
    ----------
    path : str or path-like
        Where the result shall lie. Its folder must exist.

    Yields
    ------
    pathlib.Path
        The file to write to.

    Raises
    ------
    OutputError
        When `path` is a folder or a device, when its folder is missing or not writable, or when the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder) / "scores.csv"
    ...     with atomic_path(target) as temporary:
    ...         _ = temporary.write_text("row,score\n0,1.5\n")
    ...         target.exists()
    ...     target.read_text()
    False
    'row,score\n0,1.5\n'
    """
    with _empty_file_beside(path) as (temporary, target):
        try:
            yield temporary
        except OSError as error:  # from writing the file, or from something else in the block
            if error.errno in _WRITE_FAILURES or str(error.filename) == str(temporary):
                raise _output_error(path, error) from error
            raise
        try:
            replace(temporary, target)
        except OSError as error:
            raise _output_error(path, error) from error


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise `OutputError` now if `path` could not be written later.

    Worth calling before work that takes long. Nothing is left behind and an existing file is not touched.

    Parameters
    ----------
    path : str or path-like
        Where a result shall be written.

    Examples
    --------
    >>> check_writable("no-such-folder/model.esad")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    esad.errors.OutputError: Cannot write 'no-such-folder/model.esad': the folder 'no-such-folder' does not exist. ...
    """
    with _empty_file_beside(path):
        pass


def check_out(
    path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]], suffixes: Sequence[str], what: str
) -> None:
    """Raise `OutputError` now if a result could not be written later, under a name that says what it is.

    Examples
    --------
    >>> check_out("scores.txt", [], (".csv", ".parquet"), "scores")
    Traceback (most recent call last):
        ...
    esad.errors.OutputError: Cannot write scores to 'scores.txt': its name must end in one of .csv, .parquet.
    """
    if not os.fspath(path).lower().endswith(tuple(suffixes)):
        names = f"{'one of ' if len(suffixes) > 1 else ''}{', '.join(suffixes)}"
        raise OutputError(f"Cannot write {what} to {os.fspath(path)!r}: its name must end in {names}.")
    refuse_same_file(path, inputs)
    check_writable(path)


def refuse_same_file(path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]]) -> None:
    """Refuse to write over what is being read."""
    for other in inputs:
        if os.path.exists(path) and os.path.exists(other) and os.path.samefile(path, other):
            raise OutputError(f"Cannot write {os.fspath(path)!r}: it is a file being read. Choose another path.")


@contextlib.contextmanager
def _empty_file_beside(path: str | os.PathLike[str]) -> Iterator[tuple[Path, Path]]:
    """A new file that is removed at the end, and the target in whose folder it lies, with its suffix and permissions.

    A suffix is what writers go by; a very long one is left out.
    """
    target, mode = _target(path)
    temporary = target.with_name(f".esad-{secrets.token_hex(6)}{target.suffix if len(target.suffix) <= 16 else ''}")
    try:
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            if mode is not None:
                temporary.chmod(mode)
        except OSError as error:
            raise _output_error(path, error) from error
        yield temporary, target
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _target(path: str | os.PathLike[str]) -> tuple[Path, int | None]:
    """Return the file that is going to be replaced and the permissions it has, if it exists."""
    shown = os.fspath(path)
    try:
        target = Path(os.path.realpath(shown))
        status = target.stat()
    except FileNotFoundError:
        if not target.parent.is_dir():
            folder = os.path.dirname(shown) or "."
            raise OutputError(
                f"Cannot write {shown!r}: the folder {folder!r} does not exist. Create it or choose another path."
            ) from None
        return target, None
    except OSError as error:
        raise _output_error(path, error) from error
    except ValueError as error:  # a null byte in the name
        raise OutputError(f"Cannot write {shown!r}: {error}. Choose another path.") from error
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file"
        raise OutputError(f"Cannot write {shown!r}: it is {what}. Give the path of a file.")
    if not os.access(target, os.W_OK):
        raise OutputError(f"Cannot write {shown!r}: it exists and is read-only. Choose another path.")
    return target, stat.S_IMODE(status.st_mode)


def replace(temporary: Path, target: Path) -> None:
    """Flush a file, rename it and flush the folder, so that a power cut leaves the old file or the new one."""
    descriptor = os.open(temporary, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, target)
    with contextlib.suppress(OSError):  # some systems cannot flush a folder
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _output_error(path: str | os.PathLike[str], error: OSError) -> OutputError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return OutputError(f"Cannot write {os.fspath(path)!r}: {reason}. Nothing was written there.")


def hash_file(path: str | os.PathLike[str], kind: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal digits.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "abc"
    ...     _ = path.write_bytes(b"abc")
    ...     hash_file(path, "md5")
    '900150983cd24fb0d6963f7d28e17f72'
    """
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file or folder is written to or replaced; None if there is none."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


@contextlib.contextmanager
def transaction(database: "sqlite3.Connection") -> Iterator[None]:
    """Make the changes of a block to a database whole or, after a failure or a kill, not at all.

    Examples
    --------
    >>> import sqlite3
    >>> database = sqlite3.connect(":memory:", isolation_level=None)
    >>> _ = database.execute("create table numbers (value)")
    >>> with contextlib.suppress(KeyboardInterrupt), transaction(database):
    ...     _ = database.execute("insert into numbers values (1)")
    ...     raise KeyboardInterrupt
    >>> database.execute("select count(*) from numbers").fetchone()
    (0,)
    """
    database.execute("begin immediate")
    try:
        yield
        database.execute("commit")
    except BaseException:
        if database.in_transaction:  # SQLite ends it by itself where the disk is full
            database.execute("rollback")
        raise


def read_text(path: str | os.PathLike[str], what: str, *, max_bytes: int = 2**20) -> str:
    """Read a small file of text in UTF-8; where that cannot be done, the error says what it is, and why not.

    Examples
    --------
    >>> read_text("no-such-file", "the list")
    Traceback (most recent call last):
        ...
    esad.errors.DataFileError: Cannot read the list 'no-such-file': no such file or directory.
    """
    file = Path(path)
    try:
        if not file.exists() or (file.is_file() and file.stat().st_size <= max_bytes):
            return file.read_text(encoding="utf-8")
        reason = "it is no small file of text"
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    raise DataFileError(f"Cannot read {what} {str(path)!r}: {reason}.")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file of text in UTF-8, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write one JSON document, whole or not at all."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def check_new_folder(folder: Path) -> None:
    """Refuse a folder that holds something, or that could not be made."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OutputError(f"Cannot write pictures to {str(folder)!r}: it exists. Give the name of a new folder.")
    if not folder.absolute().parent.is_dir():
        raise OutputError(f"Cannot write {str(folder)!r}: the folder around it does not exist. Create it first.")


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that takes its name when it is complete; one that holds something is not touched."""
    check_new_folder(folder)
    try:
        beside = Path(tempfile.mkdtemp(prefix=".esad-", dir=folder.absolute().parent))
    except OSError as error:
        raise OutputError(f"Cannot write {str(folder)!r}: {error.strerror}. Nothing was written there.") from error
    try:
        yield beside
        beside.chmod(0o755)
        beside.replace(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@contextlib.contextmanager
def unnamed_path(path: Path, name: str, *, instead: str) -> Iterator[Path]:
    """A temporary file for the rows of `path`, unlinked at the end: it is gone once its last reader closes it."""
    folder = tempfile.mkdtemp(prefix="esad-")
    target = Path(folder) / name
    try:
        yield target
    except OSError as error:
        raise OutputError(
            f"Cannot write the rows of {str(path)!r} to {tempfile.gettempdir()!r}: {error.strerror or error}. "
            f"Set TMPDIR to a folder with more room, or give {instead}."
        ) from error
    finally:
        with contextlib.suppress(OSError):  # where open files cannot lose their name, they stay until the reboot
            target.unlink(missing_ok=True)
            os.rmdir(folder)
