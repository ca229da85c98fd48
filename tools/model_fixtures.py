"""Write small model files, with rows and their scores, that every later version must still read.

python tools/model_fixtures.py     writes tests/fixtures/models/VERSION/; existing files are never replaced
"""

import json
from pathlib import Path

import numpy as np

from esad import ESAD, IsolationForest, __version__, registry
from esad.detectors.base import Detector
from esad.table.table import Table

FOLDER = Path(__file__).parent.parent / "tests" / "fixtures" / "models" / __version__


def rows(n: int) -> tuple[list[list[object]], np.ndarray]:
    """A table with numbers, gaps, words and truth values, and a few labels of both kinds."""
    rng = np.random.default_rng(7)
    numbers = rng.normal(size=(n, 2)).round(3)
    colours = rng.choice(["red", "green", "blue"], n).tolist()
    table: list[list[object]] = [
        [float(a), None if index % 9 == 0 else float(b), colour, bool(index % 2)]
        for index, ((a, b), colour) in enumerate(zip(numbers, colours, strict=True))
    ]
    y = np.zeros(n, dtype=int)
    y[:3], y[3:6] = -1, 1
    return table, y


def write(name: str, detector: Detector, X: object, shown: object) -> None:
    """One model with the rows to score and the scores it gave."""
    path = FOLDER / f"{name}.esad"
    if path.exists():
        print(f"kept {path.name}")
        return
    detector.save(path)
    wanted = {"X": shown, "scores": detector.anomaly_score(X).tolist(), "threshold": detector.threshold_}
    if detector.calibration_ is not None:
        wanted["p_values"] = detector.p_value(X).tolist()
    path.with_suffix(".json").write_text(json.dumps(wanted) + "\n", encoding="utf-8")
    print(f"wrote {path.name}")


def main() -> None:
    """Train and write all fixtures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    table, y = rows(40)
    assert Table.from_any(table).kinds == ("number", "number", "category", "boolean")
    tiny = {"hidden": (6,), "latent": 3, "n_epochs": 3, "random_state": 0, "device": "cpu"}
    write("esad-table", ESAD(n_members=2, **tiny).fit(table, y), table[:8], table[:8])
    write("esad-bins", ESAD(n_members=3, bins=[0, 4, 2], **tiny).fit(table, y), table[:8], table[:8])
    published = ESAD.as_published(n_epochs=3, random_state=0, device="cpu").fit(table, y)
    write("esad-published", published, table[:8], table[:8])
    write("iforest", IsolationForest(n_trees=5, random_state=0).fit(table), table[:8], table[:8])
    new = rows(48)[0][40:]  # a row of the calibration would tie with itself, to the last bit or not
    calibrated = IsolationForest(n_trees=5, random_state=0).fit(table, calibration_ratio=0.5)
    write("iforest-calibrated", calibrated, new, new)
    write("esad-cross", ESAD(n_members=2, **tiny).fit(table, y).calibrate(), new, new)
    pictures = np.random.default_rng(3).integers(0, 255, size=(12, 8, 8), dtype=np.uint8)
    labels = np.array([-1, -1, *[0] * 10])
    for network in ("conv", "lenet"):
        detector = ESAD(network=network, **tiny | {"hidden": (2, 2)}).fit(pictures, labels)
        write(f"esad-{network}", detector, pictures[:4], pictures[:4].tolist())
    for name in registry.method_names():
        method = registry.method(name)
        has = method().get_params()
        settings = tiny | {"hidden": (2, 2), "pretrain_epochs": 2, "n_trees": 5, "reference": pictures}
        settings |= {"features": "random", "layer": "r11", "pooled": "conv2d_1a", "side": 75}
        detector = method(**{key: value for key, value in settings.items() if key in has})
        if name not in ("esad", "iforest") and "table" in method.takes:
            write(f"{name}-table", detector.fit(table, y), table[:8], table[:8])
        if name != "esad" and "images" in method.takes:
            write(f"{name}-images", detector.fit(pictures, labels), pictures[:4], pictures[:4].tolist())


if __name__ == "__main__":
    main()
