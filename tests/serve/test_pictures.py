"""Pictures get the scores of `esad score`; bombs, wrong sizes and names that lead elsewhere do no harm."""

import csv
import io
import struct
import threading
import time
import zlib

import numpy as np
import pytest
from serving import npy, refused

from esad.cli.app import run
from esad.serve import bodies


def picture(form="PNG", size=(12, 10), mode="L", colour=50):
    image = pytest.importorskip("PIL.Image")
    sink = io.BytesIO()
    image.new(mode, size, colour).save(sink, form)
    return sink.getvalue()


def test_pictures_get_the_scores_of_esad_score(send, asking, pictures, tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(3)
    (tmp_path / "new").mkdir()
    contents = {}
    for name in ("a.png", "b.png", "c.jpg"):
        path = tmp_path / "new" / name
        image.fromarray(rng.integers(0, 255, size=(10, 12), dtype=np.uint8)).save(path)
        contents[name] = path.read_bytes()
    assert run(["score", str(pictures), str(tmp_path / "new"), "--out", str(tmp_path / "scores.csv")]) == 0
    expected = {
        row["file"]: float(row["score"]) for row in csv.DictReader(io.StringIO((tmp_path / "scores.csv").read_text()))
    }
    files = [("files", (name, content)) for name, content in contents.items()]
    found = asking(pictures)("POST", "/score", files=files).json()
    assert {row["id"]: row["score"] for row in found["rows"]} == expected
    for name, content in contents.items():
        media_type = bodies.PNG if name.endswith("png") else bodies.JPEG
        (row,) = send(pictures, media_type, content).json()["rows"]
        assert row["score"] == expected[name]
    pixels = np.stack([np.asarray(image.open(tmp_path / "new" / name)) for name in ("a.png", "b.png")])
    found = send(pictures, bodies.NPY, npy(pixels)).json()
    assert [row["score"] for row in found["rows"]] == [expected["a.png"], expected["b.png"]]


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def bomb(width, height):
    """A PNG that claims a size; its pixels are zeros without end."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(10_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no picture", "the picture"),
        (picture(size=(12, 11)), "12 x 10"),
        (picture()[:45], "the picture"),
        (bomb(60_000, 60_000), "pixels"),
        (bomb(5000, 5000), "12 x 10"),
        (bomb(0x7FFFFFFF, 0x7FFFFFFF), "pixels"),
        (picture("GIF"), "the picture"),
    ],
)
def test_pictures_that_are_refused(send, pictures, body, words):
    message = refused(send(pictures, bodies.PNG, body), 422)
    assert words in message
    assert "esad-" not in message


def test_a_picture_with_more_pixels_than_it_says_is_read_as_it_says(send, pictures):
    assert send(pictures, bodies.PNG, bomb(12, 10)).status_code in (200, 422)


def test_a_picture_of_a_million_empty_chunks_is_given_up_and_others_are_read_meanwhile(asking, pictures):
    ask = asking(pictures)
    sound = picture()
    ask("POST", "/score", content=sound, headers={"content-type": bodies.PNG})
    after_head = 8 + 25  # bytes: the signature, the first chunk
    endless = sound[:after_head] + chunk(b"teSt", b"") * 1_300_000 + sound[after_head:]
    answers = []
    slow = threading.Thread(
        target=lambda: answers.append(ask("POST", "/score", content=endless, headers={"content-type": bodies.PNG}))
    )
    slow.start()
    time.sleep(0.3)
    assert ask("POST", "/score", content=sound, headers={"content-type": bodies.PNG}).status_code == 200
    assert slow.is_alive()
    slow.join()
    assert "2.01 s" in refused(answers[0], 413)
    assert ask("POST", "/score", content=sound, headers={"content-type": bodies.PNG}).status_code == 200


def test_many_small_files_that_become_too_much(asking, pictures, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_UNPACKED", 4 * 120 * 3)
    files = [("files", (f"{number}.png", picture())) for number in range(4)]
    assert refused(asking(pictures)("POST", "/score", files=files), 413)
    assert asking(pictures)("POST", "/score", files=files[:3]).status_code == 200


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\x1b[2Jb.png", "x" * 1000, "\u202egnp.a"])
def test_names_of_uploads_lead_nowhere(asking, pictures, name):
    found = asking(pictures)("POST", "/score", files=[("files", (name, picture()))])
    assert found.status_code == 200, found.text
    shown = found.json()["rows"][0]["id"]
    assert len(shown) <= 200
    assert shown.isprintable()


def test_forms_that_are_refused(asking, pictures):
    ask = asking(pictures, max_rows=2)
    assert refused(ask("POST", "/score", files=[("files", ("a.png", picture()))], data={"field": "text"}), 422)
    assert refused(ask("POST", "/score", files=[("files", (f"{n}.png", picture())) for n in range(3)]), 413)
    bad = {"content-type": "multipart/form-data; boundary=x"}
    assert refused(ask("POST", "/score", content=b"--y\r\n", headers=bad), 400)
    assert refused(ask("POST", "/score", content=b"--x--\r\n", headers=bad), 422)
    assert refused(ask("POST", "/score", content=b"abc", headers={"content-type": "multipart/form-data"}), 400)
