"""Pictures as cameras leave them: large, of several sizes and formats, one at a time."""

import numpy as np
import pytest

from esad.cli import output

PILLOW = pytest.importorskip("PIL.Image")
FAST = ("--set", "n_epochs=1", "--set", "hidden=[4, 4]", "--set", "latent=4")


@pytest.fixture
def photos(tmp_path):
    """Most of them 400 x 300 pixels, each format and two other sizes besides."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    sizes = {"bmp": (400, 300), "tif": (420, 300), "png": (300, 300), "jpg": (400, 300)}
    for number in range(24):
        suffix = list(sizes)[number % 4] if number < 12 else "jpg"
        place = folder / ("anomaly" if number < 4 else "unlabelled")
        place.mkdir(parents=True, exist_ok=True)
        width, height = sizes[suffix]
        pixels = rng.integers(0, 256, size=(height, width), dtype=np.uint8)
        PILLOW.fromarray(pixels).save(place / f"{number:02}.{suffix}")
    return folder


def test_photos_of_any_size_are_learned_from_and_scored(photos, esad, tmp_path):
    model, scores = tmp_path / "m.esad", tmp_path / "scores.csv"
    done = esad("fit", photos, "--out", model, *FAST)
    assert done.code == 0, done.err
    assert "24 pictures of 300 x 300 to 420 x 300 pixels are read at 128 x 96" in done.err
    assert "--resize sets another size" in done.err
    assert "24 grey pictures of 128 x 96 pixels" in done.out
    done = esad("score", model, photos, "--out", scores)
    assert done.code == 0, done.err
    whole = dict(line.split(",")[:2] for line in scores.read_text().splitlines()[1:])
    assert len(whole) == 24
    one = esad("score", model, photos / "anomaly" / "02.png", "--json", "--top", "1")
    assert one.code == 0, one.err
    assert one.json["top"][0]["file"] == "02.png"
    assert one.json["top"][0]["score"] == pytest.approx(float(whole["anomaly/02.png"]), abs=1e-4)
    explained = esad("explain", model, photos / "anomaly" / "01.tif", "--json")
    assert explained.code == 0, explained.err
    assert explained.json["rows"][0]["file"] == "01.tif"


@pytest.mark.parametrize(("size", "shape"), [("48", [1, 36, 48]), ("40x20", [1, 20, 40])])
def test_the_size_can_be_set(photos, esad, tmp_path, size, shape):
    done = esad("fit", photos, "--out", tmp_path / "m.esad", "--resize", size, "--json", *FAST)
    assert done.code == 0, done.err
    assert done.json["data"]["shape"] == shape


def test_sizes_can_be_left_alone_if_they_are_alike(photos, esad, tmp_path):
    assert "Pictures must be of one size" in esad("fit", photos, "-o", tmp_path / "m.esad", "--resize", "none").err
    wrong = esad("fit", photos, "-o", tmp_path / "m.esad", "--resize", "small")
    assert (wrong.code, "no size" in wrong.err) == (2, True)
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    assert "--resize is for" in esad("fit", tmp_path / "t.csv", "-o", tmp_path / "m.esad", "--resize", "9").err


def test_a_long_command_away_from_a_terminal_says_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(output, "_FIRST_LINE", 10.0)
    now = [0.0]
    with output.bar(get_time=lambda: now[0]) as progress:
        task = progress.add_task("training", total=100)
        for step in range(1, 101):
            now[0] += 1.0
            progress.update(task, completed=step)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training: 10 %, about 0:01:30 left"
    assert 4 <= len(lines) <= 8
    with output.bar(get_time=lambda: now[0]) as progress:
        progress.advance(progress.add_task("reading", total=3))
    assert capsys.readouterr().err == ""
