"""A sketch of the training rows, by which a model recognises some of them later without keeping any.

It is the 256 smallest hashes of the preprocessed rows (k minimum values; Bar-Yossef and others 2002), whatever their
order. A few hundred rows out of a hundred thousand are hardly recognised.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.errors import InputError

_N_KEPT = 256
_MAX_REPEATED = 0.05  # share of the training rows; where more are alike, new rows are like them by chance
_MIN_SEEN = 10  # hashes in the range of the sketch that tell a share
_BLOCK_VALUES = 1 << 22


def hash_rows(rows: NDArray[np.floating]) -> NDArray[np.uint32]:
    """Hash each row, (n, *features) to (n,), by its bits: a sum of products modulo 2**64, mixed."""
    flat = np.ascontiguousarray(rows, dtype=np.float32).reshape(len(rows), -1).view(np.uint32)
    weights = np.random.default_rng(0).integers(1, 2**63, flat.shape[1], dtype=np.uint64)
    n_block = max(1, _BLOCK_VALUES // max(1, flat.shape[1]))
    sums = np.empty(len(flat), dtype=np.uint64)
    for start in range(0, len(flat), n_block):
        block = slice(start, start + n_block)
        sums[block] = (flat[block] * weights).sum(axis=1, dtype=np.uint64)
    return (((sums ^ (sums >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(32)).astype(np.uint32)


def sketch_rows(rows: NDArray[np.floating]) -> list[int]:
    """The smallest hashes of training rows; none where rows are alike too often."""
    different = np.unique(hash_rows(rows))
    return [] if len(different) < (1 - _MAX_REPEATED) * len(rows) else different[:_N_KEPT].tolist()


def check_sketch(plain: Any) -> list[int]:
    """A sketch out of a model file, refused where it cannot be one."""
    found = [one for one in plain if type(one) is int and 0 <= one < 2**32] if isinstance(plain, list) else []
    if found != plain or len(found) > _N_KEPT:
        raise InputError("its sketch of the training rows is damaged")
    return found


def share_known(sketch: list[int], hashes: NDArray[np.uint32]) -> float:
    """About which share of some rows was trained on; 0 where too few of them are in the range of the sketch.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(3000, 4))
    >>> sketch, half = sketch_rows(rows[:2000]), hash_rows(rows[1500:2500][::-1])
    >>> 0.4 < share_known(sketch, half) < 0.6, share_known(sketch, hash_rows(rows[2000:]))
    (True, 0.0)
    """
    if not sketch:
        return 0.0
    seen = hashes if len(sketch) < _N_KEPT else hashes[hashes <= sketch[-1]]
    return float(np.isin(seen, sketch).mean()) if len(seen) >= _MIN_SEEN else 0.0
