"""Fifteen ADBench tables to develop on, from the data folder or the network.

None of them shares its source with the paper's six.
"""

from typing import Final

from esad.datasets.tables import TableFamily

# ADBench's own names; the numbers keep its "mnist", a table, apart from the pictures.
NAMES = (
    "1_ALOI",
    "8_celeba",
    "10_cover",
    "11_donors",
    "15_Hepatitis",
    "16_http",
    "21_Lymphography",
    "24_mnist",
    "33_skin",
    "34_smtp",
    "37_Stamps",
    "39_vertebral",
    "42_WBC",
    "46_WPBC",
    "47_yeast",
)
GETS = NAMES

_REPOSITORY: Final = "https://raw.githubusercontent.com/Minqi824/ADBench/"
_COMMITS: Final = ("f7fed68dea6901fe9a81ed51b251b1d2456790cd", "main")
_COUNTS: Final = {  # rows, columns, anomalies
    "1_ALOI": (49534, 27, 1508),
    "8_celeba": (202599, 39, 4547),
    "10_cover": (286048, 10, 2747),
    "11_donors": (619326, 10, 36710),
    "15_Hepatitis": (80, 19, 13),
    "16_http": (567498, 3, 2211),
    "21_Lymphography": (148, 18, 6),
    "24_mnist": (7603, 100, 700),
    "33_skin": (245057, 3, 50859),
    "34_smtp": (95156, 3, 30),
    "37_Stamps": (340, 9, 31),
    "39_vertebral": (240, 6, 30),
    "42_WBC": (223, 9, 10),
    "46_WPBC": (198, 33, 47),
    "47_yeast": (1484, 8, 507),
}

_FAMILY: Final = TableFamily(
    "adbench",
    _COUNTS,
    urls=lambda name: tuple(f"{_REPOSITORY}{at}/adbench/datasets/Classical/{name}.npz" for at in _COMMITS),
    describe=lambda name: f"ADBench table {name}",
)
load, files, get = _FAMILY.load, _FAMILY.files, _FAMILY.get
