"""`esad score` on many files: into a folder, told in a few lines, mistakes in one."""

import json

import pytest

ROLES = ("--id-column", "serial")


@pytest.fixture
def folder(kit, tmp_path):
    for part in range(3):
        path = tmp_path / "in" / f"part-{part}.csv"
        path.parent.mkdir(exist_ok=True)
        kit.csv(path, kit.header, kit.rows(seed=part)[part:])
    return tmp_path / "in"


@pytest.mark.parametrize("given", ["folder", "pattern", "files"])
def test_many_files_give_a_folder_with_the_scores_of_each(esad, model, folder, tmp_path, given):
    files = sorted(folder.iterdir())
    data = {"folder": [folder], "pattern": [folder / "part-*.csv"], "files": files}[given]
    done = esad("score", model, *data, "--out", tmp_path / "out", "--jobs", 1)
    assert (done.code, done.err) == (0, "")
    assert "3 of 3 files scored.\n177 rows, " in done.out
    for path in files:
        single = esad("score", model, path, "--out", tmp_path / "single.csv")
        assert single.code == 0
        assert (tmp_path / "out" / path.name).read_text() == (tmp_path / "single.csv").read_text()
    again = esad("score", model, *data, "--out", tmp_path / "out", "--jobs", 1)
    assert "3 of 3 files scored, 3 of them by an earlier run." in again.out


def test_one_file_with_an_engine_is_one_shard(esad, model, parts, tmp_path):
    done = esad("score", model, parts, "--out", tmp_path / "out", "--engine", "local", "--format", "parquet", "--json")
    assert (done.code, done.err) == (0, "")
    assert (done.json["n_shards"], done.json["n_rows"], done.json["failures"]) == (1, 60, [])
    assert (tmp_path / "out" / "parts.parquet").is_file()


def test_a_bad_file_is_told_and_the_exit_code_says_so(esad, model, folder, kit, tmp_path):
    table = kit.rows()
    table[50][1] = "wide"
    kit.csv(folder / "part-1.csv", kit.header, table)
    done = esad("score", model, folder, "--out", tmp_path / "out", "--jobs", 1)
    assert done.code == 1
    assert "2 of 3 files scored." in done.out
    assert "warning: part-1.csv is set aside: " in done.err
    assert "'wide' in line 52" in done.err
    assert done.err.endswith("error: 1 file could not be scored. The same command tries again.\n")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["_esad", "part-0.csv", "part-2.csv"]
    summary = json.loads((tmp_path / "out" / "_esad" / "summary.json").read_text())
    assert [failure["shard"] for failure in summary["failures"]] == ["part-1.csv"]
    kit.csv(folder / "part-1.csv", kit.header, kit.rows())
    again = esad("score", model, folder, "--out", tmp_path / "out", "--jobs", 1, "--json")
    assert (again.code, again.json["n_there"], again.json["n_scored"]) == (0, 2, 3)


def test_what_is_odd_about_files_is_said_once(esad, model, kit, tmp_path):
    (tmp_path / "in").mkdir()
    for part in range(3):
        header, rows = [*kit.header[1:], "shift"], [[*row[1:], 1] for row in kit.rows(seed=part)]
        kit.csv(tmp_path / "in" / f"{part}.csv", header, rows)
    done = esad("score", model, tmp_path / "in", "--out", tmp_path / "out", "--jobs", 1)
    assert done.err == (
        "warning: columns that were not in training are ignored: 'shift'.\n"
        "note: 3 files without the id column 'serial': rows are numbered from 0.\n"
    )
    (tmp_path / "in" / "2.csv").unlink()
    done = esad("score", model, tmp_path / "in", "--out", tmp_path / "out", "--jobs", 1)
    assert "the folder also has scores of files that are not among these: '2.csv'" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--jobs", "1"], "Many files are scored into a folder. Give it with --out FOLDER."),
        (["--out", "out", "--top", "3"], "--top is for one file."),
        (["--out", "out", "--fdr", "0.1"], "--fdr needs p-values, and the model has no calibration."),
        (["--out", "out", "--engine", "dask"], "The engine must be one of local, ray. Got 'dask'."),
        (["--out", "out", "--engine", "local", "--ray-address", "h:1"], "--ray-address is for --engine ray."),
        (["--out", "out", "--format", "json"], "The format must be one of csv, parquet, xlsx. Got 'json'."),
        (["--out", "in"], "it is a file being read"),
        (["--out", "in/part-0.csv"], "it is a file. Scores of shards need a folder."),
        (["--out", "out", "--id-column", "no"], "has no column 'no'"),
    ],
)
def test_mistakes_are_one_line(esad, model, folder, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    done = esad("score", model, "in", *words, *([] if "--jobs" in words else ["--jobs", "1"]))
    assert done.code == (1 if "no" in words else 2)
    assert said in done.err
    assert done.out == "" or done.code == 1
    if done.code == 2:
        assert done.err.count("\n") == 1
        assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def test_a_pattern_that_matches_nothing_is_one_line(esad, model, tmp_path):
    done = esad("score", model, tmp_path / "part-*.csv", "--out", tmp_path / "out")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "No table matches" in done.err


def test_a_model_of_pictures_has_no_shards(esad, kit, tmp_path):
    pictures = kit.pictures(tmp_path / "p", {"unlabelled": 8})
    fit = ("fit", pictures, "--out", tmp_path / "m.esad", "--quiet", "--method", "autoencoder", "--set", "n_epochs=1")
    assert esad(*fit).code == 0
    done = esad("score", tmp_path / "m.esad", pictures, "--out", tmp_path / "out", "--engine", "local")
    assert done.code == 2
    assert "the model was trained on pictures" in done.err


def test_a_missing_ray_is_told_with_what_to_install(esad, model, folder, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    done = esad("score", model, folder, "--out", tmp_path / "out", "--engine", "ray")
    assert done.code == 2
    assert "pip install '.[ray]'" in done.err
