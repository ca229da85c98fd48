"""`esad evaluate`: the library's figures, from a file whose truth is known."""

import pytest

from esad.detectors.model_file import load
from esad.io.files import read_table
from esad.score.metrics import evaluate


@pytest.fixture
def checked(kit, tmp_path):
    table = [[*row[:5], int(number in kit.anomalies)] for number, row in enumerate(kit.rows(seed=5))]
    return kit.csv(tmp_path / "checked.csv", [*kit.header[:5], "truth"], table)


def test_figures_are_those_of_the_library(esad, model, checked, kit):
    done = esad("evaluate", model, checked, "--truth-column", "truth", "--json", "--k", 5)
    detector = load(model)
    scores = detector.anomaly_score(read_table(checked).select(list(detector.feature_names_in_)))
    truth = [int(row in kit.anomalies) for row in range(kit.n_rows)]
    expected = evaluate(scores, truth, threshold=detector.threshold_, ks=(5,)).to_json()
    assert done.err == ""
    assert done.json["auc"] == pytest.approx(expected["auc"])
    assert done.json["precision_at"] == pytest.approx(expected["precision_at"])
    assert done.json["confusion"] == pytest.approx(expected["confusion"], rel=1e-6)
    assert done.json["intervals"].keys() == {"auc", "average_precision"}


def test_people_see_a_table(esad, model, checked):
    done = esad("evaluate", model, checked, "-t", "truth")
    assert (done.code, done.err) == (0, "")
    for words in ("60 rows, 3 of them anomalies", "AUC", "average precision", "precision at 10", "false alarms"):
        assert words in done.out


def test_intervals_can_be_left_out_by_the_new_name_and_with_a_note_by_the_old_one(esad, model, checked):
    new = esad("evaluate", model, checked, "-t", "truth", "--no-intervals", "--json")
    old = esad("evaluate", model, checked, "-t", "truth", "--resamples", 0, "--seed", 1, "--json")
    assert new.json["intervals"] == {}
    assert (new.err, old.json) == ("", new.json)
    assert [line.partition(" will be")[0] for line in old.err.splitlines()] == [
        "note: --resamples",
        "note: --seed",
    ]


def test_words_and_other_values_are_read_as_truth(esad, model, kit, tmp_path):
    table = [[*row[:5], "broken" if number in kit.anomalies else "fine"] for number, row in enumerate(kit.rows())]
    data = kit.csv(tmp_path / "d.csv", [*kit.header[:5], "state"], table)
    wrong = esad("evaluate", model, data, "--truth-column", "state")
    right = esad("evaluate", model, data, "--truth-column", "state", "--anomaly-value", "broken", "--json")
    assert wrong.code == 2
    assert right.json["n_anomaly"] == 3


def test_the_label_column_as_truth_is_warned_about(esad, model, kit, tmp_path):
    table = [[*row[:5], "anomaly" if number in kit.anomalies else "normal"] for number, row in enumerate(kit.rows())]
    data = kit.csv(tmp_path / "d.csv", kit.header, table)
    done = esad("evaluate", model, data, "--truth-column", "verdict", "--json")
    assert done.err.startswith("warning: column 'verdict' held the labels in training")
    assert done.json["n_anomaly"] == 3


@pytest.mark.parametrize(
    ("truths", "words"), [([0] * 60, "needs anomalies and other rows"), ([1, 0, ""] * 20, "20 blank")]
)
def test_truth_must_be_known_and_hold_both_kinds(esad, model, kit, tmp_path, truths, words):
    table = [[*row[:5], truth] for row, truth in zip(kit.rows(), truths, strict=True)]
    data = kit.csv(tmp_path / "d.csv", [*kit.header[:5], "truth"], table)
    done = esad("evaluate", model, data, "--truth-column", "truth")
    assert (done.code, done.out) == (2, "")
    assert words in done.err


def test_a_table_needs_a_truth_column(esad, model, parts):
    done = esad("evaluate", model, parts)
    assert done.code == 2
    assert "--truth-column" in done.err


def test_truth_that_cannot_be_read_names_the_option(esad, model, parts):
    done = esad("evaluate", model, parts, "--truth-column", "checked", "--anomaly-value", "maybe")
    assert done.code == 2
    assert "never occurs" in done.err
    assert "--anomaly-value" in done.err
