"""The worst rows of a file with reasons: by id, the worst first, as plain values and as files."""

import json

import numpy as np
import pytest
from pyarrow import csv as pa_csv

from esad import IsolationForest, TrainingData
from esad.report.explained import explain_file


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Forty rows of which two are far out, explained with one labelled case beside them."""
    folder = tmp_path_factory.mktemp("explained")
    rng = np.random.default_rng(0)
    rows = []
    for row in range(40):
        weight = 9 if row in (7, 30) else rng.normal()
        rows.append(f"S{row},{rng.normal():.3f},{weight:.3f},{'anomaly' if row == 30 else ''}")
    path = folder / "rows.csv"
    path.write_text("\n".join(["serial,size,weight,label", *rows]) + "\n")
    data = TrainingData.from_file(path, label_column="label", id_column="serial")
    detector = data.fit(IsolationForest(random_state=0))
    return explain_file(detector, path, top=3, cases=data)


def test_rows_go_by_their_ids_the_worst_first_with_their_reasons(found):
    rows = json.loads(json.dumps(found.to_json()))
    assert {row["serial"] for row in rows[:2]} == {"S7", "S30"}
    assert [row["score"] for row in rows] == sorted((row["score"] for row in rows), reverse=True)
    assert [row["anomaly"] for row in rows] == [row["score"] > found.threshold for row in rows]
    assert found.reasons.top(0, 1) == found.reasons.top(1, 1) == ("weight",)
    assert {case["id"] for row in rows for case in row["cases"]} == {"S30"}


def test_all_reasons_are_written_in_the_format_of_the_name(found, tmp_path):
    found.write(tmp_path / "reasons.json")
    assert json.loads((tmp_path / "reasons.json").read_text()) == found.to_json()
    found.write(tmp_path / "reasons.csv")
    table = pa_csv.read_csv(tmp_path / "reasons.csv")
    assert (table.column_names[0], table.num_rows) == ("serial", 3 * 2)
