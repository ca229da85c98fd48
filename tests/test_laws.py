"""What may not change a score: how rows lie in memory, which rows stand beside them, threads, copies, processes."""

import copy
import hashlib
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from support import methods, tiny

X = np.random.default_rng(0).normal(size=(90, 4))
X[-6:] += 4
Y = np.zeros(90, dtype=int)
Y[-4:], Y[:3] = -1, 1
NEW = np.random.default_rng(1).normal(size=(700, 4))  # more than a block, and not a multiple of one

LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "view": lambda array: np.repeat(array, 2, axis=0)[::2],
    "backwards": lambda array: np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
    "big-endian": lambda array: array.astype(">f8"),
    "list": np.ndarray.tolist,
}


@pytest.fixture(scope="module")
def fitted():
    """Every method fitted once, with its scores of the new rows."""
    known = {}

    def get(name):
        if name not in known:
            detector = tiny(name).fit(X, Y)
            known[name] = detector, detector.anomaly_score(NEW)
        return known[name]

    return get


@pytest.mark.parametrize("name", methods())
def test_layout_in_memory_changes_no_bit(name, fitted, tmp_path):
    _, expected = fitted(name)
    np.save(tmp_path / "x.npy", X)
    layouts = LAYOUTS | {"read-only file": lambda array: np.load(tmp_path / "x.npy", mmap_mode="r")}
    for lay in layouts.values():
        np.testing.assert_array_equal(tiny(name).fit(lay(X), Y).anomaly_score(NEW), expected)
    detector, _ = fitted(name)
    for lay in LAYOUTS.values():
        np.testing.assert_array_equal(detector.anomaly_score(lay(NEW)), expected)


@pytest.mark.parametrize("name", methods())
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_equal_numbers_of_another_type_change_no_bit(name, dtype):
    narrow = (X * 100).astype(dtype)
    wide = narrow.astype(np.float64)
    expected = tiny(name).fit(wide, Y).anomaly_score(wide)
    np.testing.assert_array_equal(tiny(name).fit(narrow, Y).anomaly_score(narrow), expected)


@pytest.mark.parametrize("name", methods())
def test_rows_beside_a_row_change_no_bit(name, fitted):
    detector, expected = fitted(name)
    order = np.random.default_rng(2).permutation(len(NEW))
    np.testing.assert_array_equal(detector.anomaly_score(NEW[order]), expected[order])
    for n_rows in (1, 3, 130):
        parts = [detector.anomaly_score(NEW[first : first + n_rows]) for first in range(0, 260, n_rows)]
        np.testing.assert_array_equal(np.concatenate(parts)[:260], expected[:260])


@pytest.mark.parametrize("name", methods())
def test_threads_and_copies_change_no_bit(name, fitted):
    detector, expected = fitted(name)
    with ThreadPoolExecutor(8) as pool:
        for scores in pool.map(detector.anomaly_score, [NEW] * 16):
            np.testing.assert_array_equal(scores, expected)
    for other in (pickle.loads(pickle.dumps(detector)), copy.deepcopy(detector), clone(detector).fit(X, Y)):
        np.testing.assert_array_equal(other.anomaly_score(NEW), expected)


@pytest.mark.parametrize("name", methods())
def test_a_second_fit_forgets_the_first_and_leaves_the_rows_alone(name, fitted):
    _, expected = fitted(name)
    other = np.random.default_rng(3).normal(size=(60, 7))
    rows, labels = X.copy(), Y.copy()
    detector = tiny(name).fit(other, Y[-60:]).fit(rows, labels)
    np.testing.assert_array_equal(detector.anomaly_score(NEW), expected)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(labels, Y)


def test_fits_in_threads_do_not_disturb_each_other(fitted):
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(lambda name: tiny(name).fit(X, Y).anomaly_score(NEW), methods()))
    for name, found in zip(methods(), scores, strict=True):
        np.testing.assert_array_equal(found, fitted(name)[1])


def digest(name):
    return hashlib.sha256(tiny(name).fit(X, Y).anomaly_score(NEW).tobytes()).hexdigest()


@pytest.mark.extra
def test_other_processes_give_the_same_bits(fitted):
    found = Parallel(n_jobs=2)(delayed(digest)(name) for name in methods())
    assert found == [hashlib.sha256(fitted(name)[1].tobytes()).hexdigest() for name in methods()]
