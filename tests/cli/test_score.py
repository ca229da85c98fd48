"""`esad score`: every row gets a score, whatever the order of the columns and however long the file."""

import csv

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from esad.cli import score as command
from esad.detectors.model_file import load
from esad.io import files
from esad.io.files import TableFiles


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_scores_file_has_id_score_and_anomaly_and_agrees_with_the_library(esad, model, parts, tmp_path):
    out = tmp_path / "scores.csv"
    done = esad("score", model, parts, "--out", out)
    assert (done.code, done.err) == (0, "")
    rows = read(out)
    assert list(rows[0]) == ["serial", "score", "anomaly"]
    assert [row["serial"] for row in rows] == [f"S{row:03d}" for row in range(60)]
    detector = load(model)
    scores = detector.anomaly_score(files.read_table(parts).select(list(detector.feature_names_in_)))
    assert [float(row["score"]) for row in rows] == pytest.approx(scores.tolist(), rel=1e-6)
    assert [row["anomaly"] == "true" for row in rows] == (scores > detector.threshold_).tolist()
    assert f"Scores: {out}" in done.out


def test_parquet_in_and_out_gives_the_same_scores(esad, model, parts, tmp_path):
    parquet.write_table(files.read_table(parts), tmp_path / "parts.parquet")
    esad("score", model, parts, "--out", tmp_path / "a.csv")
    done = esad("score", model, tmp_path / "parts.parquet", "--out", tmp_path / "b.parquet")
    assert (done.code, done.err) == (0, "")
    table = parquet.read_table(tmp_path / "b.parquet")
    assert table.schema.types == [pa.string(), pa.float64(), pa.bool_()]
    assert table["score"].to_pylist() == pytest.approx([float(row["score"]) for row in read(tmp_path / "a.csv")])


def test_a_parquet_file_that_becomes_too_much_is_refused_unless_it_may(esad, model, parts, tmp_path):
    path = tmp_path / "parts.parquet"
    parquet.write_table(files.read_table(parts), path)
    done = esad("score", model, path, "--max-unpacked", "0.000001")
    assert done.code == 2
    assert "max_unpacked" in done.err
    many = esad("score", model, path, "--jobs", "1", "--out", tmp_path / "scores", "--max-unpacked", "0.000001")
    assert many.code == 1
    assert "max_unpacked" in many.err
    assert esad("score", model, path, "--max-unpacked", "0").code == 0


def test_other_column_order_gives_the_same_scores_without_a_word(esad, model, parts, kit, tmp_path):
    turned = kit.csv(tmp_path / "turned.csv", kit.header[::-1], [row[::-1] for row in kit.rows()])
    first = esad("score", model, parts, "--out", tmp_path / "a.csv")
    second = esad("score", model, turned, "--out", tmp_path / "b.csv")
    assert first.err == second.err == ""
    assert read(tmp_path / "a.csv") == read(tmp_path / "b.csv")


def test_extra_columns_are_ignored_with_one_warning(esad, model, kit, tmp_path):
    wide = kit.csv(tmp_path / "w.csv", [*kit.header, "shift", "line"], [[*row, 1, 2] for row in kit.rows()])
    done = esad("score", model, wide, "--out", tmp_path / "a.csv")
    assert done.code == 0
    assert done.err == "warning: columns that were not in training are ignored: 'shift', 'line'.\n"


def test_ids_of_the_model_that_are_missing_give_row_numbers_and_a_note(esad, model, kit, tmp_path):
    narrow = kit.csv(tmp_path / "n.csv", kit.header[1:5], [row[1:5] for row in kit.rows()])
    done = esad("score", model, narrow, "--out", tmp_path / "a.csv")
    assert done.err == "note: there is no id column 'serial' here: rows are numbered from 0.\n"
    assert [row["row"] for row in read(tmp_path / "a.csv")] == [str(row) for row in range(60)]


def test_another_id_column_can_be_named(esad, model, kit, tmp_path):
    header = ("number", *kit.header[1:])
    data = kit.csv(tmp_path / "d.csv", header, [[f"00{row}", *cells[1:]] for row, cells in enumerate(kit.rows())])
    esad("score", model, data, "--id-column", "number", "--out", tmp_path / "a.csv")
    assert read(tmp_path / "a.csv")[7]["number"] == "007"


def test_top_prints_the_worst_first_and_needs_no_file(esad, model, parts, tmp_path):
    esad("score", model, parts, "--out", tmp_path / "a.csv")
    expected = sorted(read(tmp_path / "a.csv"), key=lambda row: -float(row["score"]))[:5]
    done = esad("score", model, parts, "--top", 5)
    shown = [line.split()[0] for line in done.out.splitlines() if line.strip().startswith("S0")]
    assert shown == [row["serial"] for row in expected]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "parts.csv"]


def test_without_file_and_top_the_twenty_worst_are_shown(esad, model, parts):
    assert esad("score", model, parts).out.count("\n S0") == 20


def test_json_holds_the_summary_and_the_worst(esad, model, parts):
    done = esad("score", model, parts, "--top", 3, "--json")
    assert done.err == ""
    assert done.json["n_rows"] == 60
    assert done.json["out"] is None
    assert [row["score"] for row in done.json["top"]] == sorted(
        (row["score"] for row in done.json["top"]), reverse=True
    )


def test_blocks_do_not_change_scores_or_the_worst(esad, model, parts, tmp_path, monkeypatch):
    whole = esad("score", model, parts, "--out", tmp_path / "a.csv", "--top", 7, "--json")
    opened = TableFiles.batches
    monkeypatch.setattr(TableFiles, "batches", lambda *args, **kwargs: opened(*args, **kwargs | {"batch_rows": 13}))
    blocks = esad("score", model, parts, "--out", tmp_path / "b.csv", "--top", 7, "--json")
    assert blocks.json["top"] == whole.json["top"]
    assert read(tmp_path / "a.csv") == read(tmp_path / "b.csv")


def test_a_bad_value_late_in_the_file_is_named_and_leaves_no_scores(esad, model, kit, tmp_path):
    table = kit.rows()
    table[50][1] = "wide"
    data = kit.csv(tmp_path / "d.csv", kit.header, table)
    done = esad("score", model, data, "--out", tmp_path / "a.csv")
    assert done.code == 2
    assert "'wide' in line 52" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["d.csv"]


@pytest.mark.parametrize("comment", ["client called", "5", "2024-01-01"])
def test_what_stands_in_a_column_that_was_empty_in_training_is_unusual(esad, kit, tmp_path, comment):
    rows = [[row % 7, ""] for row in range(60)]
    train, model = kit.csv(tmp_path / "train.csv", ["size", "comment"], rows), tmp_path / "m.esad"
    assert esad("fit", train, "-o", model, "-m", "esad", "--members", "1").code == 0
    rows[11][1] = comment
    new = kit.csv(tmp_path / "new.csv", ["size", "comment"], rows)
    assert esad("score", model, new, "--top", 1, "--json").json["top"][0]["row"] == 11


def test_a_model_of_an_array_goes_by_position(esad, kit, tmp_path):
    detector = __import__("esad").registry.method("iforest")(random_state=0)
    detector.fit(np.random.default_rng(0).normal(size=(50, 2))).save(tmp_path / "m.esad")
    data = kit.csv(tmp_path / "d.csv", ["a", "b"], [[0.1, 0.2], [9, 9]])
    done = esad("score", tmp_path / "m.esad", data, "--top", 1, "--json")
    assert done.code == 0
    assert done.json["top"][0]["row"] == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, None])
def test_ids_that_json_cannot_hold_are_null(esad, model, parts, tmp_path, value):
    numbers = pa.array([value, *range(59)], type=pa.float64())
    data = tmp_path / "d.parquet"
    parquet.write_table(files.read_table(parts).append_column("number", numbers), data)
    out = tmp_path / "a.csv"
    done = esad("score", model, data, "--id-column", "number", "--out", out, "--top", 60, "--json")
    assert (done.code, done.json["out"]) == (0, str(out))
    ids = [row["number"] for row in done.json["top"]]
    assert ids.count(None) == 1
    assert {number for number in ids if number is not None} == set(range(59))
    assert esad("score", model, data, "--id-column", "number", "--top", 60).code == 0


def test_an_interruption_when_the_scores_are_there_says_so(esad, model, parts, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_show", interrupt)
    out = tmp_path / "a.csv"
    done = esad("score", model, parts, "--out", out)
    assert (done.code, done.err) == (130, f"interrupted: '{out}' had been written.\n")
    assert len(read(out)) == 60
    assert esad("score", model, parts).err == "interrupted: no result was written.\n"


def read_csv(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_scores_with_the_data_have_every_column_lines_and_reasons(esad, model, parts, kit, tmp_path, suffix):
    plain, out = tmp_path / "plain.csv", tmp_path / f"scores.{suffix}"
    assert esad("score", model, parts, "--out", plain).code == 0
    assert esad("score", model, parts, "--with-data", "--out", out).code == 0
    found = read_csv(out) if suffix == "csv" else parquet.read_table(out).to_pylist()
    assert list(found[0]) == ["line", *kit.header, "score", "anomaly", "reasons"]
    assert [int(row["line"]) for row in found] == list(range(2, kit.n_rows + 2))
    lines = parts.read_text().splitlines()
    assert [row["serial"] for row in found] == [line.partition(",")[0] for line in lines[1:]]
    assert [float(row["score"]) for row in found] == [float(row["score"]) for row in read_csv(plain)]
    alarms = [str(row["anomaly"]).lower() == "true" for row in found]
    assert any(alarms) and [bool(row["reasons"]) for row in found] == alarms
    reasons = next(row["reasons"] for row in found if row["reasons"])
    assert "(expected " in reasons and any(reasons.startswith(name) for name in kit.header)


def test_a_reason_does_not_say_that_a_usual_value_was_expected(esad, kit, tmp_path):
    rows = [[row % 7, "ba"[row % 5 > 2], "anomaly" if row % 20 == 0 else ""] for row in range(100)]
    data, model = kit.csv(tmp_path / "d.csv", ["size", "kind", "label"], rows), tmp_path / "m.esad"
    assert esad("fit", data, "-l", "label", "-o", model, "-m", "bagged_trees", "--contamination", 0.1).code == 0
    assert esad("score", model, data, "--with-data", "--out", tmp_path / "o.csv").code == 0
    reasons = {reason for row in read_csv(tmp_path / "o.csv") for reason in row["reasons"].split("; ")}
    assert "kind b" in reasons, reasons  # the more frequent value, and that of all known anomalies


def test_scores_with_the_data_are_for_one_file_of_a_table(esad, model, parts, kit, tmp_path):
    for arguments, words in (
        ((parts, "--with-data"), "--out"),
        ((parts, parts, "--with-data", "--out", tmp_path / "s"), "--with-data is for one file"),
    ):
        done = esad("score", model, *arguments)
        assert (done.code, done.err.count("\n"), words in done.err) == (2, 1, True)
    named = kit.csv(tmp_path / "n.csv", [*kit.header, "line"], [[*row, "1"] for row in kit.rows()])
    done = esad("score", model, named, "--with-data", "--out", tmp_path / "s.csv")
    assert (done.code, "has a column 'line'" in done.err) == (2, True)


def test_a_folder_without_tables_is_no_table(esad, model, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"")
    done = esad("score", model, tmp_path / "pictures")
    assert (done.code, done.err.count("\n"), "trained on a table" in done.err) == (2, 1, True)
