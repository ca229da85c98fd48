"""`esad calibrate`, `esad fit --calibration-ratio`, `esad score --alpha` and `--fdr`: p-values on the command line."""

import csv
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import false_discovery_control

from esad import OCSVM
from esad.detectors.model_file import load
from esad.io import files
from esad.io.files import TableFiles


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path, X, **columns):
    names = ["a", "b", "c", *columns]
    cells = zip(X.tolist(), *columns.values(), strict=True)
    path.write_text("\n".join([",".join(names), *(",".join(map(str, [*row, *rest])) for row, *rest in cells)]) + "\n")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A plain model, one with rows held out, and files of normal and of mixed rows."""
    from esad.cli.app import run

    folder, rng = tmp_path_factory.mktemp("calibrate"), np.random.default_rng(0)
    train = write(folder / "train.csv", rng.normal(size=(400, 3)))
    plain, held_out = folder / "plain.esad", folder / "held_out.esad"
    fit = ["fit", str(train), "--method", "iforest", "--set", "n_trees=20", "--quiet", "--out"]
    assert run([*fit, str(plain)]) == 0
    assert run([*fit, str(held_out), "--calibration-ratio", "0.5", "--false-alarm-rate", "0.1"]) == 0
    normal = write(folder / "normal.csv", rng.normal(size=(199, 3)))
    mixed_rows = np.r_[rng.normal(size=(280, 3)), rng.normal(8, 0.1, size=(20, 3))]
    mixed = write(folder / "mixed.csv", mixed_rows, verdict=["normal"] * 280 + ["anomaly"] * 20)
    return SimpleNamespace(plain=plain, held_out=held_out, normal=normal, mixed=mixed, folder=folder)


def test_rows_held_out_in_fit_give_p_values_and_the_asked_rate(data):
    detector = load(data.held_out)
    assert (detector.calibration_.kind, detector.calibration_.n_rows) == ("held out", 200)
    assert detector.threshold_ == detector.calibration_.threshold(0.1)
    assert load(data.plain).calibration_ is None


def test_fit_says_how_many_rows_it_held_out(esad, data, tmp_path):
    fit = ("fit", data.normal, "--method", "iforest", "--out", tmp_path / "m.esad", "--calibration-ratio", 0.2)
    assert "40 rows held out of the training: p-values from 0.0244" in esad(*fit).out
    assert esad(*fit, "--json").json["n_calibration"] == 40


def test_members_calibrate_where_rows_are_few(esad, data, tmp_path):
    fit = (
        "fit",
        data.normal,
        "--members",
        2,
        "--set",
        "n_epochs=2",
        "--set",
        "hidden=[8]",
        "--out",
        tmp_path / "m.esad",
    )
    done = esad(*fit, "--cross-calibration", "--json")
    assert (done.code, done.json["n_calibration"]) == (0, 38)  # two parts of 19
    assert load(tmp_path / "m.esad").calibration_.kind == "cross"
    assert "38 rows of the training, by member: p-values from 0.0256" in esad("inspect", tmp_path / "m.esad").out


def test_calibrate_writes_a_model_whose_alarms_keep_to_the_rate(esad, data, tmp_path):
    out = tmp_path / "m.esad"
    done = esad("calibrate", data.plain, data.normal, "--alpha", 0.05, "--out", out)
    assert (done.code, done.err) == (0, "")
    assert "199 rows given later: p-values from 0.005" in done.out
    assert "at most 5.0 % of normal rows are flagged" in done.out
    detector = load(out)
    scores = detector.anomaly_score(files.read_table(data.normal))
    assert detector.calibration_.parts[0].tolist() == np.sort(scores).tolist()
    assert detector.threshold_ == np.sort(scores)[199 - 10]
    assert esad("inspect", out).out.count("199 rows given later: p-values from 0.005") == 1


def test_calibrate_may_replace_the_model_it_read_and_leaves_out_known_anomalies(esad, data, tmp_path):
    out = tmp_path / "m.esad"
    out.write_bytes(data.plain.read_bytes())
    done = esad("calibrate", out, data.mixed, "--label-column", "verdict", "--out", out, "--json")
    assert (done.code, done.err) == (0, "")
    assert (done.json["n_rows"], done.json["n_left_out"], done.json["n_calibration"]) == (300, 20, 280)
    assert done.json["threshold"] == load(data.plain).threshold_
    done = esad("calibrate", out, data.mixed, "--pollution-ratio", 0.1, "--out", out, "--json")
    assert done.json["n_calibration"] == 270


def test_a_calibrated_model_writes_p_values(esad, data, tmp_path):
    out = tmp_path / "s.csv"
    done = esad("score", data.held_out, data.mixed, "--out", out, "--top", 2)
    assert done.code == 0
    assert "p_value" in done.out
    detector = load(data.held_out)
    p_values = detector.p_value(files.read_table(data.mixed).select(["a", "b", "c"]))
    assert list(read(out)[0]) == ["row", "score", "anomaly", "p_value"]
    assert [float(row["p_value"]) for row in read(out)] == pytest.approx(p_values.tolist())
    assert [row["anomaly"] == "true" for row in read(out)] == (p_values <= 0.1).tolist()


def test_alpha_flags_by_p_value(esad, data, tmp_path):
    out = tmp_path / "s.csv"
    done = esad("score", data.held_out, data.mixed, "--out", out, "--alpha", 0.02)
    assert "with a p-value of at most 0.02" in done.out
    rows = read(out)
    assert [row["anomaly"] == "true" for row in rows] == [float(row["p_value"]) <= 0.02 for row in rows]
    assert [row["anomaly"] for row in rows[-20:]] == ["true"] * 20


@pytest.mark.parametrize("batch_rows", [1000, 7])
def test_fdr_flags_what_scipy_would_over_the_whole_file(esad, data, tmp_path, monkeypatch, batch_rows):
    opened = TableFiles.batches
    monkeypatch.setattr(TableFiles, "batches", lambda *a, **kw: opened(*a, **kw | {"batch_rows": batch_rows}))
    out = tmp_path / "s.csv"
    done = esad("score", data.held_out, data.mixed, "--out", out, "--fdr", 0.1, "--json")
    p_values = np.array([float(row["p_value"]) for row in read(out)])
    wanted = false_discovery_control(p_values) <= 0.1
    assert wanted[-20:].all()
    assert [row["anomaly"] == "true" for row in read(out)] == wanted.tolist()
    assert done.json["n_flagged"] == int(wanted.sum())
    assert done.json["largest_p_value"] == pytest.approx(p_values[wanted].max())
    assert done.json["calibration"] == {"kind": "held out", "n_rows": 200}


def test_fdr_that_finds_nothing_says_what_it_would_take(esad, data):
    done = esad("score", data.held_out, data.normal, "--fdr", 0.05)
    assert done.code == 0
    assert "0 flagged" in done.out
    assert "with 200 calibration rows, 20 of 199 rows must stand out together" in done.err
    assert "with 3,979, a single one can." in done.err


def test_cross_conformal_models_score_and_say_so(esad, data, tmp_path):
    detector = OCSVM(random_state=0).fit(files.read_table(data.folder / "train.csv")).calibrate()
    detector.save(tmp_path / "m.esad")
    done = esad("score", tmp_path / "m.esad", data.normal, "--fdr", 0.2, "--out", tmp_path / "s.csv")
    assert "cross-conformal" in done.err
    wanted = detector.p_value(files.read_table(data.normal))
    assert [float(row["p_value"]) for row in read(tmp_path / "s.csv")] == pytest.approx(wanted.tolist())


def test_pictures_are_calibrated_by_sub_folder_and_scored_twice(esad, kit, tmp_path):
    train = kit.pictures(tmp_path / "train", {"unlabelled": 30}, seed=1)
    checked = kit.pictures(tmp_path / "checked", {"normal": 19, "anomaly": 3}, seed=2)
    new = kit.pictures(tmp_path / "new", {"normal": 10, "anomaly": 10}, seed=3)
    model = tmp_path / "m.esad"
    assert esad("fit", train, "--method", "iforest", "--out", model, "--quiet").code == 0
    done = esad("calibrate", model, checked, "--out", model, "--json")
    assert (done.json["n_rows"], done.json["n_left_out"], done.json["n_calibration"]) == (22, 3, 19)
    done = esad("score", model, new, "--fdr", 0.1, "--out", tmp_path / "s.csv", "--json")
    assert done.code == 0
    found = {row["file"] for row in read(tmp_path / "s.csv") if row["anomaly"] == "true"}
    assert found >= {f"anomaly/{number}.png" for number in range(10)}
    assert "'brightness'" in done.err  # half of the new pictures are bright


def test_data_that_changes_between_the_two_passes_is_refused(esad, data, tmp_path, monkeypatch):
    opened, calls = TableFiles.batches, []

    def shrinking(*args, **kwargs):
        calls.append(1)
        batches = list(opened(*args, **kwargs))
        return iter([batches[0].slice(0, 100)] if len(calls) == 1 else batches)

    monkeypatch.setattr(TableFiles, "batches", shrinking)
    done = esad("score", data.held_out, data.mixed, "--fdr", 0.1, "--out", tmp_path / "s.csv")
    assert (done.code, done.err.splitlines()[1:]) == (
        2,
        ["error: The data changed while it was read: 100 rows first, then 300."],
    )
    assert not (tmp_path / "s.csv").exists()


class TestRefused:
    """Exit code 2, one line, nothing written."""

    @pytest.fixture
    def refused(self, esad, data, tmp_path):
        def call(*args):
            before = {path: path.read_bytes() for path in data.folder.iterdir()}
            done = esad(*args)
            assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
            assert done.err.startswith("error: ")
            assert {path: path.read_bytes() for path in data.folder.iterdir()} == before
            assert list(tmp_path.iterdir()) == []
            return done.err

        return call

    @pytest.mark.parametrize("option", ["--alpha", "--fdr"])
    def test_p_values_of_a_model_without_calibration(self, refused, data, tmp_path, option):
        line = refused("score", data.plain, data.mixed, option, 0.1, "--out", tmp_path / "s.csv")
        assert f"{option} needs p-values, and the model has no calibration" in line

    @pytest.mark.parametrize("option", ["--alpha", "--fdr"])
    @pytest.mark.parametrize("share", ["0", "1", "-0.1", "5", "nan"])
    def test_shares_out_of_range(self, refused, data, tmp_path, option, share):
        line = refused("score", data.held_out, data.mixed, option, share, "--out", tmp_path / "s.csv")
        assert f"{option} must be above 0 and below 1" in line

    @pytest.mark.parametrize("option", ["--alpha", "--fdr"])
    def test_levels_that_the_calibration_cannot_reach(self, refused, data, option):
        line = refused("score", data.held_out, data.mixed, option, 0.001)
        assert f"{option} of 0.001 needs at least 999 calibration rows. Got 200." in line

    def test_scores_that_cannot_be_written_are_known_before_anything_is_scored(
        self, refused, data, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(type(load(data.held_out)), "score_rows", lambda *_: pytest.fail("scored"))
        line = refused("score", data.held_out, data.normal, "--fdr", 0.1, "--out", tmp_path / "no" / "s.csv")
        assert "Cannot write" in line

    def test_both_rules(self, refused, data):
        assert "--alpha or --fdr" in refused("score", data.held_out, data.mixed, "--alpha", 0.1, "--fdr", 0.1)

    def test_calibrating_with_too_few_rows(self, refused, data, tmp_path):
        line = refused("calibrate", data.plain, data.normal, "--alpha", 0.001, "--out", tmp_path / "m.esad")
        assert "--alpha of 0.001 needs at least 999 calibration rows. Got 199." in line

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--alpha", "0"], "above 0 and below 1"),
            (["--alpha", "high"], "--alpha"),
            (["--pollution-ratio", "1"], "below 1"),
            (["--pollution-ratio", "-0.1"], "0 or more"),
            (["--label-column", "verdict"], "has no column 'verdict'"),
            (["--anomaly-value", "1"], "--label-column"),
            (["--labels-csv", "x.csv"], "folder of pictures"),
        ],
    )
    def test_wrong_options_of_calibrate(self, refused, data, tmp_path, options, words):
        assert words in refused("calibrate", data.plain, data.normal, *options, "--out", tmp_path / "m.esad")

    def test_calibrate_over_its_data_or_another_kind_of_file(self, refused, data, tmp_path):
        assert "no name for a model" in refused("calibrate", data.plain, data.normal, "--out", data.normal)
        assert "Missing option '--out'" in refused("calibrate", data.plain, data.normal)
        assert "no model file" in refused("calibrate", tmp_path / "no.esad", data.normal, "--out", tmp_path / "m.esad")
        assert "is data" in refused("calibrate", data.normal, data.normal, "--out", tmp_path / "m.esad")

    def test_a_copy_of_the_training_file_in_another_format(self, refused, data, tmp_path):
        pq.write_table(TableFiles([data.folder / "train.csv"]).read(), data.folder / "copy.parquet")
        line = refused("calibrate", data.plain, data.folder / "copy.parquet", "--out", tmp_path / "m.esad")
        assert "is what the model was trained on" in line

    def test_rows_that_are_all_known_anomalies(self, refused, data, tmp_path, kit):
        odd = write(data.folder / "odd.csv", np.ones((5, 3)), verdict=["anomaly"] * 5)
        line = refused("calibrate", data.plain, odd, "--label-column", "verdict", "--out", tmp_path / "m.esad")
        assert "Got none that is presumed normal" in line

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--calibration-ratio", "0"], "--calibration-ratio must be above 0 and below 1"),
            (["--calibration-ratio", "1.5"], "--calibration-ratio must be above 0 and below 1"),
            (["--calibration-ratio", "0.001"], "Both need one at least"),
            (["--calibration-ratio", "0.1", "--false-alarm-rate", "0.01"], "needs at least 99"),
            (["--calibration-ratio", "0.1", "--cross-calibration"], "not both"),
            (["--cross-calibration"], "whose members leave rows out"),
        ],
    )
    def test_wrong_options_of_fit(self, refused, data, tmp_path, options, words):
        fit = ("fit", data.normal, "--method", "iforest", "--quiet", "--out", tmp_path / "m.esad")
        assert words in refused(*fit, *options)


def test_the_label_column_is_that_of_the_training_and_the_training_file_is_refused(esad, kit, tmp_path):
    table = [[*row[:5], "fraud" if row[5] else "fine" if number % 2 else ""] for number, row in enumerate(kit.rows())]
    train, kept = (kit.csv(tmp_path / f"{name}.csv", kit.header, table) for name in ("train", "kept"))
    words = ("-l", "verdict", "--anomaly-value", "fraud", "--normal-value", "fine")
    model = tmp_path / "m.esad"
    assert esad("fit", train, *words, "-i", "serial", "--method", "iforest", "--out", model, "--quiet").code == 0
    for given in (train, kept):  # the same rows under another name
        done = esad("calibrate", model, given, "--out", tmp_path / "c.esad")
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "is what the model was trained on" in done.err and "--calibration-ratio" in done.err
        assert not (tmp_path / "c.esad").exists()
    new = kit.csv(tmp_path / "new.csv", kit.header, table[:50])
    done = esad("calibrate", model, new, "--out", tmp_path / "c.esad", "--json")
    assert (done.code, done.err.count("\n")) == (0, 1) and "about 100 % of these rows" in done.err  # a part of them
    assert (done.json["n_rows"], done.json["n_left_out"], done.json["n_calibration"]) == (50, 3, 47)
    unlabelled = kit.csv(tmp_path / "none.csv", kit.header, [[*row[:5], ""] for row in table[:50]])
    assert esad("calibrate", model, unlabelled, "--out", tmp_path / "c.esad", "--json").json["n_left_out"] == 0


def test_a_column_of_answers_that_nobody_named_is_pointed_at(esad, data, tmp_path):
    rng = np.random.default_rng(1)
    checked = write(tmp_path / "checked.csv", rng.normal(size=(60, 3)), truth=[1] * 30 + [0] * 30)
    done = esad("calibrate", data.plain, checked, "--out", tmp_path / "c.esad")
    assert "all rows are taken as normal, whatever column 'truth' says" in done.err
    assert "--label-column truth" in done.err
    named = ("--label-column", "truth", "--anomaly-value", 1, "--normal-value", 0)
    assert esad("calibrate", data.plain, checked, *named, "--out", tmp_path / "c.esad").err == ""
