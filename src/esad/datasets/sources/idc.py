"""Breast tissue from the data folder: a stand-in for Camelyon16, whose slides are hundreds of gigabytes."""

from typing import Final

from esad.datasets.dataset import Dataset
from esad.datasets.folder import read_arrays
from esad.datasets.picture_sets import files, to_dataset

__all__ = ["NAMES", "files", "load"]

NAMES = ("idc_breast",)

_DESCRIPTION: Final = "stained breast tissue as colour pictures of 50 x 50 pixels; tumour = anomaly"


def load(name: str) -> Dataset:
    """Load `idc_breast` from the data folder; no patient is in both parts."""
    images, y, is_test = read_arrays(*files(name), ("images", "y", "test"))
    return to_dataset(name, _DESCRIPTION, images=images, anomaly=y == 1, labellable=y == 1, test=is_test == 1)
