"""Pictures get the scores of `esad score`; bombs, wrong sizes and names that lead elsewhere do no harm."""

import csv
import io
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from serving import npy, refused

from esad.cli.app import run
from esad.serve import bodies
from esad.serve.app import Service
from esad.web.server import in_background


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
        (picture("BMP"), "neither PNG nor JPEG"),
        (picture("TIFF"), "neither PNG nor JPEG"),
    ],
)
def test_pictures_that_are_refused(send, pictures, body, words):
    message = refused(send(pictures, bodies.PNG, body), 422)
    assert words in message
    assert "esad-" not in message


def test_a_picture_with_more_pixels_than_it_says_is_read_as_it_says(send, pictures):
    assert send(pictures, bodies.PNG, bomb(12, 10)).status_code in (200, 422)


def jpeg(**options):
    image = pytest.importorskip("PIL.Image")
    sink = io.BytesIO()
    image.effect_noise((12, 10), 90).save(sink, "JPEG", **options)
    return sink.getvalue()


AFTER_HEAD = 8 + 25  # bytes of a PNG: the signature, the first chunk
LAST_SCAN = jpeg(progressive=True).rpartition(b"\xff\xda")[2][:-2]
TINY_PIECES = {
    "chunks": picture()[:AFTER_HEAD] + chunk(b"teSt", b"") * 1_300_000 + picture()[AFTER_HEAD:],
    "pixels": picture()[:AFTER_HEAD] + chunk(b"IDAT", b"") * 9000 + picture()[AFTER_HEAD:],
    "segments": jpeg()[:2] + b"\xff\xfe\x00\x02" * 100_000 + jpeg()[2:],
    "fillers": jpeg()[:2] + b"\xff" * 100_000 + jpeg()[2:],
    "markers": jpeg()[:2] + b"\xff\xf0\xff\xff" + b"\xff" * 100_000 + jpeg()[2:],
    "scans": jpeg(progressive=True)[:-2] + (b"\xff\xda" + LAST_SCAN) * 101 + b"\xff\xd9",
}


@pytest.mark.parametrize("body", TINY_PIECES.values(), ids=TINY_PIECES)
def test_pictures_of_very_many_tiny_pieces_are_refused_unread(send, pictures, body):
    assert "too many pieces" in refused(send(pictures, bodies.PNG, body), 413)


def test_many_such_pictures_hold_nobody_up(asking, pictures):
    ask = asking(pictures)
    files = [("files", (f"{number}.png", picture()[:AFTER_HEAD] + chunk(b"teSt", b"") * 900)) for number in range(20)]
    assert "too many pieces" in refused(ask("POST", "/score", files=files), 413)
    with in_background(Service(pictures).guard) as url, ThreadPoolExecutor(7) as pool:

        def post(body):
            return httpx.post(f"{url}/score", content=body, headers={"content-type": bodies.PNG}, timeout=60)

        for _ in range(2):  # both readers are started
            post(picture())
        answers = list(pool.map(post, [TINY_PIECES["chunks"]] * 6 + [picture()]))
    assert answers.pop().status_code == 200
    assert all("too many pieces" in refused(answer, 413) for answer in answers)  # and not the time that it took


def test_ordinary_pictures_pass(asking, send, pictures):
    noise = pytest.importorskip("PIL.Image").effect_noise((12, 10), 90)
    exif = noise.getexif()
    exif[0x010E] = "a camera" * 8000
    found = [
        jpeg(),
        jpeg(progressive=True),
        jpeg(restart_marker_blocks=1, optimize=True),
        jpeg(exif=exif, icc_profile=bytes(3_000_000)),
        jpeg() + b"\xff\xda" * 5000,  # as cameras put a film behind the picture
        picture(mode="RGBA"),
        picture(mode="P"),
        picture(mode="1"),
        picture()[:AFTER_HEAD] + chunk(b"tEXt", b"name\0text") * 300 + picture()[AFTER_HEAD:],
        picture()[:AFTER_HEAD] + chunk(b"IDAT", b"") * 4096 + picture()[AFTER_HEAD:],  # as where each line is one
    ]
    for body in found:
        assert send(pictures, bodies.PNG, body).status_code == 200
    many = [("files", (f"{number}.jpg", jpeg(progressive=True))) for number in range(200)]
    assert asking(pictures)("POST", "/score", files=many).status_code == 200


def test_pictures_that_take_too_long_are_given_up(asking, pictures, monkeypatch):
    monkeypatch.setattr(bodies, "PICTURE_SECONDS", -2.0)
    ask = asking(pictures)
    files = [("files", (f"{number}.png", picture())) for number in range(200)]
    assert "more than 0 s" in refused(ask("POST", "/score", files=files), 413)
    monkeypatch.undo()
    assert ask("POST", "/score", files=files).status_code == 200


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
