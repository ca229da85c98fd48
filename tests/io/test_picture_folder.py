"""A folder of pictures is read whole or in batches, labelled by sub-folder or by a CSV file."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from esad import labels
from esad.errors import DataFileError, InputError, MissingExtraError
from esad.io.picture_folder import Pictures, open_folder


def fill(folder: Path, *names: str, mode: str = "L", size: tuple[int, int] = (4, 3)) -> Path:
    """Pictures whose pixels all hold their position in `names`."""
    for value, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", size, value).convert(mode).save(folder / name)
    return folder


def words(folder: Pictures) -> list[str | None]:
    assert folder.label_words is not None
    return list(folder.label_words)


def joined(batches: list[Pictures]) -> np.ndarray:
    return np.concatenate([batch.images for batch in batches])


def test_pictures_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    folder = open_folder(fill(tmp_path, "b.png", "a/2.JPG", "a/1.jpeg", "a.png", "a/sub/0.png")).read()
    assert folder.ids == ("a.png", "a/1.jpeg", "a/2.JPG", "a/sub/0.png", "b.png")
    assert folder.images[:, 0, 0, 0].tolist() == [3, 2, 1, 4, 0]
    assert folder.images.shape == (5, 1, 3, 4)
    assert folder.images.dtype == np.uint8
    assert words(folder) == [None, "a", "a", "a", None]


def test_sub_folders_label_and_flat_folders_do_not(tmp_path: Path) -> None:
    nested = open_folder(fill(tmp_path / "n", "anomaly/1.png", "normal/1.png", "unlabelled/deep/1.png", "1.png")).read()
    assert nested.label_words is not None
    assert labels.from_column(nested.label_words).tolist() == [0, -1, 1, 0]
    assert open_folder(fill(tmp_path / "f", "1.png", "2.png")).read().label_words is None


def test_other_sub_folder_names_are_kept_for_the_user_to_map(tmp_path: Path) -> None:
    folder = open_folder(fill(tmp_path, "crack/1.png", "fine/1.png")).read()
    assert words(folder) == ["crack", "fine"]
    assert folder.label_words is not None
    assert labels.from_column(folder.label_words, anomaly_value="crack", normal_value="fine").tolist() == [-1, 1]


def test_grey_and_colour_mix_to_rgb(tmp_path: Path) -> None:
    fill(tmp_path, "1.png")
    fill(tmp_path, "2.png", mode="RGB")
    assert open_folder(tmp_path).read().images.shape == (2, 3, 3, 4)
    assert open_folder(tmp_path, channels=1).read().images.shape == (2, 1, 3, 4)


def test_grey_can_be_read_as_rgb_for_a_model_of_rgb(tmp_path: Path) -> None:
    assert open_folder(fill(tmp_path, "1.png"), channels=3).read().images.shape == (1, 3, 3, 4)
    with pytest.raises(InputError, match="`channels` must be 1"):
        open_folder(tmp_path, channels=2)


def test_one_picture_of_16_bits_makes_all_float(tmp_path: Path) -> None:
    fill(tmp_path, "1.png", "2.png")
    Image.fromarray(np.full((3, 4), 65535, dtype=np.uint16)).save(tmp_path / "3.png")
    images = open_folder(tmp_path).read().images
    assert images.dtype == np.float32
    np.testing.assert_allclose(images[:, 0, 0, 0], [0, 1 / 255, 1])


def test_batches_hold_the_same_as_the_whole(tmp_path: Path) -> None:
    fill(tmp_path, *(f"{'anomaly' if number % 3 else 'normal'}/{number:02}.png" for number in range(10)))
    fill(tmp_path, "normal/99.png", mode="RGB")  # only in the last batch, yet all batches are RGB
    folder = open_folder(tmp_path)
    whole, batches = folder.read(), list(folder.batches(4))
    assert [len(batch.ids) for batch in batches] == [4, 4, 3]
    assert sum((batch.ids for batch in batches), ()) == whole.ids
    assert [word for batch in batches for word in words(batch)] == words(whole)
    np.testing.assert_array_equal(joined(batches), whole.images)


def test_batches_of_large_pictures_are_smaller(tmp_path: Path) -> None:
    fill(tmp_path, "1.png", "2.png", "3.png", size=(4096, 4096))
    assert [len(batch.images) for batch in open_folder(tmp_path).batches()] == [2, 1]


def test_hidden_and_other_files_are_ignored_with_one_warning(tmp_path: Path) -> None:
    fill(tmp_path, "1.png", ".hidden/2.png", ".3.png")
    (tmp_path / "notes.txt").touch()
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.warns(UserWarning, match=r"4 files in .* ignored: \.3\.png, \.hidden, notes\.txt, \.\.\.") as caught:
        assert open_folder(tmp_path).ids == ("1.png",)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    fill(tmp_path / "else", "1.png", "2.png")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "anomaly").symlink_to(tmp_path / "else")
    (folder / "one.png").symlink_to(tmp_path / "else" / "1.png")
    (tmp_path / "else" / "circle").symlink_to(folder)
    assert open_folder(folder).read().ids == ("anomaly/1.png", "anomaly/2.png", "one.png")


def test_link_to_nothing_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "1.png")
    (tmp_path / "2.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataFileError, match=r"2\.png'.*No such file"):
        open_folder(tmp_path).read()


@pytest.mark.filterwarnings("ignore:1 file in")
def test_folder_without_pictures_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for path, message in (
        (tmp_path, "no file in it or its sub-folders ends in .png"),
        (tmp_path / "no", "no such"),
        (tmp_path / "notes.txt", "a file"),
    ):
        with pytest.raises(DataFileError, match=message) as caught:
            open_folder(path)
        assert "\n" not in str(caught.value)


def test_two_sizes_are_refused_naming_a_picture_of_each(tmp_path: Path) -> None:
    fill(tmp_path, "a.png", "b.png")
    fill(tmp_path, "c.png", size=(8, 8))
    with pytest.raises(DataFileError, match=r"a\.png' is 4 x 3 pixels, '.*c\.png' 8 x 8"):
        open_folder(tmp_path)


def test_several_sizes_are_read_at_the_most_frequent_or_the_one_wanted(tmp_path: Path) -> None:
    fill(tmp_path, "a.png", "b.bmp", size=(40, 30))
    fill(tmp_path, "c.tif", "d.jpg", "e.tiff", size=(80, 20))
    for resize, width, height in ((100, 80, 20), (40, 40, 10), ((8, 6), 8, 6)):
        folder = open_folder(tmp_path, resize=resize).read()
        assert folder.images.shape == (5, 1, height, width)
        np.testing.assert_allclose(folder.images[:, 0, 0, 0], [0, 1, 0, 1, 2], atol=1)
    assert open_folder(tmp_path, resize=(8, 6)).resizing == (
        "5 pictures of 40 x 30 to 80 x 20 pixels are read at 8 x 6, which stretches 3 of them."
    )
    assert open_folder(tmp_path / "a.png", resize=(40, 30)).resizing == ""


def test_one_picture_is_a_folder_of_one(tmp_path: Path) -> None:
    fill(tmp_path, "anomaly/1.png", "anomaly/2.png")
    folder = open_folder(tmp_path / "anomaly" / "2.png").read()
    assert folder.ids == ("2.png",)
    assert folder.images[0, 0, 0, 0] == 1
    assert folder.label_words is None


def test_unreadable_picture_is_named(tmp_path: Path) -> None:
    fill(tmp_path, "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    with pytest.raises(DataFileError, match=r"b\.png'"):
        open_folder(tmp_path).read()


def test_missing_pillow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, "a.png")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"\[image\]"):
        open_folder(tmp_path).read()


@pytest.mark.parametrize("header", ["file,label", "picture,class", "label,file,more"])
def test_csv_labels_by_column_name_or_by_place(tmp_path: Path, header: str) -> None:
    fill(tmp_path, "1.png", "2.png", "sub/3.png", "sub/4.png")
    rows = [("1.png", "anomaly"), ("./sub/3.png", "007"), (str(tmp_path / "sub" / "4.png"), "")]
    if header.startswith("label"):
        lines = [f"{label},{file},x" for file, label in rows]
    else:
        lines = [f"{file},{label}" for file, label in rows]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join([header, *lines]) + "\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the table itself is not counted as a stray file
        folder = open_folder(tmp_path, labels_csv=table)
    assert words(folder.read()) == ["anomaly", None, "007", None]
    assert words(next(folder.batches(1))) == ["anomaly"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("file,label\n9.png,anomaly\n", r"no picture '9\.png' in"),
        ("file,label\n../1.png,anomaly\n", r"no picture '\.\./1\.png' in"),
        ("file,label\n1.png,anomaly\n./1.png,normal\n", "is there twice"),
        ("file,label\n,anomaly\n", "names no file"),
        ("1.png,anomaly\n2.png,normal\n", "first line must be the header"),
        ("a,b,c\n1.png,anomaly,x\n", "needs the columns 'file' and 'label'"),
        ("file\n1.png\n", "needs the columns 'file' and 'label'"),
        ("file,label\n", "no rows"),
        ("", "empty"),
    ],
)
def test_unusable_csv_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(content)
    fill(tmp_path / "folder", "1.png", "2.png")
    with pytest.raises(DataFileError, match=message) as caught:
        open_folder(tmp_path / "folder", labels_csv=table)
    assert "\n" not in str(caught.value)


def test_large_photos_are_decoded_one_at_a_time_and_small(tmp_path: Path) -> None:
    for number in range(6):
        Image.new("RGB", (4000, 3000), (number, 99, 200)).save(tmp_path / f"{number}.{'png' if number < 2 else 'jpg'}")
    script = (
        "import resource, sys; from esad.io.picture_folder import open_folder; import PIL.Image\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "shape = open_folder(sys.argv[1], resize=128).read().images.shape\n"
        "print(*shape, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=True)
    *shape, kibibytes = map(int, done.stdout.split())
    assert shape == [6, 3, 96, 128]
    assert kibibytes < 150_000  # one picture takes 36 MB, all of them 216 MB
