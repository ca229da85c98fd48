"""compare, inspect, methods, data and demo: what they say, for people and for programs."""

import pytest

from esad import registry
from esad.cli import inspect as inspect_command
from esad.detectors.model_file import describe, load
from esad.io.files import read_table
from esad.methods.committee import Committee
from esad.methods.deep_sad import DeepSAD
from esad.methods.esad import ESAD
from esad.persist import bundle


def test_compare_ranks_the_methods_on_my_own_data(esad, parts):
    options = ("--label-column", "verdict", "--id-column", "serial", "--methods", "iforest", "--repeats", 2)
    done = esad("compare", parts, *options)
    assert (done.code, done.err) == (0, "")
    assert "2 splits, 1 labelled anomaly among 18 held-out rows" in done.out
    assert "iforest" in done.out
    found = esad("compare", parts, *options, "--json").json
    assert len(found["results"][0]["auc"]) == 2


def test_compare_lists_a_method_that_cannot_take_the_data(esad, kit, tmp_path, monkeypatch):
    monkeypatch.setattr(ESAD, "takes", ("images",))
    data = kit.csv(tmp_path / "d.csv", kit.header, kit.rows())
    done = esad("compare", data, "-l", "verdict", "-i", "serial", "--repeats", 1, "--methods", "esad,iforest")
    assert done.code == 0
    assert "esad was left out: ESAD takes pictures. Got tables." in done.out
    alone = esad("compare", data, "-l", "verdict", "-i", "serial", "--repeats", 1, "--methods", "esad")
    assert alone.code == 2
    assert alone.err == "error: No method could be used. esad: ESAD takes pictures. Got tables.\n"


def test_compare_keeps_to_its_time_and_says_what_it_left_out(esad, parts):
    options = ("--label-column", "verdict", "--id-column", "serial", "--methods", "iforest,esad", "--repeats", 500)
    done = esad("compare", parts, *options, "--budget", "1s")
    assert done.code == 0
    assert "1 s were not enough for all 500 splits: " in done.out
    assert "For the others: --budget 10m" in done.out
    assert esad("compare", parts, *options, "--budget", "soon").err.startswith("error: --budget must be a time such as")


def test_compare_needs_two_labelled_anomalies(esad, kit, tmp_path):
    table = [[row % 7, "anomaly" if row == 3 else ""] for row in range(30)]
    data = kit.csv(tmp_path / "d.csv", ["x", "label"], table)
    done = esad("compare", data, "-l", "label")
    assert done.code == 2
    assert "two labelled anomalies" in done.err
    assert esad("compare", data, "--ignore", "label").err.startswith("error: Comparing needs labels.")


def test_inspect_says_what_the_model_is(esad, model):
    done = esad("inspect", model)
    assert (done.code, done.err) == (0, "")
    for words in (
        "method",
        "esad 0.",
        "n_members=1",
        "hidden=[8]",
        "60 rows, 4 columns",
        "3 anomaly",
        "serial",
        "verdict",
    ):
        assert words in done.out
    found = esad("inspect", model, "--json").json
    detector = load(model)
    assert found["threshold"] == detector.threshold_
    assert [column["kind"] for column in found["columns"]] == ["number", "category", "date", "boolean"]
    assert found["changed_parameters"]["n_epochs"] == 4
    assert found["data_fingerprint"] == detector.fingerprint_
    assert found["n_bytes"] == model.stat().st_size


def test_inspect_leaves_out_what_is_empty(esad, model):
    shown = esad("inspect", model).out
    assert "slope=" in shown
    for empty in ("=()", "=[]", "=None", "ignored columns"):
        assert empty not in shown


def test_inspect_of_a_model_without_label_counts(esad, model, tmp_path):
    manifest, tensors = bundle.read(model)
    written = {"format", "format_version", "esad_version"}
    manifest = {name: value for name, value in manifest.items() if name not in written}
    manifest["label_counts"] = dict.fromkeys(manifest["label_counts"], 0)
    bundle.write(tmp_path / "m.esad", manifest, tensors)
    done = esad("inspect", tmp_path / "m.esad")
    assert (done.code, done.out) == (2, "")
    assert "m.esad' is not a usable esad model" in done.err
    shown = describe(model) | {"labels": manifest["label_counts"]}
    assert shown["n_training_rows"] == 60  # by the columns' own count
    inspect_command._show(shown)


def test_methods_lists_all_of_the_registry(esad):
    found = esad("methods", "--json").json["methods"]
    assert [one["name"] for one in found] == list(registry.method_names())
    shown = esad("methods").out
    for one in found:
        assert one["name"] in shown
        assert one["summary"] in shown


def test_data_lists_all_sets_and_what_is_here(esad, tmp_path, monkeypatch):
    (tmp_path / "odds").mkdir()
    (tmp_path / "odds" / "cardio.npz").write_bytes(b"")
    monkeypatch.setenv("ESAD_DATA", str(tmp_path))
    found = {one["name"]: one["available"] for one in esad("data", "--json").json["data_sets"]}
    assert list(found) == list(registry.data_set_names())
    assert found["breast_cancer"]
    assert found["cardio"]
    assert not found["mnist"]
    assert "breast_cancer" in esad("data").out


def test_a_built_in_set_can_be_saved_and_used_by_every_command(esad, kit, tmp_path):
    train, test, model = tmp_path / "c.csv", tmp_path / "t.parquet", tmp_path / "m.esad"
    saved = esad("data", "save", "breast_cancer", "--out", train, "--test-out", test, "--labels", 12)
    assert (saved.code, saved.err) == (0, "")
    assert "--label-column label --ignore truth" in saved.out
    table = read_table(train)
    assert table.num_rows + read_table(test).num_rows == 569
    assert table["label"].to_pylist().count("anomaly") == 12
    labelled = zip(table["label"].to_pylist(), table["truth"].to_pylist(), strict=True)
    assert all(truth == 1 for label, truth in labelled if label == "anomaly")
    fitted = esad("fit", train, "-l", "label", "--ignore", "truth", "-o", model, "--method", "iforest")
    assert fitted.code == 0
    assert "of the 12 labelled anomalies" in fitted.err  # a third of the rows hide anomalies
    assert esad("evaluate", model, test, "-t", "truth").err == ""
    assert esad("score", model, train).err == ""


def test_pictures_are_saved_as_folders(esad, tmp_path):
    pytest.importorskip("PIL.Image")
    options = ("--out", tmp_path / "d", "--test-out", tmp_path / "t", "--labels", 4, "--normal-class", 3)
    done = esad("data", "save", "digits", *options, "--json")
    assert len(list((tmp_path / "d" / "anomaly").iterdir())) == 4
    n_train = len(list((tmp_path / "d").rglob("*.png")))
    n_test = len(list((tmp_path / "t").rglob("*.png")))
    assert (done.json["n_rows"], done.json["n_test_rows"]) == (n_train, n_test)
    assert {path.name for path in (tmp_path / "t").iterdir()} == {"anomaly", "normal"}
    again = esad("data", "save", "digits", *options)
    assert (again.code, again.out) == (2, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "t"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("brest_cancer", "--out", "a.csv"), "Did you mean 'breast_cancer'?"),
        (("breast_cancer", "--out", "a.txt"), ".csv or .parquet"),
        (("breast_cancer", "--out", "a.csv", "--labels", 999), "from 0 to 212"),
        (("breast_cancer", "--out", "a.csv", "--test-out", "./a.csv"), "must differ"),
        (("breast_cancer", "--out", "no/a.csv"), "does not exist"),
    ],
)
def test_data_save_refuses_with_one_line(esad, tmp_path, monkeypatch, args, words):
    monkeypatch.chdir(tmp_path)
    done = esad("data", "save", *args)
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def quick_demo(monkeypatch):
    """Trainings of two epochs: the command is tested here, not the methods."""
    small = {"n_epochs": 2, "pretrain_epochs": 2, "n_members": 1}
    for method in (ESAD, DeepSAD, Committee):
        usual = method.__init__.__kwdefaults__
        quick = usual | {name: value for name, value in small.items() if name in usual}
        monkeypatch.setattr(method.__init__, "__kwdefaults__", quick)


@pytest.mark.usefixtures("quick_demo")
def test_demo_trains_compares_and_leaves_working_files(esad, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = esad("demo")
    assert (done.code, done.err) == (0, "")
    names = ["model.esad", "report.html", "scores.csv", "test.csv", "train.csv"]
    assert sorted(path.name for path in (tmp_path / "esad-demo").iterdir()) == names
    assert "iforest" in done.out
    assert "The model is of the method committee, which esad fit takes" in done.out
    assert type(load("esad-demo/model.esad")).__name__ == "Committee"
    notes = load("esad-demo/model.esad").notes_  # those of `esad fit`
    assert (notes["label_column"], notes["decimal_point"]) == ("label", ".")
    commands = [line.split()[1:] for line in done.out.splitlines() if line.startswith("  esad ")]
    assert [command[0] for command in commands] == ["inspect", "score", "evaluate", "explain", "compare", "fit"]
    said = {
        # Of the test rows far more are anomalies than of the training rows, and `score` sees that they differ.
        "score": "warning: the rows do not look like the training rows",
        "fit": "",  # anything: after two epochs the threshold may miss most of the labelled anomalies, and say so
    }
    for command in commands:
        result = esad(*command, *(("--repeats", 1, "-m", "esad,iforest") if command[0] == "compare" else ()))
        assert result.code == 0, command
        assert result.err.startswith(said[command[0]]) if command[0] in said else result.err == "", (
            command,
            result.err,
        )


@pytest.mark.usefixtures("quick_demo")
@pytest.mark.parametrize(
    ("stopped", "words"),
    [
        ("esad.datasets.saving.write_table", "no result was written."),
        (
            "esad.cli.demo._train",
            "'d/train.csv', 'd/test.csv' had been written, 'd/model.esad', 'd/scores.csv', 'd/report.html' not.",
        ),
        (
            "esad.cli.demo._show",
            "'d/train.csv', 'd/test.csv', 'd/model.esad', 'd/scores.csv', 'd/report.html' had been written.",
        ),
    ],
)
def test_demo_says_what_it_had_written_when_it_is_stopped(esad, tmp_path, monkeypatch, stopped, words):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(stopped, interrupt)
    monkeypatch.chdir(tmp_path)
    done = esad("demo", "--out", "d")
    assert (done.code, done.err) == (130, f"interrupted: {words}\n")


@pytest.mark.usefixtures("quick_demo")
def test_demo_json_and_a_folder_that_cannot_be(esad, tmp_path):
    found = esad("demo", "--out", tmp_path / "d", "--json").json
    assert found["results"].keys() == {"committee", "esad", "deep_sad", "iforest"}
    assert found["method"] == "committee"
    (tmp_path / "file").write_text("")
    refused = esad("demo", "--out", tmp_path / "file")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
