"""A folder of pictures, or one of them, whole or in batches, with labels from its sub-folders or from a CSV file."""

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.text import count_text
from esad.errors import DataFileError, InputError
from esad.io.pictures import SUFFIXES, Header, is_picture, read_header, read_pixels

_MAX_VALUES = 1 << 25  # of one batch, however large the pictures
_BENT = 0.05  # how much wider than high, or higher, a picture may get without a word

_Path = str | os.PathLike[str]
Broken = dict[str, str]  # path of a picture that cannot be read -> why
Resize = int | tuple[int, int] | None  # the longer side at most, or width and height, or as the pictures are


@dataclass(frozen=True, eq=False)
class Pictures:
    """Some pictures of a folder.

    Attributes
    ----------
    ids : tuple of str
        Path of each relative to the folder, with forward slashes.
    images : ndarray of uint8 or float32, shape (n, channels, height, width)
        uint8, or float32 in [0, 1] if a picture of the folder is grey with 16 bits.
    label_words : ndarray of (str or None), shape (n,), or None
        For `esad.labels.from_column`: name of the sub-folder or label in the CSV file, None where there is none; None
        altogether when neither sub-folders nor a CSV file label the pictures.
    """

    ids: tuple[str, ...]
    images: NDArray[Any]
    label_words: NDArray[np.object_] | None


def open_folder(
    path: _Path,
    *,
    labels_csv: _Path | None = None,
    channels: int | None = None,
    broken: Broken | None = None,
    resize: Resize = None,
) -> "PictureFolder":
    """List the pictures of a folder and its sub-folders in the order of their paths; all sizes are looked at.

    Parameters
    ----------
    path : str or path-like
        Folder with .png, .jpg, .jpeg, .bmp, .tif and .tiff files, or one such file. Hidden and other files are left
        out with one warning.
    labels_csv : str or path-like, optional
        CSV file with the columns `file` (relative to the folder) and `label`, or with two columns in that order.
        Pictures it does not name have no label. Without it the first sub-folder's name is the label.
    channels : {1, 3}, optional
        1 for grey, 3 for RGB. When not given, grey if all pictures are, else RGB.
    broken : dict, optional
        Takes the pictures that cannot be read, with the reason; without it they are an error.
    resize : int or (int, int), optional
        Width and height to read all pictures at; or the most pixels that the longer side may have, where the most
        frequent size is the common one. By default pictures stay as they are and must be of one size.

    Raises
    ------
    DataFileError
        In one line: no folder, no picture, pictures of two sizes, a picture that cannot be read or is over 89 million
        pixels large, a CSV file that names a picture which is not there.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as path:
    ...     for name in ("anomaly", "unlabelled"):
    ...         (Path(path) / name).mkdir()
    ...         Image.new("L", (28, 28)).save(Path(path) / name / "1.png")
    ...     folder = open_folder(path)
    ...     pictures, batches = folder.read(), list(folder.batches(1))
    >>> pictures.ids, pictures.images.shape, pictures.label_words.tolist(), len(batches)
    (('anomaly/1.png', 'unlabelled/1.png'), (2, 1, 28, 28), ['anomaly', 'unlabelled'], 2)
    """
    if channels not in (None, 1, 3):
        raise InputError(f"`channels` must be 1 (grey), 3 (RGB) or None. Got {channels!r}.")
    folder = Path(path)
    is_single = folder.is_file() and is_picture(folder)
    ids = (folder.name,) if is_single else _list_names(folder, labels_csv)
    folder = folder.parent if is_single else folder
    words = _words_of_folders(ids) if labels_csv is None else _read_words_of_csv(folder, ids, Path(labels_csv))
    headers = _read_headers(folder, ids, broken)
    form = _common_form(folder, ids, headers, resize)
    if channels is not None:
        form = replace(form, n_channels=channels)
    words = None if words is None else words[list(headers)]
    sizes = Counter(header.size for header in headers.values())
    return PictureFolder(folder, tuple(ids[number] for number in headers), words, form, broken, sizes)


@dataclass(frozen=True, eq=False)
class PictureFolder:
    """What is in a folder, before any pixel is read; `broken` as for `open_folder`."""

    folder: Path
    ids: tuple[str, ...]
    label_words: NDArray[np.object_] | None
    form: Header
    broken: Broken | None = None
    sizes: Mapping[tuple[int, int], int] = field(default_factory=dict)  # width and height -> how many pictures

    @property
    def n_rows(self) -> int:
        """How many pictures are listed."""
        return len(self.ids)

    @property
    def n_bytes(self) -> int:
        """What they take in memory as the network sees them."""
        return self.n_rows * self.form.n_values * 4

    @property
    def resizing(self) -> str:
        """What becomes of pictures of another size than the common one, in words; nothing where there are none."""
        others = {size: number for size, number in self.sizes.items() if size != self.form.size}
        if not others:
            return ""
        least, most = min(others), max(others)
        text = f"{least[0]} x {least[1]}" if least == most else f"{least[0]} x {least[1]} to {most[0]} x {most[1]}"
        are = count_text(sum(others.values()), f"picture of {text} pixels is", f"pictures of {text} pixels are")
        text = f"{are} read at {self.form.width} x {self.form.height}"
        shape = self.form.width / self.form.height
        n_bent = sum(number for (width, height), number in others.items() if abs(width / height / shape - 1) > _BENT)
        return text + (f", which stretches {n_bent:,} of them." if n_bent else ".")

    def read(self) -> Pictures:
        """All pictures, at least one."""
        (pictures,) = self._batches(len(self.ids))
        return pictures

    def batches(self, batch_rows: int = 1024) -> Iterator[Pictures]:
        """All pictures, so many at a time, fewer if they are large, so that memory does not grow with the folder."""
        return self._batches(max(1, min(batch_rows, _MAX_VALUES // self.form.n_values)))

    def _batches(self, n_rows: int) -> Iterator[Pictures]:
        n_read = 0
        for start in range(0, len(self.ids), n_rows):
            images, numbers = self.pixels(range(start, min(start + n_rows, len(self.ids))))
            words = None if self.label_words is None else self.label_words[numbers]
            n_read += len(numbers)
            if numbers:
                yield Pictures(tuple(self.ids[number] for number in numbers), images, words)
        if not n_read:
            raise _nothing_error(self.folder, self.broken)

    def pixels(self, numbers: Sequence[int]) -> tuple[NDArray[Any], list[int]]:
        """The pictures of these numbers, (n, channels, height, width), and the numbers of those that could be read."""
        shape = (len(numbers), self.form.n_channels, self.form.height, self.form.width)
        images = np.empty(shape, dtype=np.float32 if self.form.is_deep else np.uint8)
        read: list[int] = []
        for number in numbers:
            with _note_broken(self.broken, self.ids[number]):
                images[len(read)] = read_pixels(self.folder / self.ids[number], self.form)
                read.append(number)
        return images[: len(read)], read


@contextlib.contextmanager
def _note_broken(broken: Broken | None, name: str) -> Iterator[None]:
    """Note a picture that cannot be read, where that is wanted."""
    try:
        yield
    except DataFileError as error:
        if broken is None:
            raise
        broken[name] = str(error)


def _nothing_error(folder: Path, broken: Broken | None) -> DataFileError:
    reason = next(iter((broken or {"": "it is empty."}).values()))
    return DataFileError(f"None of the pictures in {str(folder)!r} can be read. The first: {reason}")


def _list_names(folder: Path, labels_csv: _Path | None) -> tuple[str, ...]:
    """Paths of the pictures of a folder, relative to it and in order, at least one; other files are mentioned."""
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "no such folder"
        raise DataFileError(f"Cannot read pictures from {str(folder)!r}: {what}. Give a folder of pictures, or one.")
    found = dict(sorted(_walk(str(folder), "", (os.path.realpath(folder),))))
    known = None if labels_csv is None else os.path.realpath(labels_csv)
    ignored = [name for name, is_shown in found.items() if not is_shown and os.path.realpath(folder / name) != known]
    if ignored:
        shown = ", ".join(ignored[:3]) + (", ..." if len(ignored) > 3 else "")
        message = f"{count_text(len(ignored), 'file')} in {str(folder)!r}, hidden or no pictures, ignored: {shown}."
        warnings.warn(message, UserWarning, stacklevel=3)
    ids = tuple(name for name, is_shown in found.items() if is_shown)
    if not ids:
        raise DataFileError(
            f"Cannot read pictures from {str(folder)!r}: no file in it or its sub-folders ends in "
            f"{', '.join(SUFFIXES)}."
        )
    return ids


def _walk(folder: str, prefix: str, ancestors: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
    """Files below a folder, and whether each is a picture. Links are followed, unless they lead in a circle."""
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise DataFileError(f"Cannot read pictures from {folder!r}: {error.strerror}.") from error
    for entry in entries:
        name = prefix + entry.name
        real = os.path.realpath(entry.path)
        if entry.name.startswith("."):
            yield name, False
        elif not entry.is_dir():
            is_file = entry.is_file() or not os.path.exists(real)  # a link to nothing is an error later on, by name
            yield name, is_file and is_picture(entry.name)
        elif real not in ancestors:
            yield from _walk(entry.path, f"{name}/", (*ancestors, real))


def _read_headers(folder: Path, ids: Sequence[str], broken: Broken | None) -> dict[int, Header]:
    """What the pictures say of themselves, by number; at least one can be read."""
    headers: dict[int, Header] = {}
    for number, name in enumerate(ids):
        with _note_broken(broken, name):
            headers[number] = read_header(folder / name)
    if not headers:
        raise _nothing_error(folder, broken)
    return headers


def _common_form(folder: Path, ids: Sequence[str], headers: dict[int, Header], resize: Resize) -> Header:
    """Form in which all pictures are read: of one size, RGB if one is, 16 bits if one has them."""
    if isinstance(resize, tuple):
        width, height = resize
    else:
        sizes = Counter(header.size for header in headers.values())
        width, height = sizes.most_common(1)[0][0]
        if resize is None and len(sizes) > 1:
            first_of_each = {header.size: number for number, header in reversed(headers.items())}
            first, *_, other = sorted((size, folder / ids[number]) for size, number in first_of_each.items())
            raise DataFileError(
                f"Pictures must be of one size. {str(first[1])!r} is {first[0][0]} x {first[0][1]} pixels, "
                f"{str(other[1])!r} {other[0][0]} x {other[0][1]}. Scale them, by `resize` for example."
            )
        shrink = 1.0 if resize is None else min(1.0, resize / max(width, height))
        width, height = max(1, round(shrink * width)), max(1, round(shrink * height))
    n_channels = max(header.n_channels for header in headers.values())
    return Header(width, height, n_channels, any(header.is_deep for header in headers.values()))


def _words_of_folders(ids: Sequence[str]) -> NDArray[np.object_] | None:
    """Name of the first sub-folder of each picture; nothing at all when no picture lies in one."""
    words = [name.split("/", 1)[0] if "/" in name else None for name in ids]
    return np.array(words, dtype=object) if any(word is not None for word in words) else None


def _read_words_of_csv(folder: Path, ids: Sequence[str], labels_csv: Path) -> NDArray[np.object_]:
    """Label of each picture in the CSV file, None for pictures that are not in it."""
    from esad.io.files import TableFiles  # only here: arrays of pictures need no pyarrow

    batches = list(TableFiles([labels_csv]).batches())  # all columns as text
    names = batches[0].column_names
    if {"file", "label"} <= set(names):
        names = ["file", "label"]
    elif len(names) != 2:
        raise DataFileError(
            f"Cannot read labels from {str(labels_csv)!r}: it needs the columns 'file' and 'label'. Got {names[:10]}."
        )
    known = set(ids)
    if _relative_path(folder, names[0]) in known:
        raise DataFileError(
            f"Cannot read labels from {str(labels_csv)!r}: its first line must be the header: file,label."
        )
    words: dict[str, str | None] = {}
    files, labels = ([cell for batch in batches for cell in batch[name].to_pylist()] for name in names)
    for file, label in zip(files, labels, strict=True):
        if file is None:
            raise DataFileError(f"Cannot read labels from {str(labels_csv)!r}: a row names no file.")
        name = _relative_path(folder, file)
        if name in words:
            raise DataFileError(f"Cannot read labels from {str(labels_csv)!r}: {file!r} is there twice.")
        words[name] = label
    missing = [name for name in words if name not in known]
    if missing:
        raise DataFileError(
            f"Cannot use the labels of {str(labels_csv)!r}: there is no picture {missing[0]!r} in {str(folder)!r}, and "
            f"{count_text(len(missing), 'such name')} in all. Paths are relative to that folder."
        )
    return np.array([words.get(name) for name in ids], dtype=object)


def _relative_path(folder: Path, file: str) -> str:
    """Path as in `Pictures.ids`: relative, with forward slashes, without ./ and the like."""
    name = os.path.normpath(file.strip().replace("\\", "/"))
    return os.path.relpath(name, os.path.abspath(folder)) if os.path.isabs(name) else name
