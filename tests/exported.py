"""What tests of exported files share: a table of every kind of column, pictures, and how a user without esad asks."""

import numpy as np
import pandas as pd
from support import small_labels, tiny

ODD_NAME = "x'\"]; raise SystemExit #"  # a column may be called anything, an output's name included
N = 150
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "size": rng.normal(1e9, 2, N),
        "colour": rng.choice(["red", "7.0", "grün"], N),
        "score": rng.random(N) < 0.7,
        "made": pd.Timestamp("2022-01-01") + pd.to_timedelta(rng.integers(0, 20_000, N), unit="h"),
        ODD_NAME: rng.normal(size=N),
    }
)
FRAME.loc[::9, "size"] = None
FRAME.loc[::11, "colour"] = None
PICTURES = rng.integers(0, 256, size=(60, 12, 12, 3)).astype(np.uint8)
SMALL_PICTURES = {"hidden": (4, 4), "decoys": 0.0, "restore": "none"}


def fitted(name, kind, **changes):
    X = FRAME if kind == "table" else PICTURES
    changes = (SMALL_PICTURES if kind == "images" else {}) | changes
    detector = tiny(name, **changes).fit(X, small_labels(name, len(X)))
    return detector.calibrate(X[::2])


def feeds(frame):
    """By hand, as a user without esad does it."""
    return {
        "size": frame["size"].to_numpy("float64"),
        "colour": frame["colour"].fillna("").to_numpy(object),
        "score_": frame["score"].to_numpy("float64"),
        "made": frame["made"].to_numpy("M8[us]").astype("int64"),
        ODD_NAME: frame[ODD_NAME].to_numpy("float64"),
    }


def outputs(session, given):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))
