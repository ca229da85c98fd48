"""One broken picture in a folder: scoring sets it aside, fitting stops or, when told so, goes on without it."""

import numpy as np
import pytest

PILLOW = pytest.importorskip("PIL.Image")
FAST = ("--set", "n_epochs=1", "--set", "hidden=[4, 4]", "--set", "latent=4")


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    for word, n_pictures in (("unlabelled", 20), ("anomaly", 3)):
        (folder / word).mkdir(parents=True)
        for number in range(n_pictures):
            pixels = rng.integers(0, 256, size=(8, 8), dtype=np.uint8)
            PILLOW.fromarray(pixels).save(folder / word / f"{number}.png")
    return folder


@pytest.fixture
def broken(pictures):
    """A picture that is none, and one whose beginning is sound."""
    (pictures / "unlabelled" / "5.png").write_bytes(b"no picture")
    whole = (pictures / "anomaly" / "1.png").read_bytes()
    (pictures / "anomaly" / "1.png").write_bytes(whole[:-40])
    return pictures


@pytest.fixture
def model(pictures, esad, tmp_path):
    done = esad("fit", pictures, "--out", tmp_path / "m.esad", "--quiet", *FAST)
    assert done.code == 0, done.err
    return tmp_path / "m.esad"


def test_scoring_sets_broken_pictures_aside(model, broken, esad, tmp_path):
    done = esad("score", model, broken, "--out", tmp_path / "scores.csv")
    assert done.code == 1
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert len(lines) == 1 + 21
    assert not [line for line in lines if line.startswith(("unlabelled/5.png", "anomaly/1.png"))]
    assert "anomaly/1.png is set aside: Cannot read the picture" in done.err
    assert "error: 2 pictures could not be scored." in done.err
    found = esad("score", model, broken, "--json")
    assert found.code == 1
    assert [failure["file"] for failure in found.json["failures"]] == ["anomaly/1.png", "unlabelled/5.png"]
    assert found.json["n_rows"] == 21


def test_a_folder_of_broken_pictures_is_one_line(model, tmp_path, esad):
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "1.png").write_bytes(b"no picture")
    done = esad("score", model, tmp_path / "all", "--out", tmp_path / "scores.csv")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "None of the pictures in" in done.err
    assert not (tmp_path / "scores.csv").exists()


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_fitting_names_the_picture_and_can_leave_it_out(broken, esad, tmp_path, way):
    args = ("fit", broken, "--out", tmp_path / "m.esad", way, *FAST)
    done = esad(*args)
    assert (done.code, done.err.count("error: ")) == (2, 1)
    assert "5.png'" in done.err and "--skip-broken" in done.err
    assert not (tmp_path / "m.esad").exists()
    skipped = esad(*args, "--skip-broken", "--json")
    assert skipped.code == 0, skipped.err
    assert "2 pictures that cannot be read are left out: 'anomaly/1.png', 'unlabelled/5.png'" in skipped.err
    assert set(skipped.json["data"]["broken"]) == {"anomaly/1.png", "unlabelled/5.png"}
    assert skipped.json["data"]["n_rows"] == 21
    assert skipped.json["data"]["labels"] == {"n_anomaly": 2, "n_unlabelled": 19, "n_normal": 0}


def test_the_option_is_for_pictures(parts, esad, tmp_path):
    done = esad("fit", parts, "--out", tmp_path / "m.esad", "--skip-broken")
    assert done.code == 2
    assert "--skip-broken is for a folder of pictures" in done.err
