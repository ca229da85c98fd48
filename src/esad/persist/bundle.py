"""The model file: one JSON manifest and one block of tensors in a zip that cannot be changed unnoticed.

::

    local header  manifest.json  | JSON, UTF-8
    local header  weights.safetensors | safetensors
    central directory, end record | archive comment "sha256:" + digest of every byte before it

The entries are stored, never compressed, with fixed order, time and attributes: the same model gives the same bytes,
and any unzip program opens the file. Everything but the two contents follows from them, so the reader rebuilds that
frame and compares it instead of trusting a field of it. The checksum finds damage; it is no signature: whoever forges
a file on purpose can renew it, so everything behind it is checked as well, and nothing in the file can run code.
"""

import hashlib
import json
import math
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import safetensors
import safetensors.numpy
from torch import Tensor, nn

from esad import __version__
from esad.core.atomic import atomic_path
from esad.errors import InputError, ModelFileError, OutputError

FORMAT = "esad-model"
FORMAT_VERSION = 2

_STATED = ("format", "format_version", "esad_version")
_NAMES = (b"manifest.json", b"weights.safetensors")
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_ZIP_VERSION, _UNIX, _DATE, _MODE = 20, 3 << 8, 0x21, 0o100644 << 16  # 1980-01-01, the earliest a zip can state
_MARK = b"sha256:"
_COMMENT_SIZE = len(_MARK) + 2 * hashlib.sha256().digest_size
_HEAD_SIZE = _LOCAL.size + len(_NAMES[0])
_FRAME_SIZE = 2 * _LOCAL.size + 2 * _CENTRAL.size + 2 * sum(map(len, _NAMES)) + _END.size + _COMMENT_SIZE
_MAX_MANIFEST = 64 * 2**20
_MAX_FILE = 2**31 - 1  # what a plain zip holds everywhere
_CHUNK = 2**20
# What networks, preprocessing and thresholds are made of; numpy has no bfloat16.
_DTYPES = ("float64", "float32", "int64", "int32", "int8", "uint8", "bool")
_MAX_DEPTH = 100
_MAX_VALUES = 2**21  # of a manifest: each takes up to two hundred bytes in memory
_MAX_HEADER = 2**20  # bytes in which safetensors lists the tensors: some ten thousand of them


class _DamageError(Exception):
    """What is wrong inside a model file; `read` adds which file and what to do."""


def write(path: str | os.PathLike[str], manifest: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Write a model file, whole or not at all.

    Parameters
    ----------
    path : str or path-like
        Where the file shall lie; an existing file is replaced.
    manifest : mapping
        What JSON can hold. ``format``, ``format_version`` and ``esad_version`` are added.
    tensors : mapping of str to numpy.ndarray
        float64, float32, int64, int32, int8, uint8 or bool arrays of any shape.

    Raises
    ------
    InputError
        When `manifest` or `tensors` hold what the format cannot.
    OutputError
        When the file cannot be written there.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(f"{folder}/model.esad", {"method": "esad"}, {"centre": np.zeros(2)})
    ...     manifest, tensors = read(f"{folder}/model.esad")
    >>> manifest["method"], manifest["format_version"], tensors["centre"]
    ('esad', 2, array([0., 0.]))
    """
    if taken := [key for key in _STATED if key in manifest]:
        raise InputError(f"`manifest` must not hold {taken}: they are set when the file is written. Remove them.")
    stated = dict(zip(_STATED, (FORMAT, FORMAT_VERSION, __version__), strict=True))
    packed = (_pack_manifest({**manifest, **stated}), _pack_tensors(tensors))
    too_many = _count_values(packed[0]) > _MAX_VALUES
    if too_many or len(packed[0]) > _MAX_MANIFEST or sum(map(len, packed)) + _FRAME_SIZE > _MAX_FILE:
        sizes = " and ".join(f"{len(part) / 2**20:.0f} MiB" for part in packed)
        raise OutputError(
            f"Cannot write {os.fspath(path)!r}: a model file holds at most 64 MiB of manifest with 2 million values, "
            "and 2 GiB in all, "
            f"and manifest and weights take {sizes}. Use a smaller network, fewer members or fewer categories."
        )
    digest = hashlib.sha256()
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        for part in _parts(*packed):
            digest.update(part)
            file.write(part)
        file.write(_MARK + digest.hexdigest().encode())


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a model file, checking everything in it before use.

    Parameters
    ----------
    path : str or path-like
        The file that `write` wrote.

    Returns
    -------
    manifest : dict
        The manifest, ``format``, ``format_version`` and ``esad_version`` included.
    tensors : dict of str to numpy.ndarray
        Writable arrays, sorted by name.

    Raises
    ------
    ModelFileError
        When the file is missing, damaged, of another kind or written by a newer version.

    Examples
    --------
    >>> read("no-such-model.esad")
    Traceback (most recent call last):
        ...
    esad.errors.ModelFileError: There is no model file 'no-such-model.esad'. Check the path, or train a model first.
    """
    shown = os.fspath(path)
    try:
        _check_kind(shown)
        with Path(shown).open("rb") as file:
            return _read_open(file, shown)
    except FileNotFoundError:
        raise ModelFileError(f"There is no model file {shown!r}. Check the path, or train a model first.") from None
    except OSError as error:
        raise ModelFileError(f"Cannot read the model file {shown!r}: {error.strerror}. Check the path.") from error
    except _DamageError as damage:
        raise ModelFileError(
            f"The model file {shown!r} is damaged: {damage}. Copy it again from its source, or train the model again."
        ) from damage


def _check_kind(shown: str) -> None:
    """Refuse what is no file before it is opened: opening a named pipe would wait for ever."""
    try:
        mode = os.stat(shown).st_mode
    except ValueError as error:  # a null byte in the name
        raise ModelFileError(f"Cannot read the model file {shown!r}: {error}. Check the path.") from error
    if not stat.S_ISREG(mode):
        _refuse_kind(shown, "it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file")


def _refuse_kind(shown: str, what: str) -> NoReturn:
    raise ModelFileError(f"{shown!r} is not an esad model file: {what}. Give the file that was saved by esad.")


def _read_open(file: BinaryIO, shown: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read an open model file, with the cheap checks first: kind, size, checksum, manifest, frame, tensors."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(_HEAD_SIZE)
    if not head.startswith(b"PK\x03\x04") or head[_LOCAL.size :] != _NAMES[0]:
        _refuse_kind(shown, _describe_foreign(head))
    if not _FRAME_SIZE <= size <= _MAX_FILE:
        raise _DamageError(f"its size of {size} bytes is not possible for a model file")
    comment = _check_digest(file, size)
    manifest_size = _LOCAL.unpack_from(head)[8]
    weights_size = size - _FRAME_SIZE - manifest_size
    if manifest_size > _MAX_MANIFEST or weights_size < 0:
        raise _DamageError(f"its manifest states a size of {manifest_size} bytes, which does not fit")
    file.seek(_HEAD_SIZE)
    packed_manifest = file.read(manifest_size)
    manifest = _unpack_manifest(packed_manifest)
    _check_version(manifest, shown)
    between = file.read(_LOCAL.size + len(_NAMES[1]))
    packed_tensors = file.read(weights_size)
    after = file.read(_FRAME_SIZE)
    found = [head, packed_manifest, between, packed_tensors, after]
    if found != [*_parts(packed_manifest, packed_tensors, comment)]:
        raise _DamageError("it does not hold exactly a manifest and weights, stored and whole")
    return manifest, _unpack_tensors(packed_tensors)


def _describe_foreign(head: bytes) -> str:
    """Say what a file that is not ours seems to be."""
    if not head:
        return "it is empty"
    if head.startswith(b"PK"):
        return "it is a zip file of another kind"
    if head[:1] == b"\x80":
        return "it looks like a pickle, which esad never loads because it can run code"
    return "it is something else, or its beginning is damaged"


def _check_version(manifest: dict[str, Any], shown: str) -> None:
    """Refuse other formats and newer versions; files of every older version stay readable."""
    if manifest.get("format") != FORMAT:
        _refuse_kind(shown, "its manifest does not say so")
    number = manifest.get("format_version")
    if type(number) is not int or number < 1:
        raise _DamageError("its manifest states no valid format version")
    if number > FORMAT_VERSION:
        raise ModelFileError(
            f"The model file {shown!r} was written by a newer esad (format {str(number)[:20]}); "
            f"this version reads up to format {FORMAT_VERSION}. Upgrade esad."
        )
    if not isinstance(manifest.get("esad_version"), str):
        raise _DamageError("its manifest does not state which esad wrote it")


def _check_digest(file: BinaryIO, size: int) -> bytes:
    """Return the archive comment if it states the checksum of everything before it; needs memory for one chunk."""
    digest = hashlib.sha256()
    file.seek(0)
    left = size - _COMMENT_SIZE
    while left and (chunk := file.read(min(left, _CHUNK))):
        digest.update(chunk)
        left -= len(chunk)
    comment = file.read(_COMMENT_SIZE + 1)
    if not comment.startswith(_MARK):
        raise _DamageError("its checksum is missing, so it was cut short or changed")
    if comment != _MARK + digest.hexdigest().encode():
        raise _DamageError("its checksum does not match, so it was changed after it was written")
    return comment


def _parts(manifest: bytes, weights: bytes, comment: bytes = b"") -> Iterator[bytes]:
    """Yield the file in five parts: header, manifest, header, weights, and what follows up to and with `comment`."""
    directory, offset = b"", 0
    for name, content in zip(_NAMES, (manifest, weights), strict=True):
        # flags, method, time, date, crc, stored size, size, length of the name, length of the extra field
        common = (0, 0, 0, _DATE, zlib.crc32(content), len(content), len(content), len(name), 0)
        header = _LOCAL.pack(b"PK\x03\x04", _ZIP_VERSION, *common) + name
        versions = (_UNIX | _ZIP_VERSION, _ZIP_VERSION)
        directory += _CENTRAL.pack(b"PK\x01\x02", *versions, *common, 0, 0, 0, _MODE, offset) + name
        offset += len(header) + len(content)
        yield header
        yield content
    yield directory + _END.pack(b"PK\x05\x06", 0, 0, 2, 2, len(directory), offset, _COMMENT_SIZE) + comment


# ---------------------------------------------------------------------- what the parts hold


def _pack_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the JSON bytes, keys sorted so that equal manifests give equal bytes.

    Examples
    --------
    >>> _pack_manifest({"method": "esad", "columns": ["age"]})
    b'{"columns":["age"],"method":"esad"}'
    """
    try:
        return json.dumps(manifest, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"`manifest` must hold what JSON can: {error}. Convert it first.") from error


def _unpack_manifest(packed: bytes) -> dict[str, Any]:
    """Return the manifest if it is one JSON object of not too many values, without NaN, doubled keys or deep nesting.

    Examples
    --------
    >>> _unpack_manifest(b'{"threshold": NaN}')
    Traceback (most recent call last):
        ...
    esad.persist.bundle._DamageError: its manifest cannot be read (NaN is not a finite number)
    """
    if _count_values(packed) > _MAX_VALUES:
        raise _DamageError("its manifest holds more than any model needs")
    try:
        manifest = json.loads(
            packed.decode(),
            parse_float=_parse_finite,
            parse_constant=_parse_finite,
            object_pairs_hook=_refuse_repeated_keys,
        )
    except (ValueError, RecursionError) as error:
        raise _DamageError(f"its manifest cannot be read ({_one_line(error)})") from error
    if not isinstance(manifest, dict):
        raise _DamageError("its manifest is not a JSON object")
    level: list[Any] = [manifest]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in _list_children(node)]
    if level:
        raise _DamageError("its manifest is nested too deeply")
    return manifest


def _count_values(packed: bytes) -> int:
    """Estimate how many values JSON bytes hold from their punctuation, which is also counted within texts.

    Examples
    --------
    >>> _count_values(b'{"a": [1, 2, {}]}')
    5
    """
    return sum(map(packed.count, (b",", b"[", b"{")))


def _pack_tensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Return the safetensors bytes; safetensors orders by dtype and name, so equal tensors give equal bytes.

    Examples
    --------
    >>> list(_unpack_tensors(_pack_tensors({"weight": np.zeros((2, 3)), "bias": np.zeros(3)})))
    ['bias', 'weight']
    """
    for name, tensor in tensors.items():
        if tensor.dtype.name not in _DTYPES:
            allowed = ", ".join(_DTYPES)
            raise InputError(f"A tensor must be one of {allowed}. {name!r} is {tensor.dtype}. Convert it first.")
        if name == "__metadata__":
            raise InputError("A tensor cannot be named '__metadata__', which safetensors keeps for itself. Rename it.")
    return safetensors.numpy.save({name: np.asarray(tensor, order="C") for name, tensor in tensors.items()})


def _unpack_tensors(packed: bytes) -> dict[str, np.ndarray]:
    """Return writable arrays sorted by name; safetensors checks that they cover the bytes exactly.

    Tensors without a single value take no bytes there, but memory here: a list of very many is refused.

    Examples
    --------
    >>> _unpack_tensors(_pack_tensors({"centre": np.array([1.5, -2.0], dtype=np.float32)}))
    {'centre': array([ 1.5, -2. ], dtype=float32)}
    """
    if int.from_bytes(packed[:8], "little") > _MAX_HEADER:
        raise _DamageError("its weights are listed in more bytes than any model needs")
    try:
        tensors = safetensors.numpy.load(packed)
        for name, tensor in tensors.items():
            _check_tensor(name, tensor)
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        raise _DamageError(f"its weights cannot be read ({_one_line(error)})") from error
    except KeyError as error:
        raise _DamageError(f"its weights have the unknown type {_one_line(error)}") from error
    return dict(sorted(tensors.items()))


def _check_tensor(name: str, tensor: np.ndarray) -> None:
    if tensor.dtype.name not in _DTYPES:
        raise ValueError(f"{name!r} has the type {tensor.dtype}")
    if tensor.dtype.name == "bool" and tensor.size and tensor.view(np.uint8).max() > 1:
        raise ValueError(f"{name!r} holds bytes that are neither true nor false")


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key occurs twice")
    return content


def _list_children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _one_line(error: Exception) -> str:
    """Return a foreign error text that can break neither the line nor the terminal."""
    return ascii(str(error))[1:-1][:200]


def check_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Refuse weights that do not fit a module: other names, shapes or types, or numbers that are not finite."""
    expected = module.state_dict()
    if expected.keys() != weights.keys():
        raise ModelFileError("its weights are not those of the network it describes")
    for name, value in weights.items():
        if value.shape != expected[name].shape:
            raise ModelFileError(f"its weights {name!r} have another shape than the network it describes")
        if value.is_floating_point() != expected[name].is_floating_point():
            raise ModelFileError(f"its weights {name!r} have the wrong type")
        if value.is_floating_point() and not value.isfinite().all():
            raise ModelFileError(f"its weights {name!r} are not all finite")
        if name.rpartition(".")[2].startswith(("variance", "running_var", "spread", "ratio")) and (value < 0).any():
            raise ModelFileError(f"its weights {name!r} must not be negative")
