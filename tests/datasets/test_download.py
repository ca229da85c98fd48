"""Downloads arrive whole and checked, or leave one clear error and nothing that could be taken for the file."""

import hashlib
import socket
from pathlib import Path

import numpy as np
import pytest

from esad.datasets import download
from esad.datasets.download import Remote, download_files, fetch
from esad.errors import DataFileError, OutputError

CONTENT = np.random.default_rng(0).bytes(300_000)
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def served(site):
    site.files["data.bin"] = CONTENT
    return site


def left(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives_whole_and_is_reported(served, tmp_path):
    told = []
    fetch(
        served.url("data.bin"),
        tmp_path / "d",
        md5=MD5,
        sha256=SHA256,
        report=lambda *a: told.append(a),
    )
    assert (tmp_path / "d").read_bytes() == CONTENT
    assert left(tmp_path) == ["d"]
    assert told[-1] == ("d", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


@pytest.mark.parametrize("checksum", [{"md5": MD5}, {}])
def test_a_cut_connection_is_continued_where_it_broke(served, tmp_path, checksum):
    served.cuts = [100_000, 50_000]
    fetch(served.url("data.bin"), tmp_path / "d", **checksum)
    assert (tmp_path / "d").read_bytes() == CONTENT
    assert [wanted for _, wanted in served.asked] == [None, "bytes=100000-", "bytes=150000-"]


def test_a_server_without_ranges_starts_over(served, tmp_path):
    served.cuts, served.has_ranges = [100_000], False
    fetch(served.url("data.bin"), tmp_path / "d", md5=MD5)
    assert (tmp_path / "d").read_bytes() == CONTENT


def test_a_connection_that_always_breaks_is_given_up_and_the_part_is_kept(served, tmp_path):
    served.cuts = [10_000] * 4
    with pytest.raises(DataFileError, match=r"data.bin: the connection ended after 40,000 of 300,000 bytes. Tried 4"):
        fetch(served.url("data.bin"), tmp_path / "d", md5=MD5)
    assert left(tmp_path) == ["d.part"]
    fetch(served.url("data.bin"), tmp_path / "d", md5=MD5)
    assert served.asked[-1][1] == "bytes=40000-"
    assert (tmp_path / "d").read_bytes() == CONTENT


def test_an_old_part_is_not_trusted_without_a_checksum(served, tmp_path):
    (tmp_path / "d.part").write_bytes(b"other")
    fetch(served.url("data.bin"), tmp_path / "d")
    assert served.asked == [("data.bin", None)]
    assert (tmp_path / "d").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"other", CONTENT + b"more", CONTENT])
def test_a_part_that_does_not_fit_is_thrown_away(served, tmp_path, part):
    (tmp_path / "d.part").write_bytes(part)
    fetch(served.url("data.bin"), tmp_path / "d", sha256=SHA256)
    assert (tmp_path / "d").read_bytes() == CONTENT
    assert left(tmp_path) == ["d"]


def test_a_range_that_begins_elsewhere_is_not_appended(served, tmp_path):
    served.cuts, served.shift = [100_000], 7
    fetch(served.url("data.bin"), tmp_path / "d")
    assert (tmp_path / "d").read_bytes() == CONTENT


@pytest.mark.parametrize("wrong", [{"md5": "0" * 32}, {"sha256": "0" * 64}])
def test_another_file_than_expected_is_not_kept(served, tmp_path, wrong):
    with pytest.raises(DataFileError, match=r"data\.bin"):
        fetch(served.url("data.bin"), tmp_path / "d", **wrong)
    assert "d" not in left(tmp_path)


def test_a_missing_file_is_asked_for_once(served, tmp_path):
    with pytest.raises(DataFileError, match=r"/gone: the server answered 404 Not Found"):
        fetch(served.url("gone"), tmp_path / "d")
    assert (len(served.asked), left(tmp_path)) == (1, [])


def test_a_busy_server_is_asked_again(served, tmp_path):
    served.statuses = [503, 429]
    fetch(served.url("data.bin"), tmp_path / "d", md5=MD5)
    assert len(served.asked) == 3


def test_redirects_on_the_web_are_followed(served, tmp_path):
    served.redirects = {"old": "/data.bin"}
    fetch(served.url("old"), tmp_path / "d", md5=MD5)
    assert (tmp_path / "d").read_bytes() == CONTENT


@pytest.mark.parametrize("place", ["file:///etc/hostname", "ftp://127.0.0.1/data.bin"])
def test_redirects_that_leave_the_web_are_refused(served, tmp_path, place):
    served.redirects = {"old": place}
    with pytest.raises(DataFileError, match=place):
        fetch(served.url("old"), tmp_path / "d")
    assert left(tmp_path) == []


def test_a_safe_connection_is_not_left_for_an_open_one():
    with pytest.raises(DataFileError, match="leads from https to http://a/b"):
        download._check_scheme("http://a/b", came_from="https://a/b")
    download._check_scheme("https://a/b", came_from="http://a/b")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://a/b", "data:,hello", "no address"])
def test_only_web_addresses_are_used(tmp_path, url):
    with pytest.raises(DataFileError, match="only http and https"):
        fetch(url, tmp_path / "d")


def test_a_server_that_says_nothing_is_not_waited_for(served, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_ATTEMPTS", 2)
    monkeypatch.setattr(download, "_TIMEOUT", 0.05)
    served.delay = 0.5
    with pytest.raises(DataFileError, match=r"timed out\. Tried 2 times. Check the network"):
        fetch(served.url("data.bin"), tmp_path / "d")
    assert left(tmp_path) == []


def test_without_a_network_the_address_and_the_reason_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_PAUSE", 0.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/data.bin"
        with pytest.raises(DataFileError, match=f"Cannot download {url}: .*refused"):
            fetch(url, tmp_path / "d")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_is_told_and_leaves_nothing(served, tmp_path):
    (tmp_path / "d.part").symlink_to("/dev/full")
    with pytest.raises(OutputError, match=r"d\.part': No space left on device\. Free some space"):
        fetch(served.url("data.bin"), tmp_path / "d", md5=MD5)
    assert left(tmp_path) == []


def test_more_than_may_come_is_refused_before_it_is_written(served, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_MAX_BYTES", 1000)
    with pytest.raises(DataFileError, match="more than the 1,000 bytes"):
        fetch(served.url("data.bin"), tmp_path / "d")
    assert left(tmp_path) == []


def test_the_next_address_is_tried_and_files_go_when_they_were_used(served, tmp_path):
    remotes = [Remote((served.url("gone/a"), served.url("data.bin")), md5=MD5), Remote((served.url("data.bin"),))]
    with download_files(remotes[:1], tmp_path, "set") as (path,):
        assert path.read_bytes() == CONTENT
        assert path.name == "a"
    assert left(tmp_path) == []
    with pytest.raises(DataFileError, match="404"), download_files([Remote((served.url("gone"),))], tmp_path, "set"):
        pass


def test_after_an_interruption_whole_files_are_not_fetched_again(served, tmp_path):
    remotes = [Remote((served.url("data.bin"),), md5=MD5)]
    with pytest.raises(KeyboardInterrupt), download_files(remotes, tmp_path, "set"):
        raise KeyboardInterrupt
    with download_files(remotes, tmp_path, "set"):
        pass
    assert len(served.asked) == 1


def test_files_that_turn_out_useless_are_not_used_again(served, tmp_path):
    remotes = [Remote((served.url("data.bin"),))]
    with pytest.raises(DataFileError), download_files(remotes, tmp_path, "set"):
        raise DataFileError("other counts")
    with download_files(remotes, tmp_path, "set"):
        pass
    assert len(served.asked) == 2
