"""Chest X-rays of the NIH (ChestX-ray14), from the data folder.

`nih_pa` and `nih_ap` are the pictures of one view each in the official split, `nih_subset` the clearer cases of Tang
et al. (2019) by their file lists. They are made from NIH's own pictures: the middle 768 x 768 of 1024 x 1024 pixels,
scaled to 64 x 64. `nih_part1` holds the first 4,999 pictures, both views, uncropped.

Without a finding is normal. In training only pictures whose one finding is infiltration may be labelled. A quarter of
those makes the paper's shares of labelled anomalies, 3.3 % (PA) and 3.9 % (AP).
"""

import csv
import gzip
import re
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Arrays
from esad.datasets.dataset import Dataset
from esad.datasets.download import Report
from esad.datasets.folder import read_arrays, write_arrays
from esad.datasets.picture_sets import Split, load_or_make, make_arrays, read_names, to_dataset
from esad.errors import DataFileError
from esad.io.pictures import find_middle, read_bytes, shrink

NAMES = ("nih_part1", "nih_pa", "nih_ap", "nih_subset")
GETS = ("nih_pa", "nih_ap", "nih_subset")
LABELLED_RATIOS: Final = {"nih_pa": 0.033, "nih_ap": 0.039}  # the paper's

_DESCRIPTION: Final = "chest X-rays as grey pictures of 64 x 64 pixels; any of fourteen findings = anomaly"
_NORMAL, _LABELLED = "No Finding", "Infiltration"
_LISTS, _IMAGES = "nih_lists", "nih/images"
_TABLES: Final = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017_v2020.csv.gz")
_TEST_LISTS: Final = ("test_list.txt", "official_test_list.txt")
_NAME: Final = r"\d{8}_\d{3}\.png"
_CROP, _SIDE = 768, 64
_PICTURES_FROM: Final = (
    "Unpack images_001.tar.gz to images_012.tar.gz (42 GB) from https://nihcc.app.box.com/v/ChestXray-NIHCC there."
)
_LISTS_FROM: Final = "NIH's lists are at https://nihcc.app.box.com/v/ChestXray-NIHCC; docs/data.md says which."
_SUBSET_FROM: Final = (
    "The lists of the subset are at https://github.com/ninatu/anomaly_detection; docs/data.md says which."
)


def load(name: str) -> Dataset:
    """Load one of `NAMES` from the data folder, from the finished file or else from NIH's pictures."""
    if name == "nih_part1":
        return to_dataset(name, _DESCRIPTION, **_read_part1())
    return load_or_make(name, lambda folder: _make(name, folder), _DESCRIPTION)


def files(name: str) -> tuple[str, ...]:
    """Where the set may lie in the data folder."""
    return (f"{name}.npz",) if name == "nih_part1" else (f"{name}.npz", _IMAGES)


def get(name: str, folder: Path, report: Report | None = None) -> None:
    """Make the set from NIH's pictures in the data folder, once: reading them all takes a while."""
    write_arrays(folder / f"{name}.npz", _make(name, folder, report))


def read_split(name: str, folder: Path) -> Split:
    """Read from the lists which pictures a set is made of.

    Parameters
    ----------
    name : str
        "nih_pa", "nih_ap" or "nih_subset".
    folder : pathlib.Path
        The data folder; lists are in its sub-folder `nih_lists`.
    """
    return _read_subset(folder / _LISTS) if name == "nih_subset" else _read_view(name[-2:].upper(), folder / _LISTS)


def _read_view(view: str, lists: Path) -> Split:
    tested = set(read_names(_first(lists, _TEST_LISTS), _NAME, _LISTS_FROM))
    rows = [row for row in _read_table(lists) if row["View Position"] == view]
    names = [row["Image Index"] for row in rows]
    findings = np.array([row["Finding Labels"] for row in rows])
    return Split(names, findings != _NORMAL, findings == _LABELLED, np.array([name in tested for name in names]))


def _first(lists: Path, names: tuple[str, ...]) -> Path:
    """The first of the names that there is."""
    path = next((lists / name for name in names if (lists / name).is_file()), None)
    if path is None:
        raise DataFileError(f"{lists / names[0]} does not exist. {_LISTS_FROM}")
    return path


def _read_table(lists: Path) -> list[dict[str, str]]:
    """NIH's table of findings, one row per picture."""
    path = _first(lists, _TABLES)
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        is_whole = all(re.fullmatch(_NAME, row["Image Index"]) and row["View Position"] for row in rows)
    except (OSError, EOFError, KeyError, TypeError, ValueError, zlib.error, csv.Error) as error:
        raise DataFileError(f"{path} must be NIH's table {_TABLES[0]}. Got: {error!r}.") from error
    if not rows or not is_whole:
        raise DataFileError(f"{path} must be NIH's table {_TABLES[0]}. Got none, or a row without a picture or a view.")
    return rows


def _read_subset(lists: Path) -> Split:
    """The clearer cases. The validation lists, where they are, belong to the training part, as in the paper."""
    parts = []
    for kind, part, is_needed in (
        ("normal", "train", True),
        ("normal", "val", False),
        ("anomaly", "val", False),
        ("normal", "test", True),
        ("anomaly", "test", True),
    ):
        path = lists / f"subset_{kind}" / f"{part}.txt"
        if is_needed or path.is_file():
            parts += [(name, kind == "anomaly", part == "test") for name in read_names(path, _NAME, _SUBSET_FROM)]
    names, anomaly, test = zip(*parts, strict=True)
    return Split(list(names), np.array(anomaly), np.array(anomaly) & ~np.array(test), np.array(test))


def _make(name: str, folder: Path, report: Report | None = None) -> Arrays:
    return make_arrays(folder / _IMAGES, read_split(name, folder), _read_picture, advice=_PICTURES_FROM, report=report)


def _read_picture(path: Path) -> NDArray[np.uint8]:
    pixels = read_bytes(path, n_channels=1)
    return shrink(pixels[find_middle(pixels, _CROP)], _SIDE)


def _read_part1() -> Arrays:
    wanted = ("images", "anomaly", "labels14", "label_names", "official_test")
    images, anomaly, findings, names, is_test = read_arrays("nih_part1.npz", wanted)
    is_labelled = findings[:, names.tolist().index(_LABELLED.encode())] == 1
    labellable = is_labelled & (findings.sum(axis=1) == 1)
    return {"images": images, "anomaly": anomaly == 1, "labellable": labellable, "test": is_test == 1}
