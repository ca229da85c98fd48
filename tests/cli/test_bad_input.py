"""Whatever is given wrong: exit code 2, one line on stderr that names it, nothing written."""

import pickle

import pytest

MESSY = {
    "no.csv": None,
    "empty.csv": b"",
    "blank.csv": b"\n\n",
    "header.csv": b"serial,size,colour,made,checked,verdict\n",
    "garbage.csv": bytes(range(256)) * 40,
    "garbage.parquet": bytes(range(256)) * 40,
    "empty.parquet": b"",
    "latin1.csv": "serial,size\ngr\u00fcn,1\nrot,2\n".encode("latin-1"),
    "ragged.csv": b"a,b\n1,2\n3,4,5\n",
    "doubled.csv": b"a,a\n1,2\n3,4\n",
    "open.csv": b'a,b\n1,2\n3,"4\n5,6\n',
    "notes.txt": b"a,b\n1,2\n",
    "model.esad": b"PK",
}
COMMANDS = {
    "fit": ("fit", "{data}", "--label-column", "verdict", "--out", "{folder}/out.esad", "--quiet"),
    "compare": ("compare", "{data}", "--label-column", "verdict"),
    "score": ("score", "{model}", "{data}", "--out", "{folder}/out.csv"),
    "labels": ("labels", "{model}", "{data}", "--out", "{folder}/out.csv"),
    "calibrate": ("calibrate", "{model}", "{data}", "--out", "{folder}/out.esad"),
    "evaluate": ("evaluate", "{model}", "{data}", "--truth-column", "verdict"),
    "explain": ("explain", "{model}", "{data}", "--out", "{folder}/out.csv"),
    "review": ("review", "{model}", "{data}", "--labels", "{folder}/out.db"),
    "export": ("export", "{model}", "--check", "{data}", "--out", "{folder}/out.onnx"),
    "report": ("report", "{model}", "{data}", "--out", "{folder}/out.html"),
}


@pytest.fixture
def refused(esad, tmp_path):
    """Runs a command and checks that it is refused as it should be; returns the line."""

    def call(*args):
        before = {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}
        done = esad(*args)
        assert done.code == 2, done
        assert done.out == ""
        assert done.err.startswith("error: "), done.err
        assert done.err.count("\n") == 1, done.err
        after = {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}
        assert after == before
        return done.err

    return call


# All commands read through one door, whole as `fit` or in batches as `score`: the others get one file of each kind.
TRIED = [(command, name) for command in ("fit", "score") for name in MESSY]
TRIED += [
    (command, name) for command in COMMANDS if command not in ("fit", "score") for name in ("no.csv", "ragged.csv")
]


@pytest.mark.parametrize(("command", "name"), TRIED)
def test_files_that_cannot_be_read(refused, model, tmp_path, command, name):
    path = tmp_path / name
    if MESSY[name] is not None:
        path.write_bytes(MESSY[name])
    line = refused(*(part.format(data=path, model=model, folder=tmp_path) for part in COMMANDS[command]))
    assert name in line


@pytest.mark.parametrize("command", ["fit", "score"])
def test_a_folder_without_pictures(refused, model, tmp_path, command):
    folder = tmp_path / "folder"
    folder.mkdir()
    line = refused(*(part.format(data=folder, model=model, folder=tmp_path) for part in COMMANDS[command]))
    assert "folder" in line or "sub-folder" in line


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_one_single_row(refused, kit, tmp_path, command):
    data = kit.csv(tmp_path / "one.csv", kit.header, kit.rows()[:1])
    spoken = [part.format(data=data, folder=tmp_path) for part in COMMANDS[command] if part != "--quiet"]
    assert "it holds 1 row." in refused(*spoken)


def test_one_single_row_can_be_scored(esad, model, kit, tmp_path):
    data = kit.csv(tmp_path / "one.csv", kit.header, kit.rows()[:1])
    assert esad("score", model, data, "--json").json["n_rows"] == 1


@pytest.mark.parametrize("command", ["fit", "compare"])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["0", "1", "0"], "--anomaly-value 1"),
        (["red", "green", ""], "['red', 'green']"),
        (["3", "4", "5"], "[3, 4, 5]"),
    ],
)
def test_label_values_that_could_mean_anything(refused, kit, tmp_path, command, values, words):
    table = [[*row[:5], values[number % 3]] for number, row in enumerate(kit.rows())]
    data = kit.csv(tmp_path / "d.csv", kit.header, table)
    line = refused(*(part.format(data=data, folder=tmp_path) for part in COMMANDS[command]))
    assert words in line
    assert "--anomaly-value" in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-l", "Verdikt"), "Did you mean 'verdict'?"),
        (("-l", "verdict", "-i", "seriel"), "Did you mean 'serial'?"),
        (("-l", "verdict", "--ignore", "color"), "Did you mean 'colour'?"),
        (("-l", "zzz"), "Its columns are 'serial', 'size'"),
        (("-l", "verdict", "-i", "verdict"), "'verdict' is named twice"),
        (("-l", "verdict", "--anomaly-value", "bad"), "never occurs"),
        (("--anomaly-value", "bad"), "--label-column"),
        (("-l", "verdict", "--labels-csv", "x.csv"), "folder of pictures"),
        (
            ("-l", "verdict", *(x for name in ("size", "colour", "made", "checked") for x in ("--ignore", name))),
            "differs",
        ),
        (("-l", "verdict", "--method", "esda"), "Did you mean 'esad'?"),
        (("-l", "verdict", "--set", "n_epoch=3"), "Did you mean 'n_epochs'?"),
        (("-l", "verdict", "--set", "n_epochs"), "NAME=VALUE"),
        (("-l", "verdict", "--set", "n_epochs=many"), "n_epochs"),
        (("-l", "verdict", "--set", "hidden=5"), "`hidden` must be a list"),
        (("-l", "verdict", "--set", "random_state=-1"), "`random_state` must be"),
        (("-l", "verdict", "--set", "n_epochs=1", "--set", "n_epochs=2"), "--set n_epochs=1 and --set n_epochs=2"),
        (("-l", "verdict", "--members", 2, "--set", "n_members=3"), "--members 2 and --set n_members=3"),
        (("-l", "verdict", "--seed", 2, "--set", "random_state=3"), "--seed 2 and --set random_state=3"),
        (("-l", "verdict", "--device", "cpu", "--set", "device=cpu"), "--device cpu and --set device=cpu"),
        (
            ("-l", "verdict", "--contamination", 0.1, "--set", "contamination=0.2"),
            "--contamination 0.1 and --set contamination=0.2",
        ),
        (("-l", "verdict", "--false-alarm-rate", 0.2, "--set", "contamination=0.2"), "not several"),
        (("-l", "verdict", "--method", "iforest", "--members", 3), "no parameter 'n_members'"),
        (("-l", "verdict", "--method", "iforest", "--device", "cpu"), "no parameter 'device'"),
        (("-l", "verdict", "--device", "toaster"), "or one of several such as 'cuda:0'. Got 'toaster'.\n"),
        (("-l", "verdict", "--set", "device=meta"), "Got 'meta'."),
        (("-l", "verdict", "--members", 0), "--members"),
        (("-l", "verdict", "--seed", -1), "--seed"),
        (("-l", "verdict", "--seed", 2**32), "--seed"),
        (("-l", "verdict", "--contamination", 2), "0.5"),
        (("-l", "verdict", "--contamination", 0.1, "--false-alarm-rate", 0.1), "not several"),
        (("-l", "verdict", "--false-alarm-rate", 0.0001), "at least 9999"),
        (("--ignore", "verdict", "--threshold-from-labels"), "labelled anomaly"),
        (("-l", "verdict", "--lable-column", "verdict"), "Did you mean --label-column?"),
        (("-l", "verdict", "--ignore-column", "colour"), "Did you mean --ignore?"),
        (("-l",), "-l"),
        (("-l", "verdict", "another.csv"), "another.csv"),
    ],
)
def test_fit_options_that_cannot_be(refused, parts, tmp_path, options, words):
    assert words in refused("fit", parts, "--quiet", "--out", tmp_path / "m.esad", *options)


@pytest.mark.parametrize("out", ["no/m.esad", ".", "m.csv", "m.pkl", "/dev/full"])
def test_models_that_cannot_be_written_are_refused_before_the_training(refused, parts, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    assert f"{out!r}" in refused("fit", parts, "-l", "verdict", "--out", out)


def test_fit_needs_somewhere_to_write(refused, parts):
    assert "--out" in refused("fit", parts, "-l", "verdict")


@pytest.mark.parametrize("out", ["no/s.csv", ".", "s.txt", "s", "parts.csv", "link.csv"])
def test_scores_that_cannot_be_written(refused, model, parts, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.csv").symlink_to(parts)
    assert f"{out!r}" in refused("score", model, parts, "--out", out)


# All commands read a model by the same function: the others get one damaged file and one of another kind.
DAMAGES = ("missing", "folder", "empty", "garbage", "cut", "flipped", "pickle", "csv", "swapped")
DAMAGED = [("score", damage) for damage in DAMAGES]
DAMAGED += [(command, damage) for command in ("evaluate", "explain", "inspect") for damage in ("cut", "swapped")]


@pytest.mark.parametrize(("command", "damage"), DAMAGED)
def test_models_that_cannot_be_read(refused, model, parts, tmp_path, command, damage):
    path, content = tmp_path / "m.esad", model.read_bytes()
    if damage == "folder":
        path.mkdir()
    elif damage in ("csv", "swapped"):
        path = parts
    elif damage != "missing":
        flipped = bytes([*content[:200], content[200] ^ 1, *content[201:]])
        contents = {"empty": b"", "garbage": b"\0" * 999, "cut": content[:-1], "flipped": flipped}
        path.write_bytes(contents.get(damage, pickle.dumps({"model": 1})))
    rest = {"inspect": (), "evaluate": (parts, "--truth-column", "verdict")}.get(command, (parts,))
    rest = (model, *rest[1:]) if damage == "swapped" and rest else rest
    line = refused(command, path, *rest)
    assert path.name in line


@pytest.mark.parametrize("command", ["score", "evaluate"])
def test_missing_columns_are_named_with_the_nearest(refused, model, kit, tmp_path, command):
    header = [name.replace("colour", "color") for name in kit.header]
    data = kit.csv(tmp_path / "d.csv", header, kit.rows())
    line = refused(*(part.format(data=data, model=model, folder=tmp_path) for part in COMMANDS[command]))
    assert "'colour'" in line
    assert "Did you mean 'color'?" in line


@pytest.mark.parametrize("command", ["fit", "compare", "evaluate", "score"])
def test_options_of_tables_do_not_fit_pictures(refused, kit, model, tmp_path, command):
    folder = kit.pictures(tmp_path / "p", {"anomaly": 1, "normal": 1})
    line = refused(*(part.format(data=folder, model=model, folder=tmp_path) for part in COMMANDS[command]))
    assert "table" in line


def test_pictures_of_two_sizes(refused, kit, tmp_path):
    kit.pictures(tmp_path / "p", {"anomaly": 1})
    kit.pictures(tmp_path / "p", {"normal": 1}, size=20)
    assert "one size" in refused("fit", tmp_path / "p", "--out", tmp_path / "m.esad", "--resize", "none")


def test_sub_folders_with_other_names(refused, kit, tmp_path):
    kit.pictures(tmp_path / "p", {"monday": 2, "tuesday": 2, "normal": 1})
    fit = ("fit", tmp_path / "p", "--out", tmp_path / "m.esad")
    line = refused(*fit)
    assert "sub-folders" in line
    assert "Got 'monday', 'tuesday'." in line
    assert "--anomaly-value and --normal-value" in line
    assert "olumn" not in line
    assert "Got 'tuesday'." in refused(*fit, "--anomaly-value", "monday")
    assert "'friday' never occurs in 'sub-folder'" in refused(*fit, "--anomaly-value", "friday")


def test_one_single_picture(refused, kit, tmp_path):
    kit.pictures(tmp_path / "p", {"anomaly": 1})
    assert "it holds 1 picture." in refused("fit", tmp_path / "p", "--out", tmp_path / "m.esad")


@pytest.mark.parametrize(
    ("method", "settings", "blamed", "spared"),
    [
        ("esad", ("contamination=null", "n_epochs=1"), "contamination", "n_epochs"),
        ("iforest", ("n_trees=many", "contamination=0.2"), "`n_trees` must be", "contamination"),
    ],
)
def test_only_the_setting_that_fails_is_blamed(refused, parts, tmp_path, method, settings, blamed, spared):
    options = [word for setting in settings for word in ("--set", setting)]
    line = refused("fit", parts, "-l", "verdict", "--quiet", "-o", tmp_path / "m.esad", "-m", method, *options)
    assert blamed in line
    assert spared not in line


def test_the_library_speaks_of_options(refused, parts, model, kit, tmp_path):
    said = refused("compare", parts, "-l", "verdict", "-i", "serial", "-m", "iforest", "--test-size", 2)
    assert said == "error: --test-size must be between 0 and 1. Got 2.0.\n"
    new = kit.csv(tmp_path / "new.csv", kit.header, kit.rows(seed=1))
    assert "--pollution-ratio must be" in refused(
        "calibrate", model, new, "-o", tmp_path / "c.esad", "--pollution-ratio", 1
    )


@pytest.mark.parametrize(
    ("message", "blamed"),
    [
        ("matrices do not fit", "one of n_trees=5, n_samples=9"),
        ("cannot draw 9 of 5 rows", "one of n_trees=5, n_samples=9"),
        ("cannot draw 9 of 55 rows", "n_samples=9"),
        ("n_trees: too few", "n_trees=5"),
    ],
)
def test_what_a_method_does_not_explain_is_blamed_on_what_it_names(
    refused, parts, tmp_path, monkeypatch, message, blamed
):
    from esad.methods.iforest import IsolationForest

    def fail(*args, **kwargs):
        raise ValueError(message)

    monkeypatch.setattr(IsolationForest, "_fit_rows", fail)
    options = ("-m", "iforest", "--quiet", "--set", "n_trees=5", "--set", "n_samples=9")
    line = refused("fit", parts, "-l", "verdict", "-o", tmp_path / "m.esad", *options)
    assert f"cannot use {blamed}: {message}.\n" in line


@pytest.mark.parametrize(
    ("rate", "members", "words"),
    [
        (0.05, 1, ("needs at least 19", "Got 5.", "5 of 57 with 1 member. --members 4 would do.")),
        (0.02, 2, ("needs at least 49", "Got 10.", "10 of 57 with 2 members. --members 10 would do.")),
        (0.001, 2, ("needs at least 999", "Got 10.", "10 of 57 with 2 members.\n")),
        (0.02, None, ("needs at least 49", "25 of 57 with 5 members. --members 10 would do.")),
    ],
)
def test_a_rate_for_which_too_few_rows_are_held_out(refused, parts, tmp_path, monkeypatch, rate, members, words):
    from esad.methods.esad import ESAD

    monkeypatch.setattr(ESAD, "_fit_rows", lambda *args, **kwargs: pytest.fail("the training began"))
    options = () if members is None else ("--members", members)
    line = refused(
        "fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", "--false-alarm-rate", rate, *options
    )
    for word in words:
        assert word in line


def test_rates_are_refused_exactly_when_training_would(esad, parts, kit, tmp_path):
    fit = ("fit", parts, "-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", "--json", *kit.tiny)
    for members, n_held_out in ((3, 15), (4, 20)):
        options = ("--members", members, "--false-alarm-rate")
        assert esad(*fit, *options, 1 / (n_held_out + 2)).code == 2
        assert not (tmp_path / "m.esad").exists()
        assert esad(*fit, *options, 1 / (n_held_out + 1)).code == 0
        (tmp_path / "m.esad").unlink()
    few = kit.csv(tmp_path / "few.csv", kit.header, kit.rows(15))
    options = ("-l", "verdict", "-i", "serial", "-o", tmp_path / "m.esad", "--quiet", *kit.tiny)
    assert esad("fit", few, *options, "--false-alarm-rate", 0.1).code == 0  # too few to hold out: all rows count


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("scor",), "Did you mean 'score'?"),
        (("--vrsion",), "Did you mean --version?"),
        (("methods", "--jsn"), "Did you mean --json?"),
        (("inspect",), "MODEL"),
        (("data", "sav"), "Did you mean 'save'?"),
        (("compare", "x.csv", "--methods", "iforst"), "Did you mean 'iforest'?"),
        (("compare", "x.csv", "--methods", ","), "--methods"),
        (("score", "m.esad", "x.csv", "--top", "many"), "--top"),
        (("data", "save", "digits", "--out", "d", "--normal-class", 10), "--normal-class must be one of"),
    ],
)
def test_typing_mistakes_get_the_nearest_word(refused, args, words):
    assert words in refused(*args)


def test_a_working_folder_that_is_gone_is_named(refused, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "The folder that you are in was deleted" in refused("methods")


def test_a_data_file_cannot_steer_the_terminal(esad, kit, tmp_path):
    name = "x\x1b[31m[bold]:smile:"
    data = kit.csv(tmp_path / "d.csv", [name, "y\nz"], [[row, row % 5] for row in range(30)])
    done = esad("fit", data, "--method", "iforest", "-o", tmp_path / "m.esad")
    assert done.code == 0
    assert "\x1b" not in done.out + done.err
    assert "[bold]:smile:" in done.out
    assert "\x1b" not in esad("inspect", tmp_path / "m.esad").out
