"""esad data get and esad data status, against a server of our own."""

import io
import threading
import time

import numpy as np
import pytest

from esad import registry
from esad.datasets.folder import lock_folder
from esad.datasets.sources import odds


@pytest.fixture
def table(site, tmp_path, monkeypatch):
    """A table on the network that will be known as thyroid, and an empty data folder."""
    packed = io.BytesIO()
    np.savez(packed, X=np.arange(12.0).reshape(6, 2), y=np.array([0, 0, 0, 0, 1, 1]))
    site.files["38_thyroid.npz"] = packed.getvalue()
    monkeypatch.setitem(odds._URLS, "thyroid", site.url("38_thyroid.npz"))
    monkeypatch.setitem(odds._COUNTS, "thyroid", (6, 2, 2))
    monkeypatch.setenv("ESAD_DATA", str(tmp_path / "data"))
    return tmp_path / "data" / "odds" / "thyroid.npz"


def state(esad, name="thyroid"):
    return next(one for one in esad("data", "status", "--json").json["data_sets"] if one["name"] == name)


def test_a_set_is_got_once_and_then_used(esad, site, table):
    assert state(esad) == {"name": "thyroid", "path": None, "n_bytes": None, "state": "missing", "can_be_got": True}
    done = esad("data", "get", "thyroid")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{table}: ")
    assert "written" in done.out
    assert state(esad)["state"] == "verified"
    assert "already there (verified)" in esad("data", "get", "thyroid").out
    assert len(site.asked) == 1
    assert registry.load_data_set("thyroid").truth.sum() == 2


def test_two_that_get_the_same_set_fetch_it_once(esad, site, table):
    folder, began = table.parent.parent, threading.Event()

    def first():
        with lock_folder(folder):
            began.set()
            time.sleep(0.5)  # the second one finds nothing there, and waits
            odds.get("thyroid", folder)

    thread = threading.Thread(target=first)
    thread.start()
    assert began.wait(30)
    done = esad("data", "get", "thyroid")
    thread.join()
    assert done.code == 0
    assert f"another process is getting data into {folder}: waiting for it" in done.err
    assert "already there" in done.out
    assert len(site.asked) == 1


def test_json_says_what_was_written(esad, table):
    found = esad("data", "get", "thyroid", "--json").json
    assert found == {
        "name": "thyroid",
        "out": str(table),
        "n_bytes": table.stat().st_size,
        "state": "verified",
        "written": True,
    }
    assert not esad("data", "get", "thyroid", "--json").json["written"]


def test_a_damaged_file_is_seen_and_got_again(esad, table):
    esad("data", "get", "thyroid")
    table.write_bytes(b"damaged")
    assert state(esad)["state"] == "damaged"
    assert "esad data get thyroid" in esad("data", "status").out
    assert "written" in esad("data", "get", "thyroid").out
    assert state(esad)["state"] == "verified"


def test_another_folder_is_named_together_with_the_way_to_use_it(esad, table, tmp_path):
    done = esad("data", "get", "thyroid", "--out", tmp_path / "other place")
    assert (tmp_path / "other place" / "odds" / "thyroid.npz").is_file()
    assert f"export ESAD_DATA='{tmp_path}/other place'" in done.out
    assert not table.exists()


def test_files_put_there_by_other_means_are_left_alone(esad, site, table):
    table.parent.mkdir(parents=True)
    table.write_bytes(b"mine")
    assert state(esad)["state"] == "unrecorded"
    assert "already there (unrecorded)" in esad("data", "get", "thyroid").out
    assert table.read_bytes() == b"mine"
    assert site.asked == []


def test_status_lists_every_set_for_people(esad, table):
    done = esad("data", "status")
    assert (done.code, done.err) == (0, "")
    assert str(table.parents[1]) in done.out
    for name in registry.data_set_names():
        assert name in done.out


def test_original_pictures_are_seen(esad, table):
    (table.parents[1] / "nih" / "images").mkdir(parents=True)
    assert state(esad, "nih_pa")["state"] == "original pictures"
    assert state(esad, "nih_pa")["path"] == "nih/images"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("thyroyd", "Unknown data set 'thyroyd'. Did you mean 'thyroid'? There are: 1_ALOI"),
        ("digits", "it is built in. Try: esad data save digits"),
        ("idc_breast", "idc_breast cannot be downloaded. Put idc_breast.npz into the data folder."),
        ("nih_pa", "NIH's lists are at https://nihcc.app.box.com"),
        ("camelyon16", "The lists are at https://github.com/ninatu/anomaly_detection"),
    ],
)
def test_what_cannot_be_got_is_told_in_one_line(esad, table, name, words):
    done = esad("data", "get", name)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1


def test_a_failed_download_is_one_line_and_leaves_nothing(esad, site, table, tmp_path):
    site.files.clear()
    done = esad("data", "get", "thyroid")
    assert (done.code, done.out) == (2, "")
    answered = "the server answered 404 Not Found. The file may have moved."
    assert done.err == f"error: Cannot download {site.url('38_thyroid.npz')}: {answered}\n"
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


def test_an_interrupted_download_says_so(esad, table, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(odds, "get", interrupt)
    done = esad("data", "get", "thyroid")
    assert (done.code, done.err) == (130, "interrupted: no result was written.\n")


def test_a_folder_that_cannot_be_written_is_one_line(esad, table, tmp_path):
    (tmp_path / "file").write_text("")
    done = esad("data", "get", "thyroid", "--out", tmp_path / "file")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "Cannot make the folder" in done.err


def test_saved_labels_come_from_the_anomalies_that_may_be_labelled(esad, tmp_path, monkeypatch):
    pytest.importorskip("PIL.Image")
    findings = np.zeros((40, 2), dtype=np.uint8)
    findings[:10, 0], findings[10:14, 1] = 1, 1
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    np.savez(
        tmp_path / "nih_part1.npz",
        images=np.zeros((40, 64, 64), dtype=np.uint8),
        anomaly=findings.any(axis=1),
        labels14=findings,
        label_names=np.array([b"Mass", b"Infiltration"]),
        official_test=np.arange(40) >= 30,
    )
    assert esad("data", "save", "nih_part1", "--out", tmp_path / "d", "--labels", 4).code == 0
    assert "from 0 to 4" in esad("data", "save", "nih_part1", "--out", tmp_path / "e", "--labels", 5).err
