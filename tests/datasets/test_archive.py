"""Archives are read in memory, member by member; what looks unsafe is refused before it is read."""

import gzip
import io
import tarfile
import zipfile

import pytest

from esad.datasets.archive import check_zip, gunzip, read_tar
from esad.errors import DataFileError


def member(name, content=b"", **attributes):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for attribute, value in attributes.items():
        setattr(info, attribute, value)
    return info, content


def write_tar(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path


def test_named_members_are_read(tmp_path):
    folder = member("a", type=tarfile.DIRTYPE)
    path = write_tar(tmp_path / "t.tar.gz", folder, member("a/b", b"one"), member("a/c", b"two"), member("d", b"three"))
    assert read_tar(path, ("a/b", "d"), max_bytes=10_000) == {"a/b": b"one", "d": b"three"}
    with pytest.raises(DataFileError, match="must hold e"):
        read_tar(path, ("e",), max_bytes=10_000)


@pytest.mark.parametrize(
    "bad",
    [
        member("../evil", b"x"),
        member("a/../../evil", b"x"),
        member("/etc/passwd", b"x"),
        member("link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("hard", type=tarfile.LNKTYPE, linkname="good"),
        member("device", type=tarfile.CHRTYPE),
        member("pipe", type=tarfile.FIFOTYPE),
    ],
    ids=lambda bad: bad[0].name,
)
def test_an_unsafe_member_refuses_the_whole_archive(tmp_path, bad):
    path = write_tar(tmp_path / "t.tar.gz", member("good", b"one"), bad)
    with pytest.raises(DataFileError, match=r"Refused .*t\.tar\.gz"):
        read_tar(path, ("good",), max_bytes=10_000)
    assert [file.name for file in tmp_path.iterdir()] == ["t.tar.gz"]


def test_a_declared_size_is_believed_before_anything_is_read(tmp_path):
    info = tarfile.TarInfo("good")
    info.size = 1 << 40
    path = tmp_path / "t.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf() + b"one"))
    with pytest.raises(DataFileError, match="more than 10,000 bytes"):
        read_tar(path, ("good",), max_bytes=10_000)


def test_many_members_count_together(tmp_path):
    path = write_tar(tmp_path / "t.tar.gz", *(member(f"m{index}", bytes(3000)) for index in range(5)))
    with pytest.raises(DataFileError, match="more than 10,000 bytes"):
        read_tar(path, ("m4",), max_bytes=10_000)


@pytest.mark.parametrize("content", [b"", b"no archive", gzip.compress(b"no tar" * 200)], ids=["empty", "text", "gzip"])
def test_what_is_no_archive_is_one_error(tmp_path, content):
    path = tmp_path / "t.tar.gz"
    path.write_bytes(content)
    with pytest.raises(DataFileError, match=r"t\.tar\.gz"):
        read_tar(path, ("good",), max_bytes=10_000)


def test_a_cut_archive_is_one_error(tmp_path):
    path = write_tar(tmp_path / "t.tar.gz", member("good", bytes(range(256)) * 50))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataFileError, match="damaged"):
        read_tar(path, ("good",), max_bytes=100_000)


def test_gzip_gives_no_more_than_allowed(tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(50_000_000)))
    with pytest.raises(DataFileError, match="more than 1,000 bytes come out"):
        gunzip(path, max_bytes=1000)
    assert len(gunzip(path, max_bytes=50_000_000)) == 50_000_000
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataFileError, match="damaged"):
        gunzip(path, max_bytes=50_000_000)


@pytest.mark.parametrize(("name", "mode"), [("../evil", 0o644), ("/evil", 0o644), ("link", 0o120777)])
def test_zip_members_are_looked_at_the_same_way(tmp_path, name, mode):
    path = tmp_path / "z.npz"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, "x")
    with pytest.raises(DataFileError, match="Refused"):
        check_zip(path, max_bytes=1000)


def test_zip_sizes_are_added_up(tmp_path):
    path = tmp_path / "z.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for index in range(3):
            archive.writestr(f"{index}.npy", bytes(400))
    check_zip(path, max_bytes=1200)
    with pytest.raises(DataFileError, match="more than 1,199 bytes"):
        check_zip(path, max_bytes=1199)
    path.write_bytes(b"no zip")
    with pytest.raises(DataFileError, match="damaged or of another kind"):
        check_zip(path, max_bytes=1000)
