"""Model files as a forger makes them: zip archives of any content, with a valid checksum."""

import hashlib
import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from esad.errors import ModelFileError
from esad.persist import bundle

COMMENT_SIZE = len("sha256:") + 64
DTYPES = [np.float64, np.float32, np.int64, np.int32, np.int8, np.uint8, np.bool_]

MANIFEST = {"method": "esad", "columns": ["age", "größe", "\ud800"], "threshold": 0.1, "depth": {"a": [1, None, True]}}
TENSORS = {
    "encoder.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "mean": np.array([0.5, -0.0, np.inf, np.nan]),
    "mask": np.array([True, False]),
    "scalar": np.array(7, dtype=np.int64),
    "empty": np.zeros((0, 3), dtype=np.int32),
}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def read_bytes(folder: Path, data: bytes):
    path = folder / "candidate.esad"
    path.write_bytes(data)
    return bundle.read(path)


def sign(data: bytes) -> bytes:
    """Renew the checksum of a file whose last bytes are an archive comment, as a forger would."""
    body = data[:-COMMENT_SIZE]
    return body + b"sha256:" + hashlib.sha256(body).hexdigest().encode()


def parts(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def entry(name: str, *, method: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr, info.compress_type = 3, 0o100644 << 16, method
    return info


def forge(entries: list[tuple[zipfile.ZipInfo | str, bytes]]) -> bytes:
    """A zip written by the standard library, with a valid checksum."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for info, content in entries:
            archive.writestr(entry(info) if isinstance(info, str) else info, content)
        archive.comment = b" " * COMMENT_SIZE
    return sign(buffer.getvalue())


def forge_contents(original: bytes, *, manifest: bytes | None = None, weights: bytes | None = None) -> bytes:
    have = parts(original)
    return forge(
        [
            ("manifest.json", have["manifest.json"] if manifest is None else manifest),
            ("weights.safetensors", have["weights.safetensors"] if weights is None else weights),
        ]
    )


def safetensors_bytes(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert list(found) == sorted(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert found[name].shape == tensor.shape
        assert found[name].tobytes() == tensor.tobytes()
        assert found[name].flags.writeable


def assert_refused(folder: Path, data: bytes, match: str | None = None) -> None:
    path = folder / "candidate.esad"
    path.write_bytes(data)
    with pytest.raises(ModelFileError, match=match) as caught:
        bundle.read(path)
    text = str(caught.value)
    assert repr(str(path)) in text
    assert len(text.splitlines()) == 1
    assert text.isprintable()
