"""Torch programs: columns come by kind."""

import json
import zipfile
from pathlib import Path

import numpy as np
import torch
from exported import FRAME, N

import esad


def test_a_torch_program_takes_columns_by_kind(torch_file, detector):
    extra = {"esad.json": ""}
    program = torch.export.load(torch_file, extra_files=extra).module()
    numbers, codes, dates = json.loads(extra["esad.json"])["inputs"]
    (colour,) = codes["columns"]
    assert (numbers["name"], codes["name"], dates["name"]) == ("numbers", "codes", "dates")
    known = FRAME["colour"].map(colour["codes"]).fillna(colour["other"])
    coded = known.where(FRAME["colour"].notna(), colour["missing"])
    given = (
        torch.tensor(FRAME[numbers["columns"]].to_numpy("float64")),
        torch.tensor(coded.to_numpy("int64"))[:, None],
        torch.tensor(FRAME[dates["columns"]].to_numpy("M8[us]").astype("int64")),
    )
    wanted = detector.anomaly_score(FRAME)
    for n_rows in (1, N):
        found = program(*(part[:n_rows] for part in given))
        np.testing.assert_allclose(found["score"], wanted[:n_rows], rtol=1e-4)
        assert found["anomaly"].dtype == torch.bool and found["p_value"].shape == (n_rows,)


def test_nothing_of_this_machine_is_in_a_file(onnx_file, torch_file):
    package, home = Path(esad.__file__).parent, Path.home()
    here = [f"{package}".encode(), f"{home}/".encode(), b"site-packages", b"persist/graph"]
    with zipfile.ZipFile(torch_file) as archive:
        texts = [onnx_file.read_bytes(), *(archive.read(name) for name in archive.namelist())]
    assert [part for part in here if any(part in text for text in texts)] == []
