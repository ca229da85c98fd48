"""Advice on labels: rows go by their ids, what cannot be said is left out with the reason."""

import csv
import json

import numpy as np
import pytest

from esad import IsolationForest, TrainingData
from esad.advice.labels import advise_on_labels
from esad.errors import InputError


@pytest.fixture
def rows(tmp_path):
    """Sixty rows, 5 of them labelled as anomalies and 4 as normal, and what makes other labels of them."""

    def read(words):
        rng = np.random.default_rng(0)
        sizes = [rng.normal(9 if word == "anomaly" else 1, 0.3) for word in words]
        lines = [f"S{row:03d},{size:.3f},{word}" for row, (size, word) in enumerate(zip(sizes, words, strict=True))]
        path = tmp_path / "rows.csv"
        path.write_text("\n".join(["serial,size,label", *lines]) + "\n")
        return TrainingData.from_file(path, label_column="label", id_column="serial")

    return read


ENOUGH = ["anomaly"] * 5 + ["normal"] * 4 + [""] * 51


def test_suggestions_curve_and_audit_are_plain_values_by_id(rows):
    data, told = rows(ENOUGH), []
    found = advise_on_labels(
        data.fit(IsolationForest(random_state=0)), data, n=3, on_progress=lambda *words: told.append(words[0])
    )
    plain = json.loads(json.dumps(found.to_json()))
    assert [one["serial"] for one in plain["suggestions"]] == [f"S{one.row:03d}" for one in found.suggestions]
    assert (len(plain["suggestions"]), plain["curve"]["gain"]["n_next"]) == (3, 3)
    assert [point["n_anomaly"] for point in plain["curve"]["points"]] == [1, 3, 4]
    assert {one["serial"] for one in plain["audit"]} == {f"S{row:03d}" for row in range(9)}
    assert {"serial", "row", "label", "suspicion", "rank"} <= set(plain["audit"][0])
    assert plain["left_out"] == []
    assert told == ["the learning curve", "the audit"]


def test_the_file_to_fill_in_has_an_empty_label(rows, tmp_path):
    data = rows(ENOUGH)
    found = advise_on_labels(data.fit(IsolationForest(random_state=0)), data, n=4, quick=True)
    assert (found.curve, found.doubts) == (None, ())
    found.write_csv(tmp_path / "next.csv")
    with (tmp_path / "next.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["serial"], float(line["score"]), line["why"], line["label"]) for line in lines] == [
        (f"S{one.row:03d}", one.score, one.why, "") for one in found.suggestions
    ]


def test_without_labels_one_reason_is_given_for_each_part(rows):
    data = rows([""] * 60)
    found = advise_on_labels(data.fit(IsolationForest(random_state=0)), data, n=2)
    assert len(found.suggestions) == 2
    assert [words.partition(".")[0] for words in found.left_out] == [
        "A learning curve needs 4 labelled anomalies (-1) at least",
        "There are no labels to look into",
    ]


def test_rows_that_are_all_labelled_are_refused(rows):
    data = rows(["anomaly"] * 5 + ["normal"] * 55)
    with pytest.warns(UserWarning), pytest.raises(InputError, match="Every row is labelled"):
        advise_on_labels(data.fit(IsolationForest(random_state=0)), data)
