"""`esad fit`: shows how it read the data, keeps ids and labels out of the model, writes it whole."""

import json

import numpy as np
import pytest

from esad.detectors.model_file import load
from esad.io.notes import fingerprint_data


def test_fit_shows_how_it_read_the_data_and_where_the_model_is(esad, parts, kit, tmp_path):
    out = tmp_path / "parts.esad"
    done = esad("fit", parts, "--label-column", "verdict", "--id-column", "serial", "--out", out, *kit.tiny)
    assert (done.code, done.err) == (0, "")
    assert "60 rows, 4 columns to learn from" in done.out
    lines = {line.split()[0]: line.split()[1:] for line in done.out.splitlines() if line.strip()}
    assert lines["size"] == ["number", "8.3", "%"]
    assert lines["colour"][0] == "category"
    assert lines["made"] == ["date", "-"]
    assert lines["checked"] == ["boolean", "-", "2"]
    assert "3 anomaly, 0 normal, 57 unlabelled" in done.out
    assert f"Next: esad score {out} NEW_DATA --top 10\n" in done.out
    assert load(out).n_features_in_ == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts.csv", "parts.esad"]


def test_fit_json_is_one_document_and_nothing_else(esad, parts, kit, tmp_path):
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", "--json", *kit.tiny)
    assert done.err == ""
    assert done.json["data"]["labels"] == {"n_anomaly": 3, "n_unlabelled": 57, "n_normal": 0}
    assert [column["name"] for column in done.json["data"]["columns"]] == ["size", "colour", "made", "checked"]
    assert done.json["n_flagged"] == round(done.json["flagged_ratio"] * kit.n_rows)
    assert done.json["threshold"] == load(tmp_path / "m.esad").threshold_


def test_a_threshold_says_how_it_was_chosen_and_what_to_expect_of_it(esad, kit, tmp_path):
    odd = [[f"{row % 7 + 90 * (row < 16)}.5", "anomaly" if row < 8 else ""] for row in range(160)]
    data, model = kit.csv(tmp_path / "d.csv", ["x", "label"], odd), tmp_path / "m.esad"
    fit = esad("fit", data, "-l", "label", "-m", "bagged_trees", "-o", model)
    assert fit.code == 0
    chosen = "the best balance of hits and alarms by labelled anomalies that were not trained on"
    assert chosen in fit.out
    forecast = load(model).forecast_
    assert (forecast.n_rows, forecast.n_anomalies, forecast.n_found) == (152, 8, 8)
    assert str(forecast) in fit.out
    assert "by 8 of them: uncertain" in str(forecast)
    assert f"Expected: {forecast}." in esad("score", model, data).out
    assert esad("score", model, data, "--json").json["forecast"]["n_alarms"] == forecast.n_alarms
    inspected = esad("inspect", model).out
    assert chosen in inspected
    assert str(forecast) in inspected
    assert esad("report", model, data, "-o", tmp_path / "r.html").code == 0
    assert str(forecast) in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_quiet_says_nothing(esad, parts, kit, tmp_path):
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", "--quiet", *kit.tiny)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_the_same_seed_gives_the_same_bytes(esad, parts, kit, tmp_path):
    for name in ("a.esad", "b.esad"):
        esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / name, "--seed", 3, *kit.tiny)
    assert (tmp_path / "a.esad").read_bytes() == (tmp_path / "b.esad").read_bytes()


def test_text_that_differs_in_every_row_is_left_out_and_proposed_as_id(esad, parts, kit, tmp_path):
    out = tmp_path / "m.esad"
    done = esad("fit", parts, "-l", "verdict", "-o", out, *kit.tiny)
    assert "Left out: 'serial' looks like an id" in done.out
    assert "--id-column serial" in done.out
    assert "serial" not in load(out).feature_names_in_
    assert esad("score", out, parts).err == ""


def test_without_a_label_column_the_training_is_unsupervised_and_says_so(esad, parts, kit, tmp_path):
    done = esad("fit", parts, "--ignore", "verdict", "--ignore", "serial", "-o", tmp_path / "m.esad", *kit.tiny)
    assert done.code == 0
    assert "Labels: none, so the training is unsupervised" in done.out
    assert load(tmp_path / "m.esad").label_counts_.n_anomaly == 0


@pytest.mark.parametrize("name", ["truth", "Label", "is_fraud"])
def test_a_column_named_like_the_answer_is_warned_about(esad, kit, tmp_path, name):
    data = kit.csv(tmp_path / "d.csv", ["x", name], [[row % 7, row % 2] for row in range(30)])
    done = esad("fit", data, "-o", tmp_path / "m.esad", *kit.tiny)
    assert done.code == 0
    assert done.err.startswith(f"warning: column {name!r} is learned from like any other.")
    assert f"--ignore {name}" in done.err


def test_a_column_that_numbers_the_rows_is_mentioned(esad, kit, tmp_path):
    data = kit.csv(tmp_path / "d.csv", ["nr", "x"], [[row, row % 7] for row in range(30)])
    done = esad("fit", data, "-o", tmp_path / "m.esad", *kit.tiny)
    assert done.err.splitlines() == [
        "note: column 'nr' counts up row by row. If it only numbers the rows, pass --id-column nr."
    ]


def test_a_column_of_a_few_words_is_asked_about(esad, parts, kit, tmp_path):
    done = esad("fit", parts, "--id-column", "serial", "-o", tmp_path / "m.esad", *kit.tiny)
    assert done.err == (
        "note: column 'verdict' is blank but for a few words. If these are labels, pass "
        "--label-column verdict --anomaly-value anomaly.\n"
    )


def test_other_words_and_zero_one_columns_work_with_the_anomaly_value(esad, kit, tmp_path):
    table = [[row % 7, "bad" if row == 3 else "ok" if row == 4 else "", int(row == 3)] for row in range(30)]
    data = kit.csv(tmp_path / "d.csv", ["x", "word", "bit"], table)
    words = ("-l", "word", "--anomaly-value", "bad", "--normal-value", "ok", "--ignore", "bit")
    bits = ("-l", "bit", "--anomaly-value", "1", "--ignore", "word")
    found = []
    for options in (words, bits):
        done = esad("fit", data, *options, "-o", tmp_path / "m.esad", "--json", *kit.tiny)
        found.append(done.json["data"]["labels"])
    assert found == [
        {"n_anomaly": 1, "n_unlabelled": 28, "n_normal": 1},
        {"n_anomaly": 1, "n_unlabelled": 29, "n_normal": 0},
    ]


@pytest.mark.parametrize(
    ("options", "flagged"), [(("--contamination", "0.1"), 6), (("--members", "4", "--false-alarm-rate", "0.05"), None)]
)
def test_the_threshold_follows_the_rule_asked_for(esad, parts, kit, tmp_path, options, flagged):
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", *kit.tiny, *options, "--json")
    if flagged is not None:
        assert done.json["n_flagged"] == flagged
    else:
        unlabelled = done.json["n_flagged"] - done.json["n_labelled_anomaly_flagged"]
        assert unlabelled <= 0.05 * (kit.n_rows + 1)


def test_the_threshold_from_labels_parts_them(esad, parts, kit, tmp_path):
    out, options = tmp_path / "m.esad", ("--method", "iforest", "--threshold-from-labels")
    done = esad("fit", parts, "-l", "verdict", "-i", "serial", "-o", out, *options, "--json")
    assert done.json["n_labelled_anomaly_flagged"] > 0


def test_other_methods_and_parameters(esad, parts, tmp_path):
    out, options = tmp_path / "m.esad", ("--method", "iforest", "--set", "n_trees=7")
    assert esad("fit", parts, "-l", "verdict", "-o", out, *options).code == 0
    assert load(out).n_trees == 7


def test_parquet_and_semicolons_give_the_same_model_as_csv(esad, parts, kit, tmp_path):
    from pyarrow import parquet

    from esad.io.files import read_table

    parquet.write_table(read_table(parts), tmp_path / "parts.parquet")
    kit.csv(tmp_path / "semi.csv", kit.header, kit.rows(), delimiter=";")
    for name in ("parts.csv", "parts.parquet", "semi.csv"):
        done = esad("fit", tmp_path / name, "-l", "verdict", "-i", "serial", "-o", f"{tmp_path / name}.esad", *kit.tiny)
        assert done.code == 0
    models = list(tmp_path.glob("*.esad"))
    assert len(models) == 3
    for path in models:
        model = load(path)
        model.notes_ = {}  # where the data lies
        model.save(path)
    assert len({path.read_bytes() for path in models}) == 1


def test_pictures_are_labelled_by_sub_folder(esad, kit, tmp_path):
    folder = kit.pictures(tmp_path / "pictures", {"unlabelled": 6, "anomaly": 2})
    out = tmp_path / "m.esad"
    done = esad("fit", folder, "-o", out, "--set", "n_epochs=1", "--set", "hidden=[4,4,4,4]", "--set", "latent=4")
    assert done.code == 0, done.err
    assert "8 grey pictures of 16 x 16 pixels" in done.out
    assert "2 anomaly, 0 normal, 6 unlabelled" in done.out
    scored = esad("score", out, folder, "--json")
    assert scored.json["n_rows"] == 8
    assert scored.json["top"][0].keys() == {"file", "score", "anomaly"}
    truth = kit.pictures(tmp_path / "truth", {"normal": 4, "anomaly": 3}, seed=1)
    assert esad("evaluate", out, truth, "--json").json["n_anomaly"] == 3


def test_pictures_are_labelled_by_csv(esad, kit, tmp_path):
    folder = kit.pictures(tmp_path / "pictures", {".": 6})
    labels = kit.csv(tmp_path / "labels.csv", ["file", "label"], [["0.png", "anomaly"], ["1.png", "normal"]])
    options = (
        "--labels-csv",
        labels,
        "--set",
        "n_epochs=1",
        "--set",
        "hidden=[4,4,4,4]",
        "--set",
        "latent=4",
        "--json",
    )
    done = esad("fit", folder, "-o", tmp_path / "m.esad", *options)
    assert done.json["data"]["labels"] == {"n_anomaly": 1, "n_unlabelled": 4, "n_normal": 1}


def test_numbers_agree_with_their_nouns(esad, kit, tmp_path):
    data = kit.csv(tmp_path / "d.csv", ["x"], [[row % 7] for row in range(30)])
    done = esad("fit", data, "--method", "iforest", "-o", tmp_path / "m.esad")
    assert "30 rows, 1 column to learn from" in done.out
    assert "30 rows, 1 column\n" in "\n".join(
        line.rstrip() for line in esad("inspect", tmp_path / "m.esad").out.split("\n")
    )
    one = kit.csv(tmp_path / "one.csv", ["x"], [[1]])
    scored = esad("score", tmp_path / "m.esad", one)
    assert "1 row scored" in scored.out
    assert "The worst row\n" in scored.out


def test_notes_in_the_model_are_plain_json(esad, parts, kit, tmp_path):
    out = tmp_path / "m.esad"
    esad("fit", parts, "-l", "verdict", "-i", "serial", "--ignore", "made", "-o", out, *kit.tiny)
    notes = load(out).notes_
    assert notes.pop("training_data") == [str(parts)]
    assert notes.pop("training_fingerprints") == [fingerprint_data(parts)]
    assert notes == {
        "label_column": "verdict",
        "id_column": "serial",
        "ignored_columns": ["made"],
        "decimal_point": ".",
        "percent_columns": [],
    }
    assert json.loads(json.dumps(load(out).notes_)) == load(out).notes_


def test_a_contamination_in_per_cent_is_explained(esad, tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n3,4\n" * 20, encoding="utf-8")
    done = esad("fit", tmp_path / "t.csv", "--out", tmp_path / "m.esad", "--contamination", 5)
    assert (done.code, "For 5 % write 0.05" in done.err) == (2, True)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_threshold_that_misses_most_labelled_anomalies_is_told(esad, kit, tmp_path, as_json):
    """The four rows nearest to the middle of a cloud are labelled as anomalies, for a method that cannot learn them."""
    cloud = np.random.default_rng(0).normal(size=(80, 2)).round(4)
    middle = set(np.argsort((cloud**2).sum(axis=1))[:4].tolist())
    rows = [[*point, "anomaly" if row in middle else ""] for row, point in enumerate(cloud.tolist())]
    data, out = kit.csv(tmp_path / "cloud.csv", ("a", "b", "label"), rows), tmp_path / "m.esad"
    done = esad("fit", data, "-l", "label", "--method", "iforest", "-o", out, *(["--json"] if as_json else []))
    assert done.code == 0
    assert "warning: the automatic threshold flags 0 of the 4 labelled anomalies." in done.err
    assert "--threshold-from-labels" in done.err
    chosen = esad("fit", data, "-l", "label", "--method", "iforest", "-o", out, "--contamination", "0.1")
    assert chosen.err == ""


def test_labels_that_contradict_the_automatic_threshold_lower_it_and_that_is_told(esad, kit, tmp_path):
    """Labelled anomalies a little outside of the cloud."""
    cloud = np.random.default_rng(0).normal(size=(200, 2))
    angles = np.linspace(0, 6, 6)
    rows = [[*point, ""] for point in cloud.tolist()]
    rows += [[1.9 * np.cos(angle), 1.9 * np.sin(angle), "anomaly"] for angle in angles]
    data = kit.csv(tmp_path / "ring.csv", ("a", "b", "label"), rows)
    done = esad("fit", data, "-l", "label", "--method", "iforest", "-o", tmp_path / "m.esad", "--json")
    assert "of the 6 labelled anomalies: they lower it." in done.err
    assert done.json["n_labelled_anomaly_flagged"] >= 3
    assert done.json["flagged_ratio"] <= 0.25


def test_ways_to_compute_are_named_in_the_help_and_work(parts, esad, tmp_path):
    said = " ".join(esad("fit", "--help").out.replace("│", " ").split())
    assert all(word in said for word in ("precision=bfloat16", "compiled=true", "accumulate=4"))
    few = ("--members", "1", "--set", "n_epochs=2", "--set", "hidden=[4]", "--set", "latent=2")
    for settings in (["accumulate=4"], ["precision=bfloat16"], ["precision=float64", "accumulate=2"]):
        words = [word for setting in settings for word in ("--set", setting)]
        for way in ("--stream", "--no-stream"):
            done = esad("fit", parts, "--ignore", "verdict", "--out", tmp_path / "m.esad", "-q", way, *few, *words)
            assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["precision=float16"], "`precision` must be one of auto, float32, float64, bfloat16. Got 'float16'."),
        (["compiled=maybe"], "`compiled` must be True or False. Got 'maybe'."),
        (["accumulate=0"], "`accumulate` must be a whole number above 0. Got 0."),
        (["accumulate=1000"], "unlabelled rows cannot be taken in 1000 parts. Take fewer."),
    ],
)
@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_wrong_ways_to_compute_are_one_line(parts, esad, tmp_path, settings, line, way):
    words = [word for setting in settings for word in ("--set", setting)]
    done = esad("fit", parts, "--ignore", "verdict", "--out", tmp_path / "m.esad", "-q", way, *words)
    assert (done.code, done.err.count("error: ")) == (2, 1)
    assert line in done.err
    assert not (tmp_path / "m.esad").exists()


def test_labels_of_one_kind_are_spoken_of_in_the_words_of_the_file(esad, kit, tmp_path):
    def fitted(words):
        rows = [[number * 7 % 41, number % 7, words(number)] for number in range(40)]
        data = kit.csv(tmp_path / "rows.csv", ("a", "b", "label"), rows)
        return esad("fit", data, "-l", "label", "--method", "iforest", "-o", tmp_path / "m.esad").err

    assert fitted(lambda number: "normal" if number < 9 else "") == ""
    every = fitted(lambda number: "normal" if number < 30 else "anomaly")
    assert "every row is labelled, so what is usual is learned from the 30 rows labelled normal." in every
    assert "blank" in every
    assert "`y`" not in every
    alike = fitted(lambda number: "anomaly")
    assert "every row is labelled, so none is left to learn what is usual from." in alike
    assert "automatic threshold" not in alike


def test_few_rows_are_told(esad, kit, tmp_path):
    data = kit.csv(tmp_path / "few.csv", ("a", "b"), [[number, number % 3] for number in range(8)])
    done = esad("fit", data, "--method", "iforest", "-o", tmp_path / "m.esad", "--quiet")
    assert "warning: 8 unlabelled rows to learn from: alarms among new rows mean little. Give 20 or more." in done.err


def test_a_network_that_no_memory_holds_is_one_line(esad, parts, tmp_path):
    asked = ("--label-column", "verdict", "--quiet", "--set", "hidden=[1000000,1000000]")
    found = esad("fit", parts, "--out", tmp_path / "m.esad", *asked)
    assert found.code == 1
    assert found.err.endswith("error: There is not enough memory for this. Give fewer rows or columns.\n")
    assert "Traceback" not in found.err


def test_usual_words_are_understood_and_a_value_may_mean_that_nobody_looked(esad, kit, tmp_path):
    words = {"anomaly": "Fraud", "": "Not Fraud"}
    table = [[*row[:5], words[row[5]]] for row in kit.rows()]
    data = kit.csv(tmp_path / "t.csv", kit.header, table)
    fit = ("fit", data, "-l", "verdict", "-i", "serial", "--method", "iforest", "--out", tmp_path / "m.esad", "--json")
    done = esad(*fit)
    assert done.json["data"]["labels"] == {"n_anomaly": 3, "n_unlabelled": 0, "n_normal": kit.n_rows - 3}
    assert "--unlabelled-value" in done.err
    done = esad(*fit, "--unlabelled-value", "Not Fraud")
    assert (done.json["data"]["labels"]["n_unlabelled"], "labelled, so" in done.err) == (kit.n_rows - 3, False)
    found = esad("labels", tmp_path / "m.esad", data, "--quick", "--json")
    assert (found.code, len(found.json["suggestions"])) == (0, 10)  # the words are kept in the model


@pytest.mark.parametrize(
    ("options", "method", "reason"),
    [
        (("-l", "verdict"), "committee", "ESAD and trees together rank tables"),
        (("-l", "verdict", "--set", "n_trees=20"), "committee", "ESAD and trees together rank tables"),
        (("--ignore", "verdict"), "committee", "Without a labelled anomaly ESAD judges alone"),
        (("-l", "verdict", "--set", "phi=none"), "esad", "The committee has no parameter 'phi'"),
    ],
)
def test_auto_chooses_the_method_by_the_data_and_says_why(esad, parts, kit, tmp_path, options, method, reason):
    done = esad("fit", parts, "-i", "serial", "-m", "auto", *options, "-o", tmp_path / "m.esad", *kit.tiny)
    assert done.code == 0, done.err
    assert f"Method: {method}. {reason}" in done.out
    assert type(load(tmp_path / "m.esad")).__name__ == {"committee": "Committee", "esad": "ESAD"}[method]


def test_a_method_that_needs_labels_is_not_said_to_be_trained_without(esad, parts, tmp_path):
    done = esad("fit", parts, "--ignore", "verdict", "-i", "serial", "-m", "bagged_trees", "-o", tmp_path / "m.esad")
    assert (done.code, "unsupervised" in done.out) == (2, False)
    assert "nothing says which these are. Give --label-column, or take a method that can do without" in done.err


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["max_features=0.5"], "both lack 'max_features'. Name a method that has what is set: --method bagged_trees."),
        (["n_epoch=3"], "both lack 'n_epoch'. Did you mean 'n_epochs'? They have: "),
        (["n_trees=9", "phi=none"], "neither has all of 'n_trees', 'phi'. They have: "),
    ],
)
def test_a_setting_that_no_method_of_the_choice_has_is_not_blamed_on_one(esad, parts, tmp_path, settings, says):
    options = [word for setting in settings for word in ("--set", setting)]
    done = esad("fit", parts, "-l", "verdict", "-o", tmp_path / "m.esad", *options)
    assert done.code == 2
    assert done.err.startswith(f"error: The data choose between esad and committee, and {says}")
