"""Camelyon16: tiles of stained lymph nodes, metastases being the anomalies; made from the data folder.

Tiles are named by lists: slide, kind, place and size at 40-fold magnification, 768 x 768 pixels. Stains are normalised
over the whole tile; its middle 256 x 256 pixels, scaled to 64 x 64, are the picture at 10-fold magnification.

The lists name 2,169 training tiles with metastases. The paper's 200 are those of four slides, and only they may be
labelled.
"""

import re
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Arrays
from esad.datasets.dataset import Dataset
from esad.datasets.download import Report
from esad.datasets.folder import write_arrays
from esad.datasets.picture_sets import Split, check_pictures, load_or_make, make_arrays, read_names
from esad.datasets.stain import find_stain_colours, normalise
from esad.errors import DataFileError
from esad.io.pictures import find_middle, read_bytes, shrink

NAMES = ("camelyon16",)
GETS = NAMES

_DESCRIPTION: Final = "stained lymph nodes as colour pictures of 64 x 64 pixels; metastasis = anomaly"
_LABELLED_SLIDES: Final = ("tumor_016", "tumor_052", "tumor_078", "tumor_085")
_TILE: Final = r"(?P<slide>(normal|tumor|test)_\d{3})_(normal|tumor)_x_\d+_y_\d+_w_768_h_768\.jpg"
_LISTS, _TILES, _TARGET = "camelyon16_lists", "camelyon16", "stain_target_image.jpg"
_CROP, _SIDE = 256, 64
_LISTS_FROM: Final = "The lists are at https://github.com/ninatu/anomaly_detection; docs/data.md says which."
_TILES_FROM: Final = (
    "Cut them from the slides of https://camelyon16.grand-challenge.org/Data at 40-fold magnification; docs/data.md "
    "says how."
)


def load(name: str) -> Dataset:
    """Load Camelyon16 from the data folder, from the finished file or else from the tiles."""
    return load_or_make(name, _make, _DESCRIPTION)


def files(name: str) -> tuple[str, ...]:
    """Where the set may lie in the data folder."""
    return (f"{name}.npz", _TILES)


def get(name: str, folder: Path, report: Report | None = None) -> None:
    """Make the set from the tiles in the data folder, once: learning the stains of each takes a while."""
    write_arrays(folder / f"{name}.npz", _make(folder, report))


def read_split(folder: Path) -> Split:
    """Read from the lists in `camelyon16_lists` which tiles the set is made of."""
    names, anomaly, test = [], [], []
    for kind in ("normal", "anomaly"):
        for part in ("train", "test"):
            listed = read_names(folder / _LISTS / f"{kind}_{part}.txt", _TILE, _LISTS_FROM)
            names += listed
            anomaly += [kind == "anomaly"] * len(listed)
            test += [part == "test"] * len(listed)
    slides = [found["slide"] for name in names if (found := re.fullmatch(_TILE, name))]
    return Split(names, np.array(anomaly), np.isin(slides, _LABELLED_SLIDES), np.array(test))


def _make(folder: Path, report: Report | None = None) -> Arrays:
    split, tiles = read_split(folder), folder / _TILES
    check_pictures(tiles, [_TARGET, *split.names], _TILES_FROM)
    target = find_stain_colours(read_bytes(tiles / _TARGET, n_channels=3))
    if target is None:
        raise DataFileError(f"{tiles / _TARGET} must show stained tissue. It is all but white.")

    def read(path: Path) -> NDArray[np.uint8]:
        pixels = read_bytes(path, n_channels=3)
        return shrink(normalise(pixels, target, shown=find_middle(pixels, _CROP)), _SIDE)

    return make_arrays(tiles, split, read, advice=_TILES_FROM, report=report)
