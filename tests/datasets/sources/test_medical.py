"""Medical pictures: the lists say what the paper says, and small folders of the same form go all the way through."""

import gzip

import numpy as np
import pytest

from esad.datasets import scenario
from esad.datasets.sources import camelyon16, nih
from esad.errors import DataFileError


def count_text(split):
    """Normal and anomalous pictures to train with, those that may be labelled, normal and anomalous ones to test."""
    train = ~split.test
    return tuple(
        int(kind.sum())
        for kind in (
            train & ~split.anomaly,
            train & split.anomaly,
            train & split.labellable,
            split.test & ~split.anomaly,
            split.test & split.anomaly,
        )
    )


def lists_of(folder, name):
    if not (folder / name).is_dir():
        pytest.skip(f"needs {name} in the data folder")
    return folder


# ---------------------------------------------------------------------- the real lists


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("nih_pa", (34497, 21717, 4722, 4805, 6291)),
        ("nih_ap", (16003, 14307, 2605, 5056, 9444)),
    ],
)
def test_a_quarter_of_the_infiltrations_makes_the_papers_ratios(data_folder, name, counts):
    split = nih.read_split(name, lists_of(data_folder, "nih_lists"))
    assert count_text(split) == counts
    n_labelled = counts[2] / 4
    assert round(n_labelled / (n_labelled + counts[0]), 3) == nih.LABELLED_RATIOS[name]


def test_the_clearer_cases_are_those_of_the_lists(data_folder):
    """With the validation lists there are the paper's 5,110 and 857; it counts 677 anomalies where 667 are listed."""
    lists = lists_of(data_folder, "nih_lists")
    has_validation = (lists / "nih_lists/subset_normal/val.txt").is_file()
    split = nih.read_split("nih_subset", lists)
    assert count_text(split) == ((5110, 857, 857, 677, 667) if has_validation else (4261, 0, 0, 677, 667))


def test_camelyon16_has_the_papers_counts(data_folder):
    split = camelyon16.read_split(lists_of(data_folder, "camelyon16_lists"))
    assert count_text(split) == (7612, 2169, 200, 4000, 817)
    assert len(set(split.names)) == len(split.names)


def test_the_first_part_of_nih_is_split_officially(data_folder):
    if not (data_folder / "nih_part1.npz").is_file():
        pytest.skip("needs nih_part1.npz in the data folder")
    data = nih.load("nih_part1")
    assert (len(data.X), int(data.truth.sum()), int(data.labellable.sum())) == (4032, 1607, 327)
    assert (len(data.test.X), int(data.test.truth.sum())) == (967, 638)


# ---------------------------------------------------------------------- made-up chest X-rays

FINDINGS = ["No Finding", "Infiltration", "Infiltration|Mass", "Hernia"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def chests(folder):
    """Sixteen pictures: four findings, two views, two parts; a bright frame that the crop must cut off."""
    image = pytest.importorskip("PIL.Image")
    rows = ["Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"]
    tested = []
    (folder / "nih" / "images").mkdir(parents=True)
    for number in range(16):
        name = f"{number:08d}_000.png"
        rows.append(f"{name},{FINDINGS[number % 4]},0,{number},57,M,{'PA' if number % 8 < 4 else 'AP'}")
        tested += [name] if number >= 8 else []
        pixels = np.full((1024, 1024), 255, dtype=np.uint8)
        pixels[128:-128, 128:-128] = 10 * number
        picture = image.fromarray(pixels)
        (picture.convert("RGBA") if number == 3 else picture).save(folder / "nih" / "images" / name)
    (folder / "nih_lists").mkdir()
    (folder / "nih_lists" / "Data_Entry_2017_v2020.csv").write_text("\n".join(rows))
    (folder / "nih_lists" / "test_list.txt").write_text("\n".join(tested) + "\n")
    return folder


@pytest.mark.parametrize(("name", "first"), [("nih_pa", 0), ("nih_ap", 4)])
def test_a_view_is_cropped_scaled_and_split(chests, name, first):
    data = nih.load(name)
    assert data.X.shape == (4, 64, 64)
    assert [int(picture.min()) for picture in data.X] == [10 * (first + index) for index in range(4)]
    assert (data.X[:, :1, :1] == data.X).all()
    assert data.truth.tolist() == [False, True, True, True]
    assert data.labellable.tolist() == [False, True, False, False]
    assert len(data.test.X) == 4
    drawn = scenario.given(data, labelled_ratio=0.5, seed=0)
    assert drawn.X_train[drawn.y_train == -1].max() == 10 * (first + 1)


def test_a_set_that_was_made_once_is_read_from_its_file(chests):
    told = []
    nih.get("nih_pa", chests, lambda *so_far: told.append(so_far))
    assert told[-1] == ("pictures", 8, 8)
    before = nih.load("nih_pa")
    for picture in (chests / "nih" / "images").iterdir():
        picture.unlink()
    after = nih.load("nih_pa")
    assert (before.X == after.X).all()
    assert (before.labellable == after.labellable).all()
    assert (before.test.truth == after.test.truth).all()


def test_the_table_may_be_packed_and_the_test_list_named_otherwise(chests):
    lists = chests / "nih_lists"
    table = lists / "Data_Entry_2017_v2020.csv"
    (lists / "Data_Entry_2017_v2020.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    table.unlink()
    (lists / "test_list.txt").rename(lists / "official_test_list.txt")
    assert count_text(nih.read_split("nih_ap", chests)) == (1, 3, 1, 1, 3)


def test_the_subset_takes_validation_lists_into_training(chests):
    lists = chests / "nih_lists"
    for kind, part, numbers in (("normal", "train", (0, 4)), ("normal", "test", (8,)), ("anomaly", "test", (9,))):
        (lists / f"subset_{kind}").mkdir(exist_ok=True)
        (lists / f"subset_{kind}" / f"{part}.txt").write_text("".join(f"{number:08d}_000.png\n" for number in numbers))
    assert count_text(nih.read_split("nih_subset", chests)) == (2, 0, 0, 1, 1)
    (lists / "subset_normal" / "val.txt").write_text("00000012_000.png\n")
    (lists / "subset_anomaly" / "val.txt").write_text("00000001_000.png\n00000002_000.png\n")
    data = nih.load("nih_subset")
    assert data.truth.tolist() == data.labellable.tolist() == [False, False, False, True, True]
    assert data.test.truth.tolist() == [False, True]


def test_missing_pictures_and_lists_are_told_with_their_source(chests):
    (chests / "nih" / "images" / "00000002_000.png").unlink()
    with pytest.raises(
        DataFileError, match=r"^1 of 8 pictures are missing in .*first 00000002_000\.png\. Unpack .*https"
    ):
        nih.load("nih_pa")
    with pytest.raises(
        DataFileError, match=r"subset_normal/train\.txt does not exist\. The lists of the subset are at"
    ):
        nih.load("nih_subset")
    (chests / "nih_lists" / "test_list.txt").unlink()
    with pytest.raises(DataFileError, match=r"test_list\.txt does not exist\. NIH's lists are at https"):
        nih.load("nih_pa")


def test_a_small_picture_is_refused(chests):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.zeros((100, 200), dtype=np.uint8)).save(chests / "nih" / "images" / "00000000_000.png")
    with pytest.raises(DataFileError, match=r"at least 768 x 768 pixels\. Got 200 x 100"):
        nih.load("nih_pa")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", "Image Index,Finding Labels,View Position\n../evil.png,Mass,PA\n"])
def test_another_table_than_nihs_is_refused(chests, text):
    (chests / "nih_lists" / "Data_Entry_2017_v2020.csv").write_text(text)
    with pytest.raises(DataFileError, match="must be NIH's table"):
        nih.read_split("nih_pa", chests)


# ---------------------------------------------------------------------- made-up tissue

HERE, ELSEWHERE = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11]]), np.array([[0.5, 0.75, 0.43], [0.25, 0.9, 0.35]])


def tissue(colours, seed, side):
    rng = np.random.default_rng(seed)
    amounts = rng.gamma(2.0, 0.4, (side // 8, side // 8, 2)) * (rng.random((side // 8, side // 8, 2)) < 0.6)
    amounts = amounts.repeat(8, axis=0).repeat(8, axis=1)
    return np.round(255 * np.exp(-amounts @ (colours / np.linalg.norm(colours, axis=1, keepdims=True)))).astype(
        np.uint8
    )


@pytest.fixture
def tiles(folder):
    """Two tiles of each kind, dyed elsewhere, and the target picture."""
    image = pytest.importorskip("PIL.Image")
    (folder / "camelyon16").mkdir()
    (folder / "camelyon16_lists").mkdir()
    slides = {
        "normal_train": ["normal_019_normal", "normal_132_normal"],
        "anomaly_train": ["tumor_085_tumor", "tumor_042_tumor"],
        "normal_test": ["test_093_normal", "test_123_normal"],
        "anomaly_test": ["test_082_tumor", "test_090_tumor"],
    }
    for part, kinds in slides.items():
        names = [f"{kind}_x_{index}_y_0_w_768_h_768.jpg" for index, kind in enumerate(kinds)]
        (folder / "camelyon16_lists" / f"{part}.txt").write_text("\n".join(names))
        for index, name in enumerate(names):
            image.fromarray(tissue(ELSEWHERE, index, 768)).save(folder / "camelyon16" / name, quality=95)
    image.fromarray(tissue(HERE, 9, 512)).save(folder / "camelyon16" / "stain_target_image.jpg", quality=95)
    return folder


def test_tiles_are_normalised_and_shown_at_tenfold_magnification(tiles):
    image = pytest.importorskip("PIL.Image")
    camelyon16.get("camelyon16", tiles)
    data = camelyon16.load("camelyon16")
    assert data.X.shape == (4, 64, 64, 3)
    assert data.truth.tolist() == [False, False, True, True]
    assert data.labellable.tolist() == [False, False, True, False]
    assert data.test.truth.tolist() == [False, False, True, True]
    wanted = image.fromarray(tissue(HERE, 0, 768)[256:512, 256:512]).resize((64, 64), image.Resampling.BILINEAR)
    foreign = image.fromarray(tissue(ELSEWHERE, 0, 768)[256:512, 256:512]).resize((64, 64), image.Resampling.BILINEAR)
    distance = [
        np.abs(np.asarray(picture, dtype=float) - np.asarray(wanted)).mean() for picture in (foreign, data.X[0])
    ]
    assert distance[1] < 0.6 * distance[0]


def test_missing_tiles_are_told_with_their_source(tiles):
    (tiles / "camelyon16" / "stain_target_image.jpg").unlink()
    with pytest.raises(
        DataFileError, match=r"^1 of 9 pictures are missing in .*first stain_target_image.* Cut them from"
    ):
        camelyon16.load("camelyon16")


def test_a_target_without_tissue_is_refused(tiles):
    image = pytest.importorskip("PIL.Image")
    image.fromarray(np.full((64, 64, 3), 250, dtype=np.uint8)).save(tiles / "camelyon16" / "stain_target_image.jpg")
    with pytest.raises(DataFileError, match="must show stained tissue"):
        camelyon16.load("camelyon16")


@pytest.mark.parametrize("name", ["../../evil.jpg", "normal_019_normal_x_1_y_2_w_50_h_50.jpg"])
def test_a_list_that_leads_elsewhere_is_refused(tiles, name):
    (tiles / "camelyon16_lists" / "normal_train.txt").write_text(name)
    with pytest.raises(DataFileError, match="must list files named like"):
        camelyon16.load("camelyon16")
