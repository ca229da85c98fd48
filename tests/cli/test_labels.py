"""`esad labels`: rows to label in a file to be filled in, a curve, an audit, and a clear line for what cannot be."""

import csv
from types import SimpleNamespace

import pytest

from esad.advice.audit import Doubt
from esad.cli import labels


@pytest.fixture
def more(kit, tmp_path):
    """A file with enough labels for a curve, 5 anomalies and 4 normal rows, and with the same id in each row."""
    table = [["S1", *row[1:]] for row in kit.rows()]
    for row in (10, 30):
        table[row] = [table[row][0], "9.1", "black", *table[row][3:5], "anomaly"]
    for row in (1, 2, 3, 4):
        table[row][5] = "normal"
    return kit.csv(tmp_path / "more.csv", kit.header, table)


def test_suggestions_are_written_with_an_empty_label_to_fill_in(esad, model, parts, tmp_path):
    out = tmp_path / "next.csv"
    done = esad("labels", model, parts, "--n", 4, "--out", out, "--quick")
    assert done.code == 0, done.err
    with out.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert list(found[0]) == ["serial", "score", "why", "label"]
    assert len({row["serial"] for row in found}) == 4
    assert {row["label"] for row in found} == {""}
    assert not {row["serial"] for row in found} & {"S007", "S023", "S041"}  # labelled already
    assert all(row["serial"] in done.out for row in found)


def test_curve_and_audit_come_with_enough_labels_and_ids_there_twice_with_the_row(esad, model, more):
    shown = esad("labels", model, more, "--n", 3)
    assert [line.split()[:2] for line in shown.out.splitlines() if "serial" in line] == [["serial", "row"]] * 2
    assert "The next 3 labels, of the kinds so far: AUC " in shown.out
    assert "80 % interval" in shown.out
    assert "most doubtful first" in shown.out


def test_without_labels_rows_are_suggested_all_the_same(esad, model, kit, tmp_path):
    data = kit.csv(tmp_path / "new.csv", kit.header[:5], [row[:5] for row in kit.rows(seed=1)])
    shown = esad("labels", model, data, "--n", 5).out
    assert "Label next (5 rows)" in shown
    assert (
        "A learning curve needs 4 labelled anomalies (-1) at least. Got 0.\nThere are no labels to look into." in shown
    )


def test_pictures_get_suggestions_by_file_name(esad, kit, tmp_path):
    folder = kit.pictures(tmp_path / "pictures", {"unlabelled": 12, "anomaly": 2})
    path = tmp_path / "pictures.esad"
    assert esad("fit", folder, "--out", path, "--method", "iforest", "--quiet").code == 0
    found = esad("labels", path, folder, "--n", 2, "--quick", "--json").json
    assert all(one["file"].startswith("unlabelled/") for one in found["suggestions"])


@pytest.fixture
def refused(esad, tmp_path):
    def call(*args):
        before = {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}
        done = esad("labels", *args)
        assert (done.code, done.out) == (2, ""), done
        assert done.err.count("\n") == 1, done.err
        assert {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")} == before
        return done.err

    return call


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--n", 58), "--n must be at most 57, the unlabelled rows there are. Got 58."),
        (("--n", 0), "--n"),
        (("--out", "next.txt"), "must end in .csv"),
        (("--out", "missing/next.csv"), "the folder"),
        (("-l", "verdickt"), "Did you mean 'verdict'?"),
        (("-i", "seriel"), "Did you mean 'serial'?"),
        (("--anomaly-value", "broken"), "never occurs"),
        (("--labels-csv", "x.csv"), "folder of pictures"),
    ],
)
def test_wrong_options(refused, model, parts, options, words):
    assert words in refused(model, parts, *options)


def test_the_data_is_never_written_over(refused, model, parts):
    assert "being read" in refused(model, parts, "--out", parts)


def test_data_that_does_not_fit_the_model(refused, model, kit, tmp_path):
    data = kit.csv(tmp_path / "other.csv", ("serial", "weight"), [["a", "1"], ["b", "2"], ["c", "3"]])
    assert "lacks the columns" in refused(model, data)
    folder = tmp_path / "folder"
    folder.mkdir()
    assert "trained on a table" in refused(model, folder)
    assert "a model is expected" in refused(data, data)


@pytest.mark.parametrize(("suspicion", "verdict"), [(0.5, "Labels to look at again"), (0.49, "No label looks wrong")])
def test_an_audit_without_doubts_says_so(capfd, suspicion, verdict):
    rows = SimpleNamespace(id_name="serial", name_of=str, ids_tell=True)
    labels._show_doubts((Doubt(3, -1, suspicion, 0.9), Doubt(4, 1, 0.1, 0.2)), rows)
    assert capfd.readouterr().out.startswith(f"{verdict}, most doubtful first")
