"""Published files become arrays, end to end, from a server of our own with small files of the same form."""

import gzip
import hashlib
import io
import struct
import tarfile

import numpy as np
import pytest

from esad.datasets.download import Remote
from esad.datasets.sources import adbench, cifar10, mnist, odds
from esad.errors import DataFileError

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    return tmp_path


def left(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def md5(content):
    return hashlib.md5(content).hexdigest()


# ---------------------------------------------------------------------- MNIST


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes())


def digits(n_pictures):
    return RNG.integers(0, 256, (n_pictures, 28, 28), dtype=np.uint8), np.arange(n_pictures, dtype=np.uint8) % 10


@pytest.fixture
def mnist_site(site, monkeypatch):
    arrays = [*digits(12), *digits(5)]
    contents = [idx(array) for array in arrays]
    site.files = {f"second/{file}": content for file, content in zip(mnist._FILES, contents, strict=True)}
    monkeypatch.setitem(mnist._MIRRORS, "mnist", (site.url("first/"), site.url("second/")))
    monkeypatch.setitem(mnist._MD5S, "mnist", tuple(map(md5, contents)))
    return site, arrays


def test_mnist_comes_from_the_first_mirror_that_has_it(folder, mnist_site):
    _, arrays = mnist_site
    mnist.get("mnist", folder)
    data = mnist.load("mnist")
    assert (arrays[0] == data.X).all()
    assert (data.classes == arrays[1]).all()
    assert (arrays[2] == data.test.X).all()
    assert (data.test.classes == arrays[3]).all()
    assert left(folder) == ["mnist.npz"]


def test_a_broken_download_leaves_what_came_and_goes_on_there(folder, mnist_site, monkeypatch):
    site, _ = mnist_site
    monkeypatch.setattr("esad.datasets.download._ATTEMPTS", 1)
    images = f"second/{mnist._FILES[0]}"
    site.cuts = [2000]
    with pytest.raises(DataFileError, match=r"the connection ended after 2,000 of"):
        mnist.get("mnist", folder)
    assert left(folder) == [f".downloads/mnist/{mnist._FILES[0]}.part"]
    mnist.get("mnist", folder)
    assert left(folder) == ["mnist.npz"]
    assert (images, "bytes=2000-") in site.asked


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08",
        b"\0\0\x0d\x01\0\0\0\x01\0",
        b"\0\0\x08\x01\0\0\0\x05abc",
        b"\0\0\x08\xff",
        b"\0\0\x08\x02" + b"\xff" * 8,
    ],
)
def test_what_is_no_idx_file_is_one_error(folder, mnist_site, monkeypatch, content):
    site, _ = mnist_site
    packed = gzip.compress(content)
    site.files[f"first/{mnist._FILES[0]}"] = packed
    monkeypatch.setitem(mnist._MD5S, "mnist", (md5(packed), *mnist._MD5S["mnist"][1:]))
    with pytest.raises(DataFileError, match=r"train-images-idx3-ubyte\.gz"):
        mnist.get("mnist", folder)
    assert left(folder) == []


def test_fashion_mnist_has_the_same_form():
    assert set(mnist._MIRRORS) == set(mnist._MD5S) == set(mnist.NAMES)
    assert all(len(known) == len(mnist._FILES) for known in mnist._MD5S.values())


# ---------------------------------------------------------------------- CIFAR-10


def batch(n_pictures):
    images = RNG.integers(0, 256, (n_pictures, 32, 32, 3), dtype=np.uint8)
    classes = RNG.integers(0, 10, n_pictures, dtype=np.uint8)
    planes = images.transpose(0, 3, 1, 2).reshape(n_pictures, -1)
    return images, classes, np.c_[classes, planes].astype(np.uint8).tobytes()


def serve_cifar10(site, monkeypatch, contents):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    site.files["cifar-10-binary.tar.gz"] = packed.getvalue()
    remote = Remote((site.url("cifar-10-binary.tar.gz"),), md5=md5(packed.getvalue()))
    monkeypatch.setattr(cifar10, "_REMOTE", remote)


def test_cifar10_keeps_its_order_and_colours(folder, site, monkeypatch):
    batches = {name: batch(2 + index) for index, name in enumerate((*cifar10._TRAIN, *cifar10._TEST))}
    contents = {name: content for name, (_, _, content) in reversed(batches.items())}  # members in another order
    serve_cifar10(site, monkeypatch, contents | {"cifar-10-batches-bin/readme.html": b"<p>"})
    cifar10.get("cifar10", folder)
    data = cifar10.load("cifar10")
    assert (np.concatenate([batches[name][0] for name in cifar10._TRAIN]) == data.X).all()
    assert (data.classes == np.concatenate([batches[name][1] for name in cifar10._TRAIN])).all()
    assert (batches[cifar10._TEST[0]][0] == data.test.X).all()
    assert left(folder) == ["cifar10.npz"]


@pytest.mark.parametrize("content", [b"", bytes(3072), b"\x0a" + bytes(3072)])
def test_cifar10_of_another_form_is_one_error(folder, site, monkeypatch, content):
    serve_cifar10(site, monkeypatch, dict.fromkeys((*cifar10._TRAIN, *cifar10._TEST), content))
    with pytest.raises(DataFileError, match="must hold"):
        cifar10.get("cifar10", folder)
    assert left(folder) == []


# ---------------------------------------------------------------------- tables


def table(n_rows=20, n_columns=3, n_anomalies=4):
    return RNG.normal(size=(n_rows, n_columns)), (np.arange(n_rows) < n_anomalies).astype(float)


def mat(X, y):
    from scipy.io import savemat

    packed = io.BytesIO()
    savemat(packed, {"X": X, "y": y[:, None]})
    return packed.getvalue()


def npz(X, y):
    packed = io.BytesIO()
    np.savez(packed, X=X, y=y)
    return packed.getvalue()


@pytest.mark.parametrize(("name", "pack", "suffix"), [("cardio", mat, "mat"), ("thyroid", npz, "npz")])
def test_odds_tables_are_checked_by_their_counts(folder, site, monkeypatch, name, pack, suffix):
    X, y = table()
    site.files[f"{name}.{suffix}"] = pack(X, y)
    monkeypatch.setitem(odds._URLS, name, site.url(f"{name}.{suffix}"))
    with pytest.raises(DataFileError, match=r"must have \d+ rows, \d+ columns and \d+ anomalies\. Got 20, 3 and 4\."):
        odds.get(name, folder)
    assert left(folder) == []
    monkeypatch.setitem(odds._COUNTS, name, (20, 3, 4))
    odds.get(name, folder)
    data = odds.load(name)
    assert (data.X == X).all()
    assert (data.truth == (y == 1)).all()


@pytest.mark.parametrize("content", [b"", b"MATLAB 5.0 MAT-file" + bytes(200), b"garbage" * 100])
def test_a_damaged_matlab_file_is_one_error(folder, site, monkeypatch, content):
    site.files["cardio.mat"] = content
    monkeypatch.setitem(odds._URLS, "cardio", site.url("cardio.mat"))
    with pytest.raises(DataFileError, match="must be a MATLAB file"):
        odds.get("cardio", folder)


def test_adbench_tables_come_from_the_branch_when_the_commit_has_none(folder, site, monkeypatch):
    X, y = table()
    site.files["main/adbench/datasets/Classical/47_yeast.npz"] = npz(X, y)
    monkeypatch.setattr(adbench, "_REPOSITORY", site.url(""))
    monkeypatch.setitem(adbench._COUNTS, "47_yeast", (20, 3, 4))
    adbench.get("47_yeast", folder)
    assert (adbench.load("47_yeast").X == X).all()


@pytest.mark.parametrize("family", [odds, adbench], ids=["odds", "adbench"])
def test_the_counts_are_those_of_the_real_tables(data_folder, family):
    assert set(family._COUNTS) == set(family.NAMES)
    for name, counts in family._COUNTS.items():
        data = family.load(name)
        assert (*data.X.shape, data.truth.sum()) == counts


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.zeros(3), np.zeros(3)),
        (np.zeros((3, 2)), np.zeros(2)),
        (np.zeros((3, 2)), np.array([0, 1, 2])),
        (np.array([["a", "b"]]), np.zeros(1)),
    ],
)
def test_a_table_of_another_form_is_refused(folder, site, monkeypatch, X, y):
    site.files["thyroid.npz"] = npz(X, y)
    monkeypatch.setitem(odds._URLS, "thyroid", site.url("thyroid.npz"))
    with pytest.raises(DataFileError, match="must hold a table `X` of numbers"):
        odds.get("thyroid", folder)
