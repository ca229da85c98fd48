"""Downloads that are whole and checked, or not there at all.

A file arrives beside its place, as NAME.part. When the connection breaks, the rest is asked for, where the server can
do that and a checksum will tell whether the pieces fit. Only a file whose checksum is right is renamed.
"""

import contextlib
import http.client
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from esad.core.atomic import hash_file, replace
from esad.datasets.folder import make_folder
from esad.errors import DataFileError, OutputError

Report = Callable[[str, int, int | None], None]
"""Told what is under way, how much of it is done, and how much there is, where that is known."""

_SCHEMES: Final = ("http", "https")
_WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_ATTEMPTS: Final = 4
_TIMEOUT: float = 30.0  # seconds without an answer after which an attempt counts as failed
_PAUSE: float = 1.0  # seconds before the second attempt; doubled before each further one
_CHUNK: Final = 1 << 16
_MAX_BYTES: int = 1 << 30


@dataclass(frozen=True)
class Remote:
    """A file on the network.

    Parameters
    ----------
    urls : tuple of str
        Where it is, to be tried in this order.
    md5, sha256 : str, optional
        What its publisher says of it, or the first digits of that, where a file's name holds no more. Without either
        the content has to be checked by other means.
    """

    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None

    @property
    def file(self) -> str:
        """The name of the file."""
        return urlsplit(self.urls[0]).path.rpartition("/")[2]


class _FailedAttempt(Exception):  # noqa: N818  not an error yet
    """One attempt failed; another one may not."""


@contextlib.contextmanager
def download_files(
    remotes: Sequence[Remote], folder: Path, name: str, report: Report | None = None
) -> Iterator[list[Path]]:
    """Fetch the files that a data set is made from and yield their paths; they are removed when the block ends well.

    Parameters
    ----------
    remotes : sequence of Remote
        What to fetch.
    folder : pathlib.Path
        The data folder. Files lie in its sub-folder `.downloads/NAME` meanwhile; after an interruption those that are
        whole, and the part that is not, are found there again.
    name : str
        Name of the data set.
    report : callable, optional
        Told how far each file is.
    """
    place = folder / ".downloads" / name
    make_folder(place)
    paths = [place / remote.file for remote in remotes]
    for remote, path in zip(remotes, paths, strict=True):
        _fetch_from_any(remote, path, report)
    try:
        yield paths
    except DataFileError:  # what came is of no use, now or later
        shutil.rmtree(place, ignore_errors=True)
        raise
    shutil.rmtree(place, ignore_errors=True)
    with contextlib.suppress(OSError):  # another data set is being fetched
        place.parent.rmdir()


def _fetch_from_any(remote: Remote, path: Path, report: Report | None) -> None:
    """Fetch from the first address that has the file."""
    if path.is_file() and _has_checksums(path, remote.md5, remote.sha256):
        return
    for index, url in enumerate(remote.urls):
        try:
            return fetch(url, path, md5=remote.md5, sha256=remote.sha256, report=report)
        except DataFileError:
            if index == len(remote.urls) - 1:
                raise


def fetch(
    url: str, path: Path, *, md5: str | None = None, sha256: str | None = None, report: Report | None = None
) -> None:
    """Download one file.

    Parameters
    ----------
    url : str
        Address, http or https.
    path : pathlib.Path
        Where it shall lie. Its folder must exist.
    md5, sha256 : str, optional
        Checksums it must have. Only with one of them a part left by an earlier run is continued.
    report : callable, optional
        Told how far the download is.

    Raises
    ------
    DataFileError
        When the file cannot be had or is not the one expected.
    OutputError
        When it cannot be written.
    """
    _check_scheme(url)
    part = path.with_name(path.name + ".part")
    if md5 is None and sha256 is None:
        part.unlink(missing_ok=True)
    reason: object = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE * 2 ** (attempt - 1))
        try:
            is_continued = _download_part(url, part, report)
        except _FailedAttempt as broken:
            reason = broken
            continue
        if _has_checksums(part, md5, sha256):
            replace(part, path)
            return
        part.unlink()
        if not is_continued:
            raise DataFileError(
                f"{url} is not the file it should be: its checksum is another one. It was not kept. "
                "Try again later, or look for a newer version of esad."
            )
        reason = "the pieces of several attempts did not fit together"
    raise DataFileError(f"Cannot download {url}: {reason}. Tried {_ATTEMPTS} times. Check the network and try again.")


def _has_checksums(path: Path, md5: str | None, sha256: str | None) -> bool:
    """Whether a file has the checksums that are known."""
    return all(
        not known or hash_file(path, kind).startswith(known) for kind, known in (("md5", md5), ("sha256", sha256))
    )


def _download_part(url: str, part: Path, report: Report | None) -> bool:
    """Download the rest of a partial file, or all of it; whether an earlier part was continued."""
    offset = part.stat().st_size if part.is_file() else 0
    with _open_url(url, offset, part) as response:
        start = offset if response.status == http.client.PARTIAL_CONTENT else 0
        if start and not (response.headers.get("Content-Range") or "").startswith(f"bytes {start}-"):
            part.unlink()
            raise _FailedAttempt("the server continued at another place")
        length = response.headers.get("Content-Length") or ""
        total = start + int(length) if length.isdecimal() else None
        done = start
        _check_size(url, part, total or 0)
        try:
            with part.open("ab" if start else "wb") as file:
                for chunk in _read_chunks(response):
                    done += len(chunk)
                    _check_size(url, part, done)
                    file.write(chunk)
                    if report is not None:
                        report(part.stem, done, total)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise OutputError(
                f"Cannot write {str(part)!r}: {error.strerror}. Free some space or take another folder, and try again."
            ) from error
    if total is not None and done < total:
        raise _FailedAttempt(f"the connection ended after {done:,} of {total:,} bytes")
    return start > 0


def _check_size(url: str, part: Path, n_bytes: int) -> None:
    if n_bytes > _MAX_BYTES:
        part.unlink(missing_ok=True)
        raise DataFileError(f"Refused {url}: it has more than the {_MAX_BYTES:,} bytes it may have.")


@contextlib.contextmanager
def _open_url(url: str, offset: int, part: Path) -> Iterator[Any]:
    """Open an address, from a place in the file on."""
    headers = {"User-Agent": "esad", "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    try:
        opener = urllib.request.build_opener(_Redirects)
        response = opener.open(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        answer = f"the server answered {error.code} {error.reason}"
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:  # the part is longer than the file
            part.unlink(missing_ok=True)
        elif error.code not in _WORTH_ANOTHER_TRY:
            raise DataFileError(f"Cannot download {url}: {answer}. The file may have moved.") from error
        raise _FailedAttempt(answer) from error
    except urllib.error.URLError as error:
        raise _FailedAttempt(error.reason) from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a port that is none, and the like
        raise _FailedAttempt(str(error) or type(error).__name__) from error
    with response:
        yield response


def _read_chunks(response: IO[bytes]) -> Iterator[bytes]:
    """What arrives, until the connection ends."""
    while True:
        try:
            chunk = response.read(_CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise _FailedAttempt(str(error) or type(error).__name__) from error
        if not chunk:
            return
        yield chunk


def _check_scheme(url: str, came_from: str | None = None) -> None:
    """Refuse addresses other than http and https, and redirects from https to http."""
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        led = f"{came_from} leads to" if came_from else "Cannot download"
        raise DataFileError(f"{led} {url}: only http and https addresses are used.")
    if came_from is not None and scheme != "https" and urlsplit(came_from).scheme == "https":
        raise DataFileError(f"{came_from} leads from https to {url}, which is not safe.")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows to web addresses only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        try:
            _check_scheme(newurl, req.full_url)
        except DataFileError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)
