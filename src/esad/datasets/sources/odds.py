"""The six ODDS tables of the paper, from the data folder or the network."""

from typing import Final

from esad.datasets.tables import TableFamily

NAMES = ("arrhythmia", "cardio", "satellite", "satimage-2", "shuttle", "thyroid")
GETS = NAMES

_ANOMALIES: Final = {
    "arrhythmia": "heart recordings; the rare kinds of arrhythmia",
    "cardio": "heart rates of unborn children; pathological ones",
    "satellite": "satellite pictures of soil; the three rare kinds of soil",
    "satimage-2": "satellite pictures of soil; a few of the kind cotton crop",
    "shuttle": "sensors of a space shuttle; its rare states",
    "thyroid": "thyroid measures; hyperfunction",
}
# ODDS' own files as PyOD keeps them, and thyroid from ADBench, each at a commit that will not change.
_PYOD: Final = "https://raw.githubusercontent.com/yzhao062/pyod/"
_ADBENCH: Final = "https://raw.githubusercontent.com/Minqi824/ADBench/"
_URLS: Final = {
    "arrhythmia": f"{_PYOD}1938f1c58ba7948359b098ab358b7ee920825282/data/arrhythmia.mat",
    "cardio": f"{_PYOD}71246f49518da607e0b879ac0d7446fdac3d8d3c/examples/example_data/cardio.mat",
    "satellite": f"{_PYOD}b247c08568cbc8147f3fe873a925c4deff89b8b9/notebooks/data/satellite.mat",
    "satimage-2": f"{_PYOD}ef6d5e8dc828615f498286c1d6a22cbd02fd4cd2/notebooks/data/satimage-2.mat",
    "shuttle": f"{_PYOD}b247c08568cbc8147f3fe873a925c4deff89b8b9/notebooks/data/shuttle.mat",
    "thyroid": f"{_ADBENCH}f7fed68dea6901fe9a81ed51b251b1d2456790cd/adbench/datasets/Classical/38_thyroid.npz",
}
_COUNTS: Final = {  # rows, columns, anomalies
    "arrhythmia": (452, 274, 66),
    "cardio": (1831, 21, 176),
    "satellite": (6435, 36, 2036),
    "satimage-2": (5803, 36, 71),
    "shuttle": (49097, 9, 3511),
    "thyroid": (3772, 6, 93),
}


_FAMILY: Final = TableFamily(
    "odds", _COUNTS, urls=lambda name: (_URLS[name],), describe=lambda name: f"ODDS, {_ANOMALIES[name]} = anomaly"
)
load, files, get = _FAMILY.load, _FAMILY.files, _FAMILY.get
