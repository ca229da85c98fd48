"""What a model file holds, to bytes and strictly back: the manifest as JSON, the tensors as safetensors."""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from torch import Tensor, nn

from esad.errors import InputError, ModelFileError

__all__ = [
    "MAX_VALUES",
    "DamageError",
    "check_weights",
    "n_values",
    "pack_manifest",
    "pack_tensors",
    "unpack_manifest",
    "unpack_tensors",
]

# What networks, preprocessing and thresholds are made of; numpy has no bfloat16.
_DTYPES = ("float64", "float32", "int64", "int32", "int8", "uint8", "bool")
_MAX_DEPTH = 100
MAX_VALUES = 2**21  # of a manifest: each takes up to two hundred bytes in memory
MAX_HEADER = 2**20  # bytes in which safetensors lists the tensors: some ten thousand of them


class DamageError(Exception):
    """What is wrong inside a model file; `esad.persist.bundle` adds which file and what to do."""


def pack_manifest(manifest: Mapping[str, Any]) -> bytes:
    """Return the JSON bytes, keys sorted so that equal manifests give equal bytes.

    Examples
    --------
    >>> pack_manifest({"method": "esad", "columns": ["age"]})
    b'{"columns":["age"],"method":"esad"}'
    """
    try:
        return json.dumps(manifest, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"`manifest` must hold what JSON can: {error}. Convert it first.") from error


def unpack_manifest(packed: bytes) -> dict[str, Any]:
    """Return the manifest if it is one JSON object of not too many values, without NaN, doubled keys or deep nesting.

    Examples
    --------
    >>> unpack_manifest(b'{"threshold": NaN}')
    Traceback (most recent call last):
        ...
    esad.persist.contents.DamageError: its manifest cannot be read (NaN is not a finite number)
    """
    if n_values(packed) > MAX_VALUES:
        raise DamageError("its manifest holds more than any model needs")
    try:
        manifest = json.loads(
            packed.decode(), parse_float=_finite, parse_constant=_finite, object_pairs_hook=_without_doubles
        )
    except (ValueError, RecursionError) as error:
        raise DamageError(f"its manifest cannot be read ({_one_line(error)})") from error
    if not isinstance(manifest, dict):
        raise DamageError("its manifest is not a JSON object")
    level: list[Any] = [manifest]
    for _ in range(_MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
    if level:
        raise DamageError("its manifest is nested too deeply")
    return manifest


def n_values(packed: bytes) -> int:
    """At least how many values JSON bytes hold, by their punctuation; that of texts counts too.

    Examples
    --------
    >>> n_values(b'{"a": [1, 2, {}]}')
    5
    """
    return sum(map(packed.count, (b",", b"[", b"{")))


def pack_tensors(tensors: Mapping[str, np.ndarray]) -> bytes:
    """Return the safetensors bytes; safetensors orders by dtype and name, so equal tensors give equal bytes.

    Examples
    --------
    >>> list(unpack_tensors(pack_tensors({"weight": np.zeros((2, 3)), "bias": np.zeros(3)})))
    ['bias', 'weight']
    """
    for name, tensor in tensors.items():
        if tensor.dtype.name not in _DTYPES:
            allowed = ", ".join(_DTYPES)
            raise InputError(f"A tensor must be one of {allowed}. {name!r} is {tensor.dtype}. Convert it first.")
        if name == "__metadata__":
            raise InputError("A tensor cannot be named '__metadata__', which safetensors keeps for itself. Rename it.")
    return safetensors.numpy.save({name: np.asarray(tensor, order="C") for name, tensor in tensors.items()})


def unpack_tensors(packed: bytes) -> dict[str, np.ndarray]:
    """Return writable arrays sorted by name; safetensors checks that they cover the bytes exactly.

    Tensors without a single value take no bytes there, but memory here: a list of very many is refused.

    Examples
    --------
    >>> unpack_tensors(pack_tensors({"centre": np.array([1.5, -2.0], dtype=np.float32)}))
    {'centre': array([ 1.5, -2. ], dtype=float32)}
    """
    if int.from_bytes(packed[:8], "little") > MAX_HEADER:
        raise DamageError("its weights are listed in more bytes than any model needs")
    try:
        tensors = safetensors.numpy.load(packed)
        for name, tensor in tensors.items():
            _check_tensor(name, tensor)
    except (safetensors.SafetensorError, ValueError, OverflowError) as error:
        raise DamageError(f"its weights cannot be read ({_one_line(error)})") from error
    except KeyError as error:
        raise DamageError(f"its weights have the unknown type {_one_line(error)}") from error
    return dict(sorted(tensors.items()))


def _check_tensor(name: str, tensor: np.ndarray) -> None:
    if tensor.dtype.name not in _DTYPES:
        raise ValueError(f"{name!r} has the type {tensor.dtype}")
    if tensor.dtype.name == "bool" and tensor.size and tensor.view(np.uint8).max() > 1:
        raise ValueError(f"{name!r} holds bytes that are neither true nor false")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a key occurs twice")
    return content


def _children(node: Any) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _one_line(error: Exception) -> str:
    """Return a foreign error text that can break neither the line nor the terminal."""
    return ascii(str(error))[1:-1][:200]


def check_weights(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Refuse weights that a module cannot be filled with: other names, shapes or types, numbers that are none."""
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
